%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} breaks=${COMP_WORDBREAKS//[^:=]/} prefix="" word type value help
    word=${line##*[[:space:]]}
    if [[ -n $breaks && $word == *[$breaks]* ]]; then prefix=${word%%"${word##*[$breaks]}"}; fi
    COMPREPLY=()
    while IFS=$'\t' read -r type value help; do
        case $type in
            plain) COMPREPLY+=("${value#"$prefix"}") ;;
            file) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word") ;;
            dir) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$word") ;;
        esac
    done < <(COMP_LINE=$line %(complete_var)s=bash_complete "$1" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o nosort -F %(complete_func)s %(prog_name)s

#compdef %(prog_name)s
%(complete_func)s() {
    local type value help
    local -a plain described open
    while IFS=$'\t' read -r type value help; do
        case $type in
            plain)
                if [[ $value == *= ]]; then open+=("$value")
                elif [[ -n $help ]]; then described+=("${value//:/\\:}:$help")
                else plain+=("$value"); fi ;;
            file) _files ;;
            dir) _files -/ ;;
        esac
    done < <(COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" %(complete_var)s=zsh_complete "$words[1]" 2>/dev/null)
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
    (( $#open )) && compadd -U -S '' -V unsorted -a open
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi

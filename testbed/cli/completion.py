"""`testbed completion`: scripts with which shells complete the command line, and the responses to the scripts.

click's scripts handle neither words with `:` and `=`, at which bash splits, nor `KEY=`, which nothing follows.
"""

import os
from typing import ClassVar

import click
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

VARIABLE = "_TESTBED_COMPLETE"
"""Environment variable that makes main complete instead of run, as in click."""
BASH = r"""
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
"""
ZSH = r"""#compdef %(prog_name)s
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
"""
FISH = r"""function %(complete_func)s
    set -l words (commandline -opc)
    set -lx COMP_LINE (commandline -cp | string collect)
    for line in (%(complete_var)s=fish_complete $words[1] 2>/dev/null)
        set -l parts (string split \t -- $line)
        switch $parts[1]
            case plain
                string join \t -- $parts[2..]
            case file
                __fish_complete_path (commandline -ct)
            case dir
                __fish_complete_directories (commandline -ct)
        end
    end
end
complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class Shell(ShellComplete):
    """A shell whose script passes the line up to the cursor in COMP_LINE."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        last = "" if line[-1:].isspace() else words.pop()
        return words[1:], last

    def format_completion(self, item: CompletionItem[str]) -> str:
        return "\t".join((item.type, item.value, item.help or ""))


class Bash(Shell):
    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = BASH.lstrip()


class Zsh(Shell):
    name: ClassVar[str] = "zsh"
    source_template: ClassVar[str] = ZSH


class Fish(Shell):
    name: ClassVar[str] = "fish"
    source_template: ClassVar[str] = FISH


SHELLS = {kind.name: kind for kind in (Bash, Zsh, Fish)}
for kind in SHELLS.values():
    add_completion_class(kind)


@click.command(
    help="""Print the script with which a shell completes this command: names of labs, nodes, interfaces, scenarios,
    faults and so on.

    \b
    bash   source <(testbed completion bash)              in ~/.bashrc
    zsh    source <(testbed completion zsh)               in ~/.zshrc, behind compinit
    fish   testbed completion fish > ~/.config/fish/completions/testbed.fish"""
)
@click.argument("shell", type=click.Choice([*SHELLS]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    click.echo(SHELLS[shell](context.find_root().command, {}, "testbed", VARIABLE).source(), nl=False)

"""`testbed completion`: scripts with which shells complete the command line, and the responses to the scripts.

click's scripts handle neither words with `:` and `=`, at which bash splits, nor `KEY=`, which nothing follows.
"""

import os
from importlib import resources

import click
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

VARIABLE = "_TESTBED_COMPLETE"
"""Environment variable that makes main complete instead of run, as in click."""


class Shell(ShellComplete):
    """A shell whose script passes the line up to the cursor in COMP_LINE."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        last = "" if line[-1:].isspace() else words.pop()
        return words[1:], last

    def format_completion(self, item: CompletionItem[str]) -> str:
        return "\t".join((item.type, item.value, item.help or ""))


def shell(name: str) -> type[Shell]:
    """Return the shell whose script is `completion.<name>`."""
    script = resources.files(__package__).joinpath(f"completion.{name}").read_text()
    return type(name, (Shell,), {"name": name, "source_template": script})


SHELLS = {name: add_completion_class(shell(name)) for name in ("bash", "zsh", "fish")}


@click.command(
    help="""Print the script for shell completion: names of labs, nodes, interfaces, scenarios, faults and so on.
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

"""`embexp completion`, and `embexp run -sc` as in Hydra: completion of the command line in bash, zsh and fish."""

from __future__ import annotations

import os
from collections.abc import Sequence

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, print
from embexp.errors import CommandLineError
from embexp.system import printable

USAGE = "embexp completion bash|zsh|fish"

HELP = f"""\
usage: {USAGE}

Prints the script that completes commands, options, groups, choices, keys and values of embexp in a shell. Add its line
to the start-up file of your shell:

    bash    eval "$(embexp completion bash)"
    zsh     eval "$(embexp completion zsh)"        (after compinit)
    fish    embexp completion fish | source

Hydra's form works too: eval "$(embexp run -sc install=bash)", and -sc uninstall=bash.
"""

_BASH = """\
_embexp_completion()
{
    local line=${COMP_LINE:0:COMP_POINT} word broken="" candidate index
    word=${line##*[[:space:]]}
    case $word in
        [\\"\\']*) broken=${word:0:1} ;;
        *)
            # Bash breaks words at = and @, and replaces only what follows the last break.
            for ((index = ${#word} - 1; index >= 0; index--)); do
                if [[ $COMP_WORDBREAKS == *"${word:index:1}"* ]]; then
                    broken=${word:0:index+1}
                    break
                fi
            done
            ;;
    esac
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("${candidate#"$broken"}")
    done < <(COMP_LINE=$line COMP_POINT=${#line} "${COMP_WORDS[0]/#\\~/$HOME}" -sc query=bash 2> /dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} != *[=./] ]]; then
        compopt +o nospace 2> /dev/null
    fi
}
complete -o nospace -o default -F _embexp_completion embexp
"""

_ZSH = """\
_embexp_completion()
{
    local -a candidates complete partial
    candidates=("${(@f)$(COMP_LINE=$LBUFFER COMP_POINT=${#LBUFFER} ${words[1]} -sc query=zsh 2> /dev/null)}")
    complete=(${candidates:#*[=./]})
    partial=(${(M)candidates:#*[=./]})
    compadd -Q -- $complete
    compadd -Q -S '' -- $partial
}
compdef _embexp_completion embexp
"""

_FISH = """\
function _embexp_completion
    set -l words (commandline -opc)
    set -lx COMP_LINE (commandline -cp)
    set -lx COMP_POINT (string length -- $COMP_LINE)
    $words[1] -sc query=fish 2> /dev/null
end
complete -c embexp -f -a '(_embexp_completion)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_UNINSTALL = {
    "bash": "complete -r embexp\nunset -f _embexp_completion\n",
    "zsh": "compdef -d embexp\nunfunction _embexp_completion\n",
    "fish": "complete -c embexp -e\nfunctions -e _embexp_completion\n",
}


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `completion`.
    """
    parser = Parser("completion", USAGE)
    parser.add_argument("shell", nargs="?")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if options.shell not in _SCRIPTS:
        which = "for which shell?" if options.shell is None else f"there is no script for {options.shell}"
        raise parser.incomplete(which)
    print(_SCRIPTS[options.shell], end="")
    return DONE


def shell_completion(arguments: Sequence[str]) -> int:
    """Answers `-sc`, as Hydra does: `install=SHELL`, `uninstall=SHELL`, `query=SHELL`.

    A query reads the command line from the variables COMP_LINE and COMP_POINT, and prints a candidate per line.

    Args:
        arguments: those beside `-sc`.

    Raises:
        CommandLineError: it is none of these three.
    """
    action, _, shell = (arguments[0] if len(arguments) == 1 else "").partition("=")
    if action not in ("install", "uninstall", "query") or shell not in _SCRIPTS:
        raise CommandLineError(
            "-sc takes one of install=SHELL, uninstall=SHELL and query=SHELL; SHELL is bash, zsh or fish"
        )
    match action:
        case "install":
            print(_SCRIPTS[shell], end="")
        case "uninstall":
            print(_UNINSTALL[shell], end="")
        case _:
            if (line := os.environ.get("COMP_LINE")) is None:
                raise CommandLineError("-sc query reads the command line from the variable COMP_LINE, which is not set")
            from embexp.cli.candidates import candidates

            point = os.environ.get("COMP_POINT", "")
            printable.write_data("\n".join([*candidates(line[: int(point)] if point.isdecimal() else line), ""]))
    return DONE

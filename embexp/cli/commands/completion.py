"""`embexp completion`, and `embexp -sc`, which its scripts call: completion of the command line in bash, zsh and fish.

Imports neither Hydra nor pydantic.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import COMMANDS, DONE, module_of
from embexp.errors import CommandLineError, ConfigError
from embexp.system import printable, user_code
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.config.folders import Folders, Outline

HELP = """\
usage: embexp completion bash|zsh|fish

Prints a script that completes embexp's commands, options, groups, choices, keys and values in your shell. Add the line
for your shell to its start-up file:

    bash    eval "$(embexp completion bash)"
    zsh     eval "$(embexp completion zsh)"        (after compinit)
    fish    embexp completion fish | source
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
_COMPOSING = ("run", "plan")
"""Commands whose arguments are overrides."""
_SHORT = {"-cd": "--config-dir", "-cp": "--config-path", "-cn": "--config-name", "-c": "--cfg", "-p": "--package"}
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_SPECIAL = re.compile(r"""[\s$`"'\\;&|<>(){}\[\]*?!#^]""")
"""Characters that a shell obeys outside of quotes."""
_ENDING = {"'": "'", '"': '"$`\\!'}
"""Characters that end quotes, or that a shell obeys in them."""
_PATH = ("/", "./", "../", "~/", ".")
_ZIP = "zip("


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("completion", HELP)
    parser.needs("shell", "for which shell?")
    options = parser.parse(arguments)
    if options.shell not in _SCRIPTS:
        raise parser.incomplete(f"there is no script for {options.shell}")
    print(_SCRIPTS[options.shell], end="")
    return DONE


def shell_completion(arguments: Sequence[str]) -> int:
    """Answers `-sc query=SHELL`: a candidate per line for the command line in the variables COMP_LINE and COMP_POINT.

    Raises:
        CommandLineError: the arguments are others.
    """
    action, _, shell = (arguments[0] if len(arguments) == 1 else "").partition("=")
    if action != "query" or shell not in _SCRIPTS:
        raise CommandLineError("-sc takes query=SHELL, bash, zsh or fish: it is for the scripts of `embexp completion`")
    if (line := os.environ.get("COMP_LINE")) is None:
        raise CommandLineError("-sc query reads the command line from the variable COMP_LINE, which is not set")
    point = os.environ.get("COMP_POINT", "")
    found = candidates(line[: int(point)] if point.isdecimal() else line)
    printable.write_data("\n".join([*filter(None, (typed(each, shell) for each in found)), ""]))
    return DONE


def typed(candidate: str, shell: str) -> str:
    """A candidate as it is typed, so that the shell runs nothing in it; "" if it can't be typed.

    Names of files and choices may come from anybody. Fish quotes candidates by itself.
    """
    if not candidate.isprintable():
        return ""
    if shell == "fish":
        return candidate
    if (quote := candidate[:1]) in _ENDING:
        return "" if set(candidate[1:]) & set(_ENDING[quote]) else candidate
    return _SPECIAL.sub(r"\\\g<0>", candidate)


def candidates(line: str) -> list[str]:
    """The words that the last word of a line may become; none where only a name of the user's would fit.

    Args:
        line: the command line up to the cursor. The last word may be empty.
    """
    words = line.split()
    word = words.pop() if words and not line[-1:].isspace() else ""
    quote = word[:1] if word[:1] in ("'", '"') else ""
    found = _candidates(words[1:], word.removeprefix(quote))
    return sorted({f"{quote}{each}" for each in found if each.startswith(word.removeprefix(quote))})


def _candidates(before: Sequence[str], word: str) -> Iterable[str]:
    if not before and (commands := [each for each in COMMANDS if each.startswith(word)]):
        return commands
    command, *before = before if before and before[0] in COMMANDS else ("run", *before)
    module = module_of(command)
    text = module.HELP
    if not before and hasattr(module, "ACTIONS"):
        return [*module.ACTIONS, "--help"]
    if hasattr(module, "SUBCOMMANDS"):
        if not before:
            return [*module.SUBCOMMANDS, "--help"]
        if before[0] in module.SUBCOMMANDS:
            _, text = module.subcommand(before[0])
    if word.startswith("-"):
        return {*_OPTION.findall(text), "--help"}
    if before and (choices := re.search(rf"[\[ ]{re.escape(before[-1])} ([\w-]+(?:\|[\w-]+)+)", text)):
        return choices[1].split("|")
    if command == "check":
        experiments = (each.removeprefix("experiment=") for each in _overrides(before, f"experiment={word}"))
        return [*_overrides(before, word), *experiments, *files(word)]
    return _overrides(before, word) if command in _COMPOSING else files(word)


def _overrides(before: Sequence[str], word: str) -> Iterable[str]:
    """The values of options, and overrides."""
    options: dict[str, str] = {}
    for option, following in itertools.pairwise([*before, ""]):
        name, equals, given = option.partition("=")
        options[_SHORT.get(name, name)] = given if equals else following
    last = _SHORT.get(before[-1], before[-1]) if before else ""
    if last == "--cfg":
        return ["job", "hydra", "all"]
    if last in ("--config-dir", "--config-path"):
        return [file for file in files(word) if file.endswith("/")]
    folders, found = _composed(before, options)
    if last == "--config-name":
        return [path.stem for folder in folders.in_order for path in folder.glob("*.yaml")]
    if last == "--package":
        return [each.removesuffix(".") for each in _keys(found.values, word)]
    if word.startswith(_ZIP):
        return _in_zip(folders, found, word.removeprefix(_ZIP))
    sign = word[: len(word) - len(word.lstrip("+~"))]
    key, equals, value = word.removeprefix(sign).partition("=")
    if equals:
        return [f"{sign}{key}={each}" for each in _values(folders, found, key, value)]
    keys = [f"{group}=" for group in _groups(folders, found, adding=sign.startswith("+"))]
    for path in _keys({**found.values, "hydra": _hydra(found.values.get("hydra"))}, key):
        keys += [path] if path.endswith(".") else [f"{path}="]
        keys += [path.removesuffix(".")] if sign == "~" else []
    keys += [_ZIP] if not sign and {"-m", "--multirun"} & {*before} else []
    return [f"{sign}{each.removesuffix('=') if sign == '~' else each}" for each in keys]


def _in_zip(folders: Folders, found: Outline, word: str) -> Iterable[str]:
    """The keys of `zip(model,optimizer)=[mlp,sgd],[dlrm,adam]`, and the values in its lists: of the last, each time."""
    names, ended, value = word.partition(")=")
    if not ended:
        before, last = names[: names.rfind(",") + 1], names[names.rfind(",") + 1 :]
        adding = last.startswith("+")
        keys = [*_groups(folders, found, adding=adding), *_keys(found.values, last.lstrip("+"))]
        return [f"{_ZIP}{before}{'+' * adding}{each}" for each in keys]
    start = value.rfind("[") + 1
    place, keys = value[start:].count(","), names.split(",")
    if not start or "]" in value[start:] or place >= len(keys):
        return []
    start = max(start, value.rfind(",") + 1)
    values = _values(folders, found, keys[place].lstrip("+"), value[start:])
    return [f"{_ZIP}{names})={value[:start]}{each}" for each in values]


def _composed(words: Sequence[str], options: Mapping[str, str]) -> tuple[Folders, Outline]:
    """The folders of configs, and the config that the words of a command line compose so far."""
    from embexp.config import patterns
    from embexp.config.folders import find, outline, take_in_fields

    user = options.get("--config-dir")
    try:
        folders = find(Path(user) if user else None, config_path=options.get("--config-path"))
    except CommandLineError:
        folders = find()
    given = [word.strip("'\"").replace("\\", "") for word in words]
    with contextlib.suppress(ConfigError):
        folders = take_in_fields(folders, options.get("--config-name", "config"), given, _refusal(folders))
    pairs = (word.strip("'\"").lstrip("+").partition("=") for word in words if not word.startswith("-"))
    chosen = {key: value.partition(",")[0] for key, _, value in pairs if folders.is_group(key.partition("@")[0])}
    found = outline(folders, options.get("--config-name", "config"), chosen)
    if not patterns.has_globs(found.values):  # the data is not read for a completion
        patterns.expand(found.values, list)
    return folders, found


def _refusal(folders: Folders) -> Callable[[str], str]:
    """Why a field's code is not run for a completion: it is not of the user's own modules."""
    return lambda path: user_code.foreign(path) or user_code.within(path, folders.in_order)


def _values(folders: Folders, found: Outline, key: str, value: str) -> Iterable[str]:
    """The values that a key may have; of several, separated by commas, those of the last."""
    from embexp.config.folders import at

    earlier, group, present = value[: value.rfind(",") + 1], key.partition("@")[0], at(found.values, key)
    places = [folder / group for folder in folders.in_order] if group else []
    known = {path.relative_to(place).with_suffix("").as_posix() for place in places for path in place.rglob("*.yaml")}
    if group in ("hydra/job_logging", "hydra/hydra_logging"):
        known |= {"none", "default", "disabled"}
    if group == "hydra/sweeper":
        known.add("basic")
    if not known and value.startswith(_PATH):
        return files(value)
    if key == "data.fetch":
        from embexp.data import datasets

        kind = at(found.values, "data.kind")
        known = {name for name, data in datasets.DATA_SETS.items() if kind in data.kinds}
    elif isinstance(present, bool):
        known = {"true", "false"}
    elif not known and isinstance(present, int | float | str) and not re.search(r"\s|\$\{|\?{3}", str(present)):
        known = {str(present)}
    return [f"{earlier}{each}" for each in known]


def _groups(folders: Folders, found: Outline, *, adding: bool) -> Iterable[str]:
    """What a choice can be made for: the groups of the config, or with + those that it does not have."""
    if adding:
        return [group for group in folders.choices if group not in found.choices]
    made = [choice.removeprefix("override ") for choice in found.choices]
    return [*made, *(f"hydra/{each}" for each in ("launcher", "sweeper", "job_logging", "hydra_logging"))]


def _hydra(values: Any) -> dict[str, Any]:
    """The settings of Hydra that have an effect, as nested mappings, over those of the files."""
    from embexp.config import hydra_settings

    node: dict[str, Any] = copy.deepcopy(values) if isinstance(values, dict) else {}
    for setting in hydra_settings.SETTINGS:
        if setting.use is not hydra_settings.Use.NEVER:
            inner = node
            *parents, last = setting.path.split(".")[1:]
            for key in parents:
                inner = inner.setdefault(key, {})
            inner.setdefault(last, {} if setting.is_node else None)
    return node


def _keys(values: dict[str, Any], word: str) -> Iterator[str]:
    """The keys at the level of the word's last dot; those of nodes end with a dot."""
    from embexp.config.folders import at

    path, dot, _ = word.rpartition(".")
    node = at(values, path)
    for key, value in node.items() if isinstance(node, Mapping) else ():
        if key not in ("kind", "_target_"):  # a choice of the group sets it
            yield f"{path}{dot}{key}{'.' if isinstance(value, Mapping) else ''}"


def files(word: str) -> Iterator[str]:
    """The paths that a path may become; folders end with a slash."""
    folder, name = os.path.split(word)
    shown = f"{folder.rstrip('/')}/" if folder else ""
    try:
        entries = list(os.scandir(os.path.expanduser(folder) or "."))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
            yield f"{shown}{entry.name}{'/' if entry.is_dir() else ''}"

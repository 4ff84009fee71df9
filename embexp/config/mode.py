"""Whether a command line asks for a single run or for a sweep: by -m, or by `hydra.mode`. Needs no Hydra."""

from __future__ import annotations

from collections.abc import Sequence

from embexp.config.folders import Folders
from embexp.config.outline import outline
from embexp.errors import CommandLineError

_MODE = "hydra.mode"
RUN, MULTIRUN = "RUN", "MULTIRUN"


def is_multirun(folders: Folders, config_name: str, overrides: Sequence[str], *, flag: bool | None) -> bool:
    """Whether to run a sweep.

    Args:
        folders: the config folders.
        config_name: the primary config.
        overrides: of the command line.
        flag: True for -m, False for --run, None for neither.

    Raises:
        CommandLineError: the option and `hydra.mode` contradict each other.
    """
    pairs = [text.lstrip("+").partition("=") for text in overrides]
    given = [value.strip("'\"") for key, _, value in pairs if key == _MODE]
    if given:
        mode, source = given[-1], "the command line"
    else:
        chosen = {key: value for key, _, value in pairs if folders.is_group(key.partition("@")[0])}
        mode, source = outline(folders, config_name, chosen).at(_MODE), "a file"
    if mode not in (RUN, MULTIRUN):  # null, or a fault that composing reports
        return bool(flag)
    if flag is not None and flag != (mode == MULTIRUN):
        option = "-m" if flag else "--run"
        raise CommandLineError(f"{option} contradicts {_MODE}={mode}, set in {source}: leave one of them out")
    return mode == MULTIRUN

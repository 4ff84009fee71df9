"""Addresses on a network that a record names: a tracker's server, a TPU, the database of a search.

The record of a run may come from anybody, and what resumes or repeats it would send data, and the user's credentials,
to the addresses that it names. So the user names them, too, by the environment variable of the tracker, the TPU or
Optuna, which no config sets. This machine's own addresses need no word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from embexp.errors import ConfigError, Fault
from embexp.specs.run import RunSpec
from embexp.specs.strategies import TPU
from embexp.specs.tracking import MLflow, WandB, WandbMode, scheme_of

MLFLOW = "MLFLOW_TRACKING_URI"
_WANDB = "WANDB_MODE"
_OPTUNA = "OPTUNA_STORAGE"
_TPU = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
_HERE = re.compile(r"(https?|grpc)://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?(/[\w./~%-]*)?")
"""Addresses of this machine, in their plain form: what is before an @ or a \\ may look like one."""
_FILES = ("", "file", "sqlite")
_RULE = "a record may come from somebody else, and this connects to another machine"


def faults(spec: RunSpec, source: str = "") -> Iterator[Fault]:
    """The addresses of a recorded spec that the user has not named.

    Args:
        spec: recorded.
        source: the file that it is from.
    """
    tracking, strategy = spec.tracking, spec.strategy
    if isinstance(tracking, MLflow) and tracking.uri is not None and is_elsewhere(tracking.uri):
        yield Fault("tracking.uri", repr(tracking.uri), _RULE, remedy(MLFLOW), source)
    if isinstance(tracking, WandB) and tracking.mode is WandbMode.ONLINE and os.environ.get(_WANDB) != "online":
        rule = "a record may come from somebody else, and this sends the run to Weights & Biases"
        yield Fault("tracking.mode", "'online'", rule, f"if you want that, set {_WANDB}=online", source)
    if isinstance(strategy, TPU) and strategy.address not in (None, "local", *map(os.environ.get, _TPU)):
        address = str(strategy.address)
        if not all(map(_HERE.fullmatch, address.split(","))):
            yield Fault("strategy.address", repr(address), _RULE, remedy(_TPU[0]), source)


def check(specs: Iterable[RunSpec], source: Path) -> None:
    """Checks that the user has named the addresses of recorded specs.

    Args:
        specs: recorded.
        source: the file that they are from.

    Raises:
        ConfigError: one is not named.
    """
    if found := list(dict.fromkeys(fault for spec in specs for fault in faults(spec, str(source)))):
        raise ConfigError(found)


def storage_faults(storage: str | None) -> Iterator[Fault]:
    """The address of the database of a recorded search, if the user has not named it.

    Args:
        storage: a URL or a path of a file, as Optuna takes it.
    """
    if storage is not None and scheme_of(storage) not in _FILES and storage != os.environ.get(_OPTUNA):
        yield Fault("hydra.sweeper.storage", repr(storage), _RULE, remedy(_OPTUNA))


def is_elsewhere(uri: str) -> bool:
    """Whether a recorded store of MLflow is on another machine, and not the one that the user has named."""
    if uri.rstrip("/") == os.environ.get(MLFLOW, "").rstrip("/"):
        return False
    return scheme_of(uri) not in _FILES and _HERE.fullmatch(uri) is None


def remedy(variable: str) -> str:
    """What to do about an address."""
    return f"if you trust that address, set the environment variable {variable} to it"

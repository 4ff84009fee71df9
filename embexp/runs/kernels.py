"""The kernels that a run was computed with, for commands that compute with it again. Imports no TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embexp.errors import EmbexpError
from embexp.records.folder import RunFolder
from embexp.system import environment, machine


@dataclass(frozen=True)
class Kernels:
    """What decides the last bits of what TensorFlow computes, beside the values.

    Attributes:
        onednn: whether the run used oneDNN's kernels, whichever this machine prefers; None: it is not known.
        pieces: into how many its operations were cut, see `machine.pieces`; None: it is not known.
        portable: whether they were those of every processor with AVX2, see `machine.portable_flags`.
    """

    onednn: bool | None = None
    pieces: int | None = None
    portable: bool = False

    @staticmethod
    def of_manifest(manifest: Mapping[str, Any], *, portable: bool) -> Kernels:
        """Those that a manifest records; what it lacks, or has of another type, is not known."""
        recorded = manifest.get("kernels")
        recorded = recorded if isinstance(recorded, dict) else {}
        onednn, pieces = recorded.get("onednn"), recorded.get("pieces")
        return Kernels(
            onednn if isinstance(onednn, bool) else None,
            pieces if type(pieces) is int and 0 < pieces <= machine.MOST_PIECES else None,
            portable,
        )

    @staticmethod
    def of_run(folder: RunFolder) -> Kernels:
        """Those of a run, by its spec and its manifest.

        Raises:
            NotARunError: the folder holds no run.
            DataError: its spec or its manifest can't be read.
        """
        strategy = folder.recorded_spec().strategy
        manifest = folder.read_manifest() if folder.manifest.exists() else {}
        found = Kernels.of_manifest(manifest, portable=strategy.portable)
        if found.pieces is not None or not strategy.wanted_pieces:
            return found
        return Kernels(found.onednn, strategy.wanted_pieces, found.portable)

    def load_tensorflow(self) -> None:
        """Loads TensorFlow with these kernels; where it is loaded already, nothing changes."""
        environment.load_tensorflow(onednn=self.onednn, portable=self.portable)

    def repeat_pieces(self) -> None:
        """Has the runs of this process cut their operations so, unless their config says how; see `machine.pieces`."""
        if self.pieces is not None:
            os.environ[machine.PIECES] = str(self.pieces)


def choose(folder: RunFolder) -> None:
    """Before a command prints or writes anything: has libraries take the kernels of a run; see `choose_kernels`.

    A folder that holds no run is left to what reads it next.
    """
    try:
        portable = folder.recorded_spec().strategy.portable
    except EmbexpError:
        return
    environment.choose_kernels(portable=portable)

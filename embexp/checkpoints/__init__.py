"""Checkpoints: everything that a run has learned, saved and restored; and what is in anyone's checkpoints.

Your own code can use `keys`, `read_rows` and `tensor`, which work without TensorFlow; `save` and `restore`, which
returns an account of every value, for models of your own; and `convert`, between object-based and name-based
checkpoints. Each is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embexp.system import at_first_use

if TYPE_CHECKING:
    from embexp.checkpoints.account import Account, Dropped, Grown, LiveAccount, Mismatch, Reordered, Value
    from embexp.checkpoints.contents import KeyInfo, TensorRows, keys, read_rows, tensor
    from embexp.checkpoints.restoring import restore
    from embexp.checkpoints.saving import Conversion, Kind, convert, save

__all__ = [
    "Account",
    "Conversion",
    "Dropped",
    "Grown",
    "KeyInfo",
    "Kind",
    "LiveAccount",
    "Mismatch",
    "Reordered",
    "TensorRows",
    "Value",
    "convert",
    "keys",
    "read_rows",
    "restore",
    "save",
    "tensor",
]

__getattr__, __dir__ = at_first_use(
    __name__,
    {
        "embexp.checkpoints.account": ("Account", "Dropped", "Grown", "LiveAccount", "Mismatch", "Reordered", "Value"),
        "embexp.checkpoints.contents": ("KeyInfo", "TensorRows", "keys", "read_rows", "tensor"),
        "embexp.checkpoints.restoring": ("restore",),
        "embexp.checkpoints.saving": ("Conversion", "Kind", "convert", "save"),
    },
)

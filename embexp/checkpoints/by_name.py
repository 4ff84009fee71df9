"""A name-based checkpoint, read as the object-based one that a like object would have written."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embexp.checkpoints import graph_protos, live
from embexp.checkpoints.naming import variable_names
from embexp.checkpoints.plain_paths import plain_temporary
from embexp.errors import CheckpointError
from embexp.tensor_bundle import rekeying
from embexp.tensor_bundle.index import read_index
from embexp.tensor_bundle.rekeying import OBJECT_GRAPH


@contextlib.contextmanager
def as_objects(checkpoint: Any, index: Path) -> Iterator[str]:
    """The prefix of an object-based checkpoint with the values of a name-based one, as long as the block lasts.

    No value is read or copied. An object-based checkpoint is what it is.

    Args:
        checkpoint: a run's `tf.train.Checkpoint`, all of whose variables exist; `naming` has their names.
        index: of the checkpoint.

    Raises:
        CheckpointError: a variable is missing in the checkpoint, or extra; the message lists them all.
        DataError: the index is damaged.
    """
    if not rekeying.is_name_based(index):
        yield str(index).removesuffix(".index")
        return
    names = variable_names(checkpoint)
    graph = live.graph_of(checkpoint)
    stored = read_index(index)
    faults = [f"it lacks {name} ({path})" for path, name in names.items() if name not in stored]
    faults += [f"it has an extra {name} {list(stored[name].shape)}" for name in sorted({*stored} - {*names.values()})]
    if faults:
        raise CheckpointError(f"{index} does not fit, variables being matched by name: {'; '.join(faults)}")
    proto, keys = graph_protos.named(graph, names)
    with tempfile.TemporaryDirectory(prefix="embexp-", dir=plain_temporary(index.parent)) as folder:
        prefix = Path(folder) / "checkpoint"
        strings = {OBJECT_GRAPH: proto.SerializeToString()}
        rekeying.rekey(index, prefix, keys, strings, rekeying.symbolic)
        yield str(prefix)

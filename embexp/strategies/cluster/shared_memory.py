"""Messages of workers on one machine, in memory that they share.

Worker 0 makes the memory, a file without a name, and the workers that it starts inherit it. So nothing is left behind,
however they end. Without fused operations there is none. Messages have the size of what is in them, and the order in
which steps are written. Sums begin as a ring's do, each chunk at another worker; see `native_code/exchange.cc`.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.strategies.cluster.exchange import Asked, Exchange, Kind
from embexp.strategies.cluster.partition import Partition
from embexp.system import native
from embexp.tables.row_updates import Distinct

_LIBRARY = "exchange"
_HEAD, _BOX = 1 << 20, 1 << 34
"""Bytes of shared memory before the boxes, as in `shared_memory.h`, and of a box; Linux gives those that are used."""


@dataclass(frozen=True, eq=False)
class _Sent:
    """How ids were sent.

    Attributes:
        order: int32 [u], in which the worker has sent its ids: by owner.
        counts: int32 [W, W], how many ids each worker asks each for.
    """

    order: Any
    counts: Any


class SharedMemory(Exchange[_Sent]):
    """The messages of one worker to the others of its machine."""

    name = "shared memory"

    def __init__(
        self, worker: int, workers: int, sharded: Mapping[str, Partition], mirrored: Mapping[str, int], file: int
    ) -> None:
        """See `Exchange`.

        Args:
            file: descriptor of the memory.
        """
        super().__init__(worker, workers, sharded, mirrored)
        self._library = native.library(_LIBRARY)
        self._common = {"seconds": self._seconds.handle, "file": file, "worker": worker, "workers": workers}

    def ask(self, ids: Mapping[str, Any], *, training: bool) -> dict[str, Asked[_Sent]]:
        """See `Exchange.ask`."""
        names = [name for name in self._names if name in ids]
        if not names:
            return {}
        partitions = [self._partitions.get(name) for name in names]
        sent = self._library.embexp_exchange_ids(
            ids=[tf.cast(ids[name], self.id_dtype) for name in names],
            blocks=[0 if each is None else each.block for each in partitions],
            turns=[0 if each is None else each.turns for each in partitions],
            kind=int(Kind.IDS if training else Kind.LOOKUPS),
            **self._common,
        )
        found = zip(names, sent.own, sent.order, sent.counts, strict=True)
        return {name: Asked(own, training, _Sent(order, counts)) for name, own, order, counts in found}

    def rows(self, asked: Mapping[str, Asked[_Sent]], rows: Mapping[str, Any]) -> dict[str, Any]:
        """See `Exchange.rows`."""
        if not rows:
            return {}
        training = all(each.training for each in asked.values())
        found = self._library.embexp_exchange_rows(
            values=list(rows.values()),
            order=[asked[name].route.order for name in rows],
            counts=[asked[name].route.counts for name in rows],
            kind=int(Kind.ROWS if training else Kind.FOUND),
            **self._common,
        )
        return dict(zip(rows, found, strict=True))

    def gradients(
        self, asked: Mapping[str, Asked[_Sent]], gradients: Mapping[str, tuple[Distinct, Sequence[Any]]]
    ) -> dict[str, Any]:
        """See `Exchange.gradients`."""
        if not gradients:
            return {}
        found = self._library.embexp_exchange_gradients(
            gradients=list(itertools.chain.from_iterable(parts for _, parts in gradients.values())),
            positions=[distinct.all_positions for distinct, _ in gradients.values()],
            order=[asked[name].route.order for name in gradients],
            counts=[asked[name].route.counts for name in gradients],
            parts=[len(parts) for _, parts in gradients.values()],
            mirrored=[name not in self._partitions for name in gradients],
            from_zero=[distinct.first is None for distinct, _ in gradients.values()],  # as `row_updates.summed` does
            kind=int(Kind.GRADIENTS),
            **self._common,
        )
        return dict(zip(gradients, found, strict=True))

    def _sums(self, tensors: Sequence[Any], kind: Kind, *, by_size: bool) -> list[Any]:
        """In the order of the collectives' ring; see `Exchange`."""
        if tensors[0].dtype not in (tf.float32, tf.float64):
            return super()._sums(tensors, kind, by_size=by_size)
        return list(self._library.embexp_exchange_sums(values=tensors, kind=int(kind), **self._common))


def shared(workers: int) -> int | None:
    """The descriptor of new memory for workers that this process starts; None: they need collectives."""
    if not hasattr(os, "memfd_create") or native.library(_LIBRARY) is None:
        return None
    file = os.memfd_create("embexp")
    try:
        os.truncate(file, _HEAD + 2 * workers * _BOX)
        mmap.mmap(file, 0).close()
    except OSError:  # as a limit forbids it
        os.close(file)
        return None
    return file


def end(file: int) -> None:
    """Ends what workers wait for in shared memory, as one of them was lost."""
    with contextlib.suppress(OSError):
        os.pwrite(file, b"\1", 0)

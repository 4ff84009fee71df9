"""The order in which training examples are read: a pure function of (seed, epoch, position).

Examples are shuffled as windows. In each epoch, blocks of consecutive examples are put in a random order; as many
blocks as make a window are shuffled among each other, then the next window begins. Where all examples fit into one
window, that is one random permutation. Nothing but the window's own numbers is needed to start anywhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from embexp.system import digests

_LARGEST_BLOCK = 4096
_BLOCKS_PER_WINDOW = 16  # at least so many, lest a small window be a few neighbours


@dataclass(frozen=True)
class Order:
    """An endless stream over `count` examples, epoch after epoch.

    Attributes:
        count: examples in an epoch, at least 1.
        seed: seed of the order.
        shuffle: False: the natural order, every epoch.
        window: examples that are shuffled among each other, at least 1.
    """

    count: int
    seed: int
    shuffle: bool
    window: int

    def pieces(self, start: int) -> Iterator[np.ndarray]:
        """int64 arrays of positions in range(count); chained, they are the stream from its element `start` on.

        Element g of the stream belongs to epoch g // count. Memory and time to the first piece are O(window), but for
        the order of an epoch's blocks, 16 * count / window numbers (count / 4096 for windows of 65,536 and more).
        """
        epoch, position = divmod(start, self.count)
        while True:
            yield from self._epoch_from(epoch, position)
            epoch, position = epoch + 1, 0

    def _epoch_from(self, epoch: int, position: int) -> Iterator[np.ndarray]:
        if not self.shuffle:
            for first in range(position, self.count, self.window):
                yield np.arange(first, min(first + self.window, self.count))
            return
        if self.count <= self.window:
            yield self._random(epoch, "all").permutation(self.count)[position:]
            return
        block = max(1, min(_LARGEST_BLOCK, self.window // _BLOCKS_PER_WINDOW))
        blocks = self._random(epoch, "blocks").permutation(-(-self.count // block))
        per_window = self.window // block
        size = per_window * block
        # The last block lacks a few examples; windows behind the one that holds it begin so much earlier.
        lacking, short = len(blocks) * block - self.count, int(np.argmax(blocks)) // per_window
        number = position // size
        if number >= short and position >= (number + 1) * size - lacking:
            number += 1
        skipped = position - (number * size - (lacking if number > short else 0))
        while number * per_window < len(blocks):
            starts = blocks[number * per_window : (number + 1) * per_window] * block
            yield self._window(epoch, number, starts, block)[skipped:]
            number, skipped = number + 1, 0

    def _window(self, epoch: int, number: int, starts: np.ndarray, block: int) -> np.ndarray:
        rows = (starts[:, None] + np.arange(block)).reshape(-1)
        rows = rows[rows < self.count]  # the last block may be shorter
        self._random(epoch, "window", number).shuffle(rows)
        return rows

    def _random(self, epoch: int, *names: str | int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=digests.seed_of(self.seed, "order", epoch, *names)))


def batch_groups(order: Order, start: int, *, batch_size: int, batches: int, group: int) -> Iterator[np.ndarray]:
    """The stream from its element `start` on, cut into `batches` batches.

    Yields:
        int64 [k, batch_size] with k <= group; every batch is full, and may straddle two epochs.
    """
    pieces = order.pieces(start)
    piece = np.empty(0, np.int64)
    while batches:
        rows = min(group, batches)
        cells = np.empty(rows * batch_size, np.int64)
        filled = 0
        while filled < len(cells):
            if not len(piece):
                piece = next(pieces)
            take = min(len(piece), len(cells) - filled)
            cells[filled : filled + take] = piece[:take]
            filled += take
            piece = piece[take:]
        yield cells.reshape(rows, batch_size)
        batches -= rows

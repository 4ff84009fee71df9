"""What up to 1,024 workers would exchange, computed from recorded or drawn ids. Nothing is sent.

    python -m bench.exchange_plan [--quick] [--rows V] [--dim D] [--batch B] [--exponent A] [--ids FILE] [--block N]

Ids come from a `.npy` file, int [steps, B], or are drawn by Zipf's law from a vocabulary sorted by counts. For each
number of workers W, each step is planned as in `embexp.strategies.cluster.exchange`: the batch is divided, each worker
looks up its distinct ids once, and all parts grow together. Bytes follow the formula in docs/multi_worker.md.

| column | meaning |
|---|---|
| distinct | mean number of distinct ids of a worker in a step |
| room | number of ids that fit into a part after the last step |
| imbalance | the most rows that an owner is asked for, relative to the mean of all owners; mean over the steps |
| padding | share of padding in what is sent |
| enlarged | how often the parts grew |
| MB | bytes that a worker sends in a step, in millions |
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import harness
from embexp.strategies.cluster.partition import Partition

WORKERS = (2, 4, 8, 16, 64, 256, 1024)
_LEAST = 8
"""The same as in `embexp.strategies.cluster.exchange`."""


@dataclass(frozen=True)
class Plan:
    """The exchange of some steps; the docstring of the module explains the columns."""

    distinct: float
    room: int
    imbalance: float
    padding: float
    enlarged: int
    bytes_of_a_worker: float


def plan(ids: np.ndarray, partition: Partition, dim: int) -> Plan:
    """Plans the exchange of the rows of one trainable table.

    Args:
        ids: ids of whole batches, int64 [steps, B].
        dim: dimension of a row.
    """
    workers, room, enlarged = partition.workers, _LEAST, 0
    counts, imbalances, rooms = [], [], []
    for batch in ids:
        asked = np.zeros((workers, workers), np.int64)
        for worker, part in enumerate(np.array_split(batch, workers)):
            owners, _ = partition.split(np.unique(part))
            asked[worker] = np.bincount(owners, minlength=workers)
        if (most := int(asked.max())) > room:
            room, enlarged = most + most // 8 + _LEAST, enlarged + 1
        counts.append(asked.sum() / workers)
        imbalances.append(asked.sum(0).max() / max(1.0, asked.sum(0).mean()))
        rooms.append(room)
    used, sent = sum(counts), workers * sum(rooms)
    return Plan(
        distinct=float(np.mean(counts)),
        room=room,
        imbalance=float(np.mean(imbalances)),
        padding=1 - used / sent,
        enlarged=enlarged,
        bytes_of_a_worker=(workers - 1) * float(np.mean(rooms)) * (8 * dim + 4),
    )


def zipf(rows: int, exponent: float, shape: tuple[int, int]) -> np.ndarray:
    """Draws ids of a shape, int64, with p ~ k^-exponent for the k-th most frequent id, which is k - 1."""
    shares = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    bounds = np.cumsum(shares / shares.sum())
    drawn = np.searchsorted(bounds, np.random.default_rng(11).random(shape))
    return np.minimum(drawn, rows - 1).astype(np.int64)


def main(argv: list[str]) -> int:
    """Plans, and prints a table; returns 0."""
    parser = harness.parser("exchange_plan", __doc__, quick="fewer steps")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--exponent", type=float, default=1.05)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--ids", type=Path)
    options = parser.parse_args(argv)
    steps = 5 if options.quick else 20
    if options.ids is None:
        ids = zipf(options.rows, options.exponent, (steps, options.batch))
    else:
        ids = np.load(options.ids, allow_pickle=False).astype(np.int64)
    print(f"{'workers':>7} {'distinct':>9} {'room':>7} {'imbalance':>9} {'padding':>8} {'enlarged':>8} {'MB':>7}")
    found = {}
    for workers in (each for each in WORKERS if each <= ids.shape[1]):
        made = found[workers] = plan(ids, Partition.of(options.rows, workers, options.block), options.dim)
        print(
            f"{workers:7} {made.distinct:9,.0f} {made.room:7,} {made.imbalance:9.2f} {made.padding:8.1%}"
            f" {made.enlarged:8} {made.bytes_of_a_worker / 1e6:7.2f}",
            flush=True,
        )
    harness.save(options, harness.describe(), plans={str(key): vars(value) for key, value in found.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What several workers would exchange in a step, by table: sharded, and mirrored.

With W workers, R distinct rows of a worker's part of a batch, and rows of d numbers, all workers together send

    sharded    W (W - 1) (R / W) (8 d + 4) bytes: ids, rows, and gradients unless the table is frozen
    mirrored   W (W - 1) R (4 d + 4): ids and gradients; nothing of a frozen table
               8 (W - 1) V d: gradients of a table of V rows of which a step looks up all in order

if all owners are asked for as many rows, and without padding. A row that is looked up n times in a part on average is
among the R with a probability of 1 - exp(-n).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from embexp.runs.prepare import Prepared
from embexp.specs.strategies import MultiWorker
from embexp.specs.tables import Storage
from embexp.specs.tasks import Compared
from embexp.system.terminal import byte_size

_NOTHING = Compared("", "")


def lines(prepared: Prepared) -> Iterator[str]:
    """What is sent for each table; nothing where there is one worker."""
    spec, strategy = prepared.spec, prepared.spec.strategy
    if not isinstance(strategy, MultiWorker) or strategy.workers == 1:
        return
    for name, table in spec.tables.items():
        rows, frozen = prepared.tables.rows[name], prepared.tables.policies[name].fully_frozen
        distinct = float(-np.expm1(-lookups(prepared, name, strategy.workers)).sum())
        every = [feature for feature, more in spec.task.compared(spec).items() if more.every]
        whole = name in {spec.features[feature].table for feature in every}
        sizes = bytes_sent(strategy.workers, distinct, table.width, frozen=frozen, whole=rows if whole else None)
        chosen = "mirrored" if table.storage is Storage.MIRRORED else "sharded"
        other = next(each for each in sizes if each != chosen)
        sent = f"{chosen}, workers send about {byte_size(sizes[chosen])} a step"
        yield f"exchange: tables.{name}: {sent}, and {byte_size(sizes[other])} if it were {other}"


def bytes_sent(
    workers: int, distinct: float, dim: int, *, frozen: bool = False, whole: int | None = None
) -> dict[str, int]:
    """Bytes that all workers together send in a step for a table, by `sharded` and `mirrored`; see above.

    Args:
        distinct: rows that a worker's part looks up.
        whole: rows of the table, if a step looks up all in order.
    """
    sharded = (workers - 1) * distinct * ((4 if frozen else 8) * dim + 4)
    mirrored = workers * (workers - 1) * distinct * (4 * dim + 4)
    if whole is not None:
        mirrored = 8 * (workers - 1) * whole * dim
    return {"sharded": round(sharded), "mirrored": 0 if frozen else round(mirrored)}


def lookups(prepared: Prepared, table: str, workers: int) -> np.ndarray:
    """How often a worker's part of a batch looks up each row of a table on average, float64 [rows]."""
    spec, scan = prepared.spec, prepared.data.scan
    train, rows = scan.splits["train"], prepared.tables.rows[table]
    part = spec.train.batch_size / workers
    found = np.zeros(rows)
    for feature in spec.features_of(table):
        compared = spec.task.compared(spec).get(feature, _NOTHING)
        if not compared.made:
            examples = spec.train.batch_size if compared.whole_batch else part
            found += scan.examples.counts(spec.ids_of(feature), train, rows) * (examples / len(train))
        # Drawn ones are taken as drawn uniformly.
        found += np.inf if compared.every else (part * compared.of_example + compared.of_batch) / rows
    return found

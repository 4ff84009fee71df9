"""Evaluations in which several workers rank a large table: the memory that each worker adds.

    python -m bench.cluster_ranked [--quick] [--workers N] [--rows N] [--dim N] [--cases NAME…] [--json FILE]

A model of a graph with so many entities, or of interactions with so many items, is trained for a few steps and
evaluated. The anonymous memory of each process (RssAnon) is sampled. The peak of a run whose rows have one number is
subtracted. The rest is compared with the bytes of the rows and slots of the ranked table that a worker has.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness
from bench.cluster_table import watched

_QUERIES, _ITEMS_OF_USER = 200, 100
_SHORT = (
    *("train.steps=10", "train.epochs=null", "train.early_stopping.patience=null", "checkpoint.save=end"),
    *("optimizer=adagrad", "output.plots=false", "output.tensorboard=false", "output.baselines=false"),
    *("output.digests=false", "strategy=multi_worker", "strategy.intra_op_threads=1", "strategy.inter_op_threads=2"),
)


def graph(folder: Path, entities: int) -> list[str]:
    """Writes triples in which every entity occurs, and returns the settings to train on them."""
    folder.mkdir()
    ends = np.random.default_rng(0).permutation(entities // 2 * 2).reshape(-1, 2)
    for name, some in (("train", ends), ("valid", ends[:1, ::-1]), ("test", ends[:_QUERIES, ::-1])):
        (folder / f"{name}.txt").write_text("".join(f"e{a}\tr\te{b}\n" for a, b in some.tolist()))
    model = ("experiment=knowledge_graph", "data.negatives=8", "model.dropout=0", "train.batch_size=512")
    return [*model, f"data.path={folder}"]


def interactions(folder: Path, items: int) -> list[str]:
    """The same for users and items."""
    folder.mkdir()
    order = np.random.default_rng(0).permutation(items)
    with (folder / "log.csv").open("w") as file:
        file.write("user,item,time\n")
        file.writelines(f"u{place // _ITEMS_OF_USER},i{item},{place}\n" for place, item in enumerate(order.tolist()))
        # So that held-out items are in the training split, too.
        file.writelines(
            f"u{place // 2},i{item},{items + place}\n" for place, item in enumerate(order[:_QUERIES].tolist())
        )
    model = ("experiment=recommendation", "model=matrix_factorization", "data.timestamp=time", "train.batch_size=512")
    return [*model, f"data.path={folder / 'log.csv'}"]


CASES = {"graph": (graph, "entity"), "items": (interactions, "user")}
"""By name: a function that writes the data, and the table whose dim the ranked table has."""


def measured(name: str, folder: Path, rows: int, dim: int, workers: int) -> dict[str, Any]:
    """Figures of one case. Added memory is relative to the rows and slots of a worker."""
    write, table = CASES[name]
    settings, found = write(folder / "data", rows), {}
    for kind, of_dim in (("narrow", 2), ("wide", dim)):
        command = [sys.executable, "-m", "embexp", "run", *settings, *_SHORT, f"strategy.workers={workers}"]
        # The dims of other tables follow it.
        command += [f"output.cache={folder / 'cache'}", f"tables.{table}.dim={of_dim}"]
        found[kind] = watched(command, folder / kind)
    share = 2 * 4 * rows * (dim - 2) / workers
    added = [wide - narrow for wide, narrow in zip(found["wide"]["peaks"], found["narrow"]["peaks"], strict=True)]
    return {
        "workers": workers,
        "bytes_each": share,
        "added": added,
        "shares": [each / share for each in added],
        **found,
    }


def line(name: str, found: Mapping[str, Any]) -> str:
    """The figures of one case as text."""
    added = ", ".join(f"{each:.2f}" for each in found["shares"])
    return f"{name}: {found['workers']} x {found['bytes_each'] / 1e6:,.0f} MB: each added {added} x that"


def main(argv: list[str]) -> int:
    """Measures, and prints a line for each case; returns 0."""
    parser = harness.parser("cluster_ranked", __doc__, quick="a tenth of the rows", repetitions="ignored")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    described = harness.introduce_in_a_line()
    rows, cases = options.rows // 10 if options.quick else options.rows, {}
    for name in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            cases[name] = measured(name, Path(folder), rows, options.dim, options.workers)
        print(line(name, cases[name]), flush=True)
    harness.save(options, described, cases=cases)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

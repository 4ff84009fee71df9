"""A first hour on a real TPU: what it has, what it computes, refuses and saves, and how fast it is.

    python -m bench.first_tpu_hour [--address NAME | --simulated V1|V2] [--cores N] [--sparse-cores N] [--quick]
        [--json FILE]

embexp has never run on a real TPU. This program measures one and a simulation of the same hardware, compares both with
float64 NumPy, and prints where they differ. Each part is a new process, because only one process at a time can have a
TPU. `python -m bench` does not run it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

EXACT = 1e-6
"""Largest relative difference of results that count as the same."""
_STEPS = 2
_QUICK = 7
_IDS = 8
"""Ids per sample in the steps that test limits."""
_SMALL = ("data=clicks_few", "data.examples=2048", "train.batch_size=256", "optimizer=adagrad")
_QUIET = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")


@dataclass(frozen=True)
class Place:
    """A TPU, or a simulated one.

    Attributes:
        address: address of the TPU; None: a simulated one.
        feature: embedding hardware to simulate.
        cores: number of cores to simulate.
        sparse_cores: number of SparseCores per simulated core.
    """

    address: str | None
    feature: str = "V2"
    cores: int = 2
    sparse_cores: int = 4

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """Initialises the TPU, and returns its `TPUStrategy`."""
        import embexp
        from embexp.strategies import tpu, tpu_address

        if self.address is None:
            simulated = embexp.tpu_simulator(self.cores, embedding_feature=self.feature, sparse_cores=self.sparse_cores)
            with simulated as strategy:
                yield strategy
        else:
            address = tpu_address.check(self.address, None, None, 5.0)
            yield tpu.connect(address, None, None, 5.0, 300.0)

    @property
    def overrides(self) -> list[str]:
        """The settings of a run on it."""
        if self.address is not None:
            return ["strategy=tpu", f"strategy.address={self.address}"]
        cores = [f"strategy.cores={self.cores}", f"strategy.sparse_cores={self.sparse_cores}"]
        return ["strategy=tpu_simulator", f"strategy.embedding_feature={self.feature}", *cores]


def hardware(place: Place) -> dict[str, Any]:
    """The TPU's report about itself."""
    with place.connected() as strategy:
        reported = strategy.extended.tpu_hardware_feature
        return {
            "embedding_feature": str(reported.embedding_feature.value),
            "sparse_cores": int(reported.num_embedding_devices_per_chip),
            "cores": int(strategy.num_replicas_in_sync),
            "hosts": int(strategy.extended.num_hosts),
        }


def lookups(place: Place, every: int) -> dict[str, Any]:
    """The differences from float64, and the values, for each optimizer, combiner and kind of input.

    Differences are relative to how far a row has moved. For activations, they are relative to the larger of 1 and their
    size.

    Args:
        every: tries only the first of so many cases.
    """
    from tests.strategies.simulation import programs
    from tests.strategies.simulation.reference import RULES, Table

    cases = list(itertools.product(RULES, programs.COMBINERS, programs.KINDS))
    drawn, found = random.Random(0), {}
    for rule, combiner, kind in cases[::every]:
        with place.connected() as strategy:
            batches = [
                [programs.of_kind(kind, _lists(drawn, programs)) for _ in range(strategy.num_replicas_in_sync)]
                for _ in range(_STEPS)
            ]
            activations, table = programs.train(strategy, rule, combiner, kind, batches)
        exact, expected = Table(np.full([programs.ROWS, programs.DIM], 0.75), RULES[rule]), []
        for batch in batches:
            expected.append([exact.look_up(lists, combiner) for lists in batch])
            for lists in batch:
                exact.add(lists, combiner, programs.GRADIENT.astype(np.float64))
            exact.step()
        of_rows = (np.abs(table["parameters"] - exact.rows) / exact.path).max()
        found[f"{rule}, {combiner}, {kind}"] = {
            "from float64": max(_difference(activations, expected), float(of_rows)),
            "values": [np.asarray(activations).tolist(), *(table[slot].tolist() for slot in sorted(table))],
        }
    return found


def _lists(drawn: random.Random, programs: Any) -> list[list[tuple[int, float]]]:
    lengths = [drawn.choice([0, 1, 2, 5]) for _ in range(programs.SAMPLES)]
    return [
        [(drawn.randrange(programs.ROWS), drawn.choice([0.5, 1.0, 2.0])) for _ in range(length)] for length in lengths
    ]


def _difference(one: Any, other: Any) -> float:
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return float((np.abs(one - other) / np.maximum(np.abs(other), 1)).max())


def limits(place: Place) -> dict[str, Any]:
    """The outcome of a step at a limit of SparseCores, of one with an id more, and of one that may drop ids.

    Each SparseCore has 8 samples, and each sample has the ids 0 to 7 in a table of ones. So a vector is the number of
    ids that were looked up.
    """
    found = {}
    with place.connected() as strategy:
        cores = int(strategy.extended.tpu_hardware_feature.num_embedding_devices_per_chip)
        partitions = cores * int(strategy.num_replicas_in_sync)
    fullest = -(-_IDS // partitions)
    ids = {"max_ids_per_table": {"items": _IDS * fullest}, "max_unique_ids_per_table": {"items": fullest}}
    less = {name: ids | {name: {"items": limit["items"] - 1}} for name, limit in ids.items()}
    cases: dict[str, Mapping[str, Any]] = {
        "at both limits of ids": ids,
        "one id more than max_ids_per_table": less["max_ids_per_table"],
        "one id more than max_unique_ids_per_table": less["max_unique_ids_per_table"],
        "more than max_ids_per_chip_per_sample": {"max_ids_per_chip_per_sample": _IDS - 1},
        "the same, allow_id_dropping": {"max_ids_per_chip_per_sample": _IDS - 1, "allow_id_dropping": True},
    }
    for name, settings in cases.items():
        with place.connected() as strategy:
            try:
                found[name] = {"outcome": _looked_up(strategy, _IDS * cores, settings)}
            except Exception as error:  # whatever error a TPU raises
                found[name] = {"outcome": type(error).__name__, "says": _said(error)}
    return found


def _said(error: Exception) -> str:
    """The first sentence of an error that does not say where it happened."""
    where = ("Graph execution error", "Detected at", "Traceback", "[[")
    lines = [line for line in str(error).splitlines() if line[:1].strip() and not line.startswith(where)]
    return lines[0][:300] if lines else ""


def _looked_up(strategy: Any, samples: int, settings: Mapping[str, Any]) -> str:
    import tensorflow as tf

    api = tf.tpu.experimental.embedding
    with strategy.scope():
        table = api.TableConfig(64, 8, tf.ones_initializer(), combiner="sum", name="items")
        config = api.SparseCoreEmbeddingConfig(**settings)
        features = {"seen": api.FeatureConfig(table, output_shape=[samples], name="seen")}
        embedding = api.TPUEmbeddingV2(features, api.SGD(0.5), sparse_core_embedding_config=config)
    ids = tf.RaggedTensor.from_uniform_row_length(tf.tile(tf.range(_IDS), [samples]), _IDS)

    @tf.function
    def step() -> Any:
        return strategy.run(lambda: embedding({"seen": ids})[0]["seen"])

    counted = np.concatenate([part.numpy()[:, 0] for part in strategy.experimental_local_results(step())])
    return f"{int(_IDS * len(counted) - counted.sum())} of {_IDS * len(counted)} ids are dropped"


def checkpoints(place: Place) -> dict[str, Any]:
    """Whether tables keep their bits when a run's checkpoint moves from TPU to cpu, and from cpu to TPU."""
    import embexp

    def trained(folder: Path, overrides: list[str]) -> dict[str, np.ndarray]:
        embexp.run(embexp.compose([*_SMALL, *_QUIET, f"output.cache={scratch}", *overrides]), folder)
        run = embexp.load_run(folder)
        return {table: run.table(table) for table in ("user", "item")}

    def after(source: Path, strategy: list[str], folder: Path) -> dict[str, np.ndarray]:
        frozen = ["pretrained=checkpoint", f"pretrained.path={source}", "freeze=table", "train.steps=1"]
        return trained(folder, [*strategy, *frozen])

    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        first = trained(scratch / "tpu", [*place.overrides, "train.steps=8"])
        there = after(scratch / "tpu", ["strategy=cpu"], scratch / "cpu")
        back = after(scratch / "cpu", place.overrides, scratch / "back")
    return {
        way: {"outcome": "the same bits" if all((first[name] == other[name]).all() for name in first) else "other bits"}
        for way, other in (("TPU to cpu", there), ("cpu to TPU", back))
    }


_PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "hardware": lambda place, every: hardware(place),
    "lookups": lookups,
    "limits": lambda place, every: limits(place),
    "checkpoints": lambda place, every: checkpoints(place),
}


def _step_milliseconds(place: Place, quick: bool) -> float:
    """Times of a small step; see `bench.strategies`."""
    name = f"tpu_simulator {place.feature}" if place.address is None else "tpu"
    with tempfile.TemporaryDirectory() as cache:
        return float(harness.figures("strategies", "--child", name, "clicks", cache, 0.5 if quick else 3.0)["step_ms"])


def compared(part: str, found: Mapping[str, Any], simulated: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row of the table for each case: the TPU's result, the simulation's, and whether they differ."""
    rows = []
    for case, here in found.items():
        there = simulated[case]
        row: dict[str, Any] = {"part": part, "case": case}
        if part == "lookups":
            apart = max(_difference(*values) for values in zip(here["values"], there["values"], strict=True))
            row |= {"found": f"{here['from float64']:.1e} from float64", "simulated": f"{apart:.1e} from it"}
            row["differs"] = max(apart, here["from float64"]) > EXACT
        elif part == "hardware":
            row |= {"found": here, "simulated": there, "differs": here != there}
        else:
            row |= {"found": here["outcome"], "simulated": there["outcome"]}
            row |= {"differs": here["outcome"] != there["outcome"], "says": here.get("says", "")}
        rows.append(row)
    return rows


def measure(place: Place, every: int, run: Callable[..., dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results of all parts that apply to a TPU of this generation.

    Args:
        every: see `lookups`.
        run: function of the name of a part, the place and `every`.
    """
    found = {"hardware": run("hardware", place, every)}
    second = found["hardware"]["embedding_feature"] == "V2"
    for part in ("lookups", *(["limits"] if second else []), "checkpoints"):
        found[part] = run(part, place, every)
    return found


def in_processes(part: str, place: Place, every: int) -> dict[str, Any]:
    """Measures a part in a new process."""
    words = json.dumps({"part": part, "place": asdict(place), "every": every})
    return dict(harness.figures("first_tpu_hour", "--child", words))


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the table, and the differences."""
    widths = {name: max(len(str(row[name])) for row in rows) for name in ("case", "found", "simulated")}
    for row in rows:
        cells = (str(row[name]).ljust(width) for name, width in widths.items())
        print(f"{row['part']:12}{'  '.join(cells)}  {'differs' if row['differs'] else ''}".rstrip())
        if row.get("says") and row["differs"]:
            print(f"{'':12}it says: {row['says']}")
    print(f"{sum(row['differs'] for row in rows)} of {len(rows)} differ from the simulation or from float64")


def run(argv: list[str]) -> int:
    """Measures and prints; returns 1 if anything differs."""
    parser = harness.parser("first_tpu_hour", __doc__, quick="a seventh of the lookups")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--address", default=os.environ.get("TPU_NAME"), help="address of the TPU (default: TPU_NAME)")
    where.add_argument("--simulated", choices=["V1", "V2"], help="measure the simulation instead")
    parser.add_argument("--cores", type=int, default=2, help="cores of a simulated TPU")
    parser.add_argument("--sparse-cores", type=int, default=4, help="SparseCores of each simulated core")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        asked = json.loads(options.child)
        print(json.dumps(_PARTS[asked["part"]](Place(**asked["place"]), asked["every"])))
        return 0
    if options.simulated is None and not options.address:
        parser.error("no TPU: name one with --address or TPU_NAME, or measure --simulated V1 or V2")
    described = harness.introduce()
    if options.simulated is not None:
        place = Place(None, options.simulated, options.cores, options.sparse_cores)
        print("This compares the simulation with itself. It shows that the script works, but nothing about a TPU.")
    else:
        os.environ["TPU_NAME"] = options.address
        place = Place(options.address)
    every = _QUICK if options.quick else 1
    found = measure(place, every, in_processes)
    has = found["hardware"]
    twin = Place(None, has["embedding_feature"], has["cores"], has["sparse_cores"] or 4)
    simulated = found if place.address is None else measure(twin, every, in_processes)
    rows = [row for part, of in found.items() for row in compared(part, of, simulated[part])]
    show(rows)
    milliseconds = _step_milliseconds(place, options.quick)
    print(f"a step of experiment=clicks takes {milliseconds:.2f} ms{' (simulated)' if place.address is None else ''}")
    harness.save(options, described, rows=rows, step_milliseconds=milliseconds)
    return int(any(row["differs"] for row in rows))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

"""A large knowledge graph: a 1-vs-all step against its matrix products, and an evaluation against PyKEEN's.

    python -m bench.knowledge_graph_sizes [--entities N] [--triples M] [--dim D] [--batch B] [--repeats N] [--json FILE]

The graph is the one of `bench.planted_graph`, and the model is ComplEx. A step takes turns with the three matrix
products that every forward and backward pass of its size needs: queries by entities, gradients of scores by entities,
and gradients of scores by queries. For the evaluation, PyKEEN's ComplEx gets the rows of embexp's tables. Both then
rank the same scores, so their MRR must agree. PyKEEN ranks with its `RankBasedEvaluator`, filtered, in batches of
--batch. Both have the same number of threads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness, planted_graph
from bench.knowledge_graph import Graph, factory, ranked, read
from embexp.system.machine import PeakMemory

STEP_TARGET, EVALUATION_TARGET = 1.2, 10.0
MEMORY_TARGET = 500e6
WARM_UP, PER_CALL = 3, 10


@dataclass(frozen=True)
class Ours:
    """A run that has started.

    Attributes:
        train: trains so many steps.
        evaluate: ranks the test split, and returns its metrics.
        table: returns the rows of a table.
    """

    train: Any
    evaluate: Any
    table: Any


@contextlib.contextmanager
def begun(graph: Path, folder: Path, *, dim: int, batch: int, threads: int) -> Iterator[Ours]:
    """A run of embexp, with its tables filled."""
    import embexp
    from embexp.records.folder import RunFolder
    from embexp.runs.evaluations import evaluator_of
    from embexp.runs.execute import execute
    from embexp.runs.prepare import prepare
    from embexp.strategies import strategy as strategies

    spec = embexp.compose(
        [
            "experiment=knowledge_graph_large",
            "data=triples",
            f"data.path={graph}",
            f"tables.entity.dim={dim}",
            f"train.batch_size={batch}",
            f"output.cache={folder}/cache",
            f"strategy.intra_op_threads={threads}",
        ]
    )
    prepared = prepare(spec)
    measured = evaluator_of(spec).split(prepared.data, "test")
    with execute(prepared, strategies.build(spec.strategy), RunFolder(folder)) as started:
        runtime, batches = started.execution.runtime, iter(started.execution.dataset(started.batches))
        yield Ours(
            train=lambda steps: runtime.train(batches, steps),
            evaluate=lambda: measured(runtime) if measured is not None else {},
            table=lambda name: np.concatenate(list(started.execution.tables[name].blocks())),
        )


def products(entities: int, dim: int, batch: int) -> Any:
    """A function that computes the three matrix products of a step, one after another."""
    import tensorflow as tf

    shapes = {"queries": (batch, dim), "rows": (entities, dim), "upstream": (batch, entities)}
    given = {name: tf.random.stateless_normal(shape, [0, place]) for place, (name, shape) in enumerate(shapes.items())}

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def three(queries: Any, rows: Any, upstream: Any) -> Any:
        scores = tf.matmul(queries, rows, transpose_b=True)
        with tf.control_dependencies([scores]):
            own = tf.matmul(upstream, rows)
        with tf.control_dependencies([own]):
            theirs = tf.matmul(upstream, queries, transpose_a=True)
        return scores[0, 0] + own[0, 0] + theirs[0, 0]

    return lambda: three(**given)


def pykeen(graph: Graph, ours: Ours, dim: int, batch: int) -> Any:
    """A function that evaluates PyKEEN's ComplEx with the same rows, and returns the MRR."""
    import torch
    from pykeen.models import ComplEx

    logging.getLogger("pykeen").setLevel(logging.ERROR)
    model = ComplEx(triples_factory=factory(graph, "train", inverse=True), embedding_dim=dim // 2, random_seed=0)
    for kept, name in ((model.entity_representations[0], "entity"), (model.relation_representations[0], "relation")):
        rows = ours.table(name)
        pairs = np.stack([rows[:, : dim // 2], rows[:, dim // 2 :]], axis=2)  # complex numbers, one after another
        [weights] = list(kept.parameters())
        weights.data = torch.as_tensor(pairs).reshape(weights.shape).contiguous()
    return lambda: ranked(model, graph, batch)


def timed(function: Any) -> tuple[float, Any]:
    """The seconds and the result of a call."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def main(argv: list[str]) -> int:
    """Measures and prints."""
    parser = harness.parser("knowledge_graph_sizes", __doc__, quick="a small graph", threads=True)
    parser.add_argument("--entities", type=int, default=planted_graph.ENTITIES)
    parser.add_argument("--triples", type=int, default=planted_graph.TRIPLES)
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if options.quick:
        options.entities, options.triples, options.repeats = 4_000, 9_000, 2
    import torch

    torch.set_num_threads(options.threads)
    described = harness.introduce_in_a_line(f"threads {options.threads}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        held_out = min(planted_graph.HELD_OUT, options.triples // 10)
        graph = planted_graph.write_graph(
            folder / "graph", entities=options.entities, count=options.triples, held_out=held_out
        )
        triples = read(graph)
        with begun(graph, folder, dim=options.dim, batch=options.batch, threads=options.threads) as ours:
            found = measured(ours, triples, options.dim, options.batch, options.repeats)
    step, evaluation, memory = found["step"], found["evaluation"], found["memory"]
    slower = statistics.median(harness.ratios(step["embexp"], step["products"]))
    mine, theirs = (statistics.median(evaluation[name]) for name in ("embexp", "pykeen"))
    faster = theirs / mine
    print(f"step        {statistics.median(step['embexp']):7.3f} s, {slower:.2f} × its matrix products")
    print(f"evaluation  {mine:7.3f} s, PyKEEN {theirs:.3f} s: {faster:.1f} ×", end="")
    print(f"   MRR {evaluation['embexp_mrr']:.6f}, PyKEEN {evaluation['pykeen_mrr']:.6f}")
    print("memory      " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in memory.items()))
    agree = abs(evaluation["embexp_mrr"] - evaluation["pykeen_mrr"]) < 1e-4
    met = slower <= STEP_TARGET and faster >= EVALUATION_TARGET and max(memory.values()) <= MEMORY_TARGET and agree
    wanted = f"{STEP_TARGET} ×, {EVALUATION_TARGET:.0f} ×, {MEMORY_TARGET / 1e6:.0f} MB, and the same MRR"
    print(f"targets {wanted}: {'met' if met else 'missed'}")
    harness.save(options, described, **found)
    return 0 if met else 1


def measured(ours: Ours, graph: Graph, dim: int, batch: int, repeats: int) -> dict[str, Any]:
    """Seconds of steps and evaluations here and in their peers, and the memory that they add."""
    three = products(graph.entities, dim, batch)
    step: dict[str, list[float]] = {"embexp": [], "products": []}
    with PeakMemory() as of_steps:
        ours.train(WARM_UP)
    three()
    for _ in range(repeats):
        step["embexp"].append(timed(lambda: ours.train(PER_CALL))[0] / PER_CALL)
        step["products"].append(timed(lambda: [three() for _ in range(PER_CALL)])[0] / PER_CALL)
    with PeakMemory() as of_evaluation:
        ours.evaluate()
    theirs = pykeen(graph, ours, dim, batch)
    evaluation: dict[str, Any] = {"embexp": [], "pykeen": []}
    for _ in range(max(1, repeats // 3)):
        seconds, metrics = timed(ours.evaluate)
        evaluation["embexp"].append(seconds)
        seconds, mrr = timed(theirs)
        evaluation["pykeen"].append(seconds)
        evaluation |= {"embexp_mrr": metrics["mrr"], "pykeen_mrr": mrr}
    memory = {"a step": of_steps.added or 0, "an evaluation": of_evaluation.added or 0}
    return {"step": step, "evaluation": evaluation, "memory": memory}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

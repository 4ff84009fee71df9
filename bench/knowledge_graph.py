"""ComplEx on a knowledge graph, compared with PyKEEN: seconds per epoch, and MRR after the same number of epochs.

    python -m bench.knowledge_graph [FOLDER] [--epochs N] [--threads N] [--json FILE]

FOLDER contains a graph, such as UMLS. The default is a graph of random triples of the same size. Both libraries train
on the same triples with the same number of threads, in alternating epochs of one process. The settings are 100 complex
numbers per entity and relation, batches of 512, Adagrad at 0.1, and a softmax over the candidates. One case uses 32
negative samples, and the other all entities ("1-vs-all", PyKEEN's LCWA). Both start from small initial values, because
PyKEEN learns almost nothing from its large default values in so few epochs. Each uses its default regularizer.

In an epoch, embexp makes two queries per triple: tail prediction, and head prediction as an inverse relation. By
default, PyKEEN makes only one of them, which is half the work. With `create_inverse_triples`, it makes both. Both
variants are measured.
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness
from embexp.system import files
from embexp.training.listeners import Listener

COMPLEX_DIM, BATCH, NEGATIVES, RATE = 100, 512, 32, 0.1
EPOCHS, WARM_UP = 13, 3
ENTITIES, RELATIONS = 135, 46
SIZES = {"train": 5_216, "valid": 652, "test": 661}
"""Number of triples in each split of UMLS."""
CASES = {f"{NEGATIVES} negatives": NEGATIVES, "1-vs-all": None}


def write_graph(folder: Path) -> Path:
    """Writes random triples."""
    random = np.random.default_rng(0)
    for part, count in SIZES.items():
        ends = random.integers(0, ENTITIES, (count, 2))
        lines = [f"e{h}\tr{r}\te{t}\n" for (h, t), r in zip(ends, random.integers(0, RELATIONS, count), strict=True)]
        files.write_text(folder / f"{part}.txt", "".join(lines))
    return folder


class Ours(Listener):
    """`embexp run` in a thread. It waits for a call of `epoch` before each epoch."""

    def __init__(self, graph: Path, negatives: int | None, epochs: int, threads: int, folder: Path) -> None:
        import embexp

        self.spec = embexp.compose(
            [
                "experiment=knowledge_graph",
                f"data.path={graph}",
                f"data.negatives={'null' if negatives is None else negatives}",
                f"tables.entity.dim={2 * COMPLEX_DIM}",
                f"train.batch_size={BATCH}",
                f"train.epochs={epochs}",
                "train.early_stopping.patience=null",
                f"optimizer.learning_rate={RATE}",
                f"output.cache={folder}/cache",
                f"strategy.intra_op_threads={threads}",
                "output.plots=false",
                "output.tensorboard=false",
            ]
        )
        self.seconds: list[float] = []
        self._directory = folder / "run"
        self._directory.mkdir()
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._summary: Mapping[str, Any] = {}
        self._began = self._last = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def epoch(self) -> None:
        """Trains an epoch, and returns at its end."""
        self._go.release()
        self._done.acquire()

    def test_mrr(self) -> float:
        """Finishes the run, and returns its test MRR."""
        self._go.release()
        self._thread.join()
        return float(self._summary["metrics"]["test"]["mrr"])

    def _run(self) -> None:
        from embexp.runs import run as single

        try:
            self._summary = single.run(self.spec, self._directory, single.Observer(lambda: [self])).summary
        finally:
            self._done.release()

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Waits for the first call of `epoch`."""
        self._wait()

    def progressed(self, step: int) -> None:
        """Records the time of the last step."""
        self._last = time.perf_counter()

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Records the time of the epoch without its evaluation, then waits for the next call of `epoch`."""
        self.seconds.append(self._last - self._began)
        self._done.release()
        self._wait()

    def _wait(self) -> None:
        self._go.acquire()
        self._began = time.perf_counter()


@dataclass(frozen=True)
class Graph:
    """Triples by split, int64 [n, 3]: head, relation, tail, as numbers from 0."""

    triples: Mapping[str, np.ndarray]
    entities: int
    relations: int


def read(folder: Path) -> Graph:
    """Reads the triples, numbered as in a run."""
    import embexp
    from embexp.runs.prepare import read_data
    from embexp.system.parallel import quiet

    with tempfile.TemporaryDirectory() as cache:
        spec = embexp.compose(["experiment=knowledge_graph", f"data.path={folder}", f"output.cache={cache}"])
        data = read_data(spec, quiet)
    ids = data.scan.examples.ids  # each triple and each relation occurs twice, the second time inverted
    return Graph(
        {part: np.array(ids[rows[::2]], np.int64) // [1, 2, 1] for part, rows in data.scan.splits.items()},
        data.vocabularies["entity"].size,
        data.vocabularies["relation"].size // 2,
    )


def factory(graph: Graph, part: str, *, inverse: bool) -> Any:
    """A split as PyKEEN's triples."""
    import torch
    from pykeen.triples import CoreTriplesFactory

    return CoreTriplesFactory(
        mapped_triples=torch.as_tensor(graph.triples[part]),
        num_entities=graph.entities,
        num_relations=graph.relations,
        create_inverse_triples=inverse,
    )


def ranked(model: Any, graph: Graph, batch: int) -> float:
    """The filtered test MRR of a PyKEEN model, by PyKEEN's own evaluator."""
    from pykeen.evaluation import RankBasedEvaluator

    found = RankBasedEvaluator(filtered=True).evaluate(
        model=model,
        mapped_triples=factory(graph, "test", inverse=False).mapped_triples,
        additional_filter_triples=[
            factory(graph, part, inverse=False).mapped_triples for part in ("train", "validation")
        ],
        batch_size=batch,
        use_tqdm=False,
    )
    return float(found.get_metric("both.realistic.inverse_harmonic_mean_rank"))


def beside_pykeen(one: Ours, graph: Graph, negatives: int | None, epochs: int, *, inverse: bool) -> dict[str, Any]:
    """Trains PyKEEN's ComplEx, with an epoch of embexp after each of its epochs.

    Returns:
        Seconds of each epoch, and the final filtered test MRR, for both.
    """
    import torch
    from pykeen.models import ComplEx
    from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop, TrainingCallback

    training = factory(graph, "train", inverse=inverse)
    model = ComplEx(
        triples_factory=training,
        embedding_dim=COMPLEX_DIM,
        loss="crossentropy",
        entity_initializer="xavier_uniform",
        relation_initializer="xavier_uniform",
        random_seed=0,
    )
    optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE)
    logging.getLogger("pykeen").setLevel(logging.ERROR)
    loop: Any
    if negatives is None:
        loop = LCWATrainingLoop(model=model, triples_factory=training, optimizer=optimizer)
    else:
        drawn = {"num_negs_per_pos": negatives}
        loop = SLCWATrainingLoop(
            model=model, triples_factory=training, optimizer=optimizer, negative_sampler_kwargs=drawn
        )
    theirs: list[float] = []
    began = 0.0

    class Alternate(TrainingCallback):  # type: ignore[misc]
        def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
            nonlocal began
            theirs.append(time.perf_counter() - began)
            one.epoch()
            began = time.perf_counter()

    began = time.perf_counter()
    loop.train(
        triples_factory=training,
        num_epochs=epochs,
        batch_size=BATCH,
        use_tqdm=False,
        use_tqdm_batch=False,
        callbacks=Alternate,
        pin_memory=False,
    )
    return {
        "pykeen": theirs[WARM_UP:],
        "embexp": one.seconds[WARM_UP:],
        "pykeen_mrr": ranked(model, graph, BATCH),
        "embexp_mrr": one.test_mrr(),
    }


def main(argv: list[str]) -> int:
    """Measures and prints."""
    parser = harness.parser("knowledge_graph", __doc__, quick="fewer epochs", threads=True)
    parser.add_argument("graph", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"epochs of each, with {WARM_UP} for warm-up")
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    epochs = WARM_UP + 2 if options.quick else max(options.epochs, WARM_UP + 1)
    import torch

    torch.set_num_threads(options.threads)
    described = harness.introduce_in_a_line(f"threads {options.threads}")
    found: dict[str, dict[str, Any]] = {}
    slower = True
    for case, negatives in CASES.items():
        for inverse in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                graph = options.graph or write_graph(folder / "graph")
                triples = read(graph)  # first, because this imports TensorFlow, and two threads must not do so at once
                taken = beside_pykeen(
                    Ours(graph, negatives, epochs, options.threads, folder),
                    triples,
                    negatives,
                    epochs,
                    inverse=inverse,
                )
            who = "PyKEEN, inverse triples" if inverse else "PyKEEN"
            theirs, mine = (statistics.median(taken[name]) for name in ("pykeen", "embexp"))
            slower &= theirs > mine
            found[f"{case}, {who}"] = taken
            print(f"{case:13} {who:24} {theirs:7.3f} s per epoch, embexp {mine:6.3f} s: {theirs / mine:5.1f} ×", end="")
            print(f"   test MRR {taken['pykeen_mrr']:.3f}, embexp {taken['embexp_mrr']:.3f}, after {epochs} epochs")
    print(f"embexp's epochs are faster in every case: {'met' if slower else 'missed'}")
    harness.save(options, described, cases=found)
    return 0 if slower else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Kinds of runs that are killed, and how their commands are started: tiny, with TensorFlow imported already."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import planted_triples, preloaded
from tests.torture import shim
from tests.torture.shim import Control

RUN = "run"
"""Name of a run's folder, in the working directory of its command."""
_SMALL = (
    "experiment=clicks",
    "model=mlp",
    "data.examples=1500",
    "data.users=60",
    "data.items=40",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=8",
    "train.log_every=2",
    "train.evaluate_every=4",
    "checkpoint.every_steps=2",
    "output.projector_rows=20",
)
_QUIET = ("output.plots=false", "output.tensorboard=false")
_SHORT = (*_SMALL, "train.steps=4", *_QUIET)
_KINDS: dict[str, tuple[str, ...]] = {
    "cpu": (*_SMALL, "optimizer=adagrad"),
    "keep": (*_SMALL, "optimizer=adam", "model.dropout=0.3", "checkpoint.keep=1", "checkpoint.keep_best=true", *_QUIET),
    "by name": (*_SMALL, "checkpoint.kind=name", "checkpoint.keep=null", *_QUIET),
    "incremental": (*_SMALL, "data.users=2000", "checkpoint.incremental=3", "checkpoint.keep=1", *_QUIET),
    "early stopping": (
        *_SMALL,
        "optimizer=adam",
        "optimizer.learning_rate=0.5",
        "train.steps=10",
        "train.evaluate_every=1",
        "train.early_stopping.patience=2",
        *_QUIET,
    ),
    "grown": (*_SMALL, "pretrained=checkpoint", "pretrained.path={earlier}", "freeze=old_rows", *_QUIET),
    "mirrored": (*_SMALL, "strategy=mirrored", *_QUIET),
    "tpu_simulator": (*_SMALL, "strategy=tpu_simulator", "train.steps=4", *_QUIET),
    "session": (*_SMALL, "runtime=session", *_QUIET),
    "estimator": (*_SMALL, "runtime=estimator", "train.steps=6", *_QUIET),
    "study": (
        "experiment=new_entities",
        "data.path={graph}",
        "study.share=0.2",
        "tables.entity.dim=8",
        "train.batch_size=32",
        "train.epochs=2",
        "train.early_stopping.patience=null",
        "study.grown.patience=null",
        "checkpoint.every_steps=2",
        "output.tensorboard=false",
    ),
    "search": (
        "-m",
        *_SHORT,
        "hydra/sweeper=optuna",
        "hydra.sweeper.n_trials=3",
        "optimizer.learning_rate=tag(log,interval(0.01,0.3))",
    ),
    "sweep": ("-m", *_SHORT, "optimizer.learning_rate=0.05,0.1", "seed=0,1", "hydra.launcher.jobs=2"),
}
NAMES = tuple(_KINDS)
_KINDS["pairs"] = (
    "experiment=ratings",
    "data.path={ratings}",
    "data.label=rating",
    "train.batch_size=32",
    "train.epochs=null",
    "train.steps=12",
    "train.log_every=1",
    "train.evaluate_every=4",
    "checkpoint.every_steps=2",
    "output.tensorboard=false",
)
_KINDS["workers"] = (
    *_SHORT,
    "train.batch_size=60",
    "train.steps=24",
    "optimizer=adagrad",
    "checkpoint.save=training",
    "checkpoint.keep=null",
    "output.baselines=false",
    "strategy=multi_worker",
    "strategy.workers=3",
    "strategy.intra_op_threads=1",
    "strategy.inter_op_threads=2",
)


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        status: exit status; 128 and the signal that killed it.
        out: its output.
        err: its errors.
    """

    status: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The last line of its errors."""
        return (self.err.strip().splitlines() or [""])[-1]


class Commands:
    """Starts commands of embexp in working directories of their own."""

    def __init__(self, folder: Path, shared: Path) -> None:
        """Makes what all kinds of runs read.

        Args:
            folder: of the commands, see `shim.commands`.
            shared: an empty folder for data, the cache and an earlier run.
        """
        self._embexp = preloaded.with_jobs(folder) / "embexp"
        self._shared = shared.resolve()
        self.ratings = self._shared / "ratings.csv"
        generator = random.Random(0)
        lines = [
            f"u{generator.randrange(30)},i{generator.randrange(20)},{generator.randint(1, 5)}\n" for _ in range(600)
        ]
        self.ratings.write_text("user,item,rating\n" + "".join(lines))
        planted_triples.divided(self._shared / "graph", planted_triples.circle(12), test=8, valid=6)

    def words(self, kind: str) -> list[str]:
        """The arguments of a kind's `embexp run`."""
        earlier = self._shared / "earlier"
        if kind == "grown" and not earlier.exists():
            words = [each for each in _SHORT if not each.startswith(("data.users", "train.steps"))]
            words += ["data.users=50", "train.steps=4", f"output.cache={self._shared / 'cache'}"]
            ended = self.ended(["run", *words, f"hydra.run.dir={earlier}"], self._shared)
            assert ended.status == 0, ended.err
        given = dict.fromkeys(_KINDS[kind])  # of two for one key, the last
        own = list({each.split("=")[0]: each for each in given}.values())
        own = [each.format(earlier=earlier, graph=self._shared / "graph", ratings=self.ratings) for each in own]
        place = "sweep" if "-m" in own else "run"
        return ["run", *own, f"output.cache={self._shared / 'cache'}", f"hydra.{place}.dir={RUN}"]

    def start(self, words: Sequence[str], folder: Path, control: Control | None = None) -> subprocess.Popen[str]:
        """Starts `embexp` with words in a working directory, watched if there is a control folder."""
        variables = {key: value for key, value in os.environ.items() if key != shim.VARIABLE}
        (folder.parent / "tmp").mkdir(exist_ok=True)
        variables["TMPDIR"] = str(folder.parent / "tmp")
        if control is not None:
            variables[shim.VARIABLE] = str(control.folder)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [self._embexp, *words],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def ended(self, words: Sequence[str], folder: Path, control: Control | None = None) -> Ended:
        """The same, to its end."""
        return waited(self.start(words, folder, control))


def waited(process: subprocess.Popen[str], seconds: float = 600) -> Ended:
    """A command at its end.

    Raises:
        subprocess.TimeoutExpired: it does not end.
    """
    out, err = process.communicate(timeout=seconds)
    return Ended(process.returncode, out, err)

"""A small field that embexp does not ship: a task, a source, a model, a setting, an export, a command, and YAML."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from embexp.specs import fields

NAME = "guestbook"
RECORD = f"{NAME}:FIELD"
FILES = {
    "__init__.py": '''\
"""Votes of guests."""

from embexp.fields import Field

__version__ = "0.3.1"
FIELD = Field(
    name="votes",
    described="votes of guests",
    tasks={"vote": "guestbook.tasks:VOTE"},
    data={"guests": "guestbook.specs:Guests"},
    models={"linear": "guestbook.specs:Linear"},
    settings={"vote": "guestbook.specs:VoteSettings"},
    methods={"voters": "guestbook.methods:voters"},
    exports={"ballot": "guestbook.methods:write"},
    commands={"tally": ("Counts votes.", "guestbook.command:COMMAND")},
    configs="configs",
)
''',
    "tasks.py": """\
from embexp.fields import Direction, Labels, Metric, Task

_METRICS = "embexp.fields.columns.metrics"
VOTE = Task(
    "vote",
    described="A vote, 0 or 1.",
    labels=Labels.BINARY,
    loss="embexp.training.models:of_labels",
    reference="embexp.fields.columns.baselines:OF_BINARY",
    evaluator="embexp.fields.columns.evaluation:LabelEvaluator",
    serving="embexp.fields.columns.models:model",
    settings="vote",
    metrics=(
        Metric("log_loss", Direction.LOWER, f"{_METRICS}:log_loss", "embexp.fields.columns.baselines:log_loss"),
        Metric("loss", Direction.LOWER, f"{_METRICS}:log_loss", "embexp.fields.columns.baselines:log_loss"),
    ),
)
""",
    "specs.py": '''\
from typing import Literal

from embexp.fields import CSV, DenseModel, Spec


class VoteSettings(Spec):
    """What only votes read."""

    quorum: int = 2


class Guests(CSV):
    """A file of guests."""

    kind: Literal["guests"] = "guests"
    second: str | None = None

    @property
    def further_labels(self):
        return () if self.second is None else (self.second,)


class Linear(DenseModel):
    """A weight for each input."""

    kind: Literal["linear"] = "linear"
    implementation = "guestbook.models:linear"
    scale: float = 1.0
''',
    "models.py": '''\
from embexp.fields.parts import layers


def linear(model, activations, head):
    """Logits [B, 1]."""
    inputs = layers.concatenated([activations[name] for name in sorted(activations)], name="inputs")
    return model.scale * layers.logits(inputs, head)
''',
    "methods.py": """\
from embexp.fields.parts import Written


def voters(run):
    return sorted(run.spec.features)


def write(run, directory, out, progress, **options):
    (directory / "ballot.txt").write_text(str(run.spec.vote.quorum))
    return Written({})
""",
    "command.py": """\
from types import SimpleNamespace

HELP = "usage: embexp tally"


def main(arguments):
    print("tallied", *arguments)
    return 0


COMMAND = SimpleNamespace(main=main, HELP=HELP)
""",
    "configs/model/linear.yaml": """\
# A weight for each input.
kind: linear
# Factor of the logits.
scale: 1.0
""",
    "configs/data/guests.yaml": """\
# A file of guests.
defaults:
  - csv
kind: guests
""",
    "configs/experiment/votes.yaml": """\
# @package _global_
# Votes of guests in a file.
defaults:
  - /table@tables.guest: embedding
  - /feature@features.guest: id
  - override /data: guests
  - override /graph: null
  - override /model: linear
  - _self_
name: votes
task: vote
tables: {guest: {dim: 4}}
features: {guest: {table: guest}}
data: {label: vote, split: {kind: random}}
vote: {quorum: 2}
train: {epochs: 1, batch_size: 8}
output: {plots: false, tensorboard: false}
""",
}
EXPERIMENT = ("experiment=votes", "data.path=guests.csv")


def write_package(folder: Path, name: str = NAME, **changes: str) -> Path:
    """Writes the package into a folder, and a file of its data next to it; returns the folder of the package.

    Args:
        name: of the package.
        **changes: texts to replace in all files, by name of the text with `_` for any other character.
    """
    package = folder / name
    for path, text in FILES.items():
        for old, new in changes.items():
            text = text.replace(old, new)
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text.replace(NAME, name))
    return package


def install(folder: Path, name: str = NAME, *, record: str = "", version: str = "0.3.1", field: str = "votes") -> None:
    """Makes a package in a folder one that is installed, with an entry point."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[embexp.fields]\n{field} = {record or f'{name}:FIELD'}\n")


def forget(*packages: str) -> None:
    """Has fields of these packages found anew."""
    fields._named.clear()
    fields._broken.clear()
    fields._allowed.clear()
    fields._installed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
    fields._change()


@contextlib.contextmanager
def installed(project: Path, package: str) -> Iterator[dict[str, str]]:
    """Within the block, a project is as if installed, in this process; yields the variables for others.

    Args:
        project: the folder of its `pyproject.toml`, with entry points for fields.
        package: the name of its package, in this folder.
    """
    about = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ((name, record),) = about["entry-points"]["embexp.fields"].items()
        install(Path(folder), package, record=record, version=about["version"], field=name)
        paths = [folder, str(project)]
        sys.path[:0] = paths
        stack.callback(forget, package)
        stack.callback(lambda: [sys.path.remove(each) for each in paths])
        forget(package)
        yield {"PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])}


def write_data(folder: Path) -> None:
    """Writes guests.csv."""
    lines = [f"guest{number % 7},{int(number % 7 > 3)}" for number in range(200)]
    (folder / "guests.csv").write_text("\n".join(["guest,vote", *lines, ""]))

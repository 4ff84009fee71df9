"""What differs between a recorded run and the same run done again: every number but times, and every checkpoint.

Not compared are times, memory, and the sizes of graphs, in which names of layers depend on what else the process did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embexp.checkpoints import series
from embexp.errors import DataError
from embexp.records.differences import Difference, Kind, between
from embexp.records.folder import RunFolder
from embexp.studies import runs_compared
from embexp.system import digests

_NO_RESULT = ("run_id", "throughput", "resumed_at")
"""Keys of summary.json that may differ: `run_id` is a circumstance."""
_OF_THE_PROCESS = ("seconds", "peak_anonymous_bytes", "graph_def_bytes", "total_graph_def_bytes")
"""The same of its `initialization`."""
_OF_TRACKERS = ("TensorBoard: ", "MLflow: ", "Weights & Biases: ", "the projector's files ")
"""How warnings begin about what is not done again."""
_VARIABLE = re.compile(r" \([^()]*\)")
"""The name of a variable behind its path, see `_OF_THE_PROCESS`."""
_TOUCHED = "touched.npz"


@dataclass(frozen=True)
class Repetition:
    """A recorded run, compared with the same run done again.

    Attributes:
        results: what differs, the earliest step first.
    """

    results: tuple[Difference, ...]
    compared: tuple[str, ...]


def compare(folder: RunFolder, again: RunFolder, *, beside: Collection[str] = ()) -> Repetition:
    """Compares a recorded run with the new one.

    Args:
        again: of the new one, which has saved checkpoints after the same steps.
        beside: names of the runs beside it, in a study, from whose checkpoints it may start: they are compared
            themselves, and their paths and digests of files differ.

    Raises:
        DataError: a file of the record is damaged.
    """
    results = runs_compared.compare_results(folder, again)
    weights = () if results.weights is None else results.weights.differences
    of_steps, compared = _steps(folder, again)
    by_step = sorted(
        [*results.metrics.differences(), *of_steps], key=lambda each: float("inf") if each.step is None else each.step
    )
    others = [*_other_checkpoints(folder, again), *_files(folder, again)]
    found = [*by_step, *_summaries(folder.read_summary(), again.read_summary()), *weights, *others]
    lines = [f"{results.metrics.lines:,} lines of metrics.jsonl", "all numbers of summary.json that are no times"]
    if results.digests:
        lines.append(f"{results.digests} {'table' if results.digests == 1 else 'tables'} by digest")
    if results.weights is not None:
        lines.append(f"{results.weights.tensors} tensors of the final checkpoint, byte for byte")
    return Repetition(tuple(_own(found, beside)), (*lines, *compared, *results.not_compared))


def compare_studies(folder: RunFolder, again: RunFolder) -> list[Difference]:
    """What differs between the summaries of a recorded study and of the same study done again."""
    found = between(Kind.SUMMARY, *(json.loads(each.summary.read_bytes()) for each in (folder, again)))
    return [each for each in found if not re.search(r"seconds|run_id|digest_|directory", each.name)]


def _summaries(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    found = []
    for each in between(Kind.SUMMARY, _without_times(a), _without_times(b)):
        of_table = each.name.startswith("tables.")
        found.append(replace(each, kind=Kind.TABLE, name=each.name.removeprefix("tables.")) if of_table else each)
    return found


def _without_times(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A summary, or that of a checkpoint, without what need not be the same again."""
    kept = {key: value for key, value in summary.items() if key not in _NO_RESULT}
    kept["initialization"] = {key: value for key, value in kept["initialization"].items() if key not in _OF_THE_PROCESS}
    if "warnings" in kept:
        kept["warnings"] = [each for each in kept["warnings"] if not str(each).startswith(_OF_TRACKERS)]
    if restored := kept.get("restored"):
        unnamed = {key: [_VARIABLE.sub("", str(each)) for each in restored[key]] for key in ("restored", "left_out")}
        kept["restored"] = {**restored, **unnamed}
    return kept


def _steps(folder: RunFolder, again: RunFolder) -> tuple[list[Difference], list[str]]:
    """What differs in the checkpoints of steps: the first that differ in detail, the later ones by name."""
    found: list[Difference] = []
    equal: int | None = None
    steps = series.step_directories(folder.checkpoints)
    for path in steps:
        step = int(path.name.removeprefix("step_"))
        here = [replace(each, step=step) for each in _checkpoints(path, again.checkpoints / path.name)]
        if not here:
            equal = step if not found else equal
        elif not found:
            since = "" if equal is None else f"after step {equal:,} the checkpoints are equal"
            found = [replace(each, note="; ".join(filter(None, (each.note, since)))) for each in here]
        else:
            found.append(Difference(Kind.CHECKPOINT, path.name, step=step, note=f"{here[0].label} differs, too"))
    if not steps or found:
        return found, []
    return found, [f"checkpoints up to step {equal:,}"]


def _other_checkpoints(folder: RunFolder, again: RunFolder) -> Iterator[Difference]:
    """What differs in the best checkpoint, and in the state of the final one, whose tensors are compared anyway."""
    final = folder.final_checkpoint
    if final.is_dir() and again.final_checkpoint.is_dir():
        yield from _states(final, again.final_checkpoint)
    if folder.best_checkpoint.is_dir():
        yield from _checkpoints(folder.best_checkpoint, again.best_checkpoint)


def _checkpoints(a: Path, b: Path) -> list[Difference]:
    """What differs between two checkpoints: tensors, and the state of the training."""
    if not b.is_dir():
        return [Difference(Kind.CHECKPOINT, a.name, "a checkpoint")]
    return [*runs_compared.compare_weights(a, b).differences, *_states(a, b)]


def _states(a: Path, b: Path) -> Iterator[Difference]:
    """What differs between `state.json` and `touched.npz` of two checkpoints."""
    of_a, of_b = _state(a), _state(b)
    if of_a is not None and of_b is not None:
        yield from between(Kind.CHECKPOINT, of_a, of_b, prefix=f"{a.name}/{series.STATE}")
    else:
        yield from _unlike(a.parent, b.parent, [f"{a.name}/{series.STATE}"], Kind.CHECKPOINT)
    yield from _unlike(a.parent, b.parent, [f"{a.name}/{_TOUCHED}"], Kind.CHECKPOINT)


def _state(directory: Path) -> dict[str, Any] | None:
    """How the training stood at a checkpoint; None: there is no file of it."""
    path = directory / series.STATE
    try:
        content = json.loads(path.read_bytes())
        kept = {key: content[key] for key in ("outcome", "stopping", "drift")}
        return {**kept, "summary": _without_times(content["summary"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}") from None


def _files(folder: RunFolder, again: RunFolder) -> Iterator[Difference]:
    """What differs between vocabularies, coverage, and what was fitted to numeric columns."""
    names = {
        path.relative_to(each.path).as_posix()
        for each in (folder, again)
        for path in each.vocabularies.glob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    yield from _unlike(folder.path, again.path, [*sorted(names), folder.numbers.name], Kind.FILE)
    if folder.coverage.is_file() and again.coverage.is_file():
        try:
            contents = [json.loads(each.coverage.read_bytes()) for each in (folder, again)]
        except (ValueError, RecursionError) as error:
            raise DataError(f"{folder.coverage} is damaged: {error}") from None
        yield from between(Kind.FILE, *contents, prefix=folder.coverage.name)
    else:
        yield from _unlike(folder.path, again.path, [folder.coverage.name], Kind.FILE)


def _unlike(a: Path, b: Path, names: Collection[str], kind: Kind) -> Iterator[Difference]:
    """The files of two folders that differ in a byte, or that one of the two lacks."""
    for name in names:
        in_a, in_b = (a / name).is_file(), (b / name).is_file()
        if in_a != in_b:
            yield Difference(kind, name, "a file" if in_a else None, "a file" if in_b else None)
        elif in_a and digests.of_file(a / name) != digests.of_file(b / name):
            yield Difference(kind, name, note="other bytes")


def _own(found: Collection[Difference], beside: Collection[str]) -> Iterator[Difference]:
    """Without the paths and digests of checkpoints beside the run, see `compare`."""
    elsewhere = {each.name.removesuffix("path") for each in found if is_beside(each, beside)}
    for each in found:
        prefix, _, key = each.name.rpartition(".")
        if not (key in ("path", "digest") and f"{prefix}." in elsewhere):
            yield each


def is_beside(found: Difference, beside: Collection[str]) -> bool:
    """Whether a difference is that of the paths of a run's and its repetition's neighbour in a study."""
    a, b = found.a, found.b
    if not (isinstance(a, str) and isinstance(b, str) and found.name.endswith("path")):
        return False
    return Path(a).is_absolute() and Path(a).name == Path(b).name and Path(a).name in beside

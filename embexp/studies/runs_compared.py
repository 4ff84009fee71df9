"""What differs between two runs, or two studies: specs, circumstances and results. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.errors import NotARunError
from embexp.records import differences
from embexp.records.differences import Difference, Kind, between
from embexp.records.folder import RunFolder
from embexp.studies import results_compared
from embexp.studies.results_compared import ResultsCompared


@dataclass(frozen=True)
class RunsCompared:
    """Two runs, compared.

    Attributes:
        spec: what differs between their specs, by dotted key.
        circumstances: what differs between their manifests.
        results: their results.
    """

    spec: tuple[Difference, ...]
    circumstances: tuple[Difference, ...]
    results: ResultsCompared

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.spec or self.circumstances or self.results.differences)

    def sections(self) -> dict[str, list[Difference]]:
        """What differs, by what it is of."""
        weights = self.results.weights
        return {
            "spec": list(self.spec),
            "circumstances": list(self.circumstances),
            "first metrics that differ": self.results.metrics.differences(),
            "results": list(self.results.summary),
            "weights": [] if weights is None else list(weights.differences),
        }

    def sentences(self) -> Iterator[str]:
        """What was compared, and what was not."""
        metrics, weights = self.results.metrics, self.results.weights
        only = "".join(
            f", {count:,} only in {name}" for name, count in (("A", metrics.only_a), ("B", metrics.only_b)) if count
        )
        equal = metrics.lines - metrics.different
        yield f"{equal:,} of {metrics.lines:,} common lines of metrics.jsonl are equal{only}"
        if weights is not None:
            yield f"{weights.equal} of {weights.tensors} common tensors of the final checkpoints are equal to the bit"
        yield from self.results.not_compared

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        metrics, weights = self.results.metrics, self.results.weights
        return {
            "differ": not self.same,
            **{
                key: [each.as_json() for each in found]
                for key, found in zip(
                    ("spec", "circumstances", "metrics", "results", "weights"), self.sections().values(), strict=True
                )
            },
            "metrics_lines": {
                "common": metrics.lines,
                "different": metrics.different,
                "only_a": metrics.only_a,
                "only_b": metrics.only_b,
            },
            "tensors": None if weights is None else {"common": weights.tensors, "equal": weights.equal},
            "not_compared": list(self.results.not_compared),
        }


def compare(a: Path, b: Path, *, rows: int = 3) -> dict[str, RunsCompared]:
    """Compares two runs, or the runs of two studies that have the same name.

    Args:
        a: directory of a run or a study.
        b: directory of another one.
        rows: how many of the first rows that differ are named for each table.

    Returns:
        The comparison by the name of the study's run; of two single runs, by "".

    Raises:
        DataError: a checkpoint is damaged.
        NotARunError: there is no run, or one is a study and the other is not.
        RunError: another process writes one of them.
    """
    first, second = RunFolder(a), RunFolder(b)
    with first.reading(), second.reading():
        names = [list(each.runs_of_study()) for each in (first, second)]
        if not names[0] and not names[1]:
            return {"": _one(first, second, rows)}
        if not all(names):
            raise NotARunError(f"{a} and {b}: one is a study with runs that have ended, and the other is not")
        common = [name for name in names[0] if name in names[1]]
        return {name: _one(RunFolder(a / name), RunFolder(b / name), rows) for name in common}


def _one(a: RunFolder, b: RunFolder, rows: int) -> RunsCompared:
    specs = [each.read_spec().model_dump(mode="json") for each in (a, b)]
    circumstances: list[Difference] = []
    if a.manifest.exists() and b.manifest.exists():
        found = differences.manifest_differences(a.read_manifest(), b.read_manifest())
        circumstances = [each for each in found if each.kind is not Kind.SPEC]
    return RunsCompared(
        tuple(between(Kind.SPEC, *specs)), tuple(circumstances), results_compared.compare(a, b, rows=rows)
    )

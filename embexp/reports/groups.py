"""Settings that were run several times, with other seeds or on other folds: their figures and comparison."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from embexp.records.manifest import decides_nothing
from embexp.reports.record import Record, at, text_of
from embexp.specs.tasks import Direction
from embexp.training.significance import CONFIDENCE, holm

REPEATS = ("data.fold", "seed")
"""Settings whose values repeat an experiment."""
_DRAWN = ("data.split.seed", "data.seed")
"""Seeds of the split and of synthetic data: where each is the seed of its run, they repeat an experiment, too."""
_DIVIDING = ("data.folds", "data.label", "data.label_threshold")
"""Settings that decide what is evaluated, besides those of `data.split`."""
CONTENT = "content"
"""What `evaluated` calls the digest of the examples."""
FEW = 3
"""With fewer repetitions than this, there is no interval, and p-values say next to nothing: Student's t of two values
makes an interval 18 times as wide as their standard deviation."""


@dataclass(frozen=True)
class Group:
    """The runs of one setting.

    Attributes:
        runs: with results, each repetition once.
        values: of each metric, and of each compared key whose values are numbers.
        comparison: with the reference; None for the reference itself, and where there is none.
        reference: whether the others are compared with this setting.
        best: whether its mean on the validation split is the best.
    """

    runs: tuple[Record, ...]
    values: Mapping[str, Estimate] = field(default_factory=dict)
    comparison: Comparison | None = None
    reference: bool = False
    best: bool = False

    @property
    def first(self) -> Record:
        """One of the runs, for the settings that all share."""
        return self.runs[0]


def groups(records: Sequence[Record], compared: Sequence[str], repeats: Collection[str] = REPEATS) -> list[Group]:
    """The settings of runs, in the order of their first run; none if no setting was repeated.

    Two runs have the same setting if their specs differ in nothing but `repeats` (and what changes no result), and
    their data has the same content. Of two runs with the same seed and fold, which have the same values, the first
    counts.

    Args:
        repeats: what `repeating` has found.
    """
    settings = by_setting(records, repeats)
    if all(len(runs) < 2 for runs in settings):
        return []
    return [Group(tuple(runs), estimates(_samples(runs, compared))) for runs in settings]


def by_setting(records: Sequence[Record], repeats: Collection[str] = REPEATS) -> list[list[Record]]:
    """The runs of each setting, see `groups`, in the order of their first run.

    Args:
        repeats: settings whose values repeat an experiment.
    """
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        found.setdefault(setting_of(record, repeats), {}).setdefault(repetition(record), record)
    return [list(runs.values()) for runs in found.values()]


def repeating(records: Iterable[Record]) -> tuple[str, ...]:
    """Settings whose values repeat an experiment: seed and fold, and seeds of the data that follow the run's seed.

    `data.split.seed=${seed}` draws another split for each seed. The same values by chance, as of a single run with the
    seed 0, are no sign of that.
    """
    known = [record.settings for record in records if "seed" in record.settings]
    if len({repr(settings["seed"]) for settings in known}) < 2:
        return REPEATS
    drawn = [
        key for key in _DRAWN if all(settings.get(key, settings["seed"]) == settings["seed"] for settings in known)
    ]
    return (*REPEATS, *(key for key in drawn if any(key in settings for settings in known)))


def evaluated(record: Record, repeats: Collection[str] = REPEATS) -> dict[str, str]:
    """What decides which examples a run was evaluated on: content, split, label and number, by what each is called.

    Values of runs can be compared if these are the same, as in one sweep over other settings. Folds, and splits that
    follow the seed, are repetitions.
    """
    settings = record.settings
    found = {} if _is_drawn(record, repeats) else {CONTENT: record.examples_digest or "unknown"}
    for key in sorted(settings):
        if (key.startswith("data.split.") or key in _DIVIDING) and key not in repeats and settings[key] is not None:
            found[key] = text_of(settings[key])
    if settings.get("data.fold") is None and len(repeats) == len(REPEATS):
        for split in ("validation", "test"):
            if type(count := at(record.summary, f"examples.{split}")) is int:
                found[f"{split} examples"] = f"{count:,}"
    return found


def by_data(records: Iterable[Record], repeats: Collection[str] = REPEATS) -> list[list[Record]]:
    """The runs by what they were evaluated on: only values of the same data say which run is better.

    Returns:
        Lists in the order of `records`; the longest first, and of equal ones that of the first run.
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(json.dumps(evaluated(record, repeats)), []).append(record)
    return sorted(found.values(), key=len, reverse=True)


def _is_drawn(record: Record, repeats: Collection[str]) -> bool:
    """Whether the data are drawn anew by the seed of each run: then settings tell them apart, and no digest."""
    return "data.seed" in repeats and "data.seed" in record.settings and "data.path" not in record.settings


def of_setting(key: str, repeats: Collection[str] = REPEATS) -> bool:
    """Whether a key tells settings apart: all but the seed, the fold, and what changes no result."""
    return key not in repeats and not decides_nothing(key)


def repetition(record: Record) -> str:
    """Which repetition of its setting a run is."""
    return json.dumps([record.settings.get(key) for key in REPEATS])


def rank(value: float | None, direction: Direction | None) -> float:
    """Sorts values by how good they are, the best first; what is missing or not finite comes last."""
    if value is None or not math.isfinite(value):
        return math.inf
    return -value if direction is Direction.HIGHER else value


def ranked(found: Sequence[Group], metric: str, direction: Direction) -> list[Group]:
    """The groups by their means of a metric, the best first; those without it, or with NaN, last."""
    return sorted(found, key=lambda group: rank(_mean(group, metric), direction))


def best(found: Sequence[Group], metric: str, direction: Direction) -> Group | None:
    """The group with the best mean of a metric; None if none has it. NaN is never the best."""
    first = min(found, key=lambda group: rank(_mean(group, metric), direction), default=None)
    return None if first is None or rank(_mean(first, metric), direction) == math.inf else first


def _mean(group: Group, metric: str) -> float | None:
    return group.values[metric].mean if metric in group.values else None


def judged(found: Sequence[Group], best: Group | None, reference: Group | None, metric: str) -> list[Group]:
    """The groups with the best one marked, and each compared with the reference, p-values corrected for their number.

    Args:
        best: one of them, or None.
        reference: one of them; None compares nothing.
        metric: the one to compare, such as "test rmse".
    """
    marked = [replace(group, best=group is best, reference=group is reference) for group in found]
    if reference is None:
        return marked
    base = {repetition(run): run.metrics[metric] for run in reference.runs if metric in run.metrics}
    results = []
    for group in marked:
        both = [run for run in group.runs if repetition(run) in base and metric in run.metrics]
        results.append(compare([run.metrics[metric] for run in both], [base[repetition(run)] for run in both]))
    tested = {place: each.p for place, each in enumerate(results) if each.p is not None and not marked[place].reference}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [
        group if group.reference else replace(group, comparison=replace(result, adjusted=adjusted.get(place)))
        for place, (group, result) in enumerate(zip(marked, results, strict=True))
    ]


def setting_of(record: Record, repeats: Collection[str] = REPEATS) -> str:
    """What two repetitions share, the content of their data included. One whose spec can't be read repeats no other."""
    kept = {key: value for key, value in record.settings.items() if of_setting(key, repeats)}
    digest = None if _is_drawn(record, repeats) else record.data_digest
    return json.dumps([kept or str(record.directory), digest], sort_keys=True)


def _samples(runs: Sequence[Record], compared: Sequence[str]) -> dict[str, list[float]]:
    """Values by metric and compared key; keys with values that are no numbers are left out."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    samples = {name: [run.metrics[name] for run in runs if name in run.metrics] for name in names}
    for key in compared:
        numbers = [number(at(run.summary, key)) for run in runs]
        present = [each for each in numbers if each is not None]
        if len(present) == len(runs):
            samples[key] = present
    return samples


@dataclass(frozen=True)
class Estimate:
    """A metric over repetitions.

    Attributes:
        count: of the repetitions that have it.
        std: the standard deviation (n - 1); None for one value.
        low: lower end of the confidence interval of the mean; None for fewer than `FEW` values.
    """

    count: int
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A setting compared with the reference, over the repetitions that both have.

    Attributes:
        pairs: repetitions that both have.
        difference: mean of the setting's values minus the reference's; None without pairs.
        p: of the paired t-test, two-sided; None with fewer than two pairs.
        adjusted: `p` after Holm's correction for all settings compared.
    """

    pairs: int
    difference: float | None = None
    p: float | None = None
    adjusted: float | None = None


def estimates(samples: Mapping[str, Sequence[float]]) -> dict[str, Estimate]:
    """Means with standard deviations and intervals, by name; a name without values is left out.

    The interval is Student's (1908): mean ± t · std / √n, with t of n - 1 degrees of freedom.
    """
    return {name: _estimate(np.asarray(values, np.float64)) for name, values in samples.items() if values}


def _estimate(values: np.ndarray) -> Estimate:
    count, mean = len(values), float(values.mean())
    if count < 2 or not np.isfinite(values).all():
        return Estimate(count, mean)
    std = float(values.std(ddof=1))
    if count < FEW:
        return Estimate(count, mean, std)
    from scipy import stats

    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * std / math.sqrt(count)
    return Estimate(count, mean, std, mean - half, mean + half)


def compare(values: Sequence[float], reference: Sequence[float]) -> Comparison:
    """The paired t-test of two settings, without the correction.

    A t-test, because with up to five pairs Wilcoxon's signed-rank test can't fall below p = 0.06 whatever the values.

    Args:
        values: of the setting, one for each repetition that both have.
        reference: of the reference, in the same order.
    """
    pairs = len(values)
    differences = np.asarray(values, np.float64) - np.asarray(reference, np.float64)
    if not pairs or not np.isfinite(differences).all():
        return Comparison(pairs)
    if pairs == 1:
        return Comparison(pairs, float(differences[0]))
    if not differences.any():
        return Comparison(pairs, 0.0, 1.0)
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are all alike
        p = float(stats.ttest_rel(values, reference).pvalue)
    return Comparison(pairs, float(differences.mean()), p)


def number(value: object) -> float | None:
    """A value that can be averaged, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else math.nan

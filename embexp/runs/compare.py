"""Finished runs on the same examples: evaluated from their checkpoints, and compared pair by pair.

Nothing is computed unless all evaluate the same rows, which their numbers, their labels and the content of the data
decide. What is measured, and of which unit, is what the field's own evaluation draws again, `intervals.Drawn`. Of
metrics that it draws nothing for, such as a stranger's, blocks of examples are evaluated and drawn again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.errors import RunError, UsageError
from embexp.records.differences import Kind, between, format_value
from embexp.records.folder import RunFolder, named_functions
from embexp.reports import grid, groups, results
from embexp.reports.collected import collect, is_run, read_run, varying
from embexp.reports.comparison import Comparison, Contender, MetricCompared, Pair, RowCompared
from embexp.reports.record import Record
from embexp.runs.finished import PreparedEvaluation, Run
from embexp.specs import tasks as metric_specs
from embexp.specs.fields import imported
from embexp.specs.tasks import Labels, Task
from embexp.system import digests
from embexp.system.parallel import Progress, part, quiet
from embexp.training import intervals, significance
from embexp.training.intervals import RESAMPLES, Drawn, Intervals, Outcomes, Resampled
from embexp.training.significance import Tested, Variance

_SEED = 0
"""Seed of the resamples. It is the same for all runs and every order of them."""
_BLOCKS, _FEWEST_ROWS = 20, 10
"""Number of blocks of examples, and the fewest examples in a block."""
_AT_ONCE = 1 << 16
_MOST_COLUMNS = 4
BOOTSTRAP, SEEDS, BOTH = "bootstrap", "seeds", "seeds and bootstrap"
"""Names of the tests that no metric has for itself."""
ONE_SEED = (
    "each model has one run, so intervals cover only the choice of examples; another seed may give another difference"
    " (seeds=5 repeats a setting)"
)


def contenders(paths: Iterable[str | Path]) -> list[Contender]:
    """The models in directories: each run, and each setting of a sweep with its seeds. TensorFlow is not loaded.

    Raises:
        UsageError: there are fewer than two.
        NotARunError: there is no run in a directory.
        RunError: no run in one has results.
    """
    found: list[tuple[str, list[Record]]] = []
    for path in map(Path, paths):
        if is_run(path):
            found.append((results.shown_path(path), [read_run(path)]))
            continue
        records = [each for each in collect([path]) if each.status.has_results and each.directory is not None]
        if not records:
            raise RunError(f"{path}: none of its runs has results; embexp report {path} says why")
        settings: dict[str, list[Record]] = {}
        for record in records:
            settings.setdefault(groups.setting_of(record), []).append(record)
        keys = [key for key in varying(records) if groups.of_setting(key)]
        for several in settings.values():
            described = grid.described(keys, [several[0].value(key) for key in keys]) if len(settings) > 1 else ""
            found.append((f"{results.shown_path(path)}{f': {described}' if described else ''}", several))
    if len(found) < 2:
        raise UsageError("a comparison needs at least two models: give the directories of runs or sweeps")
    named = []
    for place, (name, records) in enumerate(found):
        directories: dict[str, str] = {}
        for record in records:
            directories.setdefault(groups.repetition(record), str(record.directory))
        named.append(Contender(_letter(place), name, directories))
    return named


def allowed_for(models: Sequence[Contender], allow_code: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The functions that a user allows, by the directory of each run whose record names them.

    Raises:
        UsageError: one is named by no run.
    """
    paths = dict.fromkeys(path for each in models for path in each.directories.values())
    named = {path: named_functions(RunFolder(Path(path)).recorded_spec()) for path in paths}
    if extra := [each for each in allow_code if not any(each in known for known in named.values())]:
        raise UsageError(f"--allow-code {' '.join(extra)}: none of the runs names it")
    return {path: tuple(each for each in allow_code if each in known) for path, known in named.items()}


def _letter(place: int) -> str:
    return chr(ord("A") + place) if place < 26 else f"A{place}"


def compare(
    models: Sequence[Contender],
    load: Callable[[str], Run],
    data: Any = None,
    *,
    split: str = "test",
    all_pairs: bool = False,
    rows: int = 3,
    progress: Progress = quiet,
) -> Comparison:
    """Compares models on the same examples: the first one with all others, or all pairs.

    Args:
        load: loads the run in a directory.
        data: see `Run.evaluate`; likewise `split`.
        rows: how many of the rows on which the models differ most are named for each pair.
        progress: called with stages, and how much of each is done.

    Raises:
        RunError: the runs have different tasks, or were evaluated on different examples; or see `Run.evaluate`.
        DataError: see `Run.evaluate`.
    """
    runs = {path: load(path) for path in dict.fromkeys(path for each in models for path in each.directories.values())}
    _check_tasks(models, runs)
    prepared = {path: run.evaluation(data, split=split, progress=progress) for path, run in runs.items()}
    evaluations = {path: _Rows(runs[path], each, data is None) for path, each in prepared.items()}
    joint = _check_rows(models, evaluations, split)
    measured: dict[str, Measured] = {}
    for done, (path, each) in enumerate(prepared.items()):
        shown = part(progress, done / len(prepared), (done + 1) / len(prepared))
        found = _measured(replace(runs[path]), each, shown)  # a copy, whose tables are freed with it
        measured[path] = found.sharing(next(iter(measured.values()), found))
    if joint:
        _check_units(models, measured)
    first = models[0]
    chosen = itertools.combinations(models, 2) if all_pairs else ((first, other) for other in models[1:])
    pairs = []
    for before, after in chosen:
        pair = Pairing(before, after, measured, joint=joint)
        naming = _Naming(runs[pair.first[0]], prepared[pair.first[0]])
        spec = runs[pair.first[0]].spec
        judged = Judged.of(spec.task, spec.task.cutoffs_of(spec), spec.listed_metrics, spec.further_metrics)
        pairs.append(pair.compared(judged, naming, rows))
    one = evaluations[next(iter(first.directories.values()))]
    on = f"the {split} split" if data is None else str(data) if isinstance(data, str | Path) else "the given data"
    whole = Comparison(tuple(models), tuple(_corrected(pairs)), f"{on}: {one.words(measured)}", one.digest)
    return replace(whole, notes=tuple(_notes(whole, joint=joint)))


def _check_tasks(models: Sequence[Contender], runs: Mapping[str, Run]) -> None:
    kinds = {each.letter: str(runs[path].spec.task) for each in models for path in each.directories.values()}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"that of {letter} is {task}" for letter, task in kinds.items())
        raise RunError(f"the runs have different tasks, so nothing is compared: {listed}")


@dataclass(frozen=True)
class _Rows:
    """The rows that a run is evaluated on.

    Attributes:
        own: whether they belong to the run's own data.
    """

    run: Run
    prepared: PreparedEvaluation
    own: bool

    @property
    def labels(self) -> np.ndarray | None:
        found = self.prepared.examples.labels
        return None if found is None else found[self.prepared.rows]

    @property
    def content(self) -> str | None:
        """The digest of the data, as in the manifest."""
        found = self.run.folder.read_manifest() if self.own and self.run.folder.manifest.exists() else {}
        digest = found.get("data", {}).get("digest")
        return str(digest) if digest is not None else None

    @property
    def digest(self) -> str:
        arrays = [self.prepared.rows, *([] if self.labels is None else [self.labels])]
        return digests.of_json([self.content, self.prepared.examples.count, *digests.block_digests(arrays)])

    def words(self, measured: Mapping[str, Measured]) -> str:
        """The number of rows and what they are, as text."""
        found = next(iter(measured.values()))
        units = list(dict.fromkeys((each.count, each.unit) for each in found.resampled))
        count = len(self.prepared.rows)
        if all(number != count for number, _ in units):  # an equal number of queries or users adds nothing
            units.insert(0, (count, _ROWS))
        return ", ".join(f"{number:,} {unit}" for number, unit in units)

    def differs(self, other: _Rows) -> list[str]:
        """How these rows differ from those of another run, as text."""
        mine, theirs = self.prepared, other.prepared
        if mine.examples.count != theirs.examples.count or len(mine.rows) != len(theirs.rows):
            return [f"{len(each.rows):,} of {each.examples.count:,} examples" for each in (mine, theirs)]
        if not np.array_equal(mine.rows, theirs.rows):
            common = len(np.intersect1d(mine.rows, theirs.rows))
            return [f"{len(mine.rows):,} others, of which {common:,} are the same", f"{len(theirs.rows):,} examples"]
        if self.own and (self.content is None or self.content != other.content) and not self._same_tokens(other):
            return [f"data {(each.content or '')[:8]}{each.path}" for each in (self, other)]
        if not _same(self.labels, other.labels):
            return ["others", "labels"]
        return []

    @property
    def path(self) -> str:
        found = getattr(self.run.spec.data, "path", None)
        return "" if found is None else f" ({found})"

    def _same_tokens(self, other: _Rows) -> bool:
        """Whether the columns that both runs read are equal, if one of them also reads other files."""
        names = [name for name in self._columns() if name in other._columns()]
        return bool(names) and all(np.array_equal(self._hashes(name), other._hashes(name)) for name in names)

    def _columns(self) -> list[str]:
        """The token columns with one value per example."""
        known = self.run.vocabularies_by_group
        ids, examples = self.prepared.columns.ids, self.prepared.examples
        return [name for name in ids if name in examples.id_columns and isinstance(known[ids[name]], TokenVocabulary)]

    def _hashes(self, name: str) -> np.ndarray:
        """A number for each token of a column, uint64 [N]."""
        tokens = self.run.vocabularies_by_group[self.prepared.columns.ids[name]].tokens()
        hashed = np.array([int(digests.of_json(each)[:16], 16) for each in tokens], np.uint64)
        return np.asarray(hashed[self.prepared.examples.column(name, self.prepared.rows)])


_ROWS = Drawn.unit


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _check_rows(models: Sequence[Contender], found: Mapping[str, _Rows], split: str) -> bool:
    """Whether all runs are evaluated on the same rows. If not, runs with the same seed and fold are.

    Raises:
        RunError: runs with the same seed and fold are evaluated on different rows.
    """
    reference, joint = models[0], True
    first = found[next(iter(reference.directories.values()))]
    for model in models:
        for repetition, path in model.directories.items():
            if not (words := found[path].differs(first)):
                continue
            mate = reference.directories.get(repetition)
            if mate is None or (words := found[path].differs(found[mate])):
                other = first if mate is None else found[mate]
                raise RunError(_refusal(model, found[path], reference, other, words, split))
            joint = False
    return joint


def _refusal(
    model: Contender, mine: _Rows, reference: Contender, other: _Rows, words: Sequence[str], split: str
) -> str:
    """A sentence about the examples of two runs, and the settings that decide them."""
    a, b = (f"{each.letter} ({rows.run.folder.path})" for each, rows in ((reference, other), (model, mine)))
    what = f"the {split} splits" if mine.own else "the examples"
    mine_says, other_says = words
    settings = (each.run.spec.data.model_dump(mode="json") for each in (other, mine))
    found = between(Kind.SPEC, *settings, prefix="data")
    listed = ", ".join(f"{each.name} is {format_value(each.a)} and {format_value(each.b)}" for each in found)
    why = f"; {listed}" if listed and mine.own else ""
    return f"{what} differ, so nothing is compared: {a} has {other_says}, and {b} has {mine_says}{why}"


@dataclass(frozen=True)
class Measured:
    """What a run's evaluation gave.

    Attributes:
        resampled: metrics of the same resamples for all runs.
        outcomes: of each row; None: they are not known.
    """

    metrics: Mapping[str, float]
    resampled: tuple[Resampled, ...]
    outcomes: Outcomes | None

    def sharing(self, other: Measured) -> Measured:
        """The same, with the memory of rows and labels that are those of another run."""
        mine, theirs = self.outcomes, other.outcomes
        if mine is None or theirs is None or not (_same(mine.rows, theirs.rows) and _same(mine.labels, theirs.labels)):
            return self
        return replace(self, outcomes=replace(mine, rows=theirs.rows, labels=theirs.labels))

    def of(self, metric: str) -> Resampled | None:
        """The resamples that have a metric."""
        return next((each for each in self.resampled if metric in each.samples), None)


def _measured(run: Run, prepared: PreparedEvaluation, progress: Progress) -> Measured:
    details: dict[str, Any] = {}
    with intervals.drawn_later():
        metrics = prepared.measured(run.runtime, part(progress, 0, 0.8), details)
        drawn = list(details.get("intervals", Intervals()).drawn)
        again = part(progress, 0.8, 1)
        found = [
            intervals.resampled(each, _SEED, lambda done: again("resampling the examples", done)) for each in drawn
        ]
        rest = [name for name in metrics if not any(name in each.samples for each in found)]
        if rest and (blocks := in_blocks(run, prepared, rest, again)) is not None:
            found.append(intervals.resampled(blocks, _SEED))
    outcomes = next((each.outcomes for each in drawn if each.outcomes is not None), None)
    return Measured(metrics, tuple(found), outcomes)


def in_blocks(run: Run, prepared: PreparedEvaluation, names: Sequence[str], progress: Progress = quiet) -> Drawn | None:
    """Metrics of which nothing is known for each row, of blocks of the examples, drawn at random.

    None: there are too few examples, or a part does not tell how good the whole is.
    """
    rows = prepared.rows
    count = min(_BLOCKS, len(rows) // _FEWEST_ROWS)
    if prepared.of_rows is None or count < 2:
        return None
    number = np.random.default_rng(_SEED).permutation(np.arange(len(rows)) % count)
    sizes, values = np.bincount(number), {name: np.full(count, np.nan) for name in names}
    for block in range(count):
        progress("evaluating blocks of the examples", block / count)
        found = prepared.of_rows(rows[number == block])(run.runtime, quiet, None)
        for name in names:
            values[name][block] = found.get(name, np.nan)
    whole = {name: each for name, each in values.items() if np.isfinite(each).all()}

    def measured(some: np.ndarray, counts: np.ndarray) -> Mapping[str, float]:
        weights = sizes[some] * counts
        return {name: float(np.average(each[some], weights=weights)) for name, each in whole.items() if weights.any()}

    size = int(sizes.max())
    return Drawn(measured, count, unit=f"blocks of {size} {_ROWS}", per_row=size)


def _check_units(models: Sequence[Contender], measured: Mapping[str, Measured]) -> None:
    """Raises a RunError if runs evaluate different users or queries of the same examples."""
    paths = [(each.letter, path) for each in models for path in each.directories.values()]
    letter, first = paths[0]
    for other, path in paths:
        units = [[f"{each.count:,} {each.unit}" for each in measured[some].resampled] for some in (first, path)]
        mine, theirs = measured[first].outcomes, measured[path].outcomes
        if units[0] != units[1] or not _same(*(None if each is None else each.rows for each in (mine, theirs))):
            raise RunError(
                "the runs evaluate different subsets of the same examples, so nothing is compared:"
                f" {letter} {', '.join(units[0])}, but {other} {', '.join(units[1])}; a vocabulary may drop some users"
                " (data.vocabulary.min_frequency)"
            )


@dataclass(frozen=True)
class Judged:
    """How the metrics of a run are judged.

    Attributes:
        further: whether more is better, by further metric.
        tests: by metric, the path of its own test, or "", and the k of a metric of lists.
    """

    further: Mapping[str, bool]
    tests: Mapping[str, tuple[str, int | None]]

    @classmethod
    def of(cls, task: Task, cutoffs: Sequence[int], listed: Sequence[str], further: Mapping[str, bool]) -> Judged:
        """Of a task; see `RunSpec.listed_metrics` and `further_metrics`."""
        named = task.named_metrics(cutoffs, listed)
        return cls(further, {name: (metric.test, k) for name, metric, k in named})


@dataclass(frozen=True)
class Pairing:
    """Two models with what their runs gave.

    Attributes:
        joint: whether all runs are evaluated on the same rows.
    """

    before: Contender
    after: Contender
    measured: Mapping[str, Measured]
    joint: bool

    @property
    def common(self) -> list[str]:
        """The seeds and folds that both models have, if these are what is compared: two, or the only ones."""
        found = [each for each in self.before.directories if each in self.after.directories]
        single = len(self.before.directories) == len(self.after.directories) == 1
        return [] if len(found) < 2 and not (single and found) else found

    @property
    def paths(self) -> tuple[list[str], list[str]]:
        """The runs that are compared."""
        both = (self.before.directories, self.after.directories)
        first, second = ([each[key] for key in self.common or each] for each in both)
        return first, second

    @property
    def first(self) -> tuple[str, str]:
        """The runs whose rows are compared."""
        before, after = self.paths
        return before[0], after[0]

    def compared(self, judged: Judged, naming: _Naming, rows: int) -> Pair:
        """All metrics that both have, and the rows on which the first runs of both differ most."""
        before, after = ([self.measured[path] for path in paths] for paths in self.paths)
        names = [name for name in before[0].metrics if all(name in each.metrics for each in (*before, *after))]
        seen: dict[str, str] = {}
        metrics = []
        for name in names:
            values = repr([each.metrics[name] for each in (*before, *after)])
            if seen.setdefault(values, name) == name:  # the loss is the log loss under another name
                paired = bool(self.common)
                metrics.append(compare_metric(name, before, after, judged, paired=paired, joint=self.joint))
        one, other = before[0].outcomes, after[0].outcomes
        pair = Pair(self.before.letter, self.after.letter, tuple(metrics), len(self.common))
        if one is None or other is None:
            return pair
        places, count = _most_different(one, other, rows)
        named = tuple(naming.row(one, other, place) for place in places)
        unit = next((each.unit for each in before[0].resampled), _ROWS)
        return replace(pair, differing=count, rows=len(one.rows), unit=unit, outcome=one.name, most_different=named)


def compare_metric(
    name: str,
    before: Sequence[Measured],
    after: Sequence[Measured],
    judged: Judged,
    *,
    paired: bool,
    joint: bool = True,
) -> MetricCompared:
    """A metric of two models, with the test that fits: its own for one run each, or that of `significance`.

    Args:
        before: of the runs of the one model, those that are compared.
        after: of the runs of the other.
        judged: how metrics are judged.
        paired: whether runs in the same place have the same seed.
        joint: whether all runs are evaluated on the same rows.
    """
    first, second = (np.array([each.metrics[name] for each in several]) for several in (before, after))
    direction = metric_specs.direction(name, judged.further)
    found = MetricCompared(name, direction, float(first.mean()), float(second.mean()))
    difference, variances, ends = found.difference, [], None
    if joint and (drawn := _resampled(name, before, after)) is not None:
        count, error = drawn.count, drawn.errors()[name]
        variances, ends = [Variance(error**2, min(RESAMPLES, count) - 1)], drawn.ends()[name]
        examples, unit = count * drawn.per_row, drawn.unit if drawn.per_row == 1 else _ROWS
        needed = significance.rows_needed(difference, error, examples)
        found = replace(found, rows=examples, unit=unit, rows_needed=needed)
    if (of_seeds := _variance_of_seeds(first, second, paired=paired)) is None:
        if ends is None:
            return found
        exact = _exact(before[0], after[0], *judged.tests.get(name, ("", None)))
        tested = exact or significance.t_test(difference, variances, BOOTSTRAP)[0]
        return replace(found, interval=(difference + ends[0], difference + ends[1]), p=tested.p, test=tested.test)
    if paired:
        deviation = float(np.std(second - first, ddof=1))
        found = replace(found, seeds_needed=significance.seeds_needed(difference, deviation))
    tested, half = significance.t_test(difference, [of_seeds, *variances], BOTH if variances else SEEDS)
    return replace(found, interval=(difference - half, difference + half), p=tested.p, test=tested.test)


def _resampled(name: str, before: Sequence[Measured], after: Sequence[Measured]) -> Resampled | None:
    """The resamples of the difference of means over runs; None: not available."""
    means = []
    for several in (before, after):
        found = [drawn for each in several if (drawn := each.of(name)) is not None]
        if len(found) < len(several):
            return None
        means.append(intervals.mean_of(found))
    drawn = means[1].less(means[0])
    return drawn if name in drawn.ends() else None


def _variance_of_seeds(before: np.ndarray, after: np.ndarray, *, paired: bool) -> Variance | None:
    """The variance of the difference of means over seeds; None: each model has one run.

    If runs have the same seeds, it is the variance of the paired t-test. Otherwise, the variances of both means are
    added (Welch 1947). A single run is assumed to vary like the others.
    """
    if len(before) == len(after) == 1:
        return None
    if paired:
        return Variance(float(np.var(after - before, ddof=1)) / len(before), len(before) - 1)
    known = [(float(np.var(each, ddof=1)), len(each) - 1) for each in (before, after) if len(each) > 1]
    of_each = known if len(known) == 2 else [known[0]] * 2
    sizes = (len(before), len(after))
    parts = [(variance / size, freedom) for (variance, freedom), size in zip(of_each, sizes, strict=True)]
    total = sum(value for value, _ in parts)
    if not total:
        return Variance(0.0, 1)
    if len(known) == 1:
        return Variance(total, known[0][1])
    return Variance(total, total**2 / sum(value**2 / freedom for value, freedom in parts))


def _exact(before: Measured, after: Measured, test: str, k: int | None) -> Tested | None:
    """The result of the metric's own test, see `Judged`; None: there is no such test, or rows have weights."""
    one, other = before.outcomes, after.outcomes
    if not test or one is None or other is None or not one.equal_weights:
        return None
    found: Tested = imported(test)(one.labels, one.values, other.values, **({} if k is None else {"k": k}))
    return found


def _most_different(one: Outcomes, other: Outcomes, rows: int) -> tuple[list[int], int]:
    """The places of the rows on which two models differ most, and the number of rows on which they differ."""
    count = len(one.rows)
    distance = np.empty(count)
    for start in range(0, count, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        gap = np.abs(one.shown(one.values[some]).astype(np.float64) - other.shown(other.values[some]))
        distance[some] = gap.reshape(len(gap), -1).sum(axis=1)
    differing = int(np.count_nonzero(distance))
    shown = min(rows, differing)
    if not shown:
        return [], differing
    most = np.argpartition(-distance, shown - 1)[:shown]
    return most[np.argsort(-distance[most], kind="stable")].tolist(), differing


@dataclass(frozen=True)
class _Naming:
    """Names a row for a person."""

    run: Run
    prepared: PreparedEvaluation

    def row(self, one: Outcomes, other: Outcomes, place: int) -> RowCompared:
        example = int(one.rows[place])
        ids, examples = self.prepared.columns.ids, self.prepared.examples
        names = [name for name in one.columns or ids if name in examples.id_columns][:_MOST_COLUMNS]
        known, some = self.run.vocabularies_by_group, np.array([example])
        named = {}
        for name in names:
            number = int(examples.column(name, some)[0])
            named[name] = str(known[ids[name]].tokens(number, number + 1)[0])
        label = "" if one.labels is None else self._label(one.labels[place])
        texts = (self._shown(each.shown(each.values[place : place + 1])[0]) for each in (one, other))
        return RowCompared(example, named, label, *texts)

    def _label(self, label: Any) -> str:
        if self.run.spec.task.labels is not Labels.NUMBER and self.run.classes:
            return self.run.classes[int(label)]
        return f"{label:g}"

    def _shown(self, value: Any) -> str:
        """A number, or the likeliest class with its probability."""
        if np.ndim(value) == 0:
            return f"{value:.4g}"
        most = int(np.argmax(value))
        return f"{self.run.classes[most] if self.run.classes else most} {value[most]:.3f}"


def _corrected(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """The pairs, with p-values corrected for their number within each metric."""
    if len(pairs) < 2:
        yield from pairs
        return
    known = {
        (place, each.name): each.p for place, pair in enumerate(pairs) for each in pair.metrics if each.p is not None
    }
    adjusted: dict[tuple[int, str], float] = {}
    for metric in dict.fromkeys(name for _, name in known):
        some = [key for key in known if key[1] == metric]
        adjusted |= zip(some, significance.holm([known[key] for key in some]), strict=True)
    for place, pair in enumerate(pairs):
        metrics = (replace(each, adjusted=adjusted.get((place, each.name))) for each in pair.metrics)
        yield replace(pair, metrics=tuple(metrics))


def _notes(found: Comparison, *, joint: bool) -> Iterator[str]:
    """Notes that the reader should know."""
    counts = [len(each.directories) for each in found.contenders]
    if max(counts) == 1:
        yield ONE_SEED
    elif min(counts) < groups.FEW:
        yield f"with fewer than {groups.FEW} runs per model, little can be said about other seeds"
    for pair in found.pairs:
        if not pair.seeds and max(counts) > 1:
            yield f"{pair.before} and {pair.after} have fewer than two seeds in common, so their runs are not paired"
        sizes = {len(each.directories) for each in found.contenders if each.letter in (pair.before, pair.after)}
        if pair.seeds and sizes != {pair.seeds}:
            yield f"{pair.before} and {pair.after}: only the {pair.seeds} seeds that both have are compared"
    if not joint:
        yield (
            "the runs of a model are evaluated on different examples, so intervals are over seeds and folds; folds"
            " share training examples, so p is too small"
        )
    if any(each.rows is None and each.p is None for pair in found.pairs for each in pair.metrics):
        yield "a metric without an interval is defined only for the whole split, so it can't be resampled"

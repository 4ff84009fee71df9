"""Prepares a run: its data, and all that can be settled and checked before any variable is created. No TensorFlow.

`embexp run` executes what `prepare` returns and `embexp plan --scan` prints it, so both refuse the same configs.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from embexp.checkpoints import store
from embexp.checkpoints.store import CHECKPOINT_NAME
from embexp.data import datasets, leaks, numbers, together
from embexp.data import examples as encoded
from embexp.data.columns import Columns, columns_of
from embexp.data.contract import Contract, FileTokens
from embexp.data.examples import Examples, ExampleWeights
from embexp.data.numbers import FittedColumn
from embexp.data.scan import Scan, scan, seen_once
from embexp.data.sources.source import source_of
from embexp.data.vocabularies.token_rows import Shares
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import ConfigError, DataError, Fault, RunError, VocabularyError, plural
from embexp.records import inventory, manifest
from embexp.records.folder import RunFolder, around, check_checkpoint, code_of, recorded_functions
from embexp.records.manifest import Identity
from embexp.specs import footprint
from embexp.specs.base import Note
from embexp.specs.fields import imported
from embexp.specs.footprint import Rows
from embexp.specs.inits import ConstantInGraph
from embexp.specs.pretrained import Checkpoint, Classes, File, Match, Parent
from embexp.specs.pretrained import Pretrained as PretrainedSetting
from embexp.specs.pretrained import Rows as SourceOfRows
from embexp.specs.run import RunSpec, doubtful_settings, own_fields
from embexp.specs.running import Restoring, RuntimeKind
from embexp.specs.tables import Storage, Table
from embexp.specs.tasks import Labels, Task
from embexp.specs.vocabularies import Steps
from embexp.system import arrays, caching, digests, machine, stores
from embexp.system.parallel import Progress, quiet
from embexp.system.user_code import UserCode
from embexp.training import loop
from embexp.training.freezing import policies
from embexp.training.freezing.policies import RowFacts, TablePolicy
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.aligned import align, tokens_of
from embexp.vectors.pretrained.earlier import EarlierCheckpoint, OpenedRuns
from embexp.vectors.pretrained.tables import Pretrained, mapping_of, settings_of, with_dims


@dataclass(frozen=True)
class Data:
    """The scanned data of a run.

    Attributes:
        columns: what the run reads of the data.
        classes: names of the classes by label, of task classification, and of binary if the data has names; else empty.
        candidates: what answers are chosen from, as the task has it; None: it predicts labels.
        shares: by table and split, how many values have a row of their own; only of tokens and buckets.
        weights: of the examples in training; None: all count the same.
        groups: by table, the name of its vocabulary, which several may share.
        contract: what the run takes over from its parent; None: it has none.
        as_before: makes the data as the parent sees them, which has no rows for further tokens; None: there is none.
    """

    columns: Columns
    vocabularies: Mapping[str, Vocabulary]
    scan: Scan
    classes: tuple[str, ...] = ()
    candidates: Any = None
    shares: Shares = field(default_factory=dict)
    weights: ExampleWeights | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    contract: Contract | None = None
    as_before: Callable[[], Data] | None = None

    @property
    def training_examples(self) -> int:
        """Number of examples in the training split."""
        return len(self.scan.splits["train"])

    @property
    def dense_width(self) -> int:
        """How many numbers the model gets of an example, beside the embeddings."""
        return self.columns.dense_width


@stores.naming_urls()
def read_data(
    spec: RunSpec,
    progress: Progress,
    reading: together.Meeting = together.alone,
    *,
    complete: bool = True,
    runs: OpenedRuns | None = None,
) -> Data:
    """Scans the data (or finds it in the cache) and gives each table its vocabulary.

    Args:
        reading: who reads it together with this process.
        complete: whether the data have what the task makes of them.
        runs: those that are open already; None: none is.

    Raises:
        ConfigError: the data lacks something that the config asks for.
        DataError: a file has unexpected content.
        RunError: the training split is empty.
    """
    columns, shared = columns_of(spec.data, spec.features, spec.tables, task=spec.task)
    cache = caching.cache_folder(spec.output.cache)
    contract = contract_of(spec.parent, spec.task, columns, shared, OpenedRuns(cache) if runs is None else runs)
    settings = {name: (spec.pretrained_path(name), spec.pretrained_of(name)) for name in spec.tables}
    further = _file_tokens(settings, shared, spec.data.token_steps or (), cache, progress)
    with reading(together.facts(spec.data)) as workers:
        found = scan(
            spec.data,
            columns,
            cache=cache,
            interactions=spec.task.of_interactions,
            progress=progress,
            workers=workers,
            contract=contract,
            further=further,
        )
    if not len(found.splits["train"]):
        raise RunError("the training split of the data is empty: see data.split")
    vocabularies = {table: found.vocabularies[shared[table]] for table in spec.tables}
    if contract is not None and spec.parent.replay:
        progress("reading earlier examples", None)
        of_columns = {spec.ids_of(name): feature.table for name, feature in spec.features.items()}
        before = {table: contract.before(shared[table], each).size for table, each in vocabularies.items()}
        answers = None
        if spec.task.answers is not None:
            answers, feature = spec.task.answers
            of_columns[answers] = spec.features[feature].table
        found, replayed = _with_replay(spec.parent, spec.seed, vocabularies, before, of_columns, answers, found)
        contract = replace(contract, replayed=replayed)
    labels = found.examples.labels
    if labels is not None:
        encoded.check_labels(spec.task, labels, classes=len(found.classes) or None)
    classes = encoded.class_names(spec.task, labels, found.classes)
    weights = None
    if labels is not None:
        named = classes or (("0", "1") if spec.task.labels is Labels.BINARY else ())
        own, train = found.examples.example_weights, found.splits["train"]
        weights = encoded.weights_of_examples(labels, train, own, spec.train.class_weights, named)
        if own is not None:
            for split, rows in found.splits.items():
                encoded.check_weights(own, rows, split)
    shares = {table: found.shares[group] for table, group in shared.items() if group in found.shares}
    raw = Data(columns, vocabularies, found, classes, shares=shares, weights=weights, groups=shared, contract=contract)

    def completed(data: Data) -> Data:
        """The data with what the task makes of them, or the histories of users."""
        if not spec.task.data:
            return with_histories(data)
        of_task: Data = imported(spec.task.data)(spec, data)
        return of_task

    def as_before() -> Data:
        assert found.as_before is not None  # there is a contract
        return completed(replace(raw, scan=replace(found, examples=found.as_before())))

    whole = completed(raw) if complete else raw
    return replace(whole, as_before=None if found.as_before is None else as_before)


def _file_tokens(
    settings: Mapping[str, tuple[str, PretrainedSetting]],
    shared: Mapping[str, str],
    steps: Steps,
    cache: Path,
    progress: Progress,
) -> dict[str, FileTokens]:
    """The tokens from files of vectors that get rows, by vocabulary.

    Args:
        settings: the setting of each table with its config path, by table.
        shared: the name of each table's vocabulary, by table.
    """
    found = {}
    for name, (path, setting) in settings.items():
        if isinstance(setting, File) and setting.vocabulary is not SourceOfRows.DATA:
            tokens, digest = tokens_of(setting, steps, cache, progress, path)
            found[shared[name]] = FileTokens(tokens, digest, alone=setting.vocabulary is SourceOfRows.FILE)
    return found


def contract_of(
    parent: Parent, task: Task, columns: Columns, shared: Mapping[str, str], runs: OpenedRuns
) -> Contract | None:
    """What a run takes over from its parent; None: it has none.

    Args:
        shared: by table, the name of its vocabulary.

    Raises:
        NotARunError: there is no finished run.
        ConfigError: the parent has another task, or other rows for missing, rare and unknown values.
        DataError: a record of the parent is damaged.
    """
    if parent.path is None:
        return None
    before = runs[parent.path]
    if faults := list(_broken_contract(task, before, columns, shared)):
        raise ConfigError(faults)
    vocabularies: dict[str, Vocabulary] = {}
    unseen = {}
    for table, name in shared.items():
        if table in before.tables and name not in vocabularies:
            vocabularies[name] = found = before.vocabulary(table)
            if isinstance(found, TokenVocabulary):
                unseen[name] = _unseen(before.folder, table, found)
    classes, extends = tuple(before.summary.get("classes", ())), parent.classes is Classes.EXTEND
    after = None if parent.gone == "keep" else parent.gone.after
    fitted, deviation = fitted_numbers(before.folder, columns), before.summary.get("label_deviation")
    return Contract(vocabularies, classes, fitted, unseen, after, extends, label_deviation=deviation)


def _with_replay(
    parent: Parent,
    seed: int,
    vocabularies: Mapping[str, Vocabulary],
    sizes: Mapping[str, int],
    tables: Mapping[str, str],
    answers: str | None,
    found: Scan,
) -> tuple[Scan, str]:
    """The data with earlier examples in the training split, and a digest of these examples.

    Args:
        vocabularies: vocabularies by table.
        sizes: the number of rows that the parent knows, by table; they are the first ones.
        tables: tables by id column.
        answers: id column whose rows are the labels; None: labels are not rows.
    """
    from embexp.data import replay  # few runs need this

    earlier_runs, path = [], parent.path
    while path is not None:
        folder = RunFolder(Path(path))
        before = folder.recorded_spec()
        alone = before.model_copy(update={"parent": before.parent.model_copy(update={"replay": 0.0})})
        data = read_recorded_data(folder, alone, complete=False)
        now = {name: _rows_now(vocabularies[table], data.vocabularies[table]) for name, table in tables.items()}
        unit = source_of(before.data).unit[1]
        earlier_runs.append(replay.Earlier(data.scan.examples, data.scan.splits["train"], now, unit))
        path = before.parent.path
    seed = digests.seed_of(seed, "replay")[0]
    train, as_parent = found.splits["train"], found.as_before
    rows = replay.chosen(earlier_runs, parent.replay, len(train), seed)
    examples = replay.added(found.examples, earlier_runs, rows, answers)
    splits = {**found.splits, "train": replay.spread(train, found.examples.count, examples.count, seed)}

    def as_before() -> Examples:
        """Examples as the parent sees them. Tokens that left and came back are unknown to it, and get row 0."""
        assert as_parent is not None  # there is a contract
        known = [
            replace(each, now={name: np.where(now < sizes[tables[name]], now, 0) for name, now in each.now.items()})
            for each in earlier_runs
        ]
        return replay.added(as_parent(), known, rows, answers)

    digest = digests.of_json([each.examples.key for each in earlier_runs])
    return replace(found, examples=examples, splits=splits, as_before=as_before), digest


def _rows_now(vocabulary: Vocabulary, before: Vocabulary) -> np.ndarray:
    """For each row of an earlier vocabulary, its row in the new one, int64; -1: none."""
    places = earlier.aligned_with(vocabulary, vocabulary.size, before, before.size, Match.EXACT).file_rows
    found: np.ndarray = np.full(before.size, 0 if vocabulary.oov else -1, np.int64)
    found[places[places >= 0]] = np.flatnonzero(places >= 0)
    return found


def _unseen(folder: RunFolder, table: str, vocabulary: TokenVocabulary) -> np.ndarray:
    """The number of runs in a row that did not see each token, int64 [tokens]; for a first run, 0 or 1."""
    path = folder.unseen(table)
    if not path.exists():
        return np.where(vocabulary.known_frequencies == 0, 1, 0)
    folder.check(path)
    found, _ = arrays.mapped(path)
    if found.dtype != np.int64 or found.shape != (len(vocabulary.known),):
        raise DataError(f"{path}: found {found.dtype} {found.shape}, expected int64 ({len(vocabulary.known)},)")
    return np.array(found)


def _broken_contract(
    task: Task, earlier_run: EarlierCheckpoint, columns: Columns, shared: Mapping[str, str]
) -> Iterator[Fault]:
    """Errors for settings that differ from the parent's, if the meaning of rows, labels and numbers depends on them."""
    rule, parent = "the run that this one continues", earlier_run.spec
    if parent.task != task:
        yield Fault("task", str(task), f"{rule} has task {parent.task}", f"set task={parent.task}")
        return
    before, groups = columns_of(parent.data, parent.features, parent.tables, task=parent.task)
    for name, column in before.dense_settings.items():
        if columns.dense_settings.get(name) != column:
            settings = column.described or "as it is"
            yield Fault("data.dense_features", name, f"{rule} has this column, {settings}", "give it the same settings")
    for name in columns.dense:
        if name not in before.dense:
            yield Fault("data.dense_features", name, f"{rule} does not have this column", "leave it out")
    for table, group in groups.items():
        mine, theirs = columns.rules.get(shared.get(table, "")), before.rules.get(group)
        if mine is None or theirs is None:
            continue
        for key in ("unknown", "missing", "rare", "oov_buckets", "hash_buckets"):
            if (was := getattr(theirs, key)) != (now := getattr(mine, key)):
                yield Fault(f"tables.{table}.vocabulary.{key}", str(now), f"{rule} has {was}", f"leave it at {was}")


def longest_histories(prepared: Prepared) -> dict[str, int]:
    """How many ids the longest history has, by feature that reads histories; at least 1."""
    spec, histories = prepared.spec, prepared.data.scan.examples.histories
    lengths = {column: np.diff(history.splits) for column, history in histories.items()}
    return {
        name: int(lengths[column].max(initial=1)) for name in spec.features if (column := spec.ids_of(name)) in lengths
    }


def with_histories(data: Data) -> Data:
    """The data with the histories of users, of the examples that train."""
    scan = data.scan
    examples = encoded.with_histories(scan.examples, data.columns, scan.splits["train"], data.vocabularies)
    return replace(data, scan=replace(scan, examples=examples))


def read_recorded_data(folder: RunFolder, spec: RunSpec, progress: Progress = quiet, *, complete: bool = True) -> Data:
    """The data of a run that was trained, with the rows and splits that it was trained with.

    Vocabularies and splits are made from the data anew, so they are the run's only while the data are.

    Args:
        complete: see `read_data`.

    Raises:
        DataError: the data, or a record of the run, have changed since; or this version of embexp makes other
            vocabularies of them.
    """
    check_recorded_data(folder, spec)
    data = read_data(spec, progress, complete=complete)
    for table, vocabulary in data.vocabularies.items():
        if Vocabulary.read(folder.checked_vocabulary(table)).digest != vocabulary.digest:
            raise DataError(
                f"{folder.vocabularies / table}: this version of embexp assigns the rows of table {table} to "
                f"other values of the same data: use the version that manifest.json names, or train again"
            )
    return data


@stores.naming_urls()
def check_recorded_data(folder: RunFolder, spec: RunSpec) -> None:
    """Checks that the data of a run are those that it was trained on, which its manifest has the digest of.

    Nothing, if the manifest of an earlier version has none.

    Raises:
        DataError: they have changed, or a record of the run has.
        ConfigError: they are gone, or lack a column.
    """
    folder.check(folder.data, folder.manifest)
    recorded = folder.read_manifest().get("data", {}).get("digest")
    cache = caching.cache_folder(spec.output.cache)
    datasets.ensure(spec.data, cache=cache, progress=quiet)
    columns, _ = columns_of(spec.data, spec.features, spec.tables, task=spec.task)
    if recorded is None or source_of(spec.data).digest(columns, cache=cache) == recorded:
        return
    path = getattr(spec.data, "path", None)
    raise DataError(
        f"{folder.path}: its data{'' if path is None else f' (data.path={path})'} has changed since it was "
        f"trained, so its rows and splits are no longer those of the run. Restore the data, or train again"
    )


def fitted_numbers(folder: RunFolder, columns: Columns) -> tuple[FittedColumn, ...]:
    """The numeric columns, in the order in which the model gets them; empty: all are used as they are.

    Raises:
        DataError: the file is missing or damaged, or is that of another run.
    """
    settings = columns.dense_settings
    if all(setting.plain for setting in settings.values()):
        return ()
    folder.check(folder.numbers)
    found = numbers.read(folder.numbers)
    wanted = [
        (name, setting.transforms, setting.may_be_missing, setting.indicator) for name, setting in settings.items()
    ]
    if [(each.name, each.transforms, each.fill is not None, each.indicator) for each in found] != wanted:
        raise DataError(
            f"{folder.numbers} has other numeric columns than data.dense_features of the run, so it belongs to "
            f"another run; restore the one that the run was trained with"
        )
    return found


@dataclass(frozen=True)
class Ancestor:
    """The run that another one goes on from.

    Attributes:
        inventory: SHA-256 of its inventory.json.
        steps: of its training, and of those of the runs before it, back to the first.
        links: how many runs there are before the one that goes on, back to the first.
    """

    path: Path
    run_id: str
    inventory: str | None
    steps: int
    links: int

    @staticmethod
    def of(parent: EarlierCheckpoint) -> Ancestor:
        """Reads what its summary says."""
        summary = parent.summary
        before = summary.get("parent") or {"steps": 0, "links": 0}
        kept = parent.spec.train.early_stopping.final_step(int(summary["steps"]), summary.get("best_step"))
        digest = inventory.digest_of(parent.folder.path)
        steps = int(before["steps"]) + kept
        return Ancestor(parent.folder.path, str(summary["run_id"]), digest, steps, int(before["links"]) + 1)

    def as_json(self) -> dict[str, Any]:
        """What the summary of the run that goes on has of it."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(frozen=True)
class PreparedTables:
    """The tables of a run: their sizes, initial values and freeze policies.

    Attributes:
        spec: what the user asked for, with every dim settled; tables that the top-level file does not fit count as not
            pretrained.
        rows: number of rows of each table.
        pretrained: pretrained rows, from files and earlier checkpoints.
        policies: which rows of each table are frozen, and how the table is stored.
    """

    spec: RunSpec
    rows: Mapping[str, int]
    pretrained: Pretrained
    policies: Mapping[str, TablePolicy]


@dataclass(frozen=True)
class Prepared:
    """A run that can be executed.

    Attributes:
        tables: sizes, pretrained rows and freeze policies.
        runtime: the runtime that executes the steps; never `auto`.
        schedule: how many steps, and when to log and to evaluate.
        dense: the earlier checkpoint that the dense part is restored from; None: it is initialized.
        restored: index of the checkpoint, or the file of weights, that variables are restored from; None: none are.
        identity: what decides its bits; None where an earlier run of the study, on which it depends, has not run yet.
        code: of the user's own model, if it has one.
        ancestor: the run that this one continues; None: there is none.
    """

    requested: RunSpec
    data: Data
    tables: PreparedTables
    runtime: RuntimeKind
    schedule: loop.LoopSchedule
    dense: EarlierCheckpoint | None = None
    restored: Path | None = None
    identity: Identity | None = None
    code: UserCode | None = None
    ancestor: Ancestor | None = None

    @property
    def run_id(self) -> str | None:
        """Digest of what decides its bits."""
        return None if self.identity is None else self.identity.run_id

    @property
    def spec(self) -> RunSpec:
        """The requested spec, with every dim settled by the data and the pretrained files."""
        return self.tables.spec

    @property
    def warnings(self) -> list[str]:
        """Warnings before the run: settings that are rarely intended, metrics that will be undefined."""
        found, scan = doubtful_settings(self.spec), self.data.scan
        found += numbers.column_warnings(scan.numbers.figures, self.data.columns.numeric)
        found += numbers.bucket_warnings(self.data.vocabularies)
        found += self.leak_warnings
        found += map(self._seen_once_warning, self.seen_once)
        found += self.spec.task.training_warnings(self.spec, self.data, self.schedule.steps)
        found += map(str, scan.doubts)
        found += filter(None, (overlap.warning(split) for split, overlap in scan.overlap.items()))
        if empty := self.empty_split_warning:
            found.append(empty)
        for split in ("validation", "test"):
            rows, labels = scan.splits[split], scan.examples.labels
            if len(rows) and labels is not None:
                undefined = encoded.undefined(self.spec.task, labels[rows], self.spec.listed_metrics)
                found += [f"{split}: no {name}, because {why}" for name, why in undefined.items()]
        return found

    @property
    def empty_split_warning(self) -> str:
        """The splits that `data.split` asks for, and for which there are too few examples; "" for none."""
        split, splits = getattr(self.spec.data, "split", None), self.data.scan.splits
        empty = [name for name in ("validation", "test") if getattr(split, name, 0) and not len(splits.get(name, "x"))]
        if not empty:
            return ""
        what, settings = " and ".join(empty), " ".join(f"data.split.{name}=0.3" for name in empty)
        return (
            f"no example is left for {what}: {plural(self.data.scan.examples.count, 'example')} are too few, so"
            f" the model can't be evaluated; add some, or set {settings}"
        )

    @property
    def leak_warnings(self) -> list[str]:
        """A warning for the columns that may leak the label in the same way, with what leaves them out."""
        lines, examples = [], min(leaks.SAMPLE, self.data.training_examples)
        for columns, text, lacking in leaks.sentences(self.data.scan.leaks, self.data.columns.label or ""):
            overrides = " ".join(map(shlex.quote, self.spec.without_columns(columns)))
            remedy = f": {overrides}" if overrides else " of data.dense_features and of features"
            lines.append(
                f"{text}, in {examples:,} training examples. If new examples lack {lacking} at prediction time,"
                f" leave {' and '.join(columns)} out{remedy}"
            )
        return lines

    @property
    def seen_once(self) -> dict[str, float]:
        """The tables without pretrained rows nearly all of whose training values occur once, and their share."""
        shares = seen_once(self.data.vocabularies)
        return {name: share for name, share in shares.items() if name not in self.tables.pretrained.tables}

    def _seen_once_warning(self, table: str) -> str:
        columns = [self.spec.column_of(name) for name, each in self.spec.features.items() if each.table == table]
        return Note(
            f"tables.{table}",
            f"{self.seen_once[table]:.0%} of the training values of column"
            f" {', '.join(dict.fromkeys(columns))} occur once, like those of an id: what is learnt about them holds"
            " for no other example; remove the feature, or give the table vectors with pretrained=file",
        )

    @property
    def notes(self) -> list[str]:
        """Rows that were left out, and what earlier checkpoints lack, such as slots of another optimizer."""
        tables = self.tables.pretrained.tables
        found = [note for table in tables.values() for note in table.notes]
        found += [
            Note(
                f"tables.{name}",
                f"{table.dropped:,} of the {table.source.rows:,} rows of {table.setting.path} are dropped: their tokens"
                " are not in this run's vocabulary",
            )
            for name, table in tables.items()
            if table.dropped
        ]
        if skipped := self.data.scan.skipped:
            rows = self.data.scan.examples.count + skipped
            found.append(f"{skipped:,} of {rows:,} rows have no label and are skipped (data.missing_label=skip)")
        return found


def prepare(
    spec: RunSpec,
    progress: Progress = quiet,
    *,
    base: Prepared | None = None,
    reading: together.Meeting = together.alone,
) -> Prepared:
    """Reads the data and the pretrained files (or finds them in the cache) and settles everything that depends on them.

    Args:
        base: a run that has not run yet, and whose checkpoint this one starts from: each table restores the rows of the
            table of that name. None: what it starts from is there.
        reading: who reads the data together with this process.

    Raises:
        ConfigError: the config does not fit the data or a file; with all faults.
        DataError: a file is missing or has unexpected content.
        VocabularyError: a table has fewer rows than its vocabulary needs.
        RunError: nothing is left to train on, or a table can't be initialized as the config says.
    """
    cache = caching.cache_folder(spec.output.cache)
    runs = OpenedRuns(cache)
    data = read_data(spec, progress, reading, runs=runs)
    rows = _table_rows(spec.tables, data.vocabularies)
    pretrained, dense, restored, found, code = Pretrained(), None, None, None, None

    def check(found: Pretrained) -> None:
        """Raises a RunError if the tables that become constants don't fit into a graph."""
        known, sizes = with_dims(spec, found, RunSpec.input_faults), {**rows}
        sizes |= {name: table.rows for name, table in found.tables.items()}
        in_graph = [name for name in known.tables if isinstance(known.init_of(name), ConstantInGraph)]
        ConstantInGraph.check({name: (sizes[name], known.tables[name].width) for name in in_graph})

    if base is not None:
        check(pretrained)
    else:
        pretrained = align(
            settings_of(spec), data.vocabularies, rows, cache=cache, progress=progress, check=check, runs=runs
        )
        dense_from = spec.dense_from()  # all of them name the same
        dense = next((runs[each.path] for each in dense_from.values()), None)
        restored = None if spec.restore.path is None else _source(Path(spec.restore.path))
        restored_digest = None if restored is None else _digest_of_checkpoint(restored, cache=cache)
        code = code_of(recorded_functions(spec), own_fields(spec))
        known = {**pretrained.digests, **(dict.fromkeys(dense_from, dense.digest) if dense is not None else {})}
        known |= {} if data.contract is None else {"parent": data.contract.digest}
        named = {spec.freeze_path(name): spec.freeze_of(name).files for name in spec.tables}
        rules = {f"tables.{name}.vocabulary.path": table.vocabulary.path for name, table in spec.tables.items()}
        named |= {place: (path,) for place, path in rules.items() if path is not None}
        frozen = _file_digests(named, cache=cache)
        content = manifest.content_id(spec, data.scan.digest, known, frozen, restored_digest)
        of_files = {"data": data.scan.digest, **known, **frozen}
        of_files |= {} if restored_digest is None else {"restore": restored_digest}
        found = manifest.identity(spec.strategy, content, None if code is None else code.digest, of_files)
    settled = with_dims(spec, pretrained, RunSpec.input_faults)
    runtime = settled.executing_runtime
    examples, train = data.training_examples, spec.train
    facts = _row_facts(data, rows, pretrained, base)
    tables = prepare_tables(settled, facts, pretrained, steps_per_epoch=examples / train.batch_size, runtime=runtime)
    schedule = loop.loop_schedule(
        examples=examples,
        batch_size=train.batch_size,
        steps=train.steps,
        epochs=train.epochs,
        log_every=train.log_every,
        evaluate_every=train.evaluate_every,
        resets=any(table.reset is not None for table in settled.tables.values()),
    )
    ancestor = None if spec.parent.path is None or dense is None else Ancestor.of(dense)
    return Prepared(spec, data, tables, runtime, schedule, dense, restored, found, code, ancestor)


def prepare_tables(
    spec: RunSpec,
    facts: Mapping[str, RowFacts],
    pretrained: Pretrained,
    *,
    steps_per_epoch: float,
    runtime: RuntimeKind,
) -> PreparedTables:
    """Applies the freeze policy of each table to its rows, and chooses its storage.

    Args:
        steps_per_epoch: examples of the training split / batch size.
        runtime: the runtime that executes the steps.

    Raises:
        ConfigError: a rule covers no row, or a part of a split table would be empty; with all faults.
        DataError: a file that a rule names has unexpected content.
        RunError: a table can't be initialized as the config says.
    """
    settled = policies.settle(spec, facts, steps_per_epoch=steps_per_epoch, runtime=runtime)
    prepared = PreparedTables(spec, {name: fact.rows for name, fact in facts.items()}, pretrained, settled)
    for name, policy in settled.items():
        if policy.storage is Storage.MEMORY_MAP and name in pretrained.tables:
            mapping_of(name, pretrained.tables[name], spec.tables[name].dtype)
    return prepared


def _row_facts(
    data: Data, rows: Mapping[str, int], pretrained: Pretrained, base: Prepared | None
) -> dict[str, RowFacts]:
    """The facts about the rows of each table that freeze policies need.

    Args:
        rows: number of rows of each table, see `_table_rows`. A file matched by row number may give a table more rows.
        base: see `prepare`. The rows that it will have trained are old.
    """
    found = {}
    for name, vocabulary in data.vocabularies.items():
        file = pretrained.tables.get(name)
        count = rows[name] if file is None else file.rows
        known, old = pretrained.pretrained_rows(name), pretrained.old_rows(name)
        if base is not None:
            before = base.data.vocabularies[name], base.tables.rows[name]
            known = old = earlier.aligned_with(vocabulary, count, *before, Match.EXACT).file_rows >= 0
        found[name] = RowFacts(count, vocabulary, known, old)
    return found


def _table_rows(tables: Mapping[str, Table], vocabularies: Mapping[str, Vocabulary]) -> dict[str, int]:
    """The number of rows of each table: from the config, or the size of its vocabulary.

    Raises:
        VocabularyError: the config gives a table fewer rows than its vocabulary needs.
    """
    rows = {}
    for name, table in tables.items():
        needed = vocabularies[name].size
        rows[name] = needed if table.vocabulary_size is None else table.vocabulary_size
        if rows[name] < needed:
            raise VocabularyError(
                f"tables.{name}.vocabulary_size = {table.vocabulary_size}: the data has {needed} values for this"
                " table (including the OOV row); set it to null to use the size of the vocabulary, or set "
                "data.vocabulary.max_size"
            )
    return rows


@contextlib.contextmanager
def reading_sources(top: PretrainedSetting, tables: Mapping[str, Table], restoring: Restoring) -> Iterator[None]:
    """Within the block, no other process writes the runs, and grown checkpoints, that a run starts from.

    Frozen rows may stay in their files, and all are compared at the end: the block is to last as long as the run.

    Args:
        top: the setting `pretrained` at the top of the spec.

    Raises:
        RunError: another process writes one.
    """
    settings = [top, *(table.pretrained for table in tables.values())]
    folders = {RunFolder(Path(setting.path)) for setting in settings if isinstance(setting, Checkpoint)}
    if restoring.path is not None and (run := around(Path(restoring.path) / CHECKPOINT_NAME)) is not None:
        folders.add(run)
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(folder.reading())
        yield


def _source(path: Path) -> Path:
    """The index of the checkpoint to restore from, or a file in a format that needs conversion.

    Raises:
        DataError: there is no such file, or it is in the folder of a run that did not write it like this.
    """
    if store.is_keras_file(path):
        return path
    found = store.find_index(path)
    check_checkpoint(*store.files_of(found))
    return found


def _digest_of_checkpoint(index: Path, *, cache: Path) -> str:
    """The digest of a checkpoint, that is of its index and data files, or of a Keras weights file.

    Args:
        index: index of the checkpoint, or a file in a format that needs conversion.
    """
    if store.is_keras_file(index):
        return caching.file_digest(index, cache=cache)
    return digests.of_json([caching.file_digest(path, cache=cache) for path in store.files_of(index)])


def _file_digests(named: Mapping[str, Iterable[str]], *, cache: Path) -> dict[str, str]:
    """The digest of each file that freeze policies and vocabularies name, by path.

    Args:
        named: the files, by the config paths that name them.

    Raises:
        DataError: a file does not exist.
    """
    found = {}
    for setting, paths_of_setting in named.items():
        for path in paths_of_setting:
            if not Path(path).is_file():
                raise DataError(f"{setting}: there is no file {path}")
            found[path] = caching.file_digest(Path(path), cache=cache)
    return found


def check_memory(prepared: Prepared) -> None:
    """Checks before anything is allocated that the tables, their slots, a batch and the data fit into memory.

    Raises:
        ConfigError: they do not.
    """
    spec = prepared.spec
    rows = {name: _rows_in_memory(policy) for name, policy in prepared.tables.policies.items()}
    dims = {name: table.width for name, table in spec.tables.items()}
    found = footprint.needs(spec, rows, dims, prepared.data.training_examples)
    free = machine.available()
    if (fault := footprint.fault(found, free.bytes, free.limit)) is not None:
        raise ConfigError([fault])


def _rows_in_memory(policy: TablePolicy) -> Rows:
    """The number of rows of a table that are in memory, and the number of rows with slots."""
    in_memory = policy.rows - (policy.frozen_rows if policy.storage is Storage.MEMORY_MAP else 0)
    slots = policy.rows - (policy.frozen_rows if policy.storage is not Storage.VARIABLE else 0)
    return Rows(in_memory, 0 if policy.fully_frozen else slots)

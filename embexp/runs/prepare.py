"""A run prepared: everything that can be settled before a variable is made. No TensorFlow.

`embexp run` executes what `prepare` returns, and `embexp plan --scan` prints it: what the one refuses, the other does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embexp.data.vocabulary import Vocabulary
from embexp.errors import DataError, VocabularyError
from embexp.freezing import policies
from embexp.freezing.policies import TablePolicy
from embexp.freezing.row_facts import RowFacts
from embexp.freezing.row_facts import row_facts as table_facts
from embexp.initialization import graph_limit
from embexp.models import shapes
from embexp.pretrained import earlier
from embexp.pretrained.aligned import align
from embexp.pretrained.earlier import Earlier
from embexp.pretrained.fit import with_dims
from embexp.pretrained.rows import mapping_of
from embexp.pretrained.tables import Pretrained
from embexp.records import identity
from embexp.runs.data import Data, read_data
from embexp.specs import notes, resolution
from embexp.specs.freezing import files_of
from embexp.specs.inits import ConstantInGraph
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.system import caching
from embexp.system.progress import Progress, quiet
from embexp.training import loop, metrics


@dataclass(frozen=True)
class PreparedTables:
    """What the tables of a run are to be, and where their initial values come from.

    Attributes:
        spec: what the user asked for, with every dim settled; tables that the top-level file does not fit count as not
            pretrained.
        rows: of each table.
        pretrained: the files, and earlier checkpoints, that tables take rows from.
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
        asked: what the user asked for.
        data: scanned.
        tables: sizes, pretrained rows and freeze policies.
        runtime: what executes the steps; never `auto`.
        schedule: how many steps, and when to log and to evaluate.
        dense: the earlier checkpoint that the dense part is restored from; None: it starts with its own values.
        run_id: see `identity`; None for a run of a study that builds on one which has not been run yet.
    """

    asked: RunSpec
    data: Data
    tables: PreparedTables
    runtime: RuntimeKind
    schedule: loop.LoopSchedule
    dense: Earlier | None = None
    run_id: str | None = None

    @property
    def spec(self) -> RunSpec:
        """What the user asked for, with what the data and the pretrained files settled."""
        return self.tables.spec

    @property
    def warnings(self) -> list[str]:
        """What the user should know before the run: settings that are seldom meant, metrics that will be undefined."""
        found, scan = notes.doubtful(self.spec), self.data.scan
        for split in ("validation", "test"):
            rows = scan.splits[split]
            if len(rows) and scan.examples.labels is not None:
                labels = scan.examples.labels[rows]
                undefined = metrics.undefined(self.spec.task, labels)
                found += [f"{split}: no {name}, as {why}" for name, why in undefined.items()]
        return found

    @property
    def notes(self) -> list[str]:
        """What earlier checkpoints can't provide."""
        return [note for table in self.tables.pretrained.tables.values() for note in table.notes]


def prepare(spec: RunSpec, progress: Progress = quiet) -> Prepared:
    """Reads the data and the pretrained files (or finds them in the cache) and settles all that depends on them.

    Args:
        spec: what the user asked for.
        progress: called as reading goes on.

    Raises:
        ConfigError: the config does not go with the data or with a file; with all faults.
        DataError: a file is missing, or its content is not what it should be.
        VocabularyError: a table has fewer rows than its vocabulary needs.
        RunError: nothing is left to train on, or a table can't be initialized as the config says.
    """
    data = read_data(spec, progress)
    rows, cache = table_rows(spec, data.vocabularies), caching.cache_folder(spec.output.cache)
    pretrained = align(spec, data.vocabularies, rows, cache=cache, progress=progress)
    dense = _dense_source(spec)
    run_id = identity.run_id(
        spec, data.scan.digest, _pretrained_digests(spec, pretrained, dense), _freeze_digests(spec)
    )
    return settle(spec, data, pretrained, row_facts(data, rows, pretrained), dense=dense, run_id=run_id)


def settle(
    spec: RunSpec,
    data: Data,
    pretrained: Pretrained,
    facts: Mapping[str, RowFacts],
    *,
    dense: Earlier | None = None,
    run_id: str | None = None,
) -> Prepared:
    """Settles what follows from the data and the pretrained rows; reads nothing but files that freeze policies name.

    Args:
        spec: what the user asked for.
        data: scanned.
        pretrained: the files and earlier checkpoints, aligned with the vocabularies.
        facts: what is known of each table's rows, see `row_facts`.
        dense: see `Prepared`.
        run_id: see `Prepared`.

    Raises:
        ConfigError: what is settled now does not go with the rest of the config.
        DataError: a file that a freeze policy names is not what it should be.
        RunError: a table can't be initialized as the config says.
    """
    settled = with_dims(spec, pretrained, shapes.run_faults)
    runtime = resolution.runtime_of(settled)
    examples, train = data.training_examples, spec.train
    tables = prepare_tables(settled, facts, pretrained, steps_per_epoch=examples / train.batch_size, runtime=runtime)
    schedule = loop.loop_schedule(
        examples=examples,
        batch_size=train.batch_size,
        steps=train.steps,
        epochs=train.epochs,
        log_every=train.log_every,
        evaluate_every=train.evaluate_every,
    )
    return Prepared(spec, data, tables, runtime, schedule, dense, run_id)


def prepare_tables(
    spec: RunSpec,
    facts: Mapping[str, RowFacts],
    pretrained: Pretrained,
    *,
    steps_per_epoch: float,
    runtime: RuntimeKind,
) -> PreparedTables:
    """Applies the freeze policy of each table to its rows, and chooses how it is stored.

    Args:
        spec: what the user asked for, with every dim settled.
        facts: what is known of each table's rows.
        pretrained: what tables take rows from.
        steps_per_epoch: examples of the training split / batch size.
        runtime: what executes the steps.

    Raises:
        ConfigError: a rule takes no row, or a part of a layout would be empty; with all faults.
        DataError: a file that a rule names is not what it should be.
        RunError: a table can't be initialized as the config says.
    """
    settled = policies.settle(spec, facts, steps_per_epoch=steps_per_epoch, runtime=runtime)
    prepared = PreparedTables(spec, {name: each.rows for name, each in facts.items()}, pretrained, settled)
    _check_initial_values(prepared)
    return prepared


def row_facts(data: Data, rows: Mapping[str, int], pretrained: Pretrained) -> dict[str, RowFacts]:
    """What freeze policies ask about the rows of each table.

    Args:
        data: scanned.
        rows: of each table, see `table_rows`. A table may get more from a file whose rows are numbered as its own.
        pretrained: what tables take rows from.
    """
    found = {}
    for name, vocabulary in data.vocabularies.items():
        file = pretrained.tables.get(name)
        count = rows[name] if file is None else file.rows
        found[name] = table_facts(vocabulary, count, pretrained.pretrained_rows(name), pretrained.old_rows(name))
    return found


def table_rows(spec: RunSpec, vocabularies: Mapping[str, Vocabulary]) -> dict[str, int]:
    """Rows of each table: as many as the config says, or as the vocabulary has.

    Raises:
        VocabularyError: the config gives a table fewer rows than its vocabulary needs.
    """
    rows = {}
    for name, table in spec.tables.items():
        needed = vocabularies[name].size
        rows[name] = needed if table.vocabulary_size is None else table.vocabulary_size
        if rows[name] < needed:
            raise VocabularyError(
                f"tables.{name}.vocabulary_size = {table.vocabulary_size}: the data has {needed} values for this"
                " table (the row of unknown values among them); leave it null to take as many as there are, or set"
                " data.vocabulary.max_size"
            )
    return rows


def _check_initial_values(tables: PreparedTables) -> None:
    """Raises RunError where rows can't be mapped as they lie in their file, or constants don't fit into a graph."""
    spec = tables.spec
    in_graph = [name for name in spec.tables if isinstance(spec.init_of(name), ConstantInGraph)]
    graph_limit.check({name: (tables.rows[name], spec.tables[name].width) for name in in_graph})
    for name, policy in tables.policies.items():
        if policy.storage is Storage.MEMORY_MAP and name in tables.pretrained.tables:
            mapping_of(name, tables.pretrained.tables[name])


def _dense_source(spec: RunSpec) -> Earlier | None:
    """The earlier checkpoint that the dense part is restored from.

    Raises:
        NotARunError: there is none where there should be.
    """
    for setting in spec.dense_from().values():  # all of them name the same
        return earlier.open_run(Path(setting.path), cache=caching.cache_folder(spec.output.cache))
    return None


def _pretrained_digests(spec: RunSpec, pretrained: Pretrained, dense: Earlier | None) -> dict[str, str]:
    """Digest of what each pretrained setting has for tables or the dense part, by its config path."""
    return {**pretrained.digests, **(dict.fromkeys(spec.dense_from(), dense.digest) if dense is not None else {})}


def _freeze_digests(spec: RunSpec) -> dict[str, str]:
    """Digest of each file that freeze policies name, by its path.

    Raises:
        DataError: there is no such file.
    """
    cache = caching.cache_folder(spec.output.cache)
    found = {}
    for name in spec.tables:
        for path in files_of(spec.freeze_of(name)):
            if not Path(path).is_file():
                raise DataError(f"{spec.freeze_path(name)}: there is no file {path}")
            found[path] = caching.file_digest(Path(path), cache=cache)
    return found

"""Opens the pretrained files of a run, checks them against its tables and aligns them with their vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from embexp.data.vocabulary import IdentityVocabulary, Vocabulary
from embexp.errors import ConfigError, DataError, RunError
from embexp.pretrained import earlier, fit, sample, succession
from embexp.pretrained.earlier import Earlier
from embexp.pretrained.fit import Misfit
from embexp.pretrained.referenced import Referenced
from embexp.pretrained.row_tokens import row_tokens
from embexp.pretrained.rows import row_source
from embexp.pretrained.tables import Pretrained, PretrainedTable
from embexp.specs.inits import MemoryMap
from embexp.specs.pretrained import Checkpoint, File, Match, NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.tables import Table
from embexp.vectors.alignment import RowKind, by_position, by_token
from embexp.vectors.coverage import coverage
from embexp.vectors.open import open_vectors
from embexp.vectors.source import VectorSource

Say = Callable[[str, float | None], None]


def align(
    spec: RunSpec,
    vocabularies: Mapping[str, Vocabulary],
    sizes: Mapping[str, int],
    *,
    cache: Path,
    say: Say = lambda what, part: None,
) -> Pretrained:
    """Opens the files that a run names and finds each table's rows in them.

    A table's own file must fit it. The top-level one fills every table that it fits, and must fit one.

    Args:
        spec: what the user asked for.
        vocabularies: by table.
        sizes: rows of each table. One whose ids are row numbers, and whose size the config leaves open, gets as
            many rows as a file without tokens has, if those are more.
        cache: folder of files that were converted before.
        say: called as reading goes on.

    Raises:
        ConfigError: a file does not fit; with all of them.
        DataError: a file's content is not what it should be.
    """
    sources: dict[File, VectorSource] = {}
    checkpoints: dict[str, Earlier] = {}
    tables: dict[str, PretrainedTable] = {}
    unfit: dict[str, Misfit] = {}
    digests: dict[str, str] = {}
    for name, table in spec.tables.items():
        asked = spec.pretrained_of(name)
        if isinstance(asked, NoPretrained):
            continue
        place = spec.pretrained_path(name)
        if isinstance(asked, Checkpoint):
            if asked.path not in checkpoints:
                checkpoints[asked.path] = _earlier(place, asked, cache)
            digests[place] = checkpoints[asked.path].digest
            succeeded = _succeeded(spec, asked, checkpoints[asked.path], name, vocabularies[name], sizes[name], say)
            if isinstance(succeeded, Misfit):
                unfit[name] = succeeded
            else:
                tables[name] = succeeded
            continue
        setting = sample.with_path(asked, cache=cache)
        reading = _reading(setting)
        if reading not in sources:
            sources[reading] = _open(place, setting, cache, say)
        source = sources[reading]
        digests[place] = source.digest
        found = _aligned(setting, source, name, table, vocabularies[name], sizes[name])
        if isinstance(found, Misfit):
            unfit[name] = found
        else:
            tables[name] = found
            say(f"{name}: {found.coverage.summary()}", None)
    if faults := fit.faults(spec.pretrained, spec.tables, fitting=tables, unfit=unfit):
        raise ConfigError(faults)
    return Pretrained(
        tables,
        {name: why.rule for name, why in unfit.items()},
        digests,
    )


def _reading(setting: File) -> File:
    """A setting with nothing in it but how the file is read."""
    return File(**setting.model_dump(exclude={"match", "missing", "project"}))


def _open(place: str, setting: File, cache: Path, say: Say) -> VectorSource:
    """The file, looked through and converted as far as that is needed."""
    try:
        source = open_vectors(
            Path(setting.path),
            cache=cache,
            format=setting.format,
            key=setting.key,
            token_column=setting.token_column,
            tokens_file=None if setting.tokens_file is None else Path(setting.tokens_file),
            invalid_text=setting.invalid_text,
            non_finite=setting.non_finite,
            header_count=setting.header_count,
            progress=say,
        )
        source.memory_map()
    except DataError as error:
        raise DataError(f"{place}.path = {error}") from error
    return source


def _aligned(
    setting: File, source: VectorSource, name: str, table: Table, vocabulary: Vocabulary, rows: int
) -> PretrainedTable | Misfit:
    if misfit := fit.width(setting.project, source.dim, name, table):
        return misfit
    words = row_tokens(vocabulary)
    if source.tokens is None:
        grown = isinstance(vocabulary, IdentityVocabulary) and table.vocabulary_size is None and source.rows > rows
        rows = source.rows if grown else rows
        if source.rows != rows:
            return Misfit(
                f"rows are taken by position, as the file has no tokens, and it has {source.rows}, the table {rows}",
                "give a file with tokens, or one with a row for each of the table's",
            )
        aligned = by_position(rows)
    else:
        aligned = by_token(words, source.tokens, setting.match, rows=rows)
        if not aligned.count(RowKind.PRETRAINED):
            loosest = setting.match is Match.NORMALISED
            return Misfit(
                f"not one of the table's {len(words.tokens)} tokens ({_some(words.tokens)}) is among the file's"
                f" {source.rows} ({_some(source.tokens)})",
                "compare their spelling" + ("" if loosest else "; match=normalised is the loosest comparison"),
            )
    return PretrainedTable(setting, source, aligned, coverage(aligned, words))


def _earlier(place: str, setting: Checkpoint, cache: Path) -> Earlier:
    try:
        return earlier.open_run(Path(setting.path), cache=cache)
    except RunError as error:
        raise type(error)(f"{place}.path = {error}") from error


def _succeeded(
    spec: RunSpec, setting: Checkpoint, source: Earlier, name: str, vocabulary: Vocabulary, rows: int, say: Say
) -> PretrainedTable | Misfit:
    """A table with the trained rows of an earlier one."""
    theirs = setting.table or name
    if misfit := succession.misfit(source, theirs, name, spec.tables[name]):
        return misfit
    old_vocabulary = source.vocabulary(theirs)
    aligned = succession.aligned(vocabulary, rows, old_vocabulary, source.shape(theirs)[0], setting.match)
    words = row_tokens(vocabulary)
    if not aligned.count(RowKind.PRETRAINED):
        return Misfit(
            f"not one of the table's {len(words.tokens)} tokens ({_some(words.tokens)}) is among those of table"
            f" {theirs!r} of the checkpoint ({_some(row_tokens(old_vocabulary).tokens)})",
            "compare their spelling, and the two columns of the data",
        )
    matrix = earlier_rows(source, theirs, converts=isinstance(spec.init_of(name), MemoryMap))
    slots, notes = succession.slots(spec, setting, source, theirs, name)
    found = PretrainedTable(
        setting,
        matrix,
        aligned,
        coverage(aligned, words),
        old=succession.old(source, theirs, aligned),
        slots=slots,
        notes=notes,
    )
    say(f"{name}: {found.coverage.summary().replace('in the file', 'in the checkpoint')}", None)
    return found


def earlier_rows(earlier: Earlier, table: str, *, converts: bool = False) -> VectorSource:
    """The rows of a table of an earlier run: those of its checkpoint, or of the file that a frozen table stayed in.

    Args:
        earlier: the run.
        table: name of the table there.
        converts: whether a matrix that can't be mapped where it lies is written to the cache for that.

    Raises:
        RunError: that file is no longer what it was.
    """
    if earlier.holds(table):
        return earlier.rows(table, converts=converts)
    spec = earlier.spec
    others = {
        name: each if name == table else each.model_copy(update={"pretrained": NoPretrained()})
        for name, each in spec.tables.items()
    }
    only = spec.model_copy(
        update={
            "pretrained": NoPretrained(),
            "tables": {**others, table: others[table].model_copy(update={"pretrained": spec.pretrained_of(table)})},
        }
    )
    sizes = {name: earlier.shape(name)[0] for name in earlier.tables}
    vocabularies = {name: earlier.vocabulary(name) for name in earlier.tables}
    found = align(only, vocabularies, sizes, cache=earlier.cache)
    recorded = earlier.summary["initialization"]["tables"][table]["pretrained"]
    if (digest := found.tables[table].source.digest) != recorded["digest"]:
        raise RunError(
            f"{recorded['path']} has changed since the run {earlier.folder.path}, whose frozen table {table!r} is made"
            f" from it (digest {digest}, expected {recorded['digest']}); put the file back to take its rows"
        )
    settings = spec.tables[table].model_copy(update={"dim": earlier.shape(table)[1]})
    return Referenced(row_source(table, settings, sizes[table], spec.seed, found.tables[table]), digest=earlier.digest)


def _some(tokens: pa.LargeStringArray) -> str:
    shown = ", ".join(repr(token) for token in tokens.slice(0, 3).to_pylist())
    return f"{shown}, …" if len(tokens) > 3 else shown

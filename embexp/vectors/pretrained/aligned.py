"""The pretrained files of a run, checked before it starts, opened and aligned with its tables; or a random one, made.

Before a run starts, they are to exist, and to be as wide as tables need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.sources.source import source_of
from embexp.data.vocabularies.spelling import normalized
from embexp.data.vocabularies.vocabulary import IdentityVocabulary, Vocabulary, described, stands_for_tokens
from embexp.errors import ConfigError, DataError, Fault, RunError, plural
from embexp.records.folder import RunFolder
from embexp.specs import vocabularies
from embexp.specs.base import Note
from embexp.specs.pretrained import (
    Checkpoint,
    File,
    Format,
    Join,
    Match,
    NonFinite,
    NoPretrained,
    OtherFile,
    Sample,
    named_files,
)
from embexp.specs.pretrained import Pretrained as PretrainedChoice
from embexp.specs.run import RunSpec
from embexp.specs.tables import RowType, Table
from embexp.specs.transforms import Fit, Frequencies, FrequencyWeight, misfit, settled
from embexp.specs.vocabularies import Steps
from embexp.system import caching, digests, files, stores
from embexp.system.parallel import Progress, quiet
from embexp.vectors import file_source as vectors
from embexp.vectors.alignment import RowKind, by_position, by_token, coverage, used_rows
from embexp.vectors.file_source import FileSource, JoinedSource, VectorSource, joined, open_vectors
from embexp.vectors.initial_rows import of_neighbours, of_shape, of_subwords
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.earlier import EarlierCheckpoint, OpenedRuns, TrainedRows, row_tokens
from embexp.vectors.pretrained.tables import (
    Mismatch,
    Pretrained,
    PretrainedSetting,
    PretrainedTable,
    fit_faults,
    row_source,
    settings_of,
    width_mismatch,
)
from embexp.vectors.stored import ROW_TYPES

_QUICK = (Format.NPY, Format.SAFETENSORS, Format.CHECKPOINT)
"""Formats whose first bytes show rows and width; others are read, or need a library that takes time to import."""
SAMPLE_VERSION = 1
"""Of the numbers: another one makes other files."""
_ROWS_AT_ONCE = 8_192
_READING = {"format", "key", "token_column", "tokens_file", "non_finite", "invalid_text", "header_count"}
_READING |= {"others", "join"}
"""Settings of how a file is read."""


def faults_of_files(
    inherited: PretrainedChoice | None, tables: Mapping[str, Table], *, cache: Path, fetch: bool = True
) -> list[Fault]:
    """Faults of pretrained files, as far as their names and first bytes show.

    Args:
        inherited: the top-level setting; None where it has faults of its own.
        tables: those without faults.
        cache: folder in which objects of a store are kept.
        fetch: whether to fetch these; if not, those that are not here are not looked at.
    """
    users = {f"tables.{name}.pretrained": ({name: table}, table.pretrained) for name, table in tables.items()}
    users["pretrained"] = ({name: table for name, table in tables.items() if table.pretrained is None}, inherited)
    found: list[Fault] = []
    for path, (heirs, setting) in users.items():
        if isinstance(setting, File | Sample) and heirs:
            files = named_files(path, setting)
            if fetch or stores.are_here(files.values()):
                found += _fetch_faults(files, cache) or _file_faults(path, setting, heirs)
        if isinstance(setting, Checkpoint) and (heirs or path == "pretrained"):
            found += _checkpoint_faults(path, setting, heirs)
    return found


def known_dims(inherited: PretrainedChoice | None, tables: Mapping[str, Table]) -> dict[str, int]:
    """Length of each table's rows, without tables whose dim is null and whose file does not show it in its first bytes.

    Args:
        inherited: the top-level setting; None where it has faults of its own.
        tables: those without faults.
    """
    found: dict[str, int] = {}
    for name, table in tables.items():
        dim = table.dim
        if dim is None:
            dim = _dim_or_none(name, table.pretrained or inherited)
        if dim is not None:
            found[name] = dim
    return found


def known_rows(spec: RunSpec) -> dict[str, int | None]:
    """Rows of each table, as far as the config and first bytes of files show; None where the data must be read."""
    found: dict[str, int | None] = {}
    source = source_of(spec.data)
    for name, table in spec.tables.items():
        found[name] = table.vocabulary_size or vocabularies.rows_of(spec, name)
        sizes = [source.vocabulary_size(spec.column_of(feature)) for feature in spec.features_of(name)]
        known = [size for size in sizes if size is not None]
        if found[name] is None and known:
            found[name] = max(*known, _rows_by_position(table, spec.pretrained_of(name)))
    return found


def _fetch_faults(files: Mapping[str, str], cache: Path) -> list[Fault]:
    try:
        stores.fetch(files, cache=cache)
    except ConfigError as error:
        return list(error.faults)
    return []


def _file_faults(path: str, setting: File | Sample, tables: Mapping[str, Table]) -> list[Fault]:
    beside = {place: file for place, file in named_files(path, setting).items() if not place.endswith(".path")}
    absent = {place: file for place, file in beside.items() if not Path(stores.local(file)).is_file()}
    if absent:
        return [Fault(place, repr(file), "there is no such file") for place, file in absent.items()]
    lengths: list[int | None] = []
    faults: list[Fault] = []
    for place, each in _files(path, setting):
        try:
            lengths.append(_dim_of(each))
        except vectors.PickledError as error:
            faults.append(Fault(f"{place}.path", repr(each.path), error.rule, error.remedy))
        except DataError as error:
            faults.append(
                Fault(f"{place}.path", repr(each.path), str(error).removeprefix(f"{stores.local(str(each.path))}: "))
            )
    if not faults and isinstance(setting, File) and setting.join is Join.PREFERENCE:
        rule = f"its rows have {{}} numbers, but those of {setting.path} have {lengths[0]}, and either may fill a row"
        remedy = "make them equally long, or set join=columns"
        faults += [
            Fault(f"{place}.path", repr(each.path), rule.format(length), remedy)
            for (place, each), length in zip(_files(path, setting), lengths, strict=True)
            if lengths[0] is not None and length not in (None, lengths[0])
        ]
    if faults or (dim := _dim(setting)) is None:
        return faults
    found = {name: width_mismatch(setting.transform, dim, name, table) for name, table in tables.items()}
    return _fit_faults(path, setting, tables, found)


def _checkpoint_faults(path: str, setting: Checkpoint, tables: Mapping[str, Table]) -> list[Fault]:
    try:
        source = earlier.open_run(Path(setting.path), cache=Path())
    except RunError as error:
        rule = str(error).removeprefix(f"{setting.path}: ").removeprefix(f"{setting.path} ")
        return [Fault(f"{path}.path", repr(setting.path), rule)]
    found = {name: earlier.mismatch_with(source, setting.table or name, name, table) for name, table in tables.items()}
    return _fit_faults(path, setting, tables, found)


def _fit_faults(
    path: str,
    setting: File | Sample | Checkpoint,
    tables: Mapping[str, Table],
    compared: Mapping[str, Mismatch | None],
) -> list[Fault]:
    """The faults of a setting whose tables were compared with the file."""
    settings = {name: PretrainedSetting(table, setting, path) for name, table in tables.items()}
    mismatched = {name: mismatch for name, mismatch in compared.items() if mismatch is not None}
    return fit_faults(settings, matching=tables.keys() - mismatched.keys(), mismatched=mismatched)


def _dim_or_none(name: str, setting: PretrainedChoice | None) -> int | None:
    if setting is None or isinstance(setting, NoPretrained):
        return None
    if isinstance(setting, Checkpoint):
        try:
            source = earlier.open_run(Path(setting.path), cache=Path())
            theirs = setting.table or name
            return source.shape(theirs)[1] if theirs in source.tables else None
        except RunError:
            return None
    try:
        found = _dim(setting)
    except DataError:
        return None
    fits = found is not None and misfit(setting.transform, found, None) is None
    return settled(setting.transform, found, None)[1] if found is not None and fits else None


def _dim(setting: File | Sample) -> int | None:
    """Numbers per row, or None where the whole file must be read for that.

    Raises:
        DataError: it is missing, or not of its format.
    """
    known = [dim for _, each in _files("", setting) if (dim := _dim_of(each)) is not None]
    if isinstance(setting, File) and setting.join is Join.COLUMNS:
        return sum(known) if len(known) == len(setting.paths) else None
    return known[0] if known else None


def _files(path: str, setting: File | Sample) -> list[tuple[str, File | Sample | OtherFile]]:
    """All files of a setting, each with its config path."""
    others = setting.others if isinstance(setting, File) else ()
    return [(path, setting), *((f"{path}.others.{place}", other) for place, other in enumerate(others))]


def _dim_of(setting: File | Sample | OtherFile) -> int | None:
    """Numbers per row of one file, or None where it must be read for that.

    Raises:
        DataError: it is missing, or not of its format.
    """
    if isinstance(setting, Sample) and setting.path is None:
        return setting.dim
    source = _opened_if_quick(setting)
    return None if source is None else source.dim


def _rows_by_position(table: Table, setting: PretrainedChoice) -> int:
    """Rows of a file whose rows are numbered as the table's; 0 where there is none, or its first bytes hide it."""
    if isinstance(setting, NoPretrained | Checkpoint):  # a checkpoint's rows are matched by token
        return 0
    try:
        dim = _dim(setting)
    except DataError:
        return 0
    if dim is None or width_mismatch(setting.transform, dim, "", table):
        return 0
    if isinstance(setting, Sample) and setting.path is None:
        return setting.rows
    source = _opened_if_quick(setting)
    return 0 if source is None or source.tokens is not None else source.rows


def _opened_if_quick(setting: File | Sample | OtherFile) -> FileSource | None:
    """The file, opened, if its first bytes show rows and width.

    Raises:
        DataError: it is missing, or not of its format.
    """
    path = Path(stores.local(str(setting.path)))
    vectors.refuse_pickle(path)
    form = setting.format or vectors.format_of(path)
    if form not in _QUICK:
        if not path.is_file():
            raise DataError("found a folder, expected a file" if path.exists() else "there is no such file")
        return None
    tokens = None if setting.tokens_file is None else Path(stores.local(setting.tokens_file))
    return vectors.open_vectors(
        path, cache=Path(), format=form, key=setting.key, tokens_file=tokens, non_finite=NonFinite.KEEP
    )


@stores.naming_urls()
def align(
    settings: Mapping[str, PretrainedSetting],
    vocabularies: Mapping[str, Vocabulary],
    sizes: Mapping[str, int],
    *,
    cache: Path,
    progress: Progress = quiet,
    check: Callable[[Pretrained], object] = lambda found: None,
    runs: OpenedRuns | None = None,
) -> Pretrained:
    """Opens the files that a run names, finds each table's rows in them, and checks their numbers.

    A table's own file must fit it. The top-level one fills every table that it fits, and must fit one.

    Args:
        settings: see `settings_of`.
        sizes: rows of each table. One whose ids are row numbers, and whose size the config leaves open, gets as
            many rows as a file without tokens has, if those are more.
        cache: folder of files that were converted before.
        check: called with the tables' rows, still without digests, before the numbers of files are looked through.
        runs: those that are open already; None: none is.

    Raises:
        ConfigError: a file does not fit; with all of them.
        DataError: a file's content is malformed.
    """
    for setting in settings.values():
        if not isinstance(setting.setting, Checkpoint):
            stores.fetch(named_files(setting.path, setting.setting), cache=cache, progress=progress)
    sources: dict[tuple[object, ...], VectorSource] = {}
    runs = OpenedRuns(cache) if runs is None else runs
    tables: dict[str, PretrainedTable] = {}
    mismatched: dict[str, Mismatch] = {}
    used: dict[tuple[str, RowType, bool], VectorSource | EarlierCheckpoint] = {}
    related: dict[str, Path] = {}
    for name, setting in settings.items():
        chosen, vocabulary, rows = setting.setting, vocabularies[name], sizes[name]
        with _named(setting.path):
            if isinstance(chosen, Checkpoint):
                run = runs[chosen.path]
                used[setting.path, RowType.FLOAT32, False] = run
            else:
                chosen = with_sample(chosen, cache=cache)
                options, kind = chosen.model_dump_json(include=_READING), setting.table.dtype
                if (key := (chosen.path, options, kind, setting.mapped)) not in sources:
                    opened_file = _opened(chosen, cache=cache, progress=progress)
                    if setting.mapped or opened_file.dtype == ROW_TYPES[kind]:
                        opened_file.map_as(kind)
                    sources[key] = opened_file
                source = sources[key]
                used[setting.path, kind, setting.mapped] = source
                if chosen.missing_neighbours is not None:
                    related[setting.path] = Path(stores.local(chosen.missing_neighbours))
        if isinstance(chosen, Checkpoint):
            aligned = _with_trained_rows(setting, chosen, run, name, vocabulary, rows)
        else:
            aligned = _with_file_rows(replace(setting, setting=chosen), source, name, vocabulary, rows)
            if isinstance(aligned, PretrainedTable):
                aligned = _transformed(aligned, setting, name, vocabulary, cache=cache, progress=progress)
        if isinstance(aligned, Mismatch):
            mismatched[name] = aligned
            continue
        tables[name] = aligned
        where = "checkpoint" if isinstance(chosen, Checkpoint) else "file"
        progress(f"{name}: {aligned.coverage.summary(where)}", None)
    if faults := fit_faults(settings, matching=tables, mismatched=mismatched):
        raise ConfigError(faults)
    found = Pretrained(tables, {name: why.rule for name, why in mismatched.items()})
    check(found)
    for (path, *_), opened in used.items():
        if not isinstance(opened, EarlierCheckpoint):
            with _named(path):
                opened.memory_map()
    of_files = {path: opened.digest for (path, *_), opened in used.items()}
    for path, file in related.items():
        of_files[path] = digests.of_json([of_files[path], caching.file_digest(file, cache=cache)])
    return replace(found, digests=of_files)


@stores.naming_urls()
def tokens_of(
    setting: File, steps: Steps, cache: Path, progress: Progress, path: str
) -> tuple[pa.LargeStringArray, str]:
    """The tokens of a setting's file or files, normalised, each once; and the digest of these.

    Args:
        path: config path of the setting.

    Raises:
        ConfigError: it has none.
        DataError: its content is malformed.
    """
    stores.fetch(named_files(path, setting), cache=cache, progress=progress)
    with _named(path):
        found = _opened(setting, cache=cache, progress=progress)
        tokens = found.tokens
        if tokens is None:
            rule = "the file has rows without tokens, so it can't define which rows there are"
            raise ConfigError([Fault(f"{path}.vocabulary", repr(setting.vocabulary.value), rule, "set it to data")])
        distinct = pc.unique(normalized(tokens, steps))
        return distinct.filter(pc.not_equal(distinct, "")), found.digest


def _opened(setting: File, *, cache: Path, progress: Progress) -> FileSource:
    """The file of a setting, or all of them as one."""
    all_files: tuple[File | OtherFile, ...] = (setting, *setting.others)
    found = [
        open_vectors(
            Path(stores.local(each.path)),
            cache=cache,
            format=each.format,
            key=each.key,
            token_column=each.token_column,
            tokens_file=None if each.tokens_file is None else Path(stores.local(each.tokens_file)),
            invalid_text=setting.invalid_text,
            non_finite=setting.non_finite,
            header_count=setting.header_count,
            progress=progress,
        )
        for each in all_files
    ]
    if not setting.others:
        return found[0]
    identity = _identity(setting)
    return joined(found, setting.join, identity=identity, cache=cache, non_finite=setting.non_finite, progress=progress)


def _identity(setting: File) -> dict[str, Any]:
    """What the rows of a setting's files depend on beside their content."""
    found = setting.model_dump(mode="json", include=_READING - {"tokens_file", "others"})
    others = [other.model_dump(mode="json", exclude={"path", "tokens_file"}) for other in setting.others]
    return {**found, "others": others} if others else found


@contextmanager
def _named(config_path: str) -> Iterator[None]:
    """Errors about a file, or a run, begin with the path of the setting that names it."""
    try:
        yield
    except RunError as error:
        raise type(error)(f"{config_path}.path = {error}") from error


def _with_file_rows(
    of_table: PretrainedSetting, source: VectorSource, name: str, vocabulary: Vocabulary, rows: int
) -> PretrainedTable | Mismatch:
    """A table with rows of a file, as they are."""
    setting, table = of_table.setting, of_table.table
    assert isinstance(setting, File)
    if mismatch := width_mismatch(setting.transform, source.dim, name, table):
        return mismatch
    words = row_tokens(vocabulary)
    if source.tokens is None:
        grown = isinstance(vocabulary, IdentityVocabulary) and table.vocabulary_size is None and source.rows > rows
        rows = source.rows if grown else rows
        if source.rows != rows:
            return Mismatch(
                f"rows are taken by position because the file has no tokens, but the file has {source.rows} "
                f"rows and the table {rows}",
                "give a file with tokens, or one with exactly one row per table row",
            )
        aligned = by_position(rows)
    else:
        if not stands_for_tokens(vocabulary):
            return Mismatch(
                f"rows are taken by token because the file has tokens, but the table's rows are "
                f"{described(vocabulary)}",
                "give a file without tokens and with one row per table row, or use a table with a vocabulary",
            )
        aligned = by_token(words, source.tokens, setting.match, rows=rows)
        if not aligned.count(RowKind.PRETRAINED):
            loosest = setting.match is Match.NORMALISED
            return Mismatch(
                f"not one of the table's {len(words.tokens)} tokens ({_some(words.tokens)}) is among the file's "
                f"{source.rows} ({_some(source.tokens)})",
                "compare their spelling" + ("" if loosest else "; match=normalised is the loosest comparison"),
            )
    found = PretrainedTable(setting, source, aligned, coverage(aligned, words))
    if isinstance(source, JoinedSource):
        counts = source.counts(aligned.file_rows[aligned.pretrained])
        listed = ", ".join(f"{rows:,} from {Path(path).name}" for path, rows in zip(setting.paths, counts, strict=True))
        found = replace(
            found, of_files=tuple(counts), notes=(Note(f"tables.{name}", f"rows {listed} ({setting.join})"),)
        )
    found = replace(found, notes=(*found.notes, *_notes_of_reading(source, name)))
    if source.tokens is None or not setting.missing.composed:
        return found
    if setting.missing_neighbours is None:
        composed = of_subwords(aligned, words, source.tokens, setting.match)
    else:
        composed = of_neighbours(
            aligned, words, source.tokens, setting.match, Path(stores.local(setting.missing_neighbours))
        )
    found = replace(found, composed=composed)
    of = found.coverage.missing
    filled = f"{setting.missing} fill {len(composed.rows):,} of {of:,} missing rows, the initializer the rest"
    return replace(found, notes=(*found.notes, Note(f"tables.{name}", filled)))


def _notes_of_reading(source: VectorSource, name: str) -> Iterator[str]:
    """What reading the files of a table left out or replaced."""
    for each in source.sources if isinstance(source, JoinedSource) else [source]:
        if isinstance(each, FileSource):
            for note, count in each.notes.items():
                yield Note(f"tables.{name}", f"{each.files[0].name}: {plural(count, 'time')}: {note}")


def _transformed(
    found: PretrainedTable,
    of_table: PretrainedSetting,
    name: str,
    vocabulary: Vocabulary,
    *,
    cache: Path,
    progress: Progress,
) -> PretrainedTable | Mismatch:
    """The table with the transform of its rows, which is fitted when the first of them is read."""
    setting, source, table = found.setting, found.source, of_table.table
    assert isinstance(setting, File)
    steps, dim = settled(setting.transform, source.dim, table.dim)
    if not steps:
        return found
    frequencies = row_tokens(vocabulary).frequencies
    for place, step in enumerate(setting.transform):
        if not (isinstance(step, FrequencyWeight) and step.frequencies is Frequencies.COUNTS):
            continue
        if frequencies is None or not frequencies.sum():
            rule = (
                f"rows are weighted by how often their tokens occur, but the table's rows are {described(vocabulary)}"
            )
            remedy = (
                "write {frequency_weight: {frequencies: ranks}} if the file is sorted by frequency, or remove the step"
            )
            return Mismatch(rule, remedy, f"transform.{place}.frequencies", step.frequencies.value)
    from embexp.vectors.transforms import TableRows, Transformation

    used, counts = used_rows(found.alignment, row_tokens(vocabulary))
    rows = TableRows(
        name=name,
        seed=of_table.seed,
        initializer=of_shape(table.initializer, len(found.alignment.file_rows), table.dim or dim),
        dim=dim,
        used=used,
        counts=counts,
        occurrences=0 if frequencies is None else int(frequencies.sum()),
    )
    only_used = setting.fit is Fit.USED
    made = Transformation(
        source, steps, dim, rows, only_used=only_used, identity=_identity(setting), cache=cache, progress=progress
    )
    return replace(found, transform=made)


def _with_trained_rows(
    of_table: PretrainedSetting,
    setting: Checkpoint,
    source: EarlierCheckpoint,
    name: str,
    vocabulary: Vocabulary,
    rows: int,
) -> PretrainedTable | Mismatch:
    """A table with the trained rows of an earlier run."""
    theirs = setting.table or name
    if mismatch := earlier.mismatch_with(source, theirs, name, of_table.table):
        return mismatch
    old_vocabulary = source.vocabulary(theirs)
    aligned = earlier.aligned_with(vocabulary, rows, old_vocabulary, source.shape(theirs)[0], setting.match)
    words = row_tokens(vocabulary)
    if not aligned.count(RowKind.PRETRAINED):
        if not (stands_for_tokens(vocabulary) and stands_for_tokens(old_vocabulary)):
            return Mismatch(
                f"the table's rows are {described(vocabulary)}, but those of table {theirs!r} of the checkpoint "
                f"are {described(old_vocabulary)}",
                "buckets can be restored only if they are the same; set the same hash_buckets, boundaries or quantiles",
            )
        return Mismatch(
            f"not one of the table's {len(words.tokens)} tokens ({_some(words.tokens)}) is among those of table"
            f" {theirs!r} of the checkpoint ({_some(row_tokens(old_vocabulary).tokens)})",
            "compare their spelling and the columns that they come from",
        )
    matrix = earlier_rows(source, theirs, mapped_as=of_table.table.dtype if of_table.mapped else None)
    old = earlier.old_rows(source, theirs, aligned)
    slots, notes = earlier.slots_of_earlier(of_table.optimizer, setting.slots, source, theirs, name)
    return PretrainedTable(setting, matrix, aligned, coverage(aligned, words), old=old, slots=slots, notes=notes)


def earlier_rows(earlier: EarlierCheckpoint, table: str, *, mapped_as: RowType | None = None) -> VectorSource:
    """The rows of a table of an earlier run: in its checkpoint or, of a frozen table, in its pretrained file.

    Args:
        mapped_as: as what a matrix is mapped, which is converted into the cache if it can't be in its file; None: it is
            mapped if it can be.

    Raises:
        RunError: that file has changed.
    """
    if earlier.holds(table):
        return earlier.rows(table, mapped_as=mapped_as)
    settings = {table: settings_of(earlier.spec)[table]}
    found = pretrained_before(
        earlier.folder, settings, earlier.summary, earlier.spec.data.token_steps, cache=earlier.cache
    )
    rows, dim = earlier.shape(table)
    settled = earlier.spec.tables[table].model_copy(update={"dim": dim})
    source = row_source(table, settled, rows, earlier.spec.seed, found.tables[table])
    return TrainedRows(source, earlier.digest, np.dtype(np.float32), source.memory_map)


def pretrained_before(
    folder: RunFolder,
    settings: Mapping[str, PretrainedSetting],
    summary: Mapping[str, Any],
    steps: Steps | None,
    *,
    cache: Path,
) -> Pretrained:
    """The pretrained files of some tables of a finished run, checked to be those that it had.

    Args:
        steps: by which the run normalises tokens.
        cache: folder of files that were converted before.

    Raises:
        RunError: a file has changed.
    """
    sizes = {name: int(summary["tables"][name]["vocabulary_size"]) for name in settings}
    read = {name: Vocabulary.read_for(folder.checked_vocabulary(name), sizes[name]) for name in settings}
    vocabularies = {name: vocabulary.normalizing(steps) for name, vocabulary in read.items()}
    found = align(settings, vocabularies, sizes, cache=cache)
    for name in settings:
        before, digest = summary["initialization"]["tables"][name]["pretrained"], found.tables[name].source.digest
        if digest != before["digest"]:
            raise RunError(
                f"{before['path']} has changed since the run {folder.path}, whose frozen table {name!r} was "
                f"made from it (digest {digest}, expected {before['digest']}); restore the file"
            )
    return found


def _some(tokens: pa.LargeStringArray) -> str:
    shown = ", ".join(repr(token) for token in tokens.slice(0, 3).to_pylist())
    return f"{shown}, …" if len(tokens) > 3 else shown


def with_sample(setting: File | Sample, *, cache: Path) -> File:
    """The setting as one of a file; where it names none, a file of random numbers is made.

    Args:
        cache: folder for files that are made.
    """
    if isinstance(setting, File):
        return setting
    path = setting.path or str(make_sample(setting.rows, setting.dim, setting.seed, cache=cache))
    return File(path=path, **setting.model_dump(exclude={"kind", "path", "rows", "dim", "seed"}))


def make_sample(rows: int, dim: int, seed: int, *, cache: Path) -> Path:
    """A `.npy` file of standard normal float32 [rows, dim]; written in pieces, found again the next time."""

    def fill(folder: Path) -> None:
        path = folder / "sample.npy"
        matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dim))
        files.allocate(path)
        random = np.random.Generator(np.random.Philox(key=digests.seed_of(seed, "sample")[0]))
        for start in range(0, rows, _ROWS_AT_ONCE):
            part = matrix[start : start + _ROWS_AT_ONCE]
            part[:] = random.standard_normal(part.shape, np.float32)
        matrix.flush()

    return caching.folder(cache, "sample", digests.of_json([SAMPLE_VERSION, rows, dim, seed]), fill) / "sample.npy"

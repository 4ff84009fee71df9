"""What changed in a run since its parent, in files; and whole exports of the run, made of those of the parent.

A delta is a folder:

| file | |
|---|---|
| `delta.json` | which runs these are; by table: rows, dim, dtype, digests, and how many rows are new and have moved |
| `TABLE.rows.npy` | the numbers of the new and moved rows, int64 [n], rising |
| `TABLE.values.npy` | these rows, [n, dim], as the table stores them |
| `TABLE.tokens.tsv` | the new tokens in the order of their rows, in the form of vocabularies; only if there are any |
| `model` | a SavedModel of the run without the rows of its tables and the tokens of its vocabularies |
| `inventory.json` | the digest of each of these files |

A row is new if it stands for a new token, or if the earlier table has no row of its number. Of the others, those have
moved that differ in a bit.

The tables of base and result are named by digests of their rows: a whole export has nothing else of its run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from embexp.data.vocabularies.vocabulary import (
    IdentityVocabulary,
    TokenVocabulary,
    Vocabulary,
    has_line_ends,
    lines_of,
    token_lines,
    unescaped,
    write_tokens,
)
from embexp.errors import DataError, RunError
from embexp.records import inventory
from embexp.records.folder import first_fault
from embexp.runs.finished import lines_of_rows
from embexp.system import arrays, digests, environment, files
from embexp.system.arrays import ArrayWriter, Rows
from embexp.system.parallel import Progress, part, quiet
from embexp.system.tensor_bundle.index import Entry, read_index
from embexp.system.tensor_bundle.tensor import Tensor
from embexp.vectors.pretrained.aligned import earlier_rows
from embexp.vectors.pretrained.earlier import EarlierCheckpoint
from embexp.vectors.stored import BFLOAT16, FLOATS
from embexp.vectors.write import write_vectors

NAME, MODEL, ASSETS = "delta.json", "model", "assets"
_TOKENS = "{}.tokens"
"""The name of the file of a table's new tokens, without suffix."""
_INDEX, _TABLE = "variables/variables.index", "tables/{}/.ATTRIBUTES/VARIABLE_VALUE"
"""Where a SavedModel has its tables."""
_DTYPES = {dtype.name: dtype for dtype in FLOATS}
_BLOCK_BYTES = 1 << 24
ROWS, VALUES = "{}.rows.npy", "{}.values.npy"
"""Names of the files of a table."""


class _Part(BaseModel):
    """A part of delta.json."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class _Run(_Part):
    run_id: str | None
    inventory: str | None


class _Rows(_Part):
    rows: NonNegativeInt
    digest: str
    tokens: NonNegativeInt = 0
    first: NonNegativeInt = 0
    tokens_digest: str = ""
    vocabulary: str = ""


class _Kinds(_Part):
    oov: NonNegativeInt
    missing: bool
    rare: bool


class _Facts(_Part):
    dim: PositiveInt
    dtype: Literal["float32", "float16", "bfloat16"]
    whole_bytes: NonNegativeInt
    new: NonNegativeInt
    moved: NonNegativeInt
    same: NonNegativeInt
    tokens: _Kinds | None = None
    """The rows before those of tokens; null: rows do not belong to tokens."""
    base: _Rows
    result: _Rows


class _Model(_Part):
    vocabularies: dict[str, bool]
    """For each table with a token file in `assets`, whether the lines of the base's file are escaped."""


class Delta(_Part):
    """What delta.json holds."""

    version: Literal[1]
    base: _Run
    result: _Run
    tables: dict[Annotated[str, Field(pattern=r"^[^/\\]+$")], _Facts]
    model: _Model | None = None


@dataclass(frozen=True)
class Changed:
    """A table of a delta.

    Attributes:
        bytes: of its files.
        whole: bytes of all its rows, as the table stores them.
    """

    counts: Counts
    bytes: int
    whole: int


def write(
    run: EarlierCheckpoint,
    parent: EarlierCheckpoint,
    directory: Path,
    write_model: Callable[[Path], Any] | None,
    progress: Progress = quiet,
) -> dict[str, Changed]:
    """Writes what changed since a parent into an empty directory.

    Args:
        write_model: writes the run's SavedModel without the rows of its tables into an empty directory; None: the delta
            has none.

    Raises:
        RunError: the parent's tables are no beginning of the run's.
    """
    _check_beginning(run, parent)
    tables, found = {}, {}
    for number, name in enumerate(run.tables):
        of_table = part(progress, number / len(run.tables), (number + 1) / len(run.tables))
        tables[name], counts = _write_table(run, parent, name, directory, of_table)
        size = sum(path.stat().st_size for path in directory.glob("*") if _is_of(path.name, name))
        found[name] = Changed(counts, size, tables[name]["whole_bytes"])
    content = {"version": 1, "base": _named(parent), "result": _named(run), "tables": tables}
    if write_model is not None:
        (directory / MODEL).mkdir()
        write_model(directory / MODEL)
        content["model"] = {"vocabularies": _take_tokens_out(run, parent, directory / MODEL / ASSETS)}
    files.write_text(directory / NAME, json.dumps(content, indent=2) + "\n")
    inventory.seal(directory)
    return found


def _is_of(file: str, table: str) -> bool:
    return file in (ROWS.format(table), VALUES.format(table), f"{_TOKENS.format(table)}.tsv")


def _named(run: EarlierCheckpoint) -> dict[str, Any]:
    """The values that identify a run, for people and their programs."""
    return {"run_id": run.summary.get("run_id"), "inventory": inventory.digest_of(run.folder.path)}


def _check_beginning(run: EarlierCheckpoint, parent: EarlierCheckpoint) -> None:
    """Raises a RunError with all faults if the parent's tables are not the first rows of the run's tables."""
    faults = [f"table {name} is in only one of them" for name in sorted({*run.tables} ^ {*parent.tables})]
    for name in (name for name in run.tables if name in parent.tables):
        (rows, dim), (rows_before, dim_before) = run.shape(name), parent.shape(name)
        if dim != dim_before:
            faults.append(f"rows of table {name} have {dim:,} numbers, and {dim_before:,} in the parent")
        elif not _begins_with(run.vocabulary(name), parent.vocabulary(name)) or rows < rows_before:
            faults.append(f"the vocabulary of table {name} does not begin with the parent's")
    if faults:
        raise RunError(
            f"{run.folder.path} is no continuation of {parent.folder.path}: {'; '.join(faults)}; export it "
            f"whole, or name the run that it continues"
        )


def _begins_with(vocabulary: Vocabulary, earlier: Vocabulary) -> bool:
    if isinstance(vocabulary, IdentityVocabulary) and isinstance(earlier, IdentityVocabulary):
        return vocabulary.size >= earlier.size
    if not isinstance(vocabulary, TokenVocabulary) or not isinstance(earlier, TokenVocabulary):
        return vocabulary.digest == earlier.digest
    further = vocabulary.known.slice(len(earlier.known))
    return vocabulary.digest == _grown(earlier, further).digest


def _grown(earlier: TokenVocabulary, further: pa.LargeStringArray) -> TokenVocabulary:
    """A vocabulary with additional tokens, as `continue` makes it. Token counts are unknown."""
    known, rare = pa.concat_arrays([earlier.known, further]), earlier.rare_without(further)
    return _of_tokens(known, rare, earlier.oov, earlier.missing_frequency is not None)


def _of_tokens(
    known: pa.LargeStringArray, rare: pa.LargeStringArray | None, oov: int, missing: bool
) -> TokenVocabulary:
    counts = np.zeros(len(known), np.int64)
    return TokenVocabulary(known, counts, oov, missing_frequency=0 if missing else None, rare=rare)


def _write_table(
    run: EarlierCheckpoint, parent: EarlierCheckpoint, name: str, folder: Path, progress: Progress
) -> tuple[dict[str, Any], Counts]:
    """Writes the files of a table; returns its part of delta.json."""
    before, after = earlier_rows(parent, name), earlier_rows(run, name)
    was, now = parent.vocabulary(name), run.vocabulary(name)
    dtype = after.dtype if after.dtype in _DTYPES.values() and after.dtype.itemsize < 4 else np.dtype(np.float32)
    new = [range(before.rows, after.rows)]
    facts: dict[str, Any] = {}
    if isinstance(now, TokenVocabulary) and isinstance(was, TokenVocabulary):
        new.append(range(was.size, now.size))
        facts["tokens"] = {"oov": now.oov, "missing": now.missing_frequency is not None, "rare": now.rare is not None}
        _write_tokens(now, len(was.known), folder / _TOKENS.format(name))
    counts = write_changes(before, after, new, folder, name, dtype=dtype, progress=progress)
    rows = {"new": counts.new, "moved": counts.moved, "same": counts.same}
    named = {"base": _facts(before, was), "result": _facts(after, now)}
    size = after.rows * after.dim * dtype.itemsize
    return {"dim": after.dim, "dtype": dtype.name, "whole_bytes": size, **rows, **facts, **named}, counts


def _write_tokens(vocabulary: TokenVocabulary, before: int, stem: Path) -> None:
    """Writes the tokens after the first ones, if there are any."""
    known, counts = vocabulary.known.slice(before), vocabulary.known_frequencies[before:]
    if len(known):
        TokenVocabulary(known, counts, oov=0).write(stem)


def _facts(rows: Rows, vocabulary: Vocabulary) -> dict[str, Any]:
    """The digests that identify a table: that of its rows, as in summary.json, and those of its tokens."""
    found = {"rows": rows.rows, "digest": digests.of_float_rows(rows.read, rows.rows, rows.dim)}
    if not isinstance(vocabulary, TokenVocabulary):
        return found
    tokens = {"tokens": len(vocabulary.known), "first": vocabulary.first}
    return {**found, **tokens, "tokens_digest": _without_rare(vocabulary).digest, "vocabulary": vocabulary.digest}


def _without_rare(vocabulary: TokenVocabulary) -> TokenVocabulary:
    """A vocabulary without the tokens of its rare row, which tables in files do not have."""
    return vocabulary if vocabulary.rare is None else replace(vocabulary, rare=vocabulary.rare.slice(0, 0))


def _take_tokens_out(run: EarlierCheckpoint, parent: EarlierCheckpoint, assets: Path) -> dict[str, bool]:
    """Removes the token files of a SavedModel; returns for each table whether the parent's lines are escaped."""
    found = {}
    for name in run.tables:
        if (file := assets / f"{_TOKENS.format(name)}.txt").exists():
            file.unlink()
            found[name] = _is_escaped(parent.vocabulary(name))
    return found


def _is_escaped(vocabulary: Vocabulary) -> bool:
    """Whether the lines of a vocabulary's file in a SavedModel are escaped."""
    return isinstance(vocabulary, TokenVocabulary) and has_line_ends(lines_of(vocabulary))


@dataclass(frozen=True)
class Table:
    """A table of a whole export.

    Attributes:
        vocabulary: None: the export has no tokens of it.
    """

    rows: Rows
    vocabulary: TokenVocabulary | None


class NpyRows:
    """Rows of a `.npy` file, float32, read when they are asked for; `Rows`.

    Attributes:
        rows: number of rows.
        dim: numbers per row.
    """

    def __init__(self, path: Path) -> None:
        """Reads the header.

        Raises:
            DataError: it is no file of such rows.
        """
        matrix, header = _opened(path)
        if matrix.dtype != np.float32 or matrix.ndim != 2 or header.fortran_order:
            raise DataError(f"{path}: found {matrix.dtype} {list(matrix.shape)}, expected float32 [rows, dim]")
        self._path, self._offset = path, header.offset
        self.rows, self.dim = matrix.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32."""
        place, count = self._offset + 4 * self.dim * start, (stop - start) * self.dim
        return np.fromfile(self._path, np.float32, count, offset=place).reshape(-1, self.dim)


class TensorRows:
    """Rows of a table of a SavedModel; `Rows`.

    Attributes:
        rows: number of rows.
        dim: numbers per row.
    """

    def __init__(self, index: Path, key: str, entry: Entry) -> None:
        """Reads nothing."""
        self._tensor = Tensor(f"{index}: {key}", key, entry)
        self.rows, self.dim = entry.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32; a view of the file."""
        return self._tensor.read(start, stop)


@dataclass(frozen=True)
class Whole:
    """The whole export of a run, of which nothing is written yet.

    Attributes:
        delta: the folder with its model.
        model: what delta.json has of the model; None: the export is a folder of `.npy` files.
    """

    tables: Mapping[str, Table]
    delta: Path
    model: _Model | None

    def write(self, directory: Path, out: Path, progress: Progress = quiet) -> None:
        """Writes it into an empty directory.

        Args:
            out: the final name of that, for messages.

        Raises:
            DataError: a `.tokens.txt` can't hold a token.
        """
        if self.model is None:
            _write_files(self.tables, directory, out, progress)
        else:
            _write_model(self.tables, self.delta / MODEL, self.model.vocabularies, directory, progress)


def applied(base: Path, delta: Path) -> Whole:
    """The whole export of a run: that of its parent, with what changed since.

    Args:
        base: the whole export of the parent: a SavedModel, or a folder of `.npy` files.

    Raises:
        DataError: the delta is damaged or is one of another base, or the base is no whole export.
    """
    content, is_model = _read(delta), (base / "saved_model.pb").exists()
    if is_model and content.model is None:
        raise DataError(f"{delta} has no model, but {base} is a SavedModel; export the delta with --as savedmodel")
    before = _of_model(base, delta, content) if is_model else _of_files(base, content)
    _check(base, before, content, "base", whole=is_model)
    after = {name: _changed(table, delta, name, content) for name, table in before.items()}
    _check(delta, after, content, "result", whole=is_model)
    return Whole(after, delta, content.model if is_model else None)


def _read(delta: Path) -> Delta:
    """Reads delta.json, and checks that the files of the delta are unchanged.

    Raises:
        DataError: a file has changed.
    """
    remedy = "export it again"
    if not (delta / NAME).is_file():
        raise DataError(
            f"{delta} is not a delta: there is no {NAME} in it; `embexp export RUN DELTA --since PARENT` writes one"
        )
    try:
        listed = inventory.read(delta)
        changes = inventory.changes(delta)
    except DataError:
        raise DataError(f"{delta} is damaged: its {inventory.NAME} can't be read; {remedy}") from None
    if listed is None or changes:
        what = f"its {inventory.NAME} is missing" if listed is None else ", ".join(map(str, changes))
        raise DataError(f"{delta} is damaged: {what}; {remedy}")
    try:
        return Delta.model_validate_json((delta / NAME).read_bytes())
    except ValidationError as error:
        raise DataError(f"{delta / NAME} is not a delta that this version understands: {first_fault(error)}") from None


def _of_files(base: Path, content: Delta) -> dict[str, Table]:
    """The tables of a folder of `.npy` files."""
    names = [f"{name}.npy" for name in content.tables]
    names += [f"{_TOKENS.format(name)}.txt" for name, facts in content.tables.items() if facts.tokens is not None]
    if missing := [name for name in names if not (base / name).is_file()]:
        raise DataError(f"{base} is not a whole export of run {_short(content)}: it lacks {', '.join(missing)}")
    found = {}
    for name, facts in content.tables.items():
        rows, vocabulary = NpyRows(base / f"{name}.npy"), None
        if facts.tokens is not None:
            lines = token_lines(base / f"{_TOKENS.format(name)}.txt")
            known = lines.slice(facts.base.first, facts.base.tokens)
            vocabulary = _vocabulary(known, lines.slice(0, 0), facts)
        found[name] = Table(rows, vocabulary)
    return found


def _short(content: Delta) -> str:
    """The parent, for messages."""
    return str(content.base.run_id)[:12]


def _vocabulary(known: pa.LargeStringArray, rare: pa.LargeStringArray, facts: _Facts) -> TokenVocabulary:
    kinds = facts.tokens
    assert kinds is not None  # only rows of tokens have kinds
    return _of_tokens(known, rare if kinds.rare else None, kinds.oov, kinds.missing)


def _of_model(base: Path, delta: Path, content: Delta) -> dict[str, Table]:
    """The tables of a SavedModel that the delta's model also has, and their tokens."""
    assert content.model is not None  # checked before
    index, wanted = base / _INDEX, read_index(delta / MODEL / _INDEX)
    entries, found = read_index(index), {}
    for name, facts in content.tables.items():
        if (key := _TABLE.format(name)) not in wanted:
            continue
        if key not in entries:
            raise DataError(f"{base} is not a whole export of run {_short(content)}: it has no table {name}")
        vocabulary = None
        if (escapes := content.model.vocabularies.get(name)) is not None:
            vocabulary = _of_asset(base / ASSETS / f"{_TOKENS.format(name)}.txt", facts, escaped=escapes)
        found[name] = Table(TensorRows(index, key, entries[key]), vocabulary)
    return found


def _of_asset(file: Path, facts: _Facts, *, escaped: bool) -> TokenVocabulary:
    """The vocabulary in the token file of a SavedModel. Rare tokens come last. Without tokens, there is no file."""
    lines = token_lines(file) if file.exists() else pa.array([], pa.large_string())
    tokens, known = unescaped(lines) if escaped else lines, facts.base.tokens
    return _vocabulary(tokens.slice(0, known), tokens.slice(known), facts)


def _changed(table: Table, delta: Path, name: str, content: Delta) -> Table:
    """Applies the changes to a table."""
    facts = content.tables[name]
    rows = changed_rows(table.rows, delta, name, rows=facts.result.rows, dtype=_DTYPES[facts.dtype])
    if table.vocabulary is None:
        return Table(rows, None)
    further, stem = pa.array([], pa.large_string()), delta / _TOKENS.format(name)
    if stem.with_name(f"{stem.name}.tsv").exists():
        written = Vocabulary.read(stem)
        assert isinstance(written, TokenVocabulary)  # a .tsv is one
        further = written.known
    return Table(rows, _grown(table.vocabulary, further))


def _check(place: Path, tables: Mapping[str, Table], content: Delta, which: str, *, whole: bool) -> None:
    """Checks that tables are the ones that a delta names.

    Args:
        which: `base` or `result`.
        whole: whether vocabularies include their rare tokens.

    Raises:
        DataError: the tables are different.
    """
    faults = []
    for name, table in tables.items():
        expected = content.tables[name].base if which == "base" else content.tables[name].result
        found = {"digest": digests.of_float_rows(table.rows.read, table.rows.rows, table.rows.dim)}
        if table.vocabulary is not None:
            found["vocabulary" if whole else "tokens_digest"] = table.vocabulary.digest
        for key, value in found.items():
            if value != (wanted := getattr(expected, key)):
                what = "rows" if key == "digest" else "tokens"
                faults.append(f"the digest of the {what} of table {name} is {value[:12]}, expected {wanted[:12]}")
    if faults and which == "base":
        raise DataError(
            f"{place} is not the whole export of run {_short(content)}: {'; '.join(faults)}; name that export"
        )
    if faults:
        raise DataError(f"{place} is damaged: {'; '.join(faults)}; export it again")


def _write_files(tables: Mapping[str, Table], directory: Path, out: Path, progress: Progress) -> None:
    for name, table in tables.items():
        lines = None if table.vocabulary is None else lines_of_rows(table.vocabulary, table.rows.rows)
        write_vectors(table.rows, lines, directory / f"{name}.npy", named=out / f"{name}.npy", progress=progress)


def _write_model(
    tables: Mapping[str, Table],
    without_rows: Path,
    vocabularies: Collection[str],
    directory: Path,
    progress: Progress,
) -> None:
    """Writes a SavedModel.

    Args:
        without_rows: the SavedModel without rows and tokens.
        vocabularies: the tables whose tokens it has.
    """
    environment.load_tensorflow()
    from embexp.checkpoints import streaming

    shutil.copytree(without_rows, directory, dirs_exist_ok=True)
    for name in vocabularies:
        vocabulary = tables[name].vocabulary
        assert vocabulary is not None  # it comes from the base
        write_tokens(directory / ASSETS / f"{_TOKENS.format(name)}.txt", lines_of(vocabulary))
    streaming.add_tables(directory, {name: table.rows for name, table in tables.items()}, progress=progress)


@dataclass(frozen=True)
class Counts:
    """How many rows of a table are new, have moved, and are the same as in the earlier table."""

    new: int
    moved: int
    same: int


def write_changes(
    before: Rows,
    after: Rows,
    new: Sequence[range],
    folder: Path,
    name: str,
    *,
    dtype: np.dtype,
    progress: Progress = quiet,
) -> Counts:
    """Writes the two files of a table, with memory for a block of rows of both tables.

    Args:
        new: the numbers of the new rows; all that `before` lacks are among them.
        dtype: float32, float16 or bfloat16, what the table stores.
    """
    is_new = moved = 0
    with (
        ArrayWriter(folder / ROWS.format(name), np.int64) as numbers,
        ArrayWriter(folder / VALUES.format(name), dtype, after.dim) as values,
    ):
        for start, block in arrays.blocks(after, _BLOCK_BYTES):
            fresh = _within(start, len(block), new)
            changed = np.flatnonzero(fresh | _differs(before, start, block))
            numbers.append(start + changed)
            values.append(narrowed(block[changed], dtype))
            is_new += int(fresh.sum())
            moved += len(changed) - int(fresh.sum())
            progress(f"comparing table {name}", (start + len(block)) / after.rows)
    return Counts(is_new, moved, after.rows - is_new - moved)


def _within(start: int, count: int, ranges: Sequence[range]) -> np.ndarray:
    """Bool [count]: which of so many rows from `start` are in a range."""
    found = np.zeros(count, bool)
    for each in ranges:
        found[max(0, each.start - start) : max(0, each.stop - start)] = True
    return found


def _differs(before: Rows, start: int, block: np.ndarray) -> np.ndarray:
    """Bool [n]: which rows differ in a bit from those of the same numbers; those that have none count as the same."""
    known = max(0, min(before.rows - start, len(block)))
    found = np.zeros(len(block), bool)
    if known:
        earlier = before.read(start, start + known)
        found[:known] = (_bits(block[:known]) != _bits(earlier)).any(axis=1)
    return found


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def narrowed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers that were stored as `dtype`, and are float32 now, as they were stored: to the bit, also of a NaN."""
    if dtype != BFLOAT16:
        return np.ascontiguousarray(values, dtype)
    return (_bits(values) >> 16).astype(np.uint16).view(BFLOAT16)


class ChangedRows:
    """An earlier table with the rows of a delta in it, and those behind it; `Rows`.

    Attributes:
        rows: number of rows.
        dim: numbers per row.
    """

    def __init__(self, before: Rows, numbers: np.ndarray, values: np.ndarray, rows: int) -> None:
        """Reads nothing.

        Args:
            numbers: of the rows of the delta, int64 [n], rising.
            values: of these, [n, dim]: float32, float16 or bfloat16.
            rows: of the table that they make.
        """
        self._before, self._numbers, self._values = before, numbers, values
        self.rows, self.dim = rows, before.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32."""
        found = np.empty((stop - start, self.dim), np.float32)
        if (known := min(stop, self._before.rows)) > start:
            found[: known - start] = self._before.read(start, known)
        low, high = np.searchsorted(self._numbers, (start, stop))
        found[self._numbers[low:high] - start] = arrays.widened(self._values[low:high])
        return found


def changed_rows(before: Rows, folder: Path, name: str, *, rows: int, dtype: np.dtype) -> ChangedRows:
    """The table that an earlier one and the two files of a delta make; the files are mapped.

    Args:
        rows: of that table.

    Raises:
        DataError: the files are not those of such a table.
    """
    numbers = _mapped(folder / ROWS.format(name), np.dtype(np.int64), None)
    values = _mapped(folder / VALUES.format(name), dtype, before.dim)
    rising = bool((np.diff(numbers, prepend=-1, append=rows) > 0).all())
    behind = len(numbers) - int(np.searchsorted(numbers, before.rows))
    if len(numbers) != len(values) or not rising or behind != max(0, rows - before.rows):
        raise DataError(
            f"{folder / ROWS.format(name)}: found {len(numbers):,} row numbers for {len(values):,} rows, "
            f"expected increasing row numbers of a table that grew from {before.rows:,} to {rows:,} rows"
        )
    return ChangedRows(before, numbers, values, rows)


def _opened(path: Path) -> tuple[np.ndarray, arrays.Header]:
    try:
        return arrays.mapped(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: found no .npy file: {error}") from None


def _mapped(path: Path, dtype: np.dtype, width: int | None) -> np.ndarray:
    found, header = _opened(path)
    if header.dtype.itemsize != dtype.itemsize or header.shape[1:] != (() if width is None else (width,)):
        shape = "[n]" if width is None else f"[n, {width}]"
        raise DataError(f"{path}: found {header.dtype} {list(header.shape)}, expected {dtype} {shape}")
    return found.view(dtype)

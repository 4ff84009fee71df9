"""A knowledge graph: files of triples, each of them two queries, as a source of examples. At the top, no NumPy.

| form | lines |
|---|---|
| `.txt`, `.tsv` | three fields, tabs between them. Which one is the relation differs from graph to graph |
| `.csv` | three fields, commas between them, or the three of more that the header line names |
| `.nt` | N-Triples, see `triple_of`; also found in `.txt` |
| `2id.txt` | OpenKE's files, see `Names` |

A header line may name the fields: head, relation and tail, or the like. A folder holds the files `train`, `valid` and
`test`. A file alone is a whole graph, which is divided. Each may be compressed.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.files import table_files
from embexp.data.files.dialect import Dialect
from embexp.data.files.table_files import looked, stop_at, text_lines, unreadable
from embexp.data.files.text_table import BadLine, records
from embexp.data.sources.source import (
    HEAD_LINES,
    Description,
    OtherFile,
    Source,
    cached,
    single_columns,
    unknown_columns,
)
from embexp.errors import ConfigError, DataError, Fault, excerpt, plural
from embexp.fields.graphs.specs import GraphSplit, Triples
from embexp.specs.tasks import CANDIDATES, RELATION, SOURCE
from embexp.system import caching, compressed, digests
from embexp.system.files import fault_of
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.data.contract import Contract
    from embexp.data.examples import Encoded, Examples
    from embexp.data.vocabularies.vocabulary import Vocabulary

NUMBERED = "2id"
"""How the stems of all names of files end."""
ENTITIES, RELATIONS = f"entity{NUMBERED}", f"relation{NUMBERED}"
"""Stems of the files with names."""


@dataclass(frozen=True)
class Names:
    """The names of a graph by their numbers, and the files that they are from."""

    files: tuple[Path, Path]
    entities: list[str]
    relations: list[str]

    @staticmethod
    def read(entities: Path, relations: Path) -> Names:
        """Reads both files.

        Raises:
            DataError: a line holds no name and number, a number or a name is there twice, or the count is wrong.
        """
        return Names((entities, relations), _names(entities), _names(relations))

    def triples(self, path: Path) -> Iterator[tuple[list[str], int]]:
        """Head, relation and tail of each line of a file by their names, and the bytes read with it.

        Raises:
            DataError: a line is no triple of numbers that have names, or the count is wrong.
        """
        (entity_file, relation_file), found = self.files, 0
        count, lines = _counted(path)
        for number, text, size in lines:
            fields, place = text.split(), f"{path}, line {number}"
            if len(fields) != 3:
                expected = "expected 3, the numbers of head, tail and relation"
                raise DataError(f"{place}: found {plural(len(fields), 'field')} in {excerpt(text)}, {expected}")
            head, tail = (_named(field, self.entities, entity_file, place) for field in fields[:2])
            yield [head, _named(fields[2], self.relations, relation_file, place), tail], size
            found += 1
        _check_count(path, found, count, "triple")


def _named(field: str, names: list[str], file: Path, place: str) -> str:
    if not _is_number(field) or int(field) >= len(names):
        raise DataError(f"{place}: found {excerpt(field)}, expected a number below {len(names):,}, as {file.name} has")
    return names[int(field)]


def _names(path: Path) -> list[str]:
    count, lines = _counted(path)
    names: dict[int, str] = {}
    for line, text, _ in lines:
        place, (name, *rest) = f"{path}, line {line}", text.rstrip().rsplit(maxsplit=1) or [""]
        if not rest or not _is_number(rest[0]):
            raise DataError(f"{place}: found {excerpt(text)}, expected a name, a tab and its number")
        if (number := int(rest[0])) >= count:
            raise DataError(f"{place}: found the number {number:,}, expected one below {count:,}, as line 1 says")
        if number in names:
            raise DataError(f"{place}: found the number {number:,} again, expected a unique one for each name")
        names[number] = name
    _check_count(path, len(names), count, "name")
    if len(set(names.values())) < count:
        seen: set[str] = set()
        twice = next(name for name in names.values() if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"{path}: found the name {excerpt(twice)} twice, expected a unique one for each number")
    return [names[number] for number in range(count)]


def _counted(path: Path) -> tuple[int, Iterator[tuple[int, str, int]]]:
    """The number in the first line, and the lines after it."""
    lines = text_lines(path)
    first = next(lines, (1, "", 0))[1].strip()
    if not _is_number(first):
        found = excerpt(first) if first else "nothing"
        raise DataError(f"{path}, line 1: found {found}, expected the number of lines that follow")
    return int(first), lines


def _check_count(path: Path, found: int, count: int, what: str) -> None:
    if found != count:
        raise DataError(f"{path}: found {plural(found, what)}, expected {count:,}, as line 1 says")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


_UNICODE = r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}"
_IRI = rf'<((?:[^\x00-\x20<>"{{}}|^`\\]|{_UNICODE})*)>'
_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_INNER = rf"{_BASE}_:0-9\-\u00b7\u0300-\u036f\u203f-\u2040"
_NODE = rf"_:[{_BASE}_:0-9](?:[{_INNER}.]*[{_INNER}])?"
_STRING = rf'"((?:[^"\\\n\r]|\\[tbnrf"\'\\]|{_UNICODE})*)"'
_LANGUAGE = r"@([A-Za-z]+(?:-[A-Za-z0-9]+)*)"
_SPACE = r"[ \t]*"
_TRIPLE = re.compile(
    rf"{_SPACE}(?:{_IRI}|({_NODE})){_SPACE}{_IRI}{_SPACE}"
    rf"(?:{_IRI}|({_NODE})|{_STRING}(?:\^\^{_IRI}|{_LANGUAGE})?){_SPACE}\.{_SPACE}(?:#.*)?"
)
_NOTHING = re.compile(rf"{_SPACE}(?:#.*)?")
_ESCAPE = re.compile(rf"{_UNICODE}|\\.")
_LETTERS = dict(zip("tbnrf", "\t\b\n\r\f", strict=True))
EXPECTED_NTRIPLE = 'a triple such as <http://a.org/s> <http://a.org/p> "text"@en .'
"""What a line should be, for errors."""


def is_nothing(line: str) -> bool:
    """Whether a line is empty, or a comment."""
    return _NOTHING.fullmatch(line) is not None


def triple_of(line: str) -> list[str] | None:
    """The names of subject, predicate and object of a line without its end; None for a line that is no triple."""
    match = _TRIPLE.fullmatch(line)
    if match is None:
        return None
    subject, subject_node, predicate, iri, node, string, kind, language = match.groups()
    try:
        head = subject_node if subject is None else _unescaped(subject)
        if string is not None:
            behind = f"^^{_unescaped(kind)}" if kind is not None else f"@{language}" if language is not None else ""
            tail = f'"{_unescaped(string)}"{behind}'
        else:
            tail = node if iri is None else _unescaped(iri)
        found = [head, _unescaped(predicate), tail]
        "".join(found).encode()
    except ValueError:  # an escape that stands for no character
        return None
    return found


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[1] in "uU":
        return chr(int(escape[2:], 16))
    return _LETTERS.get(escape[1], escape[1])


SPLITS = ("train", "valid", "test")
_NAMED = (ENTITIES, RELATIONS)
_SUFFIXES = (".txt", ".tsv", ".csv", ".nt")
_OTHER_RDF = (".ttl", ".rdf", ".owl", ".xml", ".jsonld", ".n3", ".nq", ".trig")
_CONVERSION = (
    "convert it to N-Triples, such as with rdflib: rdflib.Graph().parse('GRAPH').serialize('graph.nt', format='nt')"
)


@dataclass(frozen=True)
class GraphFiles:
    """The files of a graph.

    Attributes:
        splits: train, validation and test; or the only one.
        named: of numbered triples, those with the names of entities and of relations.
        ordered: whether the form of the files says which field is the head, the relation and the tail.
    """

    splits: tuple[Path, ...]
    named: tuple[Path, ...] = ()
    ordered: bool = False

    @property
    def names(self) -> Names | None:
        """The names of numbered triples; see `Names.read`."""
        return Names.read(*self.named) if self.named else None

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [*self.splits, *self.named]


def files_of(path: Path) -> GraphFiles:
    """The files of a graph: triples of names, or OpenKE's numbered ones where there are none; or the only file.

    Raises:
        ConfigError: one is missing, there are two for a split, or it has a form that is not read.
    """
    if path.is_file():
        if (form := compressed.form_of(path)) not in _SUFFIXES:
            ends = f"a file of triples must end in {', '.join(_SUFFIXES)}, but this one ends in {form or 'nothing'}"
            raise unreadable(path, ends, _CONVERSION if form in _OTHER_RDF else "")
        stem = path.name.partition(".")[0]
        if others := [one for one in SPLITS if stem in SPLITS and one != stem and _there(path.parent, one)]:
            rule = f"the file is the split {stem} of a graph whose folder also holds {' and '.join(others)}"
            raise unreadable(path, rule, "name the folder, or rename the file to divide it alone")
        return _checked(GraphFiles((path,)))
    if not path.is_dir():
        rule = "a graph must be a folder with the files train, valid and test, or a file of triples"
        raise unreadable(path, rule if path.exists() else "there is no such file or folder", looked(path))
    numbered = [f"{split}{NUMBERED}" for split in SPLITS]
    if any(_there(path, stem) for stem in SPLITS) or not any(_there(path, stem) for stem in numbered):
        return _checked(GraphFiles(_files(path, SPLITS)))
    found = _files(path, (*numbered, *_NAMED))
    return GraphFiles(found[: len(SPLITS)], found[len(SPLITS) :])


def _checked(files: GraphFiles) -> GraphFiles:
    """The files, if all of them tell which field is the relation, or none does.

    Raises:
        ConfigError: they differ.
    """
    forms = {file: _form_of(file) for file in files.splits if not fault_of(file)}
    ordered = {form.ordered for form in forms.values()}
    if len(ordered) > 1:
        some, others = ([file for file, form in forms.items() if form.ordered is kind] for kind in (True, False))
        rule = f"{some[0].name} says which field is the relation, but {others[0].name} does not"
        raise unreadable(
            others[0].parent, rule, "give all files a header line such as head,relation,tail, or give none of them one"
        )
    return replace(files, ordered=ordered == {True})


def names_of(path: Path) -> Names | None:
    """The names for a file of numbered triples, which lie next to it; None: it holds names itself.

    Raises:
        ConfigError: a file of names is missing.
    """
    return Names.read(*_files(path.parent, _NAMED)) if path.name.split(".")[0].endswith(NUMBERED) else None


def _suffixes(stem: str) -> Sequence[str]:
    """The suffixes of a file name; those of OpenKE have two."""
    return _SUFFIXES[:2] if stem.endswith(NUMBERED) else _SUFFIXES


def _there(folder: Path, stem: str) -> list[Path]:
    names = [f"{stem}{suffix}" for suffix in _suffixes(stem)]
    packed = [f"{name}{suffix}" for name in names for suffix in compressed.SUFFIXES]
    return [folder / name for name in (*names, *packed) if (folder / name).is_file()]


def _files(folder: Path, stems: Sequence[str]) -> tuple[Path, ...]:
    """The only file of each stem. Raises a ConfigError with all faults."""
    there = {stem: _there(folder, stem) for stem in stems}
    faults = []
    for stem, found in there.items():
        if len(found) != 1:
            *some, last = _suffixes(stem)
            names = f"{stem}{', '.join(some)} or {last}"
            rule = f"the folder needs {names}, but has {'several' if found else 'none'}"
            faults.append(Fault("data.path", repr(str(folder)), rule))
    stop_at(faults)
    return tuple(found for [found] in there.values())


_HEADS = ("head", "h", "subject", "subj", "s", "source", "src", "from", "head_entity", "entity1")
_RELATIONS = ("relation", "r", "rel", "predicate", "pred", "p", "property", "edge", "type", "relationship")
_TAILS = ("tail", "t", "object", "obj", "o", "target", "dst", "to", "tail_entity", "entity2")
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class _Form:
    """How a file of triples is written.

    Attributes:
        delimiter: delimiter of fields, which may be quoted; "": tabs, without quotes; None: the file is N-Triples.
        header: the fields that the header line names head, relation and tail; None: there is no such line.
        width: number of fields in a line.
    """

    delimiter: str | None
    header: tuple[int, int, int] | None = None
    width: int = 3

    @property
    def ordered(self) -> bool:
        """Whether the form tells which field is the head, the relation and the tail."""
        return self.delimiter is None or self.header is not None


def _form_of(path: Path) -> _Form:
    """The form of a file, by its name and its first line.

    Raises:
        DataError: the file can't be read.
    """
    form = compressed.form_of(path)
    lines = (text for _, text, _ in table_files.text_lines(path))
    if form == ".nt":
        return _Form(None)
    if form != ".csv":
        some = itertools.islice(itertools.dropwhile(is_nothing, lines), 1)
        first = next(some, "")
        if triple_of(first) is not None:
            return _Form(None)
        first = next((text for _, text, _ in table_files.text_lines(path)), "")
        fields = first.split("\t")
        return _Form("", _header(fields) if min(map(len, fields)) > 1 else None)  # letters may be names of a toy graph
    first = next(lines, "")
    rows = {mark: next(csv.reader([first], delimiter=mark), []) for mark in _DELIMITERS}
    delimiter = next((mark for mark, row in rows.items() if len(row) > 2), ",")
    header = _header(rows[delimiter])
    return _Form(delimiter, header, len(rows[delimiter]) if header else 3)


def is_ordered(path: Path) -> bool:
    """Whether a file says which field is the head, the relation and the tail.

    Raises:
        DataError: it can't be read.
    """
    return _form_of(path).ordered


def _header(fields: Sequence[str]) -> tuple[int, int, int] | None:
    """The places of head, relation and tail, if the line names each of them once."""
    names = [field.strip().casefold().lstrip(":") for field in fields]
    places = [[place for place, name in enumerate(names) if name in known] for known in (_HEADS, _RELATIONS, _TAILS)]
    if not all(len(found) == 1 for found in places):
        return None
    return places[0][0], places[1][0], places[2][0]


def lines_of(path: Path, names: Names | None = None) -> Iterator[tuple[list[str], int]]:
    """The three fields of each line, and the bytes read with it; empty lines are passed over.

    The fields are head, relation and tail where the form of the file says so, or there are names.

    Args:
        names: of numbered triples.

    Raises:
        DataError: a line is no triple.
    """
    if names is not None:
        yield from names.triples(path)
        return
    form = _form_of(path)
    if form.delimiter is None:
        yield from _ntriples(path)
        return
    places = (0, 1, 2) if form.header is None else form.header
    for number, (place, fields, size) in enumerate(_rows(path, form)):
        if number == 0 and form.header is not None:
            continue
        if len(fields) != form.width:
            written = excerpt((form.delimiter or "\t").join(fields))
            found = f"{plural(len(fields), 'field')} in {written}"
            between = "tabs between them" if not form.delimiter else f"{form.delimiter!r} between them"
            raise DataError(f"{place}: found {found}, expected {form.width}, with {between}")
        triple = [fields[each] for each in places]
        if not all(triple):
            raise DataError(f"{place}: found an empty field, expected head, relation and tail")
        yield triple, size


def _rows(path: Path, form: _Form) -> Iterator[tuple[str, list[str], int]]:
    """For each line: its place, for messages, its fields, and its bytes."""
    if not form.delimiter:
        for number, text, size in table_files.text_lines(path):
            yield f"{path}, line {number}", text.split("\t"), size
        return
    read = [0]

    def texts() -> Iterator[str]:
        for line in table_files.lines_of(path):
            read[0] += len(line)
            yield line.decode("utf-8-sig" if read[0] == len(line) else "utf-8")

    try:
        for number, fields in records(texts(), Dialect(form.delimiter, quoted=True)):
            yield f"{path}, line {number}", fields, read[0]
            read[0] = 0
    except BadLine as error:
        raise DataError(f"{path}, {error}") from None


def _ntriples(path: Path) -> Iterator[tuple[list[str], int]]:
    for number, text, size in table_files.text_lines(path):
        triple = triple_of(text)
        if triple is not None:
            yield triple, size
        elif not is_nothing(text):
            raise DataError(f"{path}, line {number}: found {excerpt(text)}, expected {EXPECTED_NTRIPLE}")


_COLUMNS = (SOURCE, RELATION, CANDIDATES)


@dataclass(frozen=True)
class TripleSource(Source):
    """Queries of a knowledge graph. Its files are its splits."""

    data: Triples
    contract: Contract | None = None
    unit = ("triples", 2)
    answers = True

    def going_on(self, contract: Contract) -> TripleSource:
        """With its entities and relations."""
        return replace(self, contract=contract)

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns that queries lack, missing files, and the first line that is no triple."""
        rule = f"a knowledge graph's queries have no such column; the columns are {', '.join(_COLUMNS)}"
        known = (*_COLUMNS, *self.data.dense_columns)
        faults = [*unknown_columns(columns, known, rule), *single_columns(columns, _COLUMNS, "no lists")]
        try:
            found = files_of(Path(self.data.path))
            if (found.named or found.ordered) and self.data.columns is not None:
                value = f"[{', '.join(self.data.columns)}]"
                numbered = "the folder holds numbered triples, whose lines are head, tail and relation"
                rule = numbered if found.named else "the files' form or header line already says what each field is"
                faults.append(Fault("data.columns", value, rule, "set data.columns=null"))
            if len(found.splits) > 1 and self.data.split != GraphSplit():
                value = ", ".join(f"{name}: {setting}" for name, setting in self.data.split)
                rule = "the folder's files are the splits: only a graph in a single file is divided"
                faults.append(Fault("data.split", value, rule, "remove it, or name a file"))
            names = found.names
            for file in found.splits:
                for _ in itertools.islice(lines_of(file, names), HEAD_LINES):
                    pass
        except ConfigError as error:
            faults += error.faults
        except DataError as error:
            faults.append(Fault("data.path", repr(self.data.path), str(error)))
        return faults

    def description(self) -> Description:
        """The folder, what answers are ranked among, and which triples train."""
        data, new = self.data, self.data.new_entities
        others = "all other entities" if data.negatives is None else f"{data.negatives:,} drawn ones"
        others += " and the answers of its batch" if data.shared_negatives else ""
        drawn = "all" if data.negatives is None else str(1 + data.negatives)
        if data.shared_negatives:
            drawn = f"B + {data.negatives}, shared"
        some = "" if new is None else f"; {new.share:.3g} of the entities count as new, {new.train.value} triples train"
        parts = "the files valid and test validate and test"
        if Path(data.path).is_file():
            parts = f"{data.split.validation:.0%} validates, {data.split.test:.0%} tests, and train has all names"
        return Description(
            f"triples {data.path}, each answer ranked among {others}; {parts}{some}",
            ids_per_example={CANDIDATES: drawn},
        )

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the bytes of all files."""
        files = files_of(Path(self.data.path)).paths
        return digests.of_json([caching.file_digest(file, cache=cache) for file in files])

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """Two queries for each triple; ids are rows already."""
        from embexp.fields.graphs import queries

        used = {"columns", "reciprocal", "normalize", "split"} | (
            {"new_entities"} if self.data.new_entities is not None else set()
        )
        settings = {"kind": self.data.kind, **self.data.model_dump(mode="json", include=used)}
        known: dict[str, Vocabulary] = {}
        if self.contract is not None:
            settings["contract"] = self.contract.digest
            of_columns = {column: self.contract.vocabularies.get(table) for column, table in columns.ids.items()}
            named = {queries.RELATIONS: RELATION, queries.ENTITIES: CANDIDATES}
            known = {name: each for name, column in named.items() if (each := of_columns.get(column)) is not None}
        make = partial(queries.write_queries, self.data, known=known, progress=progress)
        return cached("triples", self.digest(columns, cache=cache), settings, make, cache=cache)

    def division_key(self) -> dict[str, Any]:
        """Nothing: the files are the splits."""
        return {}

    def given_splits(self) -> tuple[str, ...]:
        """Validation and test, unless one file is divided, or triples are by whether they have new entities."""
        one = Path(self.data.path).is_file()
        return ("validation", "test") if self.data.new_entities is None and not one else ()

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes splits: the files, and two more where some entities count as new."""
        import numpy as np

        from embexp.data import splits
        from embexp.fields.graphs import queries

        splits.write(splits.in_order([count for _, count in encoded.layout.files]), encoded.layout.count, folder)
        new = self.data.new_entities
        if new is None:
            return {}
        divided = queries.new_entity_splits(
            new.train, encoded.folder, {name: np.load(folder / f"{name}.npy") for name in splits.SPLITS}
        )
        if not len(divided["train"]):
            raise DataError(
                f"{self.data.path}: no training triple contains an entity that counts as new; set a share "
                f"larger than {new.share:g}, or another seed"
            )
        splits.rewrite(divided, folder)
        return {"parts": list(divided)}

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """One of entities, one of relations."""
        from embexp.data.vocabularies.vocabulary import Vocabulary
        from embexp.fields.graphs.queries import ENTITIES, RELATIONS

        entities, relations = (Vocabulary.read(encoded.folder / name) for name in (ENTITIES, RELATIONS))
        return {
            table: (relations if column == RELATION else entities).normalizing(self.data.normalize)
            for column, table in columns.ids.items()
        }

    def distinct_tokens(self, columns: Columns, encoded: Encoded) -> dict[str, pa.LargeStringArray]:
        """The names of entities, and those of relations without their inverses."""
        import pyarrow as pa

        read = self.vocabularies(columns, encoded, encoded.folder)
        names = {table: read[table].tokens() for table in columns.ids.values()}
        inverses = {table for column, table in columns.ids.items() if column == RELATION and self.data.reciprocal}
        return {
            table: pa.array(found[::2] if table in inverses else found, pa.large_string())
            for table, found in names.items()
        }

    def encode_file(self, file: OtherFile, columns: Columns, *, cache: Path, progress: Progress) -> Examples:
        """The queries of one more file of triples."""
        from embexp.data.examples import examples
        from embexp.fields.graphs import queries

        if fault := fault_of(file.path):
            raise DataError(f"{file.path}: {fault}")
        known = {
            queries.RELATIONS if column == RELATION else queries.ENTITIES: file.vocabularies[table]
            for column, table in columns.ids.items()
        }
        how = self.data.model_dump(mode="json", include={"columns", "reciprocal"})
        whose = {name: each.digest for name, each in known.items()}
        names = names_of(file.path)
        files = [file.path, *(names.files if names else ())]
        make = partial(queries.write_other_queries, self.data, file.path, names, known, progress=progress)
        content = digests.of_json([caching.file_digest(each, cache=cache) for each in files])
        made = cached("triples", content, {"vocabularies": whose, **how}, make, cache=cache).folder
        return examples(made, made)

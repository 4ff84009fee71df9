"""A knowledge graph: files of triples, each of them two queries. At the top, standard library only.

Files of triples: the form in which knowledge graphs are published. Standard library only.

A folder holds `train`, `valid` and `test`, with a triple a line: three fields, tabs between them, no header line. Which
field is the relation differs from graph to graph. Each may be compressed, such as train.txt.gz. Or it holds OpenKE's
files, see `openke`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.files import table_files
from embexp.data.files.table_files import looked, stop_at, unreadable
from embexp.data.sources.openke import ENTITIES, NUMBERED, RELATIONS, Names
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
from embexp.specs.data.graphs import CANDIDATES, RELATION, SOURCE, Triples
from embexp.system import caching, compressed, digests
from embexp.system.files import fault_of
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.data.examples import Encoded, Examples
    from embexp.data.queries import Candidates
    from embexp.data.vocabularies.vocabulary import Vocabulary

_COLUMNS = (SOURCE, RELATION, CANDIDATES)
SPLITS = ("train", "valid", "test")
_NAMED = (ENTITIES, RELATIONS)
_SUFFIXES = (".txt", ".tsv")


@dataclass(frozen=True)
class TripleSource(Source):
    """Queries of a knowledge graph. Its files are its splits."""

    data: Triples
    unit = ("triples", 2)

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns that queries lack, missing files, and the first line that is no triple."""
        rule = f"a knowledge graph's queries have no such column; the columns are {', '.join(_COLUMNS)}"
        known = (*_COLUMNS, *self.data.dense_columns)
        faults = [*unknown_columns(columns, known, rule), *single_columns(columns, _COLUMNS, "no lists")]
        try:
            found = files_of(Path(self.data.path))
            if found.named and self.data.columns is not None:
                value = f"[{', '.join(self.data.columns)}]"
                rule = "the folder holds numbered triples, whose lines are head, tail and relation"
                faults.append(Fault("data.columns", value, rule, "set data.columns=null"))
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
        return Description(
            f"triples {data.path}, each answer ranked among {others}; the files valid and test validate and test{some}",
            ids_per_example={CANDIDATES: drawn},
            whole_tables={CANDIDATES: "1-vs-all (data.negatives=null)"} if data.negatives is None else {},
        )

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the bytes of all files."""
        files = files_of(Path(self.data.path)).paths
        return digests.of_json([caching.file_digest(file, cache=cache) for file in files])

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """Two queries for each triple; ids are rows already."""
        from embexp.data import queries

        used = {"columns", "reciprocal", "normalize"} | (
            {"new_entities"} if self.data.new_entities is not None else set()
        )
        settings = {"kind": self.data.kind, **self.data.model_dump(mode="json", include=used)}
        make = partial(queries.write_queries, self.data, progress=progress)
        return cached("triples", self.digest(columns, cache=cache), settings, make, cache=cache)

    def division_key(self) -> dict[str, Any]:
        """Nothing: the files are the splits."""
        return {}

    def given_splits(self) -> tuple[str, ...]:
        """Validation and test, unless triples are divided by whether they have new entities."""
        return ("validation", "test") if self.data.new_entities is None else ()

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes splits: the files, and two more where some entities count as new."""
        import numpy as np

        from embexp.data import queries, splits

        splits.write(splits.in_order([count for _, count in encoded.layout.files]), encoded.layout.count, folder)
        new = self.data.new_entities
        if new is None:
            return {}
        divided = queries.new_entity_splits(
            new.train, encoded.folder, {name: np.load(folder / f"{name}.npy") for name in splits.SPLITS}
        )
        if not len(divided["train"]):
            raise DataError(
                f"{self.data.path}: no training triple has to do with the entities that count as new; take a larger"
                f" share of them than {new.share:g}, or another seed"
            )
        splits.rewrite(divided, folder)
        return {"parts": list(divided)}

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """One of entities, one of relations."""
        from embexp.data.queries import ENTITIES, RELATIONS
        from embexp.data.vocabularies.vocabulary import Vocabulary

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
        from embexp.data import queries
        from embexp.data.examples import examples

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

    def candidates(self, sizes: Mapping[str, int], *, seed: int) -> Candidates:
        """All entities, or some drawn ones while training."""
        from embexp.data.queries import Candidates

        entities = sizes[CANDIDATES]
        if entities < 2:
            raise DataError(f"{self.data.path}: found {entities} entity, expected 2 or more, to rank answers")
        return Candidates(entities, self.data.negatives, seed)


@dataclass(frozen=True)
class GraphFiles:
    """The files of a graph.

    Attributes:
        splits: train, validation and test.
        named: of numbered triples, those with the names of entities and of relations.
    """

    splits: tuple[Path, ...]
    named: tuple[Path, ...] = ()

    @property
    def names(self) -> Names | None:
        """The names of numbered triples; see `Names.read`."""
        return Names.read(*self.named) if self.named else None

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [*self.splits, *self.named]


def files_of(path: Path) -> GraphFiles:
    """The files of a graph: triples of names or, where there are none of these, OpenKE's numbered ones.

    Raises:
        ConfigError: one is missing, or there are two for a split.
    """
    if not path.is_dir():
        rule = "a graph is a folder with the files train, valid and test"
        raise unreadable(path, rule if path.exists() else "there is no such folder", looked(path))
    numbered = [f"{split}{NUMBERED}" for split in SPLITS]
    if any(_there(path, stem) for stem in SPLITS) or not any(_there(path, stem) for stem in numbered):
        return GraphFiles(_files(path, SPLITS))
    found = _files(path, (*numbered, *_NAMED))
    return GraphFiles(found[: len(SPLITS)], found[len(SPLITS) :])


def names_of(path: Path) -> Names | None:
    """The names for a file of numbered triples, which lie next to it; None: it holds names itself.

    Raises:
        ConfigError: a file of names is missing.
    """
    return Names.read(*_files(path.parent, _NAMED)) if path.name.split(".")[0].endswith(NUMBERED) else None


def _there(folder: Path, stem: str) -> list[Path]:
    names = [f"{stem}{suffix}" for suffix in _SUFFIXES]
    packed = [f"{name}{suffix}" for name in names for suffix in compressed.SUFFIXES]
    return [folder / name for name in (*names, *packed) if (folder / name).is_file()]


def _files(folder: Path, stems: Sequence[str]) -> tuple[Path, ...]:
    """The one file of each stem; raises ConfigError with all faults."""
    there = {stem: _there(folder, stem) for stem in stems}
    faults = []
    for stem, found in there.items():
        if len(found) != 1:
            names = " or ".join(f"{stem}{suffix}" for suffix in _SUFFIXES)
            rule = f"the folder needs {names}, and has {'several' if found else 'neither'}"
            faults.append(Fault("data.path", repr(str(folder)), rule))
    stop_at(faults)
    return tuple(found for [found] in there.values())


def lines_of(path: Path, names: Names | None = None) -> Iterator[tuple[list[str], int]]:
    """The three fields of each line, and the bytes read with it; empty lines are passed over.

    Args:
        names: of numbered triples, whose fields are then head, relation and tail.

    Raises:
        DataError: a line is no triple.
    """
    if names is not None:
        yield from names.triples(path)
        return
    for number, text, size in table_files.text_lines(path):
        place, fields = f"{path}, line {number}", text.split("\t")
        if len(fields) != 3:
            found = f"{plural(len(fields), 'field')} in {excerpt(text)}"
            raise DataError(f"{place}: found {found}, expected 3, with tabs between them")
        if not all(fields):
            raise DataError(f"{place}: found an empty field, expected head, relation and tail")
        yield fields, size

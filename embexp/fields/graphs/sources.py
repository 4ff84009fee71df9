"""A knowledge graph as a source of examples: its files of triples, each of them two queries. Light at the top."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.sources.source import (
    HEAD_LINES,
    Description,
    OtherFile,
    Source,
    cached,
    single_columns,
    unknown_columns,
)
from embexp.errors import ConfigError, DataError, Fault
from embexp.fields.graphs.specs import GraphSplit, Triples
from embexp.fields.graphs.triples import files_of, lines_of, names_of
from embexp.specs.tasks import CANDIDATES, RELATION, SOURCE
from embexp.system import caching, digests
from embexp.system.files import fault_of
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.data.contract import Contract
    from embexp.data.examples import Encoded, Examples
    from embexp.data.vocabularies.vocabulary import Vocabulary

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

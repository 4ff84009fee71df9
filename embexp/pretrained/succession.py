"""Aligns a table with that of an earlier run: its rows, and the slots of its optimizer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies.buckets import same_rows, stands_for_tokens
from embexp.data.vocabularies.vocabulary import IdentityVocabulary, TokenVocabulary, Vocabulary
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.pretrained.fit import Mismatch
from embexp.specs.optimizers import slots_of
from embexp.specs.pretrained import Checkpoint, Match, SlotPolicy
from embexp.specs.run import RunSpec
from embexp.specs.tables import Table
from embexp.vectors.alignment import Alignment, RowKind, RowTokens, by_token
from embexp.vectors.file_source import VectorSource


def mismatch(source: EarlierCheckpoint, theirs: str, name: str, table: Table) -> Mismatch | None:
    """Compares a table with the one of an earlier run that its rows come from.

    Args:
        source: the earlier training.
        theirs: name of the table there.
        name: of the table.
        table: its settings; a dim of null fits any.
    """
    if theirs not in source.tables:
        return Mismatch(
            f"the checkpoint has no table {theirs!r}, its tables are {', '.join(source.tables)}",
            f"name one: choose pretrained@tables.{name}.pretrained=checkpoint and set its table",
        )
    _, dim = source.shape(theirs)
    if table.dim not in (None, dim):
        return Mismatch(
            f"rows of its table {theirs!r} have {dim} numbers, the table's {table.dim}", f"set tables.{name}.dim={dim}"
        )
    return None


def aligned(vocabulary: Vocabulary, rows: int, earlier: Vocabulary, earlier_rows: int, how: Match) -> Alignment:
    """Aligns a table with an earlier one by what their rows stand for, never by position.

    Rows that stand for no token, such as the OOV row, are matched where they mean the same; see `same_rows`. Rows that
    stand for nothing, behind the last token, are matched one by one in their order, as far as both tables have any.

    Args:
        vocabulary: of the table.
        rows: of the table.
        earlier: vocabulary of the earlier one.
        earlier_rows: rows of that.
        how: when two tokens are the same.
    """
    if isinstance(vocabulary, IdentityVocabulary) and isinstance(earlier, IdentityVocabulary):
        shared = min(vocabulary.size, earlier.size)  # the tokens are the row numbers themselves
        file_rows, kinds = np.full(rows, -1, np.int64), np.full(rows, RowKind.SPECIAL, np.uint8)
        file_rows[:shared] = np.arange(shared)
        kinds[: vocabulary.size], kinds[:shared] = RowKind.MISSING, RowKind.PRETRAINED
        by: Mapping[Match, int] = {Match.EXACT: shared}
        end, earlier_end = vocabulary.size, earlier.size
    elif not (stands_for_tokens(vocabulary) and stands_for_tokens(earlier)):
        mine, others = same_rows(vocabulary, earlier)
        file_rows, kinds = np.full(rows, -1, np.int64), np.full(rows, RowKind.SPECIAL, np.uint8)
        file_rows[mine], kinds[mine] = others, RowKind.PRETRAINED
        by, end, earlier_end = {}, vocabulary.size, earlier.size
    else:
        words, theirs = row_tokens(vocabulary), row_tokens(earlier)
        found = by_token(words, theirs.tokens, how, rows=rows)
        file_rows, kinds, by = found.file_rows, found.kinds, found.by
        file_rows[file_rows >= 0] += theirs.first
        end, earlier_end = words.first + len(words.tokens), theirs.first + len(theirs.tokens)
    if (kinds == RowKind.PRETRAINED).any():
        special = list(zip(*same_rows(vocabulary, earlier), strict=True))
        special += [(end + free, earlier_end + free) for free in range(min(rows - end, earlier_rows - earlier_end))]
        for row, earlier_row in special:
            file_rows[row], kinds[row] = earlier_row, RowKind.PRETRAINED
    return Alignment(file_rows, kinds, by)


def old(source: EarlierCheckpoint, theirs: str, alignment: Alignment) -> np.ndarray:
    """Bool [rows]: whether a row was trained in the run, and not only added to its checkpoint."""
    trained = source.rows_of_run(theirs) >= 0
    places = alignment.file_rows
    found: np.ndarray = (places >= 0) & trained[np.maximum(places, 0)]
    return found


def slots(
    spec: RunSpec, setting: Checkpoint, source: EarlierCheckpoint, theirs: str, name: str
) -> tuple[dict[str, VectorSource], tuple[str, ...]]:
    """The slots that are kept with their rows, and notes on others, for the user.

    Slots of the same name mean different things to optimizers of different kinds (the momenta of Adam are means of
    gradients, those of AdagradMomentum sums of steps), so they are taken over from one of the same kind only.
    """
    if spec.frozen(name) or setting.slots is SlotPolicy.INITIAL:
        return {}, ()
    new, before = spec.optimizer_of(name), source.spec.optimizer_of(theirs)
    stored, wanted = source.slots(theirs), tuple(slots_of(new))
    lead = f"tables.{name}: "
    if new.kind != before.kind:
        ignored = f"its slots {', '.join(stored)} are ignored" if stored else "it has no slots"
        begin = f"those of {new.kind}, {', '.join(wanted)}, begin at their initial values" if wanted else ""
        words = "; ".join(filter(None, [f"{lead}the checkpoint's optimizer is {before.kind}: {ignored}", begin]))
        return {}, (words,) if stored or wanted else ()
    kept: dict[str, VectorSource] = {slot: source.rows(theirs, slot) for slot in wanted if slot in stored}
    if lacking := [slot for slot in wanted if slot not in stored]:
        return kept, (
            f"{lead}the checkpoint has no slots {', '.join(lacking)} (the table was frozen): they begin at their"
            " initial values",
        )
    return kept, ()


def row_tokens(vocabulary: Vocabulary) -> RowTokens:
    """The tokens of a vocabulary; row numbers as decimal text where ids are row numbers."""
    match vocabulary:
        case TokenVocabulary():
            return RowTokens(vocabulary.known, vocabulary.first, vocabulary.known_frequencies)
        case IdentityVocabulary():
            return RowTokens(pc.cast(pa.array(np.arange(vocabulary.size)), pa.large_string()))
        case _:  # buckets of many tokens, or numbers
            return RowTokens(pa.array([], pa.large_string()), vocabulary.size)

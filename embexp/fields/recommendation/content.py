"""Vectors of items that nobody has yet, by their content, next to those that a run has learned.

`study=new_items` measures them, and `embexp recommend --content` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.data.examples import ListColumn
from embexp.errors import DataError
from embexp.fields.recommendation import cold_starts
from embexp.fields.recommendation.recommending import Vectors
from embexp.fields.recommendation.specs import Recommender
from embexp.specs.models import Model
from embexp.specs.pretrained import Match
from embexp.system.parallel import Progress
from embexp.vectors import alignment
from embexp.vectors.file_source import open_vectors

_LEAST = 2
"""Items with content from which a map can be fitted."""


@dataclass(frozen=True)
class Content:
    """Vectors of the content of known and of new items.

    Attributes:
        digest: of the file.
        known: bool [I], which items of the catalogue have some.
        of_known: float32 [known, c].
        new: bool [N], which new items have some.
        of_new: float32 [new, c].
        names: of the new items that have some.
    """

    digest: str
    known: np.ndarray
    of_known: np.ndarray
    new: np.ndarray
    of_new: np.ndarray
    names: list[str]


def read_content(
    setting: str, path: str, known: Sequence[str], new: Sequence[str] | None, *, cache: Path, progress: Progress
) -> Content:
    """Reads the rows of items.

    Args:
        setting: what names the file, for errors.
        path: of the file.
        known: the items of the catalogue.
        new: the new ones, of which two must have content; None: all others that the file has, at least one.
        cache: see `open_vectors`.

    Raises:
        DataError: it is no file of vectors, has no tokens, or no rows of known items, or of new ones.
    """
    source = open_vectors(Path(path), cache=cache, progress=progress)
    if source.tokens is None:
        raise DataError(f"{setting}: {path} has no tokens: put the ids of items into NAME.tokens.txt")
    others, least = new, _LEAST
    if others is None:
        old = set(known)
        others, least = [each for each in dict.fromkeys(source.tokens.to_pylist()) if each not in old], 1
    read, parts = source.read(0, source.rows), []
    for kind, items, wanted in (("known", known, _LEAST), ("new", others, least)):
        places, _ = alignment.match(pa.array(items, pa.large_string()), source.tokens, Match.EXACT)
        has = places >= 0
        if has.sum() < wanted:
            some = ", ".join(source.tokens.slice(0, 3).to_pylist())
            among = f" of {len(items):,}" if items else ""
            raise DataError(
                f"{setting}: {path} has vectors of {has.sum():,}{among} {kind} items, and {('one', 'two')[wanted - 1]}"
                f" {'is' if wanted == 1 else 'are'} needed: its tokens, such as {some}, must be the ids of items"
            )
        parts.append((has, np.asarray(read[places[has]], np.float32)))
    (of_known, of_new), names = parts, np.asarray(others, object)
    return Content(source.digest, *of_known, *of_new, names[of_new[0]].tolist())


def of_new_items(content: Content, vectors: Vectors, model: Recommender) -> tuple[np.ndarray, float]:
    """Vectors of new items by their content, float32 [new, d], and the ridge penalty of what maps content to vectors.

    Args:
        vectors: of the known items.
    """
    known = content.known
    learned = cold_starts.content_map(content.of_known, vectors.of_items[known], vectors.counts[known])
    found = learned(content.of_new)
    if model.normalize:
        found = cold_starts.of_length_one(found, bool(model.item_biases))
    return found, learned.penalty


def with_new_items(
    vectors: Vectors, model: Model, path: str, *, only: bool, cache: Path, progress: Progress
) -> Vectors:
    """Vectors with those of new items after the known ones, or with `only` these.

    Args:
        vectors: of a run of task recommendation.
        path: of a file of vectors of content; all items that the run does not know are new.
        cache: see `open_vectors`.

    Raises:
        DataError: see `read_content`.
    """
    assert isinstance(model, Recommender)
    content = read_content("content", path, vectors.tokens()[1], None, cache=cache, progress=progress)
    of_new, _ = of_new_items(content, vectors, model)
    names = tuple(content.names)
    if not only:
        return replace(vectors, of_items=np.concatenate([vectors.of_items, of_new]), new_items=names)
    nothing = ListColumn(np.empty(0, np.int64), np.zeros(len(vectors.users) + 1, np.int64))
    return replace(vectors, items=vectors.items[:0], of_items=of_new, seen=nothing, new_items=names)

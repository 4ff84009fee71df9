"""Entities that count as new, and the triples that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from embexp.system import digests


def chosen(entities: Iterable[str], *, share: float, seed: int) -> list[str]:
    """A share of some entities, one of them at least: a pure function of their names and the seed.

    Args:
        entities: names, in any order.
        share: fraction of them, rounded to a whole number of entities.
        seed: another one draws others.
    """
    drawn = sorted(entities, key=lambda name: (digests.seed_of(seed, "new_entities", name), name))
    return drawn[: max(1, round(share * len(drawn)))]


def touched(triples: np.ndarray, tokens: Sequence[str], *, training: int, share: float, seed: int) -> np.ndarray:
    """Which triples hold something new: bool [n].

    Beside those that are `chosen`, entities are new that no other training triple holds; and so are relations. All
    else is thus in at least one training triple that is not touched.

    Args:
        triples: integers [n, 3], codes of head, relation and tail.
        tokens: names by code; an entity and a relation may share one.
        training: how many of the triples train; they come first.
        share: see `chosen`.
        seed: see `chosen`.
    """
    ends, relations = triples[:, [0, 2]], triples[:, 1]
    code_of = {tokens[code]: code for code in np.unique(ends).tolist()}
    drawn = np.zeros(len(tokens), bool)
    drawn[[code_of[name] for name in chosen(code_of, share=share, seed=seed)]] = True
    left = ~drawn[ends[:training]].any(axis=1)
    known_entity, known_relation = np.zeros(len(tokens), bool), np.zeros(len(tokens), bool)
    known_entity[ends[:training][left]] = True
    known_relation[relations[:training][left]] = True
    return np.asarray(~(known_entity[ends].all(axis=1) & known_relation[relations]))

"""Entities that count as new, against the triples that were written and sets in Python."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from embexp.data.columns import columns_of
from embexp.data.scan import Scan, scan
from embexp.errors import DataError
from embexp.fields.graphs import queries
from embexp.fields.graphs.specs import NewEntities, TrainedTriples, Triples
from embexp.specs.tables import Feature
from tests import planted_triples
from tests.planted_triples import Triple
from tests.thoroughness import examples

FEATURES = {
    "source": Feature(table="entity"),
    "relation": Feature(table="relation"),
    "candidates": Feature(table="entity"),
}
Splits = tuple[list[Triple], list[Triple], list[Triple]]
FILES = ("train", "valid", "test")
NAME = st.sampled_from(["a", "b", "c", "d", "e", "r"])
TRIPLES = st.lists(st.tuples(NAME, st.sampled_from(["r", "s", "t"]), NAME), min_size=1, max_size=8)


def scanned(folder: Path, train: TrainedTriples, *, reciprocal: bool = True, share: float = 0.2, seed: int = 0) -> Scan:
    data = Triples(
        path=str(folder),
        columns=["head", "relation", "tail"],  # type: ignore[arg-type]
        reciprocal=reciprocal,
        new_entities=NewEntities(share=share, seed=seed, train=train),
    )
    return scan(data, columns_of(data, FEATURES)[0], cache=folder.parent / "cache")


def write(parts: Splits, folder: Path) -> Path:
    return planted_triples.write(folder, **dict(zip(FILES, parts, strict=True)))


def triples_of(found: Scan, split: str, *, reciprocal: bool) -> list[Triple]:
    """The triples behind the queries of a split, each of which is two."""
    entities, relations = (found.vocabularies[name].tokens() for name in ("entity", "relation"))
    rows = found.splits[split]
    assert rows[1::2].tolist() == (rows[::2] + 1).tolist()
    asked = found.examples.ids[rows[::2]]
    back = found.examples.ids[rows[1::2]]
    np.testing.assert_array_equal(back[:, [2, 0]], asked[:, [0, 2]])
    np.testing.assert_array_equal(back[:, 1], asked[:, 1] + int(reciprocal))
    return [(entities[source], relations[relation], entities[target]) for source, relation, target in asked]


def entities_of(triples: list[Triple]) -> set[str]:
    return {name for head, _, tail in triples for name in (head, tail)}


@examples(5)
@given(
    parts=st.tuples(TRIPLES, TRIPLES, TRIPLES),
    reciprocal=st.booleans(),
    share=st.sampled_from([0.1, 0.3, 0.5]),
    seed=st.integers(0, 3),
)
def test_the_parts_are_those_of_a_graph_without_and_with_new_entities(
    parts: Splits, reciprocal: bool, share: float, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    everywhere = list(itertools.chain(*parts))
    drawn = set(queries.new_entities(entities_of(everywhere), share=share, seed=seed))
    left = [triple for triple in parts[0] if not drawn & {triple[0], triple[2]}]
    known_entities, known_relations = entities_of(left), {relation for _, relation, _ in left}

    def known(triples: list[Triple]) -> list[Triple]:
        return [t for t in triples if {t[0], t[2]} <= known_entities and t[1] in known_relations]

    def new(triples: list[Triple]) -> list[Triple]:
        return [t for t in triples if not ({t[0], t[2]} <= known_entities and t[1] in known_relations)]

    assume(left)
    folder = write(parts, tmp_path_factory.mktemp("graphs") / "graph")
    settings = {"reciprocal": reciprocal, "share": share, "seed": seed}
    found = scanned(folder, TrainedTriples.KNOWN, **settings)
    assert set(found.splits) == {"train", "validation", "test"}
    for part, triples in zip(found.splits, parts, strict=True):
        assert triples_of(found, part, reciprocal=reciprocal) == known(triples)
    assert set(found.vocabularies["entity"].tokens()) == known_entities
    twice = {f"{name}^-1" for name in known_relations} if reciprocal else set()
    assert set(found.vocabularies["relation"].tokens()) == known_relations | twice

    whole = scanned(folder, TrainedTriples.ALL, **settings)
    expected = {"train": parts[0], "validation": parts[1], "test": parts[2]}
    expected |= {"test_new": new(parts[2]), "test_known": known(parts[2])}
    assert {part: triples_of(whole, part, reciprocal=reciprocal) for part in whole.splits} == expected
    assert set(whole.vocabularies["entity"].tokens()) == entities_of(everywhere)

    if not new(parts[0]):
        with pytest.raises(DataError, match="no training triple contains an entity that counts as new"):
            scanned(folder, TrainedTriples.NEW, **settings)
        return
    grown = scanned(folder, TrainedTriples.NEW, **settings)
    expected |= {"train": new(parts[0]), "validation": new(parts[1])}
    assert {part: triples_of(grown, part, reciprocal=reciprocal) for part in grown.splits} == expected
    for name in ("entity", "relation"):
        assert grown.vocabularies[name].tokens() == whole.vocabularies[name].tokens()
    np.testing.assert_array_equal(grown.examples.ids, whole.examples.ids)


@given(names=st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=30, unique=True), data=st.data())
def test_who_is_new_is_a_function_of_names_and_seed(names: list[str], data: st.DataObject) -> None:
    share = data.draw(st.floats(0.01, 0.99))
    drawn = queries.new_entities(names, share=share, seed=1)
    assert len(drawn) == max(1, round(share * len(names)))
    assert set(drawn) <= set(names)
    assert queries.new_entities(data.draw(st.permutations(names)), share=share, seed=1) == drawn
    fewer = queries.new_entities(names, share=share / 2, seed=1)
    assert set(fewer) <= set(drawn)


def test_another_seed_draws_others() -> None:
    names = [f"e{number}" for number in range(100)]
    first, second = (set(queries.new_entities(names, share=0.1, seed=seed)) for seed in (0, 1))
    assert first != second


def test_a_graph_of_which_nothing_would_be_left(tmp_path: Path) -> None:
    star = [("hub", "r", f"leaf{number}") for number in range(3)]
    folder = write((star, star[:1], star[:1]), tmp_path / "graph")
    names = entities_of(star)
    seed = next(seed for seed in range(50) if queries.new_entities(names, share=0.25, seed=seed) == ["hub"])
    with pytest.raises(DataError, match="every training triple contains an entity that counts as new"):
        scanned(folder, TrainedTriples.KNOWN, share=0.25, seed=seed)

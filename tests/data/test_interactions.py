"""Catalogue, held-out items and negatives of recommendation, counted again in plain Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.data import batches
from embexp.data.columns import Columns, HistoryColumn
from embexp.data.examples import Examples, with_histories
from embexp.errors import DataError
from embexp.fields.recommendation.batches import Items
from embexp.fields.recommendation.data import interactions
from embexp.fields.recommendation.specs import BPR, SampledSoftmax

Pair = tuple[int, int]


def examples(pairs: list[Pair]) -> Examples:
    ids = np.array(pairs, np.int32).reshape(-1, 2)
    return Examples(len(pairs), ("user", "item"), ids, {}, {}, np.zeros((len(pairs), 0), np.float32), None)


def of(pairs: list[Pair], train: np.ndarray) -> batches.Interactions:
    oov = {"user": True, "item": True}
    return interactions(examples(pairs), train, user="user", item="item", item_columns=["item"], special=oov)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=6, max_size=40), st.randoms())
@settings(max_examples=60)
def test_what_is_held_out_is_what_is_new_to_a_known_user(pairs: list[Pair], random: object) -> None:
    train, held = np.arange(0, len(pairs) - 3), np.arange(len(pairs) - 3, len(pairs))
    catalogue = sorted({pairs[row][1] for row in train} - {0})
    if len(catalogue) < 2:
        return
    known = of(pairs, train)
    assert known.catalogue.rows.tolist() == catalogue
    firsts = [next(row for row in train if pairs[row][1] == item) for item in catalogue]
    assert known.catalogue.examples.tolist() == firsts
    expected: dict[int, tuple[set[int], set[int]]] = {}
    for row in held:
        user, item = pairs[row]
        if user and (user, item) not in {pairs[each] for each in train if pairs[each][1]}:
            expected.setdefault(user, (set(), set()))[item not in catalogue].add(item)
    if not expected:
        with pytest.raises(DataError, match="none of"):
            known.held_out(examples(pairs), held, examples(pairs), [train])
        return
    found = known.held_out(examples(pairs), held, examples(pairs), [train])
    assert found.users.tolist() == sorted(expected)
    assert found.skipped == len({pairs[row][0] for row in held}) - len(expected)
    for place, user in enumerate(sorted(expected)):
        numbers = found.relevant.values[found.relevant.splits[place] : found.relevant.splits[place + 1]]
        assert [catalogue[number] for number in numbers] == sorted(expected[user][0])
        assert found.unknown[place] == len(expected[user][1])
        seen = found.seen.values[found.seen.splits[place] : found.seen.splits[place + 1]]
        assert [catalogue[number] for number in seen] == sorted(
            {pairs[row][1] for row in train if pairs[row][0] == user} - {0}
        )
        assert found.examples[place] == next(row for row in held if pairs[row][0] == user)


COLUMNS = Columns({"user": "user", "item": "item"}, histories={"item of each user": HistoryColumn("item", "user")})
PAIRS = [(user, item) for user in range(1, 5) for item in range(1, 9) if (user + item) % 3 or item == 1]


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_negatives_are_uniform_over_the_items_that_may_be_drawn(exclude_seen: bool) -> None:
    import tensorflow as tf

    train = np.arange(len(PAIRS))
    known = of(PAIRS, train)
    loss = BPR(negatives=4_000, exclude_seen=exclude_seen)
    items = Items(known, examples(PAIRS), train, loss, 3, COLUMNS)
    users, own = np.array([1, 2, 3, 4], np.int32), np.array([1, 4, 1, 0], np.int32)
    drawn = items._drawn(tf.constant(7, tf.int64), tf.constant(users), tf.constant(own), 4_000).numpy()
    for user, number, row in zip(users, own, drawn, strict=True):
        seen = {item - 1 for who, item in PAIRS if who == user}
        allowed = sorted(set(range(8)) - (seen if exclude_seen else {int(number)}))
        counts = np.bincount(row, minlength=8)
        assert np.flatnonzero(counts).tolist() == allowed
        share = 4_000 / len(allowed)
        assert np.abs(counts[allowed] - share).max() < 5 * np.sqrt(share)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_shared_negatives_follow_the_power_of_the_counts(power: float) -> None:
    import tensorflow as tf

    train, count = np.arange(len(PAIRS)), 20_000
    loss = SampledSoftmax(negatives=count, power=power)
    items = Items(of(PAIRS, train), examples(PAIRS), train, loss, 3, COLUMNS)
    drawn = np.bincount(items._shared(tf.constant(7, tf.int64), count).numpy(), minlength=8)
    frequency = np.bincount([item - 1 for _, item in PAIRS], minlength=8).astype(np.float64) ** power
    expected = count * frequency / frequency.sum()
    assert np.abs(drawn - expected).max() < 5 * np.sqrt(expected.max())
    np.testing.assert_allclose(items._log_share.all().numpy(), np.log(frequency / frequency.sum()), rtol=1e-6)


def test_the_draw_depends_on_seed_and_step_alone() -> None:
    import tensorflow as tf

    train = np.arange(len(PAIRS))
    known = of(PAIRS, train)

    def drawn(seed: int, step: int) -> list[list[int]]:
        items = Items(known, examples(PAIRS), train, BPR(negatives=6), seed, COLUMNS)
        found: np.ndarray = items._drawn(
            tf.constant(step, tf.int64), tf.constant([1, 2, 3]), tf.constant([0, 0, 0]), 6
        ).numpy()
        return found.tolist()  # type: ignore[no-any-return]

    assert drawn(0, 5) == drawn(0, 5)
    assert len({str(drawn(seed, step)) for seed in (0, 1) for step in (0, 1)}) == 4


def test_the_history_of_a_training_example_lacks_its_own_item() -> None:
    train = np.arange(len(PAIRS))
    known: Any = {"user": SimpleNamespace(first=1, size=5), "item": SimpleNamespace(first=1, size=9)}
    found = with_histories(examples(PAIRS), COLUMNS, train, known)
    loss = SampledSoftmax(negatives=3)
    items = Items(of(PAIRS, train), found, train, loss, 3, COLUMNS)
    dataset = batches.training_batches(
        found, train, COLUMNS, batch_size=5, seed=1, shuffle=True, window=100, steps=6, additions=items
    )
    for batch in dataset:
        history = batch.ids["item of each user"].to_list()
        for user, item, own in zip(batch.ids["user"].numpy(), batch.ids["item"].numpy(), history, strict=False):
            assert sorted(own) == [other for who, other in PAIRS if who == user and other != item]


@pytest.mark.parametrize(
    "loss", [BPR(negatives=4), BPR(negatives=2, exclude_seen=False), SampledSoftmax(negatives=7), SampledSoftmax()]
)
def test_a_share_of_a_batch_is_compared_with_what_the_batch_is(loss: Any) -> None:
    train = np.arange(len(PAIRS))
    known: Any = {"user": SimpleNamespace(first=1, size=5), "item": SimpleNamespace(first=1, size=9)}
    found = with_histories(examples(PAIRS), COLUMNS, train, known)
    items = Items(of(PAIRS, train), found, train, loss, 3, COLUMNS)

    def read(share: slice | None) -> list[batches.Batch]:
        settings: dict[str, Any] = {"batch_size": 5, "seed": 1, "shuffle": True, "window": 100, "steps": 4}
        return list(batches.training_batches(found, train, COLUMNS, **settings, additions=items, share=share))

    shares = (slice(0, 2), slice(2, 5))
    for whole, *parts in zip(read(None), *map(read, shares), strict=True):
        item, label = whole.ids["item"].numpy(), whole.labels.numpy()
        for share, part in zip(shares, parts, strict=True):
            np.testing.assert_array_equal(part.ids["user"], whole.ids["user"][share])
            others, labels = item[5:], label[share]
            if isinstance(loss, BPR):
                others = others.reshape(5, -1)[share].ravel()
            else:
                labels = np.concatenate([labels, label[5:]])
            if loss == SampledSoftmax():  # the others of the batch
                others, rest = np.delete(item, share), np.delete(label, share, axis=0)
                labels = np.concatenate([label[share], rest])
            np.testing.assert_array_equal(part.ids["item"], np.concatenate([item[:5][share], others]))
            np.testing.assert_array_equal(part.labels, labels)
            history = "item of each user"
            assert part.ids[history].to_list() == whole.ids[history].to_list()[share]

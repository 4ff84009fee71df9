"""What grown checkpoints hold: matching by dicts, reading by TensorFlow."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.specs.pretrained import Match, MissingRows
from embexp.system.tensor_bundle import tensor
from embexp.system.tensor_bundle import writer as bundle_writer
from embexp.vectors.alignment import Alignment, RowKind
from embexp.vectors.pretrained import earlier, growth
from embexp.vectors.pretrained.growth import Gone, TableGrowth, growths
from tests.growth.conftest import DIM, END, Made, Runs
from tests.thoroughness import examples

INITIAL = {"momenta": 0.0, "velocities": 0.0}
TOKENS = st.lists(st.text("abcÄ\t \\", min_size=1, max_size=3), min_size=1, max_size=12, unique=True)


def grown(
    runs: Runs, source: Path, wanted: list[str], *, gone: Gone = Gone.DROP, missing: MissingRows = MissingRows.NORMAL
) -> tuple[Path, dict[str, TableGrowth]]:
    file = runs.new().with_suffix(".txt")
    file.write_text("".join(f"{token}\n" for token in wanted))
    opened = earlier.open_run(source, cache=runs.folder / "cache")
    tables = growths(opened, growth.vocabulary_files([f"item={file}"], opened), match=Match.EXACT, gone=gone)
    out = runs.new()
    growth.write(opened, tables, out, missing=missing, match=Match.EXACT, gone=gone)
    return out, tables


def stored(path: Path) -> dict[str, np.ndarray]:
    """What TensorFlow finds in a checkpoint, by key without its end."""
    reader = tf.train.load_checkpoint(str(path / "checkpoints" / "final" / "checkpoint"))
    return {key.removesuffix(END): reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def row_names(tokens: list[str], *, oov: bool, free: int) -> list[object]:
    """What each row stands for: a token, or a number for a special row, the same in every vocabulary."""
    return [*([0] if oov else []), *tokens, *range(1, free + 1)]


def check(made: Made, out: Path, before: list[object], after: list[object]) -> None:
    """Every old row and its slots are where their name is now, and nothing else is."""
    values = stored(out)
    place = {name: row for row, name in enumerate(before)}
    assert values["embedding/item"].shape == (len(after), DIM)
    for row, name in enumerate(after):
        if name in place:
            for key in ("embedding/item", "embedding/item.Smomenta", "embedding/item.Svelocities"):
                np.testing.assert_array_equal(values[key][row], made.values[key][place[name]], str(name))
        else:
            for slot, value in INITIAL.items():
                assert (values[f"embedding/item.S{slot}"][row] == value).all()
    untouched = [key for key in made.values if not key.startswith("embedding/item")]
    assert values.keys() == made.values.keys() | {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    for key in untouched:
        np.testing.assert_array_equal(values[key], made.values[key], key)
    np.testing.assert_array_equal(np.load(out / "provenance" / "item.npy"), [place.get(name, -1) for name in after])


@examples(8)
@given(old=TOKENS, new=TOKENS, oov=st.booleans(), free=st.integers(0, 3), gone=st.sampled_from(Gone))
def test_rows_and_slots_go_where_their_token_goes(
    runs: Runs, old: list[str], new: list[str], oov: bool, free: int, gone: Gone
) -> None:
    new = list(dict.fromkeys([*new, old[0]]))  # with nothing in common it is an error
    made = runs.make(old, oov=oov, free=free)
    out, tables = grown(runs, made.path, new, gone=gone)
    kept = [token for token in old if token not in new] if gone is Gone.KEEP else []
    before, after = row_names(old, oov=oov, free=free), row_names(new + kept, oov=oov, free=free)
    check(made, out, before, after)
    vocabulary = Vocabulary.read(out / "vocabularies" / "item")
    assert isinstance(vocabulary, TokenVocabulary)
    assert (vocabulary.known.to_pylist(), vocabulary.oov) == (new + kept, oov)
    seen = {token: 5 + number for number, token in enumerate(old)}
    assert vocabulary.known_frequencies.tolist() == [seen.get(token, 0) for token in new + kept]
    both = [name for name in after if name in before]
    counts = tables["item"].as_json()
    in_place = sum(1 for row, name in enumerate(after) if row < len(before) and before[row] == name)
    assert counts["kept_in_place"] == in_place
    assert counts["moved"] == len(both) - in_place
    assert counts["new"] == len(after) - len(both)
    assert counts["dropped"] == len(before) - len(both)


@examples(3)
@given(chain=st.lists(TOKENS, min_size=2, max_size=3))
def test_growing_again_tells_rows_of_the_run_from_later_ones(runs: Runs, chain: list[list[str]]) -> None:
    old = ["a", "b", "zz"]
    made = runs.make(old)
    path, names = made.path, set(old)
    for new in chain:
        new = list(dict.fromkeys([*new, "zz"]))
        path, _ = grown(runs, path, new)
        names &= set(new)
    place = {token: 1 + row for row, token in enumerate(old)}
    expected = [0, *(place[token] if token in names else -1 for token in new)]
    assert np.load(path / "provenance" / "item.npy").tolist() == expected
    values = stored(path)
    for row, of_run in enumerate(expected):
        if of_run >= 0:
            np.testing.assert_array_equal(values["embedding/item"][row], made.values["embedding/item"][of_run])


def test_matching_by_position_would_be_seen(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that all this is about, made on purpose."""

    def by_position(vocabulary: Vocabulary, rows: int, _: Vocabulary, earlier_rows: int, how: Match) -> Alignment:
        places = np.where(np.arange(rows) < earlier_rows, np.arange(rows), -1)
        return Alignment(places, np.where(places >= 0, RowKind.PRETRAINED, RowKind.MISSING).astype(np.uint8))

    made = runs.make(["a", "b", "c"])
    before, after = row_names(["a", "b", "c"], oov=True, free=0), row_names(["c", "x", "a"], oov=True, free=0)
    out, _ = grown(runs, made.path, ["c", "x", "a"])
    check(made, out, before, after)
    monkeypatch.setattr(earlier, "aligned_with", by_position)
    out, _ = grown(runs, made.path, ["c", "x", "a"])
    with pytest.raises(AssertionError):
        check(made, out, before, after)


@pytest.mark.parametrize("missing", MissingRows)
def test_new_rows(runs: Runs, missing: MissingRows) -> None:
    made = runs.make([f"t{number}" for number in range(200)])
    old = made.values["embedding/item"].astype(np.float64)
    out, _ = grown(runs, made.path, [*(f"t{number}" for number in range(3000))], missing=missing)
    new = stored(out)["embedding/item"][201:].astype(np.float64)
    match missing:
        case MissingRows.ZEROS:
            assert (new == 0).all()
        case MissingRows.MEAN:
            np.testing.assert_allclose(new, np.broadcast_to(old.mean(0), new.shape), rtol=1e-6)
        case MissingRows.NORMAL | MissingRows.UNIFORM:
            # Within five standard errors.
            np.testing.assert_allclose(new.mean(0), old.mean(0), atol=5 * old.std(0).max() / np.sqrt(len(new)))
            np.testing.assert_allclose(new.std(0), old.std(0), rtol=0.1)
            if missing is MissingRows.UNIFORM:
                assert (np.abs(new - old.mean(0)) <= np.sqrt(3) * old.std(0) * (1 + 1e-6)).all()
        case MissingRows.INITIALIZER:
            deviation = 0.88 / np.sqrt(DIM)  # of a normal distribution that is cut off at two standard deviations
            np.testing.assert_allclose(new.std(), deviation, rtol=0.05)
            assert np.abs(new).max() <= 2 / np.sqrt(DIM)


def test_the_same_words_make_the_same_bits_and_a_seed_others(runs: Runs) -> None:
    made = runs.make(["a", "b"])
    opened = earlier.open_run(made.path, cache=runs.folder / "cache")
    file = runs.new().with_suffix(".txt")
    file.write_text("x\na\ny\n")
    tables = growths(opened, {"item": file}, match=Match.EXACT, gone=Gone.DROP)
    found = []
    for seed in (None, None, 1):
        out = runs.new()
        growth.write(opened, tables, out, missing=MissingRows.INITIALIZER, match=Match.EXACT, gone=Gone.DROP, seed=seed)
        found.append((out / "checkpoints" / "final" / "checkpoint.data-00000-of-00001").read_bytes())
    assert found[0] == found[1] != found[2]


def test_what_is_beside_the_checkpoint(runs: Runs) -> None:
    made = runs.make(["a", "b"])
    out, tables = grown(runs, made.path, ["b", "x"])
    assert sorted(each.name for each in out.iterdir()) == [
        "checkpoints",
        "growth.json",
        "provenance",
        "spec.json",
        "vocabularies",
    ]
    assert (out / "spec.json").read_bytes() == (made.path / "spec.json").read_bytes()
    record = json.loads((out / "growth.json").read_text())
    assert record["tables"] == {name: table.as_json() for name, table in tables.items()}
    assert record["source"]["path"] == str(made.path.resolve())
    assert record["source"]["digest"] == earlier.open_run(made.path, cache=runs.folder / "cache").digest
    assert tables["user"].unchanged
    assert np.load(out / "provenance" / "user.npy").tolist() == [0, 1, 2]


def test_nothing_is_left_of_what_fails(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs.make(["a", "b"])
    opened = earlier.open_run(made.path, cache=runs.folder / "cache")
    tables = growths(opened, {}, match=Match.EXACT, gone=Gone.DROP)
    out = runs.new()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(growth.BundleWriter, "finish", full)
    with pytest.raises(growth.RunError, match=f"{out} can't be written: No space left on device"):
        growth.write(opened, tables, out, missing=MissingRows.ZEROS, match=Match.EXACT, gone=Gone.DROP)
    assert not [each for each in out.parent.iterdir() if out.name in each.name]


def test_memory_does_not_grow_with_the_table(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's and Python's memory; what is mapped is the file's."""
    tokens = [f"t{number}" for number in range(20_000)]
    made = runs.make(tokens, dim=512, slots=["momenta"])
    opened = earlier.open_run(made.path, cache=runs.folder / "cache")
    file = runs.new().with_suffix(".txt")
    file.write_text("\n".join(reversed(tokens)))
    tables = growths(opened, {"item": file}, match=Match.EXACT, gone=Gone.DROP)
    for module in (growth, bundle_writer, tensor):
        monkeypatch.setattr(module, "_CHUNK_BYTES", 1 << 20)
    tracemalloc.start()
    try:
        growth.write(opened, tables, runs.new(), missing=MissingRows.ZEROS, match=Match.EXACT, gone=Gone.DROP)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < made.values["embedding/item"].nbytes / 2

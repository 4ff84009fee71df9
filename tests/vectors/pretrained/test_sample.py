"""A file of random numbers in place of one's own, and dims that are those of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.config import composition
from embexp.errors import ConfigError
from embexp.specs.pretrained import File, Match, NoPretrained, Sample
from embexp.specs.run import RunSpec, inert_settings
from embexp.vectors.pretrained.aligned import known_dims, known_rows, make_sample, with_sample
from embexp.vectors.pretrained.tables import with_dims
from tests.vectors.pretrained.conftest import DIM, World
from tests.vectors.pretrained.test_aligned import aligned

OWN = "pretrained@tables.item.pretrained=file"


def test_a_sample_is_made_once_and_follows_from_its_seed(tmp_path: Path) -> None:
    path = make_sample(20_000, 6, 3, cache=tmp_path)
    made = np.load(path)
    assert (made.shape, made.dtype) == ((20_000, 6), np.float32)
    assert abs(made.mean()) < 4 / np.sqrt(made.size)
    assert abs(made.std() - 1) < 4 / np.sqrt(2 * made.size)
    assert len(np.unique(made[:, 0])) > 19_900  # pieces that are written one after the other are not the same
    before = path.stat().st_mtime_ns
    assert make_sample(20_000, 6, 3, cache=tmp_path) == path
    assert path.stat().st_mtime_ns == before
    np.testing.assert_array_equal(np.load(make_sample(20_000, 6, 3, cache=tmp_path / "other")), made)
    other = np.load(make_sample(20_000, 6, 4, cache=tmp_path))
    assert not np.array_equal(other, made)


def test_a_sample_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def standard_normal(self, *_: object) -> np.ndarray:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(np.random, "Generator", lambda _: Broken())
        with pytest.raises(KeyboardInterrupt):
            make_sample(10, 2, 0, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert np.load(make_sample(10, 2, 0, cache=tmp_path)).shape == (10, 2)


def test_a_sample_with_a_path_is_that_file(tmp_path: Path) -> None:
    setting = Sample(path="mine.vec", match=Match.LOWER, seed=5)
    assert with_sample(setting, cache=tmp_path) == File(path="mine.vec", match=Match.LOWER)
    assert list(tmp_path.iterdir()) == []
    located = with_sample(Sample(rows=3, dim=2), cache=tmp_path)
    assert np.load(located.path).shape == (3, 2)


def test_what_a_path_leaves_without_effect() -> None:
    words = ["pretrained=sample", "pretrained.path=FILE", "pretrained.dim=3"]
    spec = composition.job(composition.loader(), words, look_at_data=False).spec
    assert "pretrained.dim: path names a file, so no sample is generated" in inert_settings(spec)
    spec = composition.job(composition.loader(), [words[0], words[2]], look_at_data=False).spec
    assert not any("no sample is generated" in note for note in inert_settings(spec))


def clicks(cache: Path, *overrides: str) -> RunSpec:
    return embexp.compose(["experiment=initialization", "data.examples=100", f"output.cache={cache}", *overrides])


def test_rows_and_dim_are_those_of_the_file(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(13, 5))
    np.save(tmp_path / "mine.npy", matrix)
    spec = clicks(tmp_path / "cache", f"pretrained.path={tmp_path / 'mine.npy'}")
    pretrained = aligned(spec)
    settled = with_dims(spec, pretrained, RunSpec.input_faults)
    assert (pretrained.tables["item"].rows, settled.tables["item"].width) == (13, 5)
    assert spec.tables["item"].dim is None
    assert settled.tables["user"] == spec.tables["user"]
    assert known_rows(spec) == {"user": 100, "item": 13}
    assert known_dims(spec.pretrained, spec.tables) == {"user": 16, "item": 5}
    with pytest.raises(ValueError, match="has not been read"):
        _ = spec.tables["item"].width


def test_sizes_of_a_sample_that_is_not_made_yet(tmp_path: Path) -> None:
    spec = clicks(tmp_path / "cache", "pretrained.rows=11", "pretrained.dim=3")
    assert known_rows(spec) == {"user": 100, "item": 11}
    assert known_dims(spec.pretrained, spec.tables) == {"user": 16, "item": 3}
    assert not (tmp_path / "cache").exists()
    assert known_rows(clicks(tmp_path / "cache", "tables.item.dim=4", "pretrained.transform=truncate"))["item"] == 1000


def test_a_file_with_tokens_does_not_say_how_many_rows_a_table_has(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.zeros((50, 5)))
    (tmp_path / "mine.tokens.txt").write_text("".join(f"{n}\n" for n in range(50)))
    spec = clicks(tmp_path / "cache", f"pretrained.path={tmp_path / 'mine.npy'}")
    assert known_rows(spec)["item"] == aligned(spec).tables["item"].rows == 10


def test_the_dim_of_text_is_known_once_it_is_read(world: World) -> None:
    spec = world.spec("tables.item.dim=null", "model=mlp", OWN, f"tables.item.pretrained.path={world.glove}")
    assert "item" not in known_dims(spec.pretrained, spec.tables)
    assert with_dims(spec, aligned(spec), RunSpec.input_faults).tables["item"].dim == DIM


def test_a_dim_that_the_model_can_not_take_is_a_fault(world: World) -> None:
    words = ("tables.user.dim=4", "tables.item.dim=null", OWN, f"tables.item.pretrained.path={world.glove}")
    spec = world.spec("tables.user.dim=4", *words[1:])
    with pytest.raises(ConfigError, match="dim"):
        with_dims(spec, aligned(spec), RunSpec.input_faults)
    np.save(world.folder / "items.npy", np.zeros((13, DIM)))
    with pytest.raises(ConfigError, match="dim"):  # at once, where the first bytes tell
        world.spec(*words[:3], f"tables.item.pretrained.path={world.folder / 'items.npy'}")


def test_a_dim_of_null_needs_a_file(world: World) -> None:
    with pytest.raises(ConfigError) as caught:
        world.spec("tables.item.dim=null", "model=mlp")
    [fault] = caught.value.faults
    assert (fault.path, fault.value) == ("tables.item.dim", "null")
    assert fault.remedy == "set a number, or choose pretrained@tables.item.pretrained=file"
    spec = world.spec(
        "tables.user.dim=null", "tables.item.dim=5", "model=mlp", "pretrained=file", f"pretrained.path={world.glove}"
    )
    with pytest.raises(ConfigError, match="none fits this table: not one of the table's 8 tokens") as caught:
        with_dims(spec, aligned(spec), RunSpec.input_faults)
    assert [fault.path for fault in caught.value.faults] == ["tables.user.dim"]


def test_a_file_that_does_not_fit_a_table_is_not_mapped_there(world: World) -> None:
    spec = world.spec("pretrained=file", f"pretrained.path={world.glove}", "freeze=table", "init=memory_map")
    assert spec.kept_by_reference("user")
    settled = with_dims(spec, aligned(spec), RunSpec.input_faults)
    assert settled.tables["user"].pretrained == NoPretrained()
    assert {name: settled.init_of(name).kind for name in settled.tables} == {
        "user": "assign", "item": "memory_map", "user_bias": "assign", "item_bias": "assign",
    }  # fmt: skip
    assert {name for name in settled.tables if settled.kept_by_reference(name)} == {"item"}
    assert all(settled.frozen(name) for name in settled.tables)


def test_a_map_that_no_table_is_left_for_is_a_fault(world: World) -> None:
    spec = world.spec(
        "pretrained=file", f"pretrained.path={world.glove}", "freeze@tables.user.freeze=table", "init=memory_map"
    )
    with pytest.raises(ConfigError, match="no table is both frozen and pretrained"):
        with_dims(spec, aligned(spec), RunSpec.input_faults)

"""`embexp export --since` and `export apply`: a delta makes the whole export of a run of that of its parent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.cli.commands import main
from embexp.errors import DataError, NotARunError, RunError
from embexp.records import inventory
from embexp.runs import run as single
from embexp.runs.finished import apply_delta
from embexp.system.tensor_bundle.index import read_index
from embexp.system.tensor_bundle.tensor import STRING, Tensor, read_strings


def write(path: Path, users: list[str], count: int, seed: int, *lines: str) -> Path:
    """Examples: each user with items, a number and places."""
    draw = np.random.default_rng(seed)
    found = ["user,item,price,place,liked"]
    for number in range(count):
        user, item = users[number % len(users)], draw.integers(9)
        found.append(f'"{user}",i{item} i{draw.integers(9)},{draw.normal():.3f},p{draw.integers(5)},{draw.integers(2)}')
    path.write_text("\n".join([*found, *lines]) + "\n", "utf-8")
    return path


OLD = [f"u{number}" for number in range(8)]
BEFORE, AFTER = [*OLD, "<oov>"], ["u0", "u1", "late", "Zoë", "a,b", "back\\slash"]
"""Users of the two days. In the vocabulary of the first, `late` and `never` are rare, and `late` is not any more."""


def spec_of(path: Path, **changes: object) -> embexp.RunSpec:
    base: dict[str, object] = {
        "name": "days",
        "task": "binary",
        "data": {
            "kind": "csv",
            "path": str(path),
            "label": "liked",
            "list_columns": ["item"],
            "dense_features": ["price"],
            "vocabulary": {"min_frequency": 2, "rare": "own_row", "missing": "own_row", "oov_buckets": 2},
            "split": {"validation": 0, "test": 0},
        },
        "tables": {
            "user": {"dim": 3, "vocabulary_size": 20},
            "item": {"dim": 4, "dtype": "bfloat16"},
            "price": {"dim": 2},
            "place": {"dim": 2, "vocabulary": {"hash_buckets": 7}},
        },
        "features": {
            "user": {"table": "user"},
            "item": {"table": "item"},
            "cheap": {"table": "price", "column": "price", "buckets": {"boundaries": [-1, 0, 1]}},
            "place": {"table": "place"},
        },
        "model": {"kind": "mlp", "hidden": [4]},
        "optimizer": {"kind": "adagrad", "learning_rate": 0.1},
        "dense_optimizer": {"kind": "adam", "learning_rate": 0.01},
        "train": {"epochs": 2, "steps": None, "batch_size": 16},
        "output": {"plots": False, "tensorboard": False, "baselines": False, "cache": str(path.parent / "cache")},
    }
    return embexp.RunSpec.model_validate({**base, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`parent` and `run`, which goes on from it on data with new users."""
    here = tmp_path_factory.mktemp("deltas")
    write(here / "monday.csv", BEFORE, 200, 0, "late,i1,0.1,p1,0", "never,i1,0.1,p1,1")
    write(here / "tuesday.csv", AFTER, 60, 1)
    (here / "parent").mkdir()
    single.run(spec_of(here / "monday.csv"), here / "parent")
    go_on = ["continue", str(here / "parent"), "--data", str(here / "tuesday.csv"), "train.epochs=1"]
    assert main([*go_on, f"hydra.run.dir={here / 'run'}"]) == 0
    return here


@pytest.fixture(scope="module")
def whole(folder: Path) -> Callable[[str, str], Path]:
    """A whole export of `parent` or `run`."""

    def export(run: str, kind: str) -> Path:
        if not (out := folder / f"{run}_{kind}").exists():
            embexp.load_run(folder / run).export(out, kind)
        return out

    return export


@pytest.fixture(scope="module")
def delta(folder: Path) -> Path:
    exported = embexp.load_run(folder / "run").export(folder / "delta", since=embexp.load_run(folder / "parent"))
    return exported.path


def test_it_holds_the_rows_that_are_new_or_have_moved(folder: Path, delta: Path) -> None:
    before, after = embexp.load_run(folder / "parent"), embexp.load_run(folder / "run")
    content = json.loads((delta / "delta.json").read_text())
    for name in after.spec.tables:
        old, new = before.table(name), after.table(name)
        grown = np.pad(old, ((0, len(new) - len(old)), (0, 0)), constant_values=np.nan)
        rows = np.load(delta / f"{name}.rows.npy")
        assert rows.tolist() == np.flatnonzero((grown != new).any(axis=1)).tolist()
        assert 0 < len(rows) < len(new)
        values = np.load(delta / f"{name}.values.npy")
        if name == "item":  # in its two bytes a number
            bits = new.view(np.uint32)[rows]
            assert (bits & 0xFFFF == 0).all()
            assert values.view(np.uint16).tolist() == (bits >> 16).tolist()
        else:
            np.testing.assert_array_equal(values, new[rows])
        facts = content["tables"][name]
        assert facts["new"] + facts["moved"] == len(rows)
        assert facts["same"] == len(new) - len(rows)
        for which, run in (("base", before), ("result", after)):
            assert facts[which]["digest"] == run.summary["tables"][name]["digest"]
    for which, run in (("base", before), ("result", after)):
        named = {"run_id": run.summary["run_id"], "inventory": inventory.digest_of(run.folder.path)}
        assert content[which] == named


def test_new_tokens_are_in_the_order_of_their_rows(folder: Path, delta: Path) -> None:
    vocabulary = embexp.load_run(folder / "run").vocabulary("user")
    lines = (delta / "user.tokens.tsv").read_text("utf-8").splitlines()[1:]
    tokens = [line.split("\t")[0].replace("\\\\", "\\") for line in lines]
    first = embexp.load_run(folder / "parent").vocabulary("user").size
    assert sorted(tokens) == sorted(set(AFTER) - set(OLD))
    assert tokens == vocabulary.tokens(first)
    assert not (delta / "item.tokens.tsv").exists()  # the second day has no new item


@pytest.mark.parametrize("kind", ["npy", "savedmodel"])
def test_it_makes_the_whole_export(
    kind: str, folder: Path, whole: Callable[[str, str], Path], delta: Path, tmp_path: Path
) -> None:
    apply_delta(whole("parent", kind), delta, tmp_path / "out")
    expected, found = whole("run", kind), tmp_path / "out"
    assert _files(found) == _files(expected)
    same = {"variables/variables.index", "fingerprint.pb", "saved_model.pb"}
    for name in _files(found) - same:
        assert (found / name).read_bytes() == (expected / name).read_bytes(), name
    if kind == "savedmodel":
        assert _tensors(found) == _tensors(expected)
        asked = _asked([*BEFORE, *AFTER, "late", "never", "nobody", ""])
        one, two = (tf.saved_model.load(str(each)).signatures for each in (found, expected))
        assert list(one) == list(two)
        predicted = [each["serving_default"](**asked)["predictions"].numpy().tolist() for each in (one, two)]
        assert predicted[0] == predicted[1]
        assert len(set(predicted[0])) > 10


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _tensors(model: Path) -> dict[str, object]:
    """All tensors of a SavedModel, by key, as bytes."""
    index = model / "variables/variables.index"
    return {
        key: read_strings(key, entry) if entry.kind == STRING else Tensor(key, key, entry).value().tobytes()
        for key, entry in read_index(index).items()
        if key != "_CHECKPOINTABLE_OBJECT_GRAPH"  # whose functions have the numbers of their process in their names
    }


def _asked(users: list[str]) -> dict[str, tf.Tensor]:
    draw, count = np.random.default_rng(2), len(users)
    return {
        "user": tf.constant(users),
        "item": tf.constant([[f"i{draw.integers(10)}", ""] for _ in users]),
        "price": tf.constant(draw.normal(size=count).astype(np.float32)),
        "place": tf.constant([f"p{number % 9}" for number in range(count)]),
    }


def test_the_command_says_what_it_wrote(
    folder: Path, whole: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(folder / "run"), str(tmp_path / "delta"), "--since", str(folder / "parent"), "--as", "npy"]
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    size = sum((tmp_path / "delta" / f"user.{end}").stat().st_size for end in ("rows.npy", "values.npy", "tokens.tsv"))
    rows = len(np.load(tmp_path / "delta" / "user.rows.npy"))
    assert (
        shown[0] == f"table user: 4 new rows, {rows - 4} moved, {20 - rows} unchanged; {size} B, the whole table 240 B"
    )
    assert shown[-1] == f"wrote {tmp_path / 'delta'}"
    assert not (tmp_path / "delta" / "model").exists()
    base, out = whole("parent", "npy"), tmp_path / "out"
    assert main(["export", "apply", str(base), str(tmp_path / "delta"), str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "table user: 20 rows of dimension 3"
    model = whole("parent", "savedmodel")
    assert main(["export", "apply", str(model), str(tmp_path / "delta"), str(tmp_path / "model")]) == 1
    assert "has no model" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["RUN", "OUT", "--since", "P", "--as", "word2vec"], "--since is for --as savedmodel and npy, not word2vec"),
        (["RUN", "OUT", "--since", "P", "--table", "t"], "--table is for whole exports: a delta is of all tables"),
        (["apply"], "to what? Give BASE, a whole export of the earlier run"),
        (["apply", "b", "d", "{here}"], "{here} already exists: give OUT another name"),
        (["apply", "{here}", "d", "o"], "d: there is no such directory, and DELTA is one"),
    ],
)
def test_a_wrong_command_line(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *(word.format(here=tmp_path) for word in words)]) == 2
    assert told.format(here=tmp_path) in capsys.readouterr().err


def test_another_base_is_refused(folder: Path, whole: Callable[[str, str], Path], delta: Path, tmp_path: Path) -> None:
    for kind in ("npy", "savedmodel"):
        with pytest.raises(DataError, match=r"is not the whole export of run .*digest of the rows of table user is "):
            apply_delta(whole("run", kind), delta, tmp_path / "out")
    shutil.copytree(whole("parent", "npy"), tmp_path / "base")
    tokens = tmp_path / "base" / "user.tokens.txt"
    tokens.write_text(tokens.read_text("utf-8").replace("u3", "u9"), "utf-8")
    with pytest.raises(DataError, match=r"export of run .*: the digest of the tokens of table user is [^;]*; name"):
        apply_delta(tmp_path / "base", delta, tmp_path / "out")
    (tmp_path / "base" / "item.npy").unlink()
    with pytest.raises(DataError, match=r"base is not a whole export of run \w{12}: it lacks item\.npy$"):
        apply_delta(tmp_path / "base", delta, tmp_path / "out")
    assert {each.name for each in tmp_path.iterdir()} == {"base"}


def test_a_base_with_other_rare_tokens_is_refused(
    whole: Callable[[str, str], Path], delta: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole("parent", "savedmodel"), tmp_path / "base")
    tokens = tmp_path / "base" / "assets" / "user.tokens.txt"
    tokens.write_text(tokens.read_text("utf-8").replace("never", "ever"), "utf-8")
    with pytest.raises(DataError, match=r"digest of the tokens of table user"):
        apply_delta(tmp_path / "base", delta, tmp_path / "out")


@pytest.mark.parametrize("file", ["delta.json", "user.values.npy", "user.tokens.tsv", "model/saved_model.pb"])
def test_a_damaged_delta_is_refused(file: str, whole: Callable[[str, str], Path], delta: Path, tmp_path: Path) -> None:
    shutil.copytree(delta, tmp_path / "delta")
    content = bytearray((tmp_path / "delta" / file).read_bytes())
    content[-2] ^= 1
    (tmp_path / "delta" / file).write_bytes(content)
    with pytest.raises(DataError, match=rf"^{tmp_path}/delta is damaged: {file} changed; export it again$"):
        apply_delta(whole("parent", "npy"), tmp_path / "delta", tmp_path / "out")
    (tmp_path / "delta" / file).unlink()
    with pytest.raises(DataError, match=rf"{tmp_path}/delta is (damaged: {file} removed|not a delta: there is no)"):
        apply_delta(whole("parent", "npy"), tmp_path / "delta", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_delta_whose_record_is_lost_or_damaged(
    whole: Callable[[str, str], Path], delta: Path, tmp_path: Path
) -> None:
    shutil.copytree(delta, tmp_path / "delta")
    (tmp_path / "delta" / inventory.NAME).write_text("{")
    with pytest.raises(DataError, match=r"is damaged: its inventory.json can't be read; export it again"):
        apply_delta(whole("parent", "npy"), tmp_path / "delta", tmp_path / "out")
    (tmp_path / "delta" / inventory.NAME).unlink()
    with pytest.raises(DataError, match=r"is damaged: its inventory.json is missing; export it again"):
        apply_delta(whole("parent", "npy"), tmp_path / "delta", tmp_path / "out")


def test_a_delta_that_makes_something_else_is_refused(
    whole: Callable[[str, str], Path], delta: Path, tmp_path: Path
) -> None:
    """One that was changed together with its inventory."""
    shutil.copytree(delta, tmp_path / "delta")
    values = np.load(tmp_path / "delta" / "user.values.npy")
    values[0, 0] += 1
    np.save(tmp_path / "delta" / "user.values.npy", values)
    inventory.seal(tmp_path / "delta")
    with pytest.raises(DataError, match=r"is damaged: the digest of the rows of table user is .* export it again"):
        apply_delta(whole("parent", "npy"), tmp_path / "delta", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"version": 1', '"version": 2', "version"),
        ('"dtype": "float32"', '"dtype": "float8"', "dtype"),
        ('"user": {', '"../user": {', "tables"),
        ('"moved"', '"removed"', "moved"),
        ("{", "", "JSON"),
    ],
)
def test_a_forged_record_is_refused(
    old: str, new: str, told: str, whole: Callable[[str, str], Path], delta: Path, tmp_path: Path
) -> None:
    shutil.copytree(delta, tmp_path / "delta")
    text = (tmp_path / "delta" / "delta.json").read_text()
    (tmp_path / "delta" / "delta.json").write_text(text.replace(old, new, 1))
    inventory.seal(tmp_path / "delta")
    with pytest.raises(DataError, match=rf"delta\.json is not a delta that this version understands: .*{told}"):
        apply_delta(whole("parent", "npy"), tmp_path / "delta", tmp_path / "out")
    assert {each.name for each in tmp_path.iterdir()} == {"delta"}


def test_a_parent_that_the_run_does_not_go_on_from(folder: Path, tmp_path: Path) -> None:
    parent, run = embexp.load_run(folder / "parent"), embexp.load_run(folder / "run")
    with pytest.raises(RunError, match=r"is no continuation of .*: the vocabulary of table user does not begin with"):
        parent.export(tmp_path / "out", since=run)
    other = spec_of(folder / "monday.csv").model_dump(mode="json")
    tables = {"tables": {**other["tables"], "user": {"dim": 5}, "more": {"dim": 2}}}
    features = {"features": {**other["features"], "more": {"table": "more", "column": "place"}}}
    (tmp_path / "other").mkdir()
    single.run(spec_of(folder / "monday.csv", **tables, **features), tmp_path / "other")
    with pytest.raises(RunError) as raised:
        run.export(tmp_path / "out", since=tmp_path / "other")
    for told in ("table more is in only one of them; rows of table user have 3 numbers, and 5 in the parent",):
        assert told in str(raised.value)
    shutil.rmtree(tmp_path / "other" / "checkpoints")
    with pytest.raises(NotARunError, match=r"other holds no checkpoint to take rows from"):
        run.export(tmp_path / "out", since=tmp_path / "other")
    assert {each.name for each in tmp_path.iterdir()} == {"other"}

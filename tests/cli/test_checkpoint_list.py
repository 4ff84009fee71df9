"""`embexp checkpoint list` and `diff` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from embexp.cli import commands
from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.system.tensor_bundle import writer
from tests.checkpoints import made
from tests.growth.conftest import END, Runs
from tests.short_runs import runner

VALUES = np.arange(12, dtype=np.float32).reshape(6, 2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def lines(text: str) -> list[list[str]]:
    """The cells of each line."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def saver(tmp_path: Path) -> Path:
    values = {"dense[0]/kernel": VALUES, "global_step": np.array(3, np.int64), "bad": np.array([np.nan, 1])}
    with tf.device("cpu"):
        tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "c"),
            tensor_names=list(values),
            shape_and_slices=[""] * 3,
            tensors=list(map(tf.constant, values.values())),
        )
    return tmp_path / "c"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, usage in (("list", "PATH [--values]"), ("diff", "A B [--rows N]")):
        assert commands.main(["checkpoint", name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: embexp checkpoint {name} {usage}")


def test_a_run_of_ours(tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    result = runner(tmp_path_factory)()
    prefix = result.directory / "checkpoints" / "final" / "checkpoint"
    assert commands.main(["checkpoint", "list", str(result.directory), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["kind"], listed["source"], listed["faults"]) == ("object", str(prefix), [])
    shapes = {each["key"]: each["shape"] for each in listed["keys"]}
    assert shapes == dict(tf.train.list_variables(str(prefix)))
    groups = {group: {each["key"].removesuffix(END) for each in listed["keys"] if each["group"] == group} for group in (
        "tables", "slots", "step"
    )}  # fmt: skip
    assert groups["tables"] == {"embedding/user", "embedding/item"}
    assert groups["slots"] == {f"embedding/{t}.S{slot}" for t in ("user", "item") for slot in ("momenta", "velocities")}
    assert "step" in groups["step"]
    dense = {each["variable"] for each in listed["keys"] if each["group"] == "dense"}
    assert any(name.endswith("/kernel") for name in dense)


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = saver(tmp_path)
    assert commands.main(["checkpoint", "list", str(prefix)]) == 0
    assert lines(capsys.readouterr().out) == [
        [f"name-based checkpoint {prefix}"],
        ["key", "shape", "dtype", "bytes"],
        ["step"],
        ["global_step", "[]", "int64", "8 B"],
        ["bad"],
        ["bad", "[2]", "float64", "16 B"],
        ["dense[0]"],
        ["dense[0]/kernel", "[6, 2]", "float32", "48 B"],
        ["3 keys, 72 B: step 8 B, bad 16 B, dense[0] 48 B"],
    ]
    assert commands.main(["checkpoint", "list", str(prefix), "--values", "--verify"]) == 0
    shown = lines(capsys.readouterr().out)
    assert shown[1][4:] == ["min", "max", "mean", "norm", "not finite", "values"]
    assert shown[5] == ["bad", "[2]", "float64", "16 B", "1", "1", "1", "1", "1", "nan, 1"]
    assert shown[7][4:] == ["0", "11", "5.5", f"{np.linalg.norm(VALUES):.4g}"]
    assert shown[-1] == ["read all values: all checksums are right"]


def test_names_of_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.keras_checkpoint(tmp_path)
    assert commands.main(["checkpoint", "list", str(tmp_path)]) == 0
    shown = lines(capsys.readouterr().out)
    assert ["optimizer/_trainable_variables/0", "hidden/kernel", "[3, 4]", "float32", "48 B"] in shown
    assert shown[1] == ["key", "variable", "shape", "dtype", "bytes"]


def test_damage_is_reported_after_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = saver(tmp_path)
    data = tmp_path / "c.data-00000-of-00001"
    made.change_byte(data, 0)
    assert commands.main(["checkpoint", "list", str(prefix)]) == 0
    capsys.readouterr()
    assert commands.main(["checkpoint", "list", str(prefix), "--verify"]) == 1
    output = capsys.readouterr()
    assert "dense[0]/kernel" in output.out
    assert "all checksums are right" not in output.out
    assert "data-00000-of-00001: found the checksum 0x" in output.err
    data.write_bytes(data.read_bytes()[:-1])
    assert commands.main(["checkpoint", "list", str(prefix), "--json"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["faults"] == [output.err.strip().removeprefix("embexp: ")]
    assert "the file is cut short, 1 of 3 keys are not in it whole" in output.err
    assert commands.main(["checkpoint", "diff", str(prefix), str(prefix)]) == 1
    assert "the file is cut short" in capsys.readouterr().err


FAULTS = {
    "no path": (["list"], 2, "embexp checkpoint list: which checkpoint?\n    usage: embexp checkpoint list PATH"),
    "no such path": (
        ["list", "nowhere"],
        1,
        "embexp: nowhere: there is no such file or folder; give a run's directory",
    ),
    "one path": (["diff", "a"], 2, "embexp checkpoint diff: give two checkpoints, A and B\n    usage: "),
    "fewer rows than none": (["diff", "a", "b", "--rows", "-1"], 2, "--rows -1: it must be at least 0"),
    "an unknown option": (["list", "a", "--value"], 2, "there is no option --value\n    did you mean --values?"),
}


@pytest.mark.parametrize(("arguments", "status", "message"), FAULTS.values(), ids=FAULTS)
def test_faults(arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["checkpoint", *arguments]) == status
    assert message in capsys.readouterr().err


def changed_copy(path: Path, values: dict[str, np.ndarray], **changes: np.ndarray) -> None:
    """Writes a run's checkpoint again, with other values."""
    values = values | changes
    tf.raw_ops.SaveV2(
        prefix=str(path / "checkpoints" / "final" / "checkpoint"),
        tensor_names=[f"{key}{END}" for key in values] + ["_CHECKPOINTABLE_OBJECT_GRAPH"],
        shape_and_slices=[""] * (len(values) + 1),
        tensors=[*map(tf.constant, values.values()), tf.constant(b"\x0a\x00")],
    )


def test_diff_of_runs_by_token(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    a = runs.make(["x", "y", "z"])
    b = runs.make(["x", "y", "z"])
    rows = a.values["embedding/item"].copy()
    rows[3] += 1
    rows[1] += 2
    changed_copy(b.path, a.values, **{"embedding/item": rows, "step": np.array(20, np.int64)})
    arguments = ["checkpoint", "diff", str(a.path), str(b.path)]
    assert commands.main(arguments) == 0
    shown = lines(capsys.readouterr().out)
    assert shown[:2] == [
        [letter, f"object-based checkpoint {run.path}/checkpoints/final/checkpoint"]
        for letter, run in (("A", a), ("B", b))
    ]
    norm = np.linalg.norm(a.values["embedding/item"].astype(np.float64))
    moves = rows.astype(np.float64) - a.values["embedding/item"]
    relative = f"{np.linalg.norm(moves) / norm:.3g}"
    assert ["embedding/item", "2", "4", "2", relative] in shown
    assert ["step", "1", "1", "8", f"{8 / 12:.3g}"] in shown
    start = shown.index(["moved most: embedding/item", "row", "|Δ|", "|row of A|"])
    assert [line[:2] for line in shown[start + 1 : start + 4]] == [["x", "1"], ["z", "3"], []]
    assert shown[-1] == [f"{len(a.values) - 1} of {len(a.values) + 1} common keys are equal to the bit"]
    assert commands.main([*arguments, "--exit-code"]) == 1
    assert commands.main(["checkpoint", "diff", str(a.path), str(a.path), "--exit-code"]) == 0
    capsys.readouterr()
    assert commands.main([*arguments, "--json", "--rows", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_key = {each["key"].removesuffix(END): each for each in found["changes"]}
    [moved] = by_key["embedding/item"]["moved"]
    assert (moved["token"], moved["row"]) == ("x", 1)
    assert moved["distance"] == pytest.approx(np.linalg.norm(moves[1]))
    assert (by_key["step"]["largest"], by_key["embedding/user"]["changed"], found["differ"]) == (8.0, 0, True)


@pytest.mark.parametrize("oov", [True, False])
def test_diff_of_runs_with_other_vocabularies(oov: bool, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    a = runs.make(["x", "y", "z"], oov=oov, free=1)
    b = runs.make(["z", "new", "x", "more"])
    first, second = a.values["embedding/item"], b.values["embedding/item"].copy()
    second[0] = 0 if not oov else first[0] + 1
    second[1], second[3] = first[oov + 2], first[oov + 0] + 3
    changed_copy(b.path, b.values, **{"embedding/item": second})
    assert commands.main(["checkpoint", "diff", str(a.path), str(b.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    change = next(each for each in found["changes"] if each["key"] == f"embedding/item{END}")
    assert (change["compared"], change["changed"]) == (2 + oov, 1 + oov)
    assert change["unmatched"] == {"a": 2, "b": 2 + (not oov)}
    assert [each["token"] for each in change["moved"]] == ["x", "<oov>"][: 1 + oov]
    assert commands.main(["checkpoint", "diff", str(a.path), str(b.path)]) == 0
    assert f"embedding/item: matched by token; 2 rows only in A, {2 + (not oov)} only in B" in capsys.readouterr().out


def test_diff_of_runs_of_both_kinds(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = runs.make(["x", "y", "z"]), runs.make(["x", "y", "z"])
    names = {key: {"step": "global_step"}.get(key, key.replace(".S", "/")) for key in b.values}
    writer.to_names(b.path / "checkpoints" / "final", names)
    assert commands.main(["checkpoint", "list", str(b.path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["kind"] == "name"
    tables = {(each["key"], each["table"]) for each in listed["keys"] if each["group"] == "tables"}
    assert ("embedding/item", "item") in tables
    for first, second in ((a, b), (b, a), (b, b)):
        assert commands.main(["checkpoint", "diff", str(first.path), str(second.path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["by_variable"], found["only_a"], found["only_b"], found["unlike"]) == (False, [], [], [])
        assert len(found["changes"]) == len(a.values) + 1
        moved = [row for each in found["changes"] for row in each["moved"] if each["key"] == f"embedding/item{END}"]
        assert {row["token"] for row in moved} == ({"x", "y", "z", "<oov>"} if first is not second else set())


def test_rows_without_a_token(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    a = runs.make(["x"], free=2)
    TokenVocabulary(pa.array(["x"], pa.large_string()), np.array([1]), True, (1,)).write(
        a.path / "vocabularies" / "item"
    )
    other = runs.make(["x"], free=2)
    changed_copy(
        other.path,
        a.values,
        **{"embedding/item": a.values["embedding/item"] + np.array([[0], [0], [9], [1]], np.float32)},
    )
    assert commands.main(["checkpoint", "diff", str(a.path), str(other.path), "--json"]) == 0
    [change] = [each for each in json.loads(capsys.readouterr().out)["changes"] if each["moved"]]
    assert [(each["token"], each["row"]) for each in change["moved"]] == [(None, 2), (None, 3)]


def test_diff_of_keys_and_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefixes = []
    for name, values in (
        ("a", {"one": VALUES, "w": VALUES, "n": np.array([np.inf])}),
        ("b", {"w": VALUES.T, "n": np.array([1.0])}),
    ):
        prefixes.append(str(made.saver_checkpoint(tmp_path / name, values, {})))
    assert commands.main(["checkpoint", "diff", *prefixes]) == 0
    shown = lines(capsys.readouterr().out)
    assert ["one", "[6, 2]", "float32", "48 B"] in shown
    assert ["w", "[6, 2] float32", "[2, 6] float32"] in shown
    assert ["n", "1", "1", "inf", "nan"] in shown
    assert commands.main(["checkpoint", "diff", *prefixes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["key"] for each in found["only_a"]] == ["one"]
    assert (found["changes"][0]["largest"], found["unlike"][0]["b"]["shape"]) == (None, [2, 6])


def test_no_tensorflow_is_imported(runs: Runs, tmp_path: Path) -> None:
    run = runs.make(["x", "y"])
    script = (
        "import sys\nfrom embexp.cli.commands import main\n"
        "assert main(['checkpoint', 'list', sys.argv[1], '--values', '--verify']) == 0\n"
        "assert main(['checkpoint', 'diff', sys.argv[1], sys.argv[1]]) == 0\n"
        "print([name for name in ('tensorflow', 'keras', 'hydra') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(run.path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.endswith("[]\n")

"""`embexp vectors`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import embexp
from embexp.cli import commands
from embexp.runs import run as single

LINES = "king 1 1\nqueen 1 0.9\nman 1 -1\n\u00a0 0.1 0\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.txt").write_text(LINES, encoding="utf-8")
    return tmp_path / "v.txt"


def run(*words: str | Path) -> int:
    return commands.main(["vectors", *map(str, words)])


def test_info(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"{LINES}king 5 5\n", encoding="utf-8")
    assert run("info", file) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:7] == [
        "format  text",
        "rows    4",
        "dim     2",
        "dtype   float32",
        "bytes   32 as float32",
        "mapped  yes, nothing is copied",
        "tokens  'king', 'queen', 'man', '\\xa0'",
    ]
    assert out.splitlines()[-1] == "note    1 time: rows left out: tokens seen before"
    assert run("info", file, "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["tokens"] == ["king", "queen", "man", "\u00a0"]
    assert known["notes"] == {"rows left out: tokens seen before": 1}


def test_info_of_a_file_without_tokens(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(file.with_name("v.npy"), np.ones((1500, 2), np.float16))
    assert run("info", file.with_name("v.npy")) == 0
    out = capsys.readouterr().out
    assert "rows    1,500\n" in out
    assert "dtype   float16\n" in out
    assert "mapped  yes, nothing is copied if the table has dtype=float16\n" in out
    assert "tokens  none: rows are identified by number\n" in out
    np.save(file.with_name("v.npy"), np.ones((1500, 2), np.float64))
    assert run("info", file.with_name("v.npy")) == 0
    assert "mapped  no, mapping it needs a converted copy in the cache\n" in capsys.readouterr().out


def test_rows_of_8_bits_are_converted_with_their_scales(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, scales = np.array([[-127, 3], [0, 5]], np.int8), np.array([0.5, 0.25], np.float32)
    safetensors.numpy.save_file({"v": numbers, "scale": scales}, tmp_path / "v.safetensors")
    assert run("info", tmp_path / "v.safetensors") == 0
    assert "dtype   int8\n" in capsys.readouterr().out
    assert run("convert", tmp_path / "v.safetensors", tmp_path / "v.npy") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.float32([[-63.5, 1.5], [0, 1.25]]), strict=True)


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".vec", ".txt", ".parquet"])
def test_convert(suffix: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = file.with_name(f"out{suffix}")
    assert run("convert", file, out) == 0
    assert capsys.readouterr().out == f"4 rows of dimension 2 in {out}\n"
    assert run("convert", out, file.with_name("back.txt")) == 0
    assert file.with_name("back.txt").read_text("utf-8") == LINES
    capsys.readouterr()
    assert run("convert", file, out) == 2
    assert f"{out}: it exists\n    give another name, or add --force to replace it\n" in capsys.readouterr().err
    assert run("convert", file, out, "--force") == 0


def test_convert_never_harms_what_it_reads(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", file, file, "--force") == 2
    assert "v.txt: the command reads that file\n    give another name" in capsys.readouterr().err
    assert run("convert", file, "a.npy") == 0
    assert run("convert", "a.npy", "a.safetensors", "--force") == 2
    assert "a.tokens.txt: the command reads that file" in capsys.readouterr().err
    assert file.read_text("utf-8") == LINES
    assert len(file.with_name("a.tokens.txt").read_text("utf-8").splitlines()) == 4


def test_a_matrix_is_never_left_beside_tokens_of_another(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(file.with_name("bare.npy"), np.ones((9, 2), np.float32))
    assert run("convert", file, "out.npy") == 0
    assert run("convert", "bare.npy", "out.npy", "--force") == 0
    assert not file.with_name("out.tokens.txt").exists()
    file.with_name("new.tokens.txt").write_text("a\n")
    assert run("convert", "bare.npy", "new.npy") == 2
    assert "new.tokens.txt: it exists" in capsys.readouterr().err


def test_neighbors(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("neighbors", file, "king", "man", "--count", "2") == 0
    assert (
        capsys.readouterr().out
        == "king\n   0.9986  queen\n   0.7071  \u00a0\n\nman\n   0.7071  \u00a0\n   0.0526  queen\n"
    )
    assert run("neighbors", file, "queen", "--json", "--count", "1") == 0
    (near,) = json.loads(capsys.readouterr().out)["queen"]
    assert near["token"] == "king"
    assert near["cosine"] == pytest.approx(1.9 / np.sqrt(2 * 1.81))
    np.save(file.with_name("v.npy"), np.eye(3, dtype=np.float32) + 1)
    assert run("neighbors", file.with_name("v.npy"), "2", "--count", "1") == 0
    assert capsys.readouterr().out == "2\n   0.8333  0\n"


FAULTS = {
    "no such token": (["neighbors", "v.txt", "KING"], 1, "v.txt: found no token 'KING' among 4; did you mean 'king'?"),
    "no such row": (
        ["neighbors", "n.npy", "4"],
        1,
        "found no row '4'; it has no tokens, so rows are identified by number",
    ),
    "no such file": (["info", "x.txt"], 1, "x.txt: there is no such file"),
    "bad line": (["info", "bad.txt"], 1, "bad.txt, line 2: found 1 field after the first, expected a token and 2"),
    "nothing": ([], 2, "embexp vectors: which action?"),
    "no file": (["info"], 2, "embexp vectors info: give one FILE"),
    "no out": (["convert", "v.txt"], 2, "embexp vectors convert: give FILE_OR_RUN and OUT"),
    "no token": (["neighbors", "v.txt"], 2, "give FILE_OR_RUN and at least one TOKEN"),
    "what": (["look", "v.txt"], 2, "action look: it must be"),
    "option": (["info", "v.txt", "--cout", "3"], 2, "did you mean --count?"),
    "option of another": (["info", "v.txt", "--count", "3"], 2, "info has no option --count: it belongs to neighbors"),
    "count": (["neighbors", "v.txt", "a", "--count", "0"], 2, "--count 0: it must be at least 1"),
    "table of a file": (
        ["neighbors", "v.txt", "king", "--table", "t"],
        2,
        "v.txt is not a run, and a file has no tables",
    ),
    "suffix": (["convert", "v.txt", "v.csv"], 1, "v.csv: found the suffix '.csv', expected one of .npy"),
    "policy": (["info", "v.txt", "--non-finite", "no"], 2, "argument --non-finite: invalid"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults(case: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, status, said = FAULTS[case]
    file.with_name("bad.txt").write_text("a 1 2\nb 1\nc 1 2\n")
    np.save(file.with_name("n.npy"), np.ones((4, 2), np.float32))
    assert run(*words) == status
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_policies_reach_the_reader(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(b"9 1\na 1\n\xff 2\nc nan\n")
    options = ["--header-count", "ignore", "--invalid-text", "skip", "--non-finite", "zero", "--format", "word2vec"]
    assert run("info", file, "--json", *options) == 0
    known = json.loads(capsys.readouterr().out)
    assert (known["rows"], known["tokens"], len(known["notes"])) == (2, ["a", "c"], 2)


def test_no_tensorflow_for_files(file: Path) -> None:
    """By one command after the other, in one process."""
    script = (
        "import sys\nfrom embexp.cli.commands import main\n"
        "for words in (['info', 'v.txt'], ['convert', 'v.txt', 'v.parquet'], ['neighbors', 'v.txt', 'king']):\n"
        "    status = main(['vectors', *words])\n"
        "    heavy = [name for name in ('tensorflow', 'keras', 'hydra', 'h5py') if name in sys.modules]\n"
        "    print('HEAVY', status, heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=file.parent)
    assert [line for line in done.stdout.splitlines() if line.startswith("HEAVY")] == ["HEAVY 0 []"] * 3


@pytest.mark.slow
def test_neighbors_in_a_run(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{n % 7},{'abc'[n % 3]},{n % 2}\n" for n in range(120))
    file.with_name("d.csv").write_text(f"user,item,click\n{rows}")
    words = ["experiment=clicks", "data=csv", "data.path=d.csv", "data.label=click", "hydra.run.dir=run"]
    words += ["~features.history", "train.steps=3", "model=mlp"]
    assert commands.main(["run", *words]) == 0
    capsys.readouterr()
    assert run("neighbors", "run", "a", "--table", "item", "--count", "1") == 0
    assert capsys.readouterr().out.splitlines()[0] == "a"
    assert run("neighbors", "run", "a") == 2
    assert "run has several tables, choose one with --table: user, item" in capsys.readouterr().err
    assert run("neighbors", "run", "z", "--table", "item") == 1
    assert run("neighbors", "run", "a", "--key", "x") == 2
    assert "--key applies to a file, and run is a run" in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on texts, and one on row numbers."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "texts.txt").write_text("".join(f"{'ab'[i % 2]}\tking {'queen' * (i % 3 > 0)} man\n" for i in range(60)))
    texts = [
        "experiment=text_classification",
        "data=text",
        "data.path=texts.txt",
        "model=bag_of_words",
        "tables.word.dim=4",
        "tables.word.vocabulary_size=7",
        "train.epochs=1",
    ]
    less = ["output.cache=cache", "output.plots=false", "output.tensorboard=false"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, words in (("run", texts), ("numbers", ["data.examples=200", "train.steps=1"])):
            Path(name).mkdir()
            single.run(embexp.compose([*words, *less]), Path(name))
    return folder


@pytest.fixture
def finished(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a table of three rows more than it has values for, the first of them for unknown values."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def test_convert_a_table_of_a_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the tokens, and without the rows that stand for none; a run takes it up again."""
    assert run("convert", finished, "words.safetensors", "--table", "word") == 0
    assert capsys.readouterr().out == "3 rows of dimension 4 in words.safetensors\n"
    table = embexp.load_run(finished).table("word")
    assert table.shape == (7, 4)
    np.testing.assert_array_equal(safetensors.numpy.load_file("words.safetensors")["vectors"], table[1:4])
    assert Path("words.tokens.txt").read_text() == "king\nman\nqueen\n"
    assert run("convert", finished, "words.txt") == 0  # the only table
    lines = [line.split(" ") for line in Path("words.txt").read_text().splitlines()]
    assert [line[0] for line in lines] == ["king", "man", "queen"]
    np.testing.assert_array_equal(np.array([line[1:] for line in lines], np.float32), table[1:4])
    capsys.readouterr()
    assert run("convert", finished, "words.txt", "--format", "glove") == 2
    assert "--format applies to a file" in capsys.readouterr().err
    assert run("convert", finished, "words.txt") == 2
    assert "words.txt: it exists" in capsys.readouterr().err


def test_row_numbers_are_no_tokens(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = trained / "numbers"
    assert run("convert", numbers, "item.npy", "--table", "item") == 0
    np.testing.assert_array_equal(np.load("item.npy"), embexp.load_run(numbers).table("item"))
    assert not Path("item.tokens.txt").exists()


@pytest.fixture
def words(file: Path) -> Path:
    """A file of vectors, and tests of them."""
    generator = np.random.default_rng(0)
    tokens = [f"{kind}{number}" for number in range(20) for kind in "ab"]
    values = generator.normal(size=(40, 6)) + 2 * np.tile(np.eye(2, 6), (20, 1))
    lines = [f"{token} {' '.join(map(str, row))}\n" for token, row in zip(tokens, values.round(4), strict=True)]
    file.with_name("words.vec").write_text(f"40 6\n{''.join(lines)}")
    other = values @ np.linalg.qr(generator.normal(size=(6, 6)))[0] + generator.normal(0, 0.3, (40, 6))
    rows = [f"{token} {' '.join(map(str, row))}\n" for token, row in zip(tokens, other.round(4), strict=True)]
    file.with_name("other.vec").write_text(f"40 6\n{''.join(reversed(rows))}")
    file.with_name("pairs.csv").write_text("a0,a1,9\na0,b1,2\na2,a3,8\nb2,b3,7.5\nb4,a5,1\nnone,a0,5\n")
    file.with_name("questions.txt").write_text(": first\na0 b0 a1 b1\na2 b2 a3 b3\n: second\nnone b2 a3 b3\n")
    file.with_name("kinds.csv").write_text("word,category\n" + "".join(f"{token},{token[0]}\n" for token in tokens))
    return file.with_name("words.vec")


TESTS = ("--similarity", "pairs.csv", "--analogies", "questions.txt", "--categories", "kinds.csv")


def test_evaluate(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate", words, *TESTS, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["rows"], content["dim"], content["counted"]) == (40, 6, 40)
    (pairs,), (questions,), (kinds,) = content["similarity"], content["analogies"], content["categories"]
    assert (pairs["pairs"], pairs["covered"]) == (6, 5)
    assert pairs["each"][5] == {"a": "none", "b": "a0", "score": 5.0, "cosine": None}
    assert [(each["name"], each["questions"], each["covered"]) for each in questions["sections"]] == [
        ("first", 2, 2),
        ("second", 1, 0),
        ("all", 3, 2),
    ]
    assert questions["each"][2]["3CosAdd"] is None
    assert kinds["purity"] > 0.8 > kinds["chance"]
    assert run("evaluate", words, *TESTS, "--rows", "30") == 0
    out = capsys.readouterr().out
    assert "40 rows of dimension 6; the first 30 count\n" in out
    assert f"{pairs['spearman']:.4f}" in out
    assert run("evaluate", words, "--similarity", "pairs.csv", "--rows", "1") == 0
    assert "pairs.csv: too few of its words have a row; --json lists them" in capsys.readouterr().out


def test_compare(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", words, "other.vec", "--json", "--count", "5", "--moved", "3") == 0
    content = json.loads(capsys.readouterr().out)
    (pair,) = content["pairs"]
    assert (content["shared"], content["count"], len(pair["most"])) == (40, 5, 3)
    assert 0.3 < pair["overlap"]["mean"] < 1
    assert pair["distance"] < 0.2 < pair["unaligned"]
    assert pair["distance_percentiles"][100] == pytest.approx(pair["most"][0]["distance"])
    assert run("compare", words, "other.vec", words) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        f"a  {words}\nb  other.vec\nc  {words}\n\n40 shared tokens; the 10 nearest neighbors of all are compared\n"
    )
    assert "are shared by two of the 3 sets, 95% interval" in out
    assert run("compare", words, "other.vec", "--sample", "20") == 0
    assert "moved most: " in capsys.readouterr().out


def test_evaluations_and_comparisons_of_runs(words: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "01":
        shutil.copytree(trained / "numbers", words.with_name("runs") / name)
    assert run("compare", "runs", "--table", "item", "--json", "--sample", "500") == 0
    content = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in content["shapes"]] == ["runs/0", "runs/1"]
    assert run("compare", "runs/0", "--table", "item") == 2
    assert "found only runs/0, expected two or more" in capsys.readouterr().err
    assert run("compare", "runs/0", "runs/1") == 2
    assert "runs/0 has several tables, choose one with --table" in capsys.readouterr().err
    assert run("evaluate", "runs/0", "--table", "item", *TESTS) == 1
    assert "runs/0: found rows without tokens" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_and_reports_measure_the_same(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pairs.csv").write_text("king,queen,9\nking,man,5\nqueen,man,1\nking,none,2\n")
    assert run("evaluate", finished, "--similarity", "pairs.csv", "--json") == 0
    (figures,) = json.loads(capsys.readouterr().out)["similarity"]
    expected = {key: value for key, value in figures.items() if key not in ("file", "each")}
    again = (finished / "spec.json").read_text()
    spec = embexp.RunSpec.model_validate_json(again)
    tests = spec.output.vectors.model_copy(update={"similarity": (str(Path("pairs.csv").absolute()),)})
    Path("tested").mkdir()
    tested = single.run(
        spec.model_copy(update={"output": spec.output.model_copy(update={"vectors": tests})}), Path("tested")
    )
    assert tested.summary["vectors"] == {"similarity": {"word": {"pairs": expected}}}
    assert tested.summary["run_id"] == embexp.load_run(finished).summary["run_id"]
    assert commands.main(["report", "tested", "--html", "a.html", "--csv", "a.csv"]) == 0
    assert f'["similarity","word","pairs",{{"value":{figures["spearman"]}' in Path("a.html").read_text()
    assert str(figures["spearman"]) in Path("a.csv").read_text()


QUALITY_FAULTS = {
    "no tests": (["evaluate", "words.vec"], 2, "name the tests: at least one of --similarity FILE, --analogies FILE"),
    "all at once": (["evaluate"], 2, "give one FILE_OR_RUN\n    name the tests: at least one of --similarity FILE"),
    "of another": (
        ["compare", "words.vec", "other.vec", "--rows", "3", "--force"],
        2,
        "compare has no option --force: it belongs to convert\n"
        "    embexp vectors compare has no option --rows: it belongs to evaluate",
    ),
    "sample": (["compare", "words.vec", "other.vec", "--sample", "1"], 2, "--sample 1: it must be at least 2"),
    "no test file": (["evaluate", "words.vec", "--similarity", "x.csv"], 1, "x.csv: there is no such file"),
    "one": (["compare", "words.vec"], 2, "found only words.vec, expected two or more"),
    "none": (["compare"], 2, "give at least two of FILE_OR_RUN, or a folder of runs"),
    "no runs": (["compare", "empty"], 1, "there are no runs in empty"),
}


@pytest.mark.parametrize("case", QUALITY_FAULTS)
def test_faults_of_evaluations_and_comparisons(case: str, words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, status, said = QUALITY_FAULTS[case]
    words.with_name("empty").mkdir()
    assert run(*arguments) == status
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""

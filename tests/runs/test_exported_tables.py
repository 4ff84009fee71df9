"""Tables in files, read by the programs that they are for, and by our own readers."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.projector import projector_plugin
from werkzeug.test import Client

import embexp
from embexp.cli import commands
from embexp.errors import DataError
from embexp.runs import finished as exporting
from embexp.runs import run as single
from embexp.vectors.file_source import open_vectors

NAMES = ["u one", "tab\there", "back\\slash", "Zoë", "3", "plain"]
ROWS = 25
"""Of the items' table: more than the vocabulary has."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> embexp.Run:
    """A run whose users have odd names, and whose table of items has free rows."""
    folder = tmp_path_factory.mktemp("tables")
    draw = np.random.default_rng(0)
    lines = [f"{draw.choice(NAMES)},i{draw.integers(12)},{draw.normal():.3f}" for _ in range(200)]
    (folder / "r.csv").write_text("\n".join(["user,item,stars", *lines]) + "\n", "utf-8")
    spec = spec_of(folder / "r.csv", f"tables.item.vocabulary_size={ROWS}", f"tables.item_bias.vocabulary_size={ROWS}")
    (folder / "run").mkdir()
    return embexp.load_run(single.run(spec, folder / "run").directory)


def spec_of(path: Path, *overrides: str) -> embexp.RunSpec:
    settings = ["experiment=ratings", f"data.path={path}", "data.label=stars", "tables.user.dim=3"]
    settings += [
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
        f"output.cache={path.parent}/cache",
    ]
    return embexp.compose([*settings, "optimizer.learning_rate=0.1", "train.epochs=2", *overrides])


def test_npy_has_all_rows_and_begins_another_run(run: embexp.Run, tmp_path: Path) -> None:
    run.export(tmp_path / "out", "npy")
    assert {each.name for each in (tmp_path / "out").iterdir()} == {
        f"{name}.{end}" for name in ("user", "item", "user_bias", "item_bias") for end in ("npy", "tokens.txt")
    }
    for name in run.spec.tables:
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), run.table(name))
    tokens = (tmp_path / "out" / "item.tokens.txt").read_text("utf-8").split("\n")
    assert tokens == [*run.vocabulary("item").tokens(), *[""] * (ROWS - 13), ""]
    assert tokens[0] == "<oov>"
    path = tmp_path / "out" / "user.npy"
    again = ["pretrained@tables.user.pretrained=file", f"tables.user.pretrained.path={path}", "train.steps=1"]
    (tmp_path / "again").mkdir()
    spec = spec_of(Path(run.spec.data.path), *again, "freeze@tables.user.freeze=pretrained_rows")
    found = embexp.load_run(single.run(spec, tmp_path / "again").directory)
    assert found.summary["initialization"]["tables"]["user"]["rows_pretrained"] == len(NAMES)
    np.testing.assert_array_equal(found.table("user")[1:], run.table("user")[1:])


def test_a_token_that_looks_like_the_oov_row(tmp_path: Path) -> None:
    lines = [f"<oov>,i{number % 3},1.0\nb,i{number % 2},2.0" for number in range(30)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,stars", *lines]) + "\n")
    (tmp_path / "run").mkdir()
    finished = embexp.load_run(single.run(spec_of(tmp_path / "r.csv"), tmp_path / "run").directory)
    exporting.export(finished.folder.path, tmp_path / "out", "npy", tables=["user"])
    tokens = (tmp_path / "out" / "user.tokens.txt").read_text().split("\n")
    assert tokens == ["", *finished.vocabulary("user").tokens(1), ""]
    assert sorted(tokens) == ["", "", "<oov>", "b"]


@pytest.mark.parametrize("binary", [False, True])
def test_word2vec_is_read_by_gensim_and_by_us(binary: bool, run: embexp.Run, tmp_path: Path) -> None:
    exported = exporting.export(run.folder.path, tmp_path / "out", "word2vec", tables=["item"], binary=binary)
    (path,) = exported.path.iterdir()
    assert path.name == ("item.bin" if binary else "item.vec")
    tokens, rows = run.vocabulary("item").tokens(1), run.table("item")[1:13]
    assert exported.tables == {"item": rows.shape}
    ours = open_vectors(path, cache=tmp_path / "cache")
    assert ours.tokens is not None
    assert ours.tokens.to_pylist() == tokens
    np.testing.assert_array_equal(ours.read(0, ours.rows), rows)
    keyed = pytest.importorskip("gensim.models", reason="gensim is in the extra bench").KeyedVectors
    theirs = keyed.load_word2vec_format(str(path), binary=binary)
    assert theirs.index_to_key == tokens
    np.testing.assert_array_equal(theirs.vectors, rows)


@pytest.mark.parametrize("binary", [False, True])
def test_word2vec_has_no_tokens_with_blanks(binary: bool, run: embexp.Run, tmp_path: Path) -> None:
    words = rf"^{tmp_path}/out/user\.(bin|vec): found the token 'u one', but word2vec's files can't hold tokens with"
    with pytest.raises(DataError, match=words) as raised:
        exporting.export(run.folder.path, tmp_path / "out", "word2vec", binary=binary)
    assert not list(tmp_path.iterdir())
    assert "u one" in converted(str(raised.value), tmp_path)


def converted(said: str, folder: Path) -> list[str]:
    """The tokens in the file of the command that a message ends with."""
    _, *words = shlex.split(re.split("for a format that (?:can|does): ", said)[-1].partition(" (")[0])
    with contextlib.chdir(folder):
        assert commands.main(words) == 0
        tokens: list[str] = pq.read_table(words[3])["token"].to_pylist()
    return tokens


HOSTILE = ["a\nb", "\x1b[31mred", "plain", "nul\0"]


def test_tokens_that_lines_cannot_hold(tmp_path: Path) -> None:
    """Of three kinds of files, two say what holds them, and the projector's shows them without control characters."""
    lines = [f'"{token}",i{number % 3},1.0' for number in range(10) for token in HOSTILE]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,stars", *lines]) + "\n")
    (tmp_path / "run").mkdir()
    finished = embexp.load_run(single.run(spec_of(tmp_path / "r.csv"), tmp_path / "run").directory)
    for kind in ("npy", "word2vec"):
        with pytest.raises(
            DataError, match=rf"^{tmp_path}/out/user\.(npy|vec): found the token 'a\\nb' of row "
        ) as raised:
            exporting.export(finished.folder.path, tmp_path / "out", kind, tables=["user"])
        (tmp_path / kind).mkdir()
        assert sorted(converted(str(raised.value), tmp_path / kind)) == sorted(HOSTILE)
    exporting.export(finished.folder.path, tmp_path / "out", "projector", tables=["user"])
    written = (tmp_path / "out" / "user.metadata.tsv").read_text("utf-8").removesuffix("\n").split("\n")[2:]
    assert sorted(line.split("\t")[0] for line in written) == sorted([r"a\nb", "␛[31mred", "plain", "nul␀"])


def test_tensorboard_shows_the_projector_files(run: embexp.Run, tmp_path: Path) -> None:
    run.export(tmp_path / "out", "projector")
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path / "out"))
    plugin = projector_plugin.ProjectorPlugin(
        base_plugin.TBContext(data_provider=provider, logdir=str(tmp_path / "out"))
    )
    apps = plugin.get_plugin_apps()

    def ask(route: str, **query: str) -> bytes:
        answer = Client(apps[route]).get(
            "/", query_string={"run": ".", **query}, headers=[("Accept-Encoding", "identity")]
        )
        assert answer.status_code == 200, answer.data
        return answer.data

    assert json.loads(ask("/runs")) == ["."]
    config = {each["tensorName"]: each for each in json.loads(ask("/info"))["embeddings"]}
    assert list(config) == list(run.spec.tables)
    for name, entry in config.items():
        vocabulary = run.vocabulary(name)
        shown = run.table(name)[: vocabulary.size]
        assert entry["tensorShape"] == list(shown.shape)
        np.testing.assert_array_equal(np.frombuffer(ask("/tensor", name=name), np.float32).reshape(shown.shape), shown)
        header, *lines = ask("/metadata", name=name).decode().removesuffix("\n").split("\n")
        assert header == "token\tfrequency"
        written = [token.replace("\\", "\\\\").replace("\t", "\\t") for token in vocabulary.tokens()]
        assert [line.split("\t")[0] for line in lines] == written
        assert [int(line.split("\t")[1]) for line in lines] == vocabulary.frequencies.tolist()

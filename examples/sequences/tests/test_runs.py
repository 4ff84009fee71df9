"""What runs of any field can do, with next items; the rest is in embexp's own contract of fields."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from interactions import DIM, ITEMS, interactions

import embexp

Train = Callable[..., embexp.RunResult]
LOSSES = ("softmax", "sampled_softmax", "binary")
OF_LOSS = {
    "softmax": (),
    "sampled_softmax": ("model.loss=sampled_softmax", "model.negatives=16"),
    "binary": ("model.loss=binary", "model.blocks=2"),
}
SAVED = ("checkpoint.every_steps=10", "train.log_every=4")


class Stop(embexp.Listener):
    """Fails after some steps."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        if step >= 16:
            raise OSError("the power has failed")


def digest(run: embexp.RunResult) -> str:
    return str(run.summary["tables"]["item"]["digest"])


@pytest.mark.parametrize("loss", LOSSES)
def test_learns_an_order(train: Train, loss: str) -> None:
    found = train(*OF_LOSS[loss], *(SAVED if loss == "sampled_softmax" else ())).summary["metrics"]["test"]
    assert found["hit_rate_at_10"] > 0.6, found  # 10 of 40 items at random
    assert found["mrr"] <= found["ndcg_at_10"] + 0.1


def best(folder: Path, histories: Mapping[str, Sequence[str]], count: int) -> dict[str, dict[str, float]]:
    """The best items after histories, with their scores, by an exported model."""
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    longest = max(map(len, histories.values()))
    padded = [[*items, *[""] * (longest - len(items))] for items in histories.values()]
    found = serve(history=tf.constant(padded), k=tf.constant(count))
    lists = zip(found["items"].numpy().tolist(), found["scores"].numpy().tolist(), strict=True)
    pairs = [dict(zip((item.decode() for item in items), scores, strict=True)) for items, scores in lists]
    return dict(zip(histories, pairs, strict=True))


@pytest.fixture(scope="module")
def served(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("served") / "model"
    embexp.load_run(train().directory).export(out)
    return out


def test_metrics_are_those_of_ranks_among_all_items(
    train: Train, served: Path, histories: dict[str, list[str]]
) -> None:
    """The oracle ranks by the scores that the exported model gives, without items of the history but the answer."""
    run = embexp.load_run(train().directory)
    before = {user: had[:-1] for user, had in histories.items() if len(had) >= 4}
    once = {user: had for user, had in before.items() if histories[user][-1] not in had}
    ranks = []
    for user, scores in best(served, once, ITEMS).items():
        others = [item for item, score in scores.items() if np.isfinite(score)]
        assert len(others) == ITEMS - len(set(once[user]))
        ranks.append(1 + others.index(histories[user][-1]))
    values, metrics = np.array(ranks, float), run.summary["metrics"]["test"]
    assert run.evaluate(split="test") == pytest.approx(metrics)
    gains = np.where(values <= 10, 1 / np.log2(1 + values), 0)
    again = len(before) - len(once)  # who had the answer before: its rank is not in the lists
    for name, own in (("mrr", 1 / values), ("hit_rate_at_10", values <= 10), ("ndcg_at_10", gains)):
        rest = metrics[name] * len(before) - own.sum()
        assert -1e-6 <= rest <= again + 1e-6, name
    assert again < len(before) / 3


def test_predicts_and_evaluates_other_files(train: Train, served: Path, tmp_path: Path) -> None:
    run, file = embexp.load_run(train().directory), tmp_path / "others.csv"
    histories = interactions(file, users=30, items=ITEMS + 2, seed=1)  # two items are new
    order = list(dict.fromkeys(line.split(",")[0] for line in file.read_text().splitlines()[1:]))
    expected = best(served, {user: histories[user] for user in order}, 1)
    assert run.predict(str(file)).tolist() == [next(iter(expected[user])) for user in order]
    assert run.columns_of_file(file, ["user"]) == {"user": order}
    with pytest.raises(embexp.VocabularyError, match="last item"):
        run.evaluate(str(file))
    known = [user for user in order if histories[user][-1] in {f"i{number}" for number in range(ITEMS)}]
    rows = [line for line in file.read_text().splitlines() if line.split(",")[0] in ("user", *known)]
    file.write_text("\n".join([*rows, ""]))
    assert 0 < run.evaluate(str(file))["mrr"] <= 1


def test_exported_lists_leave_out_what_users_had(served: Path) -> None:
    given = {"a": ["i1", "i2", "i3"], "b": ["i7"], "unknown": ["none", "i7"], "nothing": []}
    found = best(served, given, 5)
    assert not {"i1", "i2", "i3"} & set(found["a"])
    assert found["b"] == found["unknown"] != found["nothing"]


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_interrupted_and_resumed_is_as_if_never(train: Train, settings: list[str], tmp_path: Path, loss: str) -> None:
    own = [*OF_LOSS[loss], *SAVED]
    with pytest.raises(embexp.RunError, match="power"):
        embexp.run([*settings, *own], tmp_path / "run", listeners=[Stop()], quiet=True)
    resumed = embexp.resume(tmp_path / "run", quiet=True)
    assert resumed.summary["metrics"] == train(*own).summary["metrics"]
    assert digest(resumed) == digest(train(*own))


@pytest.mark.parametrize("init", ["assign", "memory_map"])
def test_frozen_pretrained_vectors_stay(train: Train, tmp_path: Path, init: str) -> None:
    vectors = np.random.default_rng(0).normal(0, 0.1, (ITEMS, DIM)).astype(np.float32)
    np.save(tmp_path / "items.npy", vectors)
    (tmp_path / "items.tokens.txt").write_text("".join(f"i{number}\n" for number in range(ITEMS)))
    path = f"pretrained.path={tmp_path / 'items.npy'}"
    result = train("pretrained=file", path, "freeze=table", f"init={init}", "train.steps=8", "train.evaluate_every=8")
    run = embexp.load_run(result.directory)
    rows = [int(token[1:]) for token in run.vocabulary("item").tokens()]
    assert np.array_equal(run.table("item").view(np.int32), vectors[rows].view(np.int32))
    assert result.summary["freeze"]["item"]["frozen_rows_changed"] == 0


def command(*words: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "embexp", *words], capture_output=True, text=True, timeout=900, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_checkpoint_grow(train: Train, tmp_path: Path) -> None:
    first = train().directory
    tokens = embexp.load_run(first).vocabulary("item").tokens()
    (tmp_path / "tokens.txt").write_text("".join(f"{token}\n" for token in ["new", *tokens]))
    vocabulary = ("--vocabulary", f"item={tmp_path / 'tokens.txt'}", "--missing", "mean")
    command("checkpoint", "grow", str(first), *vocabulary, "--out", str(tmp_path / "g"))
    grown = train("pretrained=checkpoint", f"pretrained.path={tmp_path / 'g'}", "train.steps=4")
    assert grown.summary["initialization"]["tables"]["item"]["rows_missing"] == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_two_workers(settings: Sequence[str], tmp_path: Path, train: Train, loss: str) -> None:
    """The same bits each time, and about the values of one process where nothing is random."""
    own = [f"model.loss={loss}", "model.dropout=0", "model.blocks=2", "train.steps=24", "train.evaluate_every=12"]
    cluster = ["strategy=multi_worker", "strategy.silence_seconds=60.0"]
    if loss == "softmax":  # which reads all rows in each step
        cluster.append("tables.item.storage=mirrored")
    found = []
    for name in ("one", "other"):
        words = [*settings, *own, *cluster, f"hydra.run.dir={tmp_path / name}"]
        command("run", *words)
        found.append(json.loads((tmp_path / name / "summary.json").read_text()))
    assert found[0]["tables"] == found[1]["tables"]
    assert found[0]["metrics"] == found[1]["metrics"]
    alone = train(*own)
    together, rows = (embexp.load_run(each).table("item") for each in (tmp_path / "one", alone.directory))
    assert np.abs(together - rows).mean() < 2e-3  # Adam makes steps of last bits where gradients are next to 0
    np.testing.assert_allclose(found[0]["metrics"]["train"]["loss"], alone.summary["metrics"]["train"]["loss"], 1e-3)


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("model.heads=3", "model.heads"),
        ("features.history.max_sequence_length=0", "features"),
        ("features.history.max_sequence_length=1", "features"),
        ("strategy=mirrored", "strategy"),
        ("runtime=estimator", "runtime"),
        ("model=mlp", "model"),
        ("task=binary", "data"),
        ("tables.item.adapter=8", "tables.item.adapter"),
        ("data.user=person", "data.user"),
    ],
)
def test_mistakes_name_their_setting(settings: list[str], override: str, path: str) -> None:
    with pytest.raises(embexp.ConfigError) as caught:
        embexp.compose([*settings, override])
    assert path in [fault.path for fault in caught.value.faults], caught.value

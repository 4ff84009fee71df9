"""Whole runs of task recommendation, small ones, whose metrics are counted again from the vectors that they leave."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import embexp
from embexp.data.examples import ListColumn
from embexp.data.vocabularies.vocabulary import IdentityVocabulary
from embexp.errors import ConfigError, DivergedError, UsageError, VocabularyError
from embexp.fields.recommendation import command, recommending
from embexp.runs import run as single
from embexp.runs.finished import load_run
from embexp.system.parallel import Progress
from embexp.training.listeners import Listener
from tests.thoroughness import examples, thorough

USERS, ITEMS, GROUPS = 30, 24, 3
TOWERS = (
    "model=two_tower",
    "model.hidden=[8]",
    "model.dim=8",
    "model.item_features=[item,genres]",
    "+table@tables.genre=embedding",
    "+feature@features.genres=bag",
    "features.genres.table=genre",
    "data.list_columns=[genres]",
)
Made = Callable[..., single.RunResult]


def rows() -> list[dict[str, object]]:
    """Users like the items of their group, in their own order, and give them stars."""
    generator = np.random.default_rng(0)
    found: list[dict[str, object]] = []
    for user in range(USERS):
        liked = [item for item in range(ITEMS) if item % GROUPS == user % GROUPS]
        for time, item in enumerate(generator.permutation(liked).tolist()):
            genres = f"g{item % GROUPS} h{item % 2}"
            found.append(
                {"user": f"u{user}", "item": f"i{item}", "time": time, "stars": time % 5 + 1, "genres": genres}
            )
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "interactions.csv"
    header, *_ = found = [list(row) for row in rows()[:1]] + [list(map(str, row.values())) for row in rows()]
    path.write_text("".join(f"{','.join(map(str, row))}\n" for row in [header, *found[1:]]))
    return path


def spec_of(file: Path, *overrides: str) -> embexp.RunSpec:
    return embexp.compose(
        [
            "experiment=recommendation",
            f"data.path={file}",
            "data.timestamp=time",
            "tables.user.dim=8",
            "train.batch_size=32",
            "train.epochs=null",
            "train.steps=60",
            "train.evaluate_every=30",
            "train.early_stopping.patience=null",
            "optimizer.learning_rate=0.02",
            "recommendation.cutoffs=[3]",
            "loss=bpr",
            "model.normalize=false",
            "output.tensorboard=false",
            "output.plots=false",
            f"output.cache={file.parent}/cache",
            *overrides,
        ]
    )


@pytest.fixture(scope="module")
def run(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    made: dict[tuple[str, ...], single.RunResult] = {}

    def run(*overrides: str) -> single.RunResult:
        if overrides not in made:
            made[overrides] = single.run(spec_of(file, *overrides), tmp_path_factory.mktemp("run"))
        return made[overrides]

    return run


def divided() -> dict[str, list[tuple[str, str]]]:
    """User and item of each interaction: each user's last one tests, the one before validates."""
    last = ITEMS // GROUPS - 1
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "validation": [], "test": []}
    for row in rows():
        place = {last: "test", last - 1: "validation"}.get(int(str(row["time"])), "train")
        splits[place].append((str(row["user"]), str(row["item"])))
    return splits


def counted(scores: dict[tuple[str, str], float], split: str) -> dict[str, float]:
    """The metrics of a split at 3, one user after the other, in float64."""
    splits = divided()
    before = splits["train"] + (splits["validation"] if split == "test" else [])
    catalogue = sorted({item for _, item in splits["train"]})
    gains, hits, reciprocal, shown = [], [], [], set()
    for user, answer in splits[split]:
        left = [item for item in catalogue if (user, item) not in before]
        order = sorted(left, key=lambda item: -scores[user, item])
        shown |= set(order[:3])
        place = order.index(answer) + 1 if answer in order else math.inf
        gains.append(1 / math.log2(place + 1) if place <= 3 else 0.0)
        hits.append(float(place <= 3))
        reciprocal.append(1 / place)
    hit = float(np.mean(hits))
    return {
        "ndcg_at_3": float(np.mean(gains)),
        "recall_at_3": hit,
        "hit_rate_at_3": hit,
        "mrr": float(np.mean(reciprocal)),
        "coverage_at_3": len(shown) / len(catalogue),
    }


def scores_of(directory: Path) -> dict[tuple[str, str], float]:
    """Scores of all pairs by matrix factorisation, from the tables and the items of each user's training split."""
    opened = load_run(directory)
    tables = {
        name: dict(zip(opened.vocabulary(name).tokens(), opened.table(name).astype(np.float64), strict=True))
        for name in ("user", "item", "item_bias")
    }
    for user in tables["user"]:
        own = [tables["item"][item] for who, item in divided()["train"] if who == user]
        if own:
            tables["user"][user] = tables["user"][user] + np.mean(own, axis=0)
    return {
        (user, item): float(tables["user"][user] @ vector + tables["item_bias"][item][0])
        for user in tables["user"]
        for item, vector in tables["item"].items()
    }


def test_metrics_are_those_of_scores_of_all_pairs(run: Made) -> None:
    result = run()
    scores = scores_of(result.directory)
    for split in ("validation", "test"):
        assert result.summary["metrics"][split] == pytest.approx(counted(scores, split), abs=1e-6)


def test_the_groups_are_learned_and_popularity_is_beside_them(run: Made) -> None:
    popularity = {
        (f"u{user}", item): float(sum(each == item for _, each in divided()["train"]))
        for user in range(USERS)
        for item in {item for _, item in divided()["train"]}
    }
    summary = run().summary
    # Vocabularies are sorted by falling frequency, then by code point: so are lists with equal scores.
    assert summary["baselines"]["popularity"]["test"] == pytest.approx(counted(popularity, "test"), abs=1e-9)
    assert summary["metrics"]["test"]["ndcg_at_3"] > 3 * summary["baselines"]["popularity"]["test"]["ndcg_at_3"]
    # Groups without noise: EASE finds them without an error.
    assert summary["baselines"]["ease"]["test"]["ndcg_at_3"] == 1.0
    own = summary["metrics"]["test"]["ndcg_at_3"]
    (warning,) = (each for each in summary["warnings"] if "on test" in each)
    assert warning == f"on test: ndcg_at_3 {own:.4f} is worse than EASE's 1.0000"


def test_a_run_that_learns_nothing_says_so(run: Made) -> None:
    none = (f"tables.{name}.initializer.stddev=1e-9" for name in ("user", "item"))
    summary = run("optimizer.learning_rate=1e-9", *none, "train.steps=1").summary
    popular, own = (each["test"]["ndcg_at_3"] for each in (summary["baselines"]["popularity"], summary["metrics"]))
    told = [warning for warning in summary["warnings"] if "no better than recommending the most popular" in warning]
    assert own <= popular
    assert any(warning.startswith("test: ndcg_at_3") for warning in told)


def test_two_towers_take_features_of_items_from_the_catalogue(run: Made, file: Path) -> None:
    result = run(*TOWERS)
    opened = load_run(result.directory)
    everything = {(f"u{user}", f"i{item}") for user in range(USERS) for item in range(ITEMS)}
    pairs = sorted(everything)
    asked = file.parent / "pairs.csv"
    lines = [f"{user},{item},g{int(item[1:]) % GROUPS} h{int(item[1:]) % 2}" for user, item in pairs]
    asked.write_text("\n".join(["user,item,genres", *lines]) + "\n")
    scores = dict(zip(pairs, opened.predict(asked).astype(float).tolist(), strict=True))
    assert result.summary["metrics"]["test"] == pytest.approx(counted(scores, "test"), abs=1e-6)
    assert result.summary["metrics"]["test"]["ndcg_at_3"] > 0.3


def test_recommended_is_what_has_the_highest_scores(
    run: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run().directory
    scores, seen = scores_of(directory), {(str(row["user"]), str(row["item"])) for row in rows()}
    opened = load_run(directory)
    found = opened.recommend(["u7", "u2"], count=4)
    for user, items in found.items():
        order = sorted(
            (item for who, item in scores if who == user and item != "<oov>" and (user, item) not in seen),
            key=lambda item: -scores[user, item],
        )
        assert [item for item, _ in items] == order[:4]
        assert [score for _, score in items] == pytest.approx([scores[user, item] for item in order[:4]], rel=1e-4)
    assert list(found) == ["u7", "u2"]
    assert len(opened.recommend()) == USERS
    with pytest.raises(VocabularyError, match="'nobody'"):
        opened.recommend(["nobody", "u1"])
    with pytest.raises(UsageError, match="count"):
        opened.recommend(count=0)
    users = tmp_path / "users.txt"
    users.write_text("u7\n")
    command.main([str(directory), "--users", str(users), "--count", "2"])
    first = found["u7"][0]
    assert capsys.readouterr().out.splitlines()[:2] == ["user,rank,item,score", f"u7,1,{first[0]},{first[1]:.7g}"]


def test_only_rows_above_the_threshold_are_interactions(run: Made) -> None:
    stars = ("data.label=stars", "data.label_threshold=4")
    result = run(*stars, "train.steps=5")
    liked = [row for row in rows() if int(str(row["stars"])) >= 4]
    assert sum(result.summary["examples"].values()) == len(liked)
    assert result.summary["examples"]["test"] == USERS  # the last of those, not of all
    frequencies = load_run(result.directory).vocabulary("item")
    assert frequencies.size - 1 <= len({row["item"] for row in liked})


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        (["model=mlp"], "model"),
        (["loss=of_task"], "loss"),
        (["data.label=stars"], "data.label_threshold"),
        (["data.label_threshold=4.0"], "data.label_threshold"),
        (["recommendation.user=usr"], "recommendation.user"),
        (["recommendation.cutoffs=[3,3]"], "recommendation.cutoffs"),
        (["strategy=mirrored"], "strategy"),
        (["tables.item.vocabulary.hash_buckets=9"], "tables.item.vocabulary.hash_buckets"),
        (["task=regression", "model=mlp", "loss=of_task"], "data.label"),
        (["train.early_stopping.metric=ndcg_at_10"], "train.early_stopping.metric"),
        (["model.item_features=[item,user]"], "model.user_features"),
    ],
)
def test_settings_that_do_not_fit_are_refused(file: Path, overrides: list[str], path: str) -> None:
    with pytest.raises(ConfigError) as error:
        spec_of(file, *overrides)
    assert path in [fault.path for fault in error.value.faults]


def test_recorded_metrics_are_those_of_the_names_of_the_task(run: Made) -> None:
    lines = [json.loads(line) for line in (run().directory / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if line["event"] != "log"]
    assert len(evaluated) == 2


def test_every_stage_that_may_be_long_reports_how_far_it_is(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a training go to its listeners, those behind it to the observer; of a finished run, to the command."""
    monkeypatch.setattr(single, "if_long", lambda progress: progress)
    after: dict[str, list[float]] = {}
    during: dict[str, list[float]] = {}

    def noted(stages: dict[str, list[float]]) -> Progress:
        return lambda stage, done: None if done is None else stages.setdefault(stage, []).append(done)

    class Listening(Listener):
        def working(self, stage: str, done: float | None) -> None:
            noted(during)(stage, done)

    observer = single.Observer(lambda: [Listening()], noted(after))
    result = single.run(spec_of(file, "checkpoint.every_steps=40"), tmp_path, observer)
    assert during.keys() == {"computing vectors", "evaluating", "writing the checkpoint"}
    behind = ("comparing rows", "writing the checkpoint", "evaluating", "evaluating the most popular items")
    assert {*behind, "computing vectors", "computing digests of the tables"} <= after.keys()
    for stages in (during, after):
        assert all(0 <= done <= 1 for found in stages.values() for done in found)
    for stage in (*behind, "computing digests of the tables"):
        assert after[stage] == sorted(after[stage])
    finished_run, later = load_run(result.directory), dict[str, list[float]]()
    assert finished_run.evaluate(progress=noted(later)) == finished_run.evaluate()
    finished_run.predict(file, progress=noted(later))
    assert later["predicting"][-1] == 1.0
    finished_run.recommend(progress=noted(later))
    assert {"computing vectors", "evaluating", "predicting", "ranking items"} <= later.keys()


def test_listed_metrics_and_intervals_over_users(run: Made) -> None:
    summary = json.loads((run("metrics=[precision_at_k,map_at_k,novelty_at_k]").directory / "summary.json").read_text())
    test, plain = summary["metrics"]["test"], json.loads((run().directory / "summary.json").read_text())["metrics"]
    assert {name: test[name] for name in plain["test"]} == plain["test"]
    assert test["precision_at_3"] == pytest.approx(test["recall_at_3"] / 3)  # each user has one held-out item
    assert set(test) - set(plain["test"]) == {"precision_at_3", "map_at_3", "novelty_at_3"}
    assert set(summary["baselines"]["popularity"]["test"]) == set(test)
    intervals = summary["evaluation"]["test"]["intervals"]
    assert set(intervals) == set(test) - {"coverage_at_3"}
    assert all(low <= test[name] <= high for name, (low, high) in intervals.items())


LISTED = """
import json, sys
sys.path = [each for each in sys.path if each]
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("embexp", "hydra", "omegaconf", "pydantic", "pyarrow"):
            raise ImportError(f"{name} is refused here")
sys.meta_path.insert(0, Refused())
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
found = []
for name, users, k, exclude in json.loads(sys.argv[2]):
    best = model.signatures[name](user=tf.constant(users), k=tf.constant(k), exclude=tf.constant(exclude))
    called = getattr(model, name)(tf.constant(users), tf.constant(k), tf.constant(exclude))
    assert (called["items"].numpy() == best["items"].numpy()).all()
    items = [[item.decode() for item in each] for each in best["items"].numpy()]
    found.append([items, best["scores"].numpy().tolist()])
try:
    model.recommend(tf.constant(["u1", "nobody"]), tf.constant(1), tf.constant([[""]]))
except tf.errors.InvalidArgumentError as error:
    found.append(str(error))
print(json.dumps(found))
"""


@pytest.mark.parametrize("overrides", [(), TOWERS, ("data.vocabulary.unknown=error",)], ids=["mf", "towers", "no_oov"])
def test_the_exported_model_lists_what_recommend_lists(
    run: Made, overrides: tuple[str, ...], tmp_path: Path, forked: Path
) -> None:
    """In most runs in a forked process, in which embexp is imported: `test_export` has one without it."""
    opened = load_run(run(*overrides).directory)
    opened.export(tmp_path / "saved")
    users = [f"u{user}" for user in (7, 2, 29)]
    everyone, seen_too = opened.recommend(users, ITEMS), opened.recommend(users, 5, include_seen=True)
    first = [everyone[user][0][0] for user in users]
    asked = [
        ["recommend", users, 4, [["", ""]]],
        ["recommend", users, ITEMS + 9, [["nothing"]]],
        ["recommend", users, 3, [[item, ""] for item in first]],
        ["recommend_with_seen", users, 5, [[""]]],
        ["recommend_with_seen", users, 2, [[seen_too[users[0]][0][0]]]],
        ["recommend", users, [4, 0, 2], [["", ""]] * 3],  # as the rows of a server's request have it
        ["recommend_with_seen", users[:1], [ITEMS + 9], [[""]]],
    ]
    python = sys.executable if thorough() else forked / "python"
    command = [python, "-P", "-c", LISTED, str(tmp_path / "saved"), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    *found, unknown = json.loads(done.stdout.splitlines()[-1])
    lists = [
        [[item for item in zip(*each, strict=True) if item[0]] for each in zip(*one, strict=True)] for one in found
    ]
    expected = [[everyone[user][:4] for user in users], list(everyone.values())]
    expected += [[everyone[user][1:4] for user in users], [seen_too[user][:5] for user in users]]
    assert lists[:4] == [[[tuple(pair) for pair in user] for user in each] for each in expected]
    assert lists[4] == [[pair for pair in seen_too[user] if pair[0] != asked[4][3][0][0]][:2] for user in users]
    assert lists[5] == [[tuple(pair) for pair in everyone[user][:k]] for user, k in zip(users, [4, 0, 2], strict=True)]
    assert [len(each) for each in found[5][0]] == [4, 4, 4]
    assert lists[6][0][:5] == [tuple(pair) for pair in seen_too[users[0]]]
    assert len(found[6][0][0]) == ITEMS
    assert len(found[1][0][0]) == ITEMS  # as many as there are, the rest of them empty
    assert found[1][0][0][-1] == ""
    assert "nobody" in unknown
    assert "u1" not in unknown


def test_a_number_of_items_for_each_user_or_one_for_all(run: Made, tmp_path: Path) -> None:
    import tensorflow as tf

    opened = load_run(run().directory)
    exported = opened.export(tmp_path / "saved")
    assert exported.signatures["recommend"]["k"] == "int32 [] or [B]"
    model, users = tf.saved_model.load(str(exported.path)), tf.constant(["u7", "u2", "u29"])
    for wrong, told in (([1, 2], "k must be one number, or one number per row"), ([1, -1, 2], "k must be at least 0")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=told):
            model.recommend(users, tf.constant(wrong), tf.constant([[""]]))
    none = model.recommend(users[:0], tf.constant([], tf.int32), tf.constant([[""]]))
    assert none["items"].shape == (0, 0)


def planted(random: np.random.Generator, users: int, items: int) -> recommending.Vectors:
    """Vectors of few small whole numbers, so that many scores are equal, of users who have seen something."""
    splits = np.arange(users + 1) * 2
    seen = ListColumn(np.sort(random.permuted(np.tile(np.arange(items), (users, 1)), axis=1)[:, :2]).ravel(), splits)
    return recommending.Vectors(
        users=np.arange(1, users + 1),
        items=np.arange(1, items + 1),
        of_users=random.integers(-1, 2, (users, 5)).astype(np.float32),
        of_items=random.integers(-1, 2, (items, 5)).astype(np.float32),
        counts=np.ones(items, np.int64),
        seen=seen,
        vocabularies=(IdentityVocabulary(users + 1), IdentityVocabulary(items + 2)),
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(3, 400), st.integers(1, 500))
@examples(8)
def test_equal_scores_are_listed_by_number_in_the_graph_too(seed: int, users: int, items: int, k: int) -> None:
    from embexp.fields.recommendation.serving import BestItems
    from embexp.runs.serving import served

    vectors = planted(np.random.default_rng(seed), users, items)
    graph = BestItems(vectors, *(served("x", each, Path()) for each in vectors.vocabularies))
    found = graph.recommend(vectors.users, k, np.full((1, 1), -1))
    exact = vectors.of_users.astype(int) @ vectors.of_items.astype(int).T
    for user, (listed, scores) in enumerate(zip(found["items"].numpy(), found["scores"].numpy(), strict=True)):
        seen = set(vectors.seen.values[2 * user : 2 * user + 2])
        order = sorted(set(range(items)) - seen, key=lambda item: (-exact[user, item], item))[:k]
        assert listed[: len(order)].tolist() == [item + 1 for item in order]
        assert scores[: len(order)].tolist() == exact[user, order].tolist()
        assert (listed[len(order) :] == -1).all()
    (_, best), *_ = vectors.lists(k)
    width = found["items"].shape[1]
    np.testing.assert_array_equal(np.where(best.items < 0, -1, best.items + 1)[:, :width], found["items"].numpy())


def test_vectors_that_are_not_finite_are_not_exported() -> None:
    from embexp.fields.recommendation.serving import BestItems

    vectors = planted(np.random.default_rng(0), 2, 4)
    vectors.of_items[1, 0] = np.nan
    with pytest.raises(DivergedError, match="diverged"):
        BestItems(vectors, None, None)  # type: ignore[arg-type]
    with pytest.raises(DivergedError, match="diverged"):
        list(vectors.lists(2))


def test_recommend_as_json_with_what_was_seen(run: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, seen = run().directory, {(str(row["user"]), str(row["item"])) for row in rows()}
    words = [str(directory), "--user", "u3", "--user", "u1", "--count", "20", "--include-seen", "--json"]
    command.main(words)
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["u3", "u1"]
    assert [(each["item"], each["score"]) for each in shown["u1"]] == load_run(directory).recommend(
        ["u1"], 20, include_seen=True
    )["u1"]
    assert any(("u3", each["item"]) in seen for each in shown["u3"])
    command.main([*words, "--out", str(tmp_path / "lists.json")])
    assert json.loads((tmp_path / "lists.json").read_text()) == shown


@pytest.mark.parametrize("kind", ["vectors", "index"])
def test_products_of_exported_vectors_are_the_scores(run: Made, kind: str, tmp_path: Path) -> None:
    from embexp.vectors.file_source import open_vectors

    opened = load_run(run(*TOWERS).directory)
    if kind == "index":
        pytest.importorskip("faiss")
    exported = opened.export(tmp_path / "out", kind)
    users, items = (open_vectors(tmp_path / "out" / f"{name}.npy", cache=tmp_path) for name in ("users", "items"))
    assert exported.tables == {"users": (USERS, users.dim), "items": (items.rows, users.dim)}
    assert users.tokens is not None
    assert items.tokens is not None
    products = users.read(0, USERS).astype(np.float64) @ items.read(0, items.rows).astype(np.float64).T
    for row, user in enumerate(users.tokens.to_pylist()):
        listed = opened.recommend([user], 5, include_seen=True)[user]
        order = np.argsort(-products[row], kind="stable")[:5]
        assert [item for item, _ in listed] == items.tokens.take(order).to_pylist()
        assert [score for _, score in listed] == products[row, order].astype(np.float32).tolist()
    names = {"users.npy", "users.tokens.txt", "items.npy", "items.tokens.txt"}
    if kind == "index":
        names |= {"items.faiss", "index.json"}
        facts = json.loads((tmp_path / "out" / "index.json").read_text())
        assert facts == exported.facts
        assert facts["recall"] == 1.0
        assert (facts["rows"], facts["dim"], facts["k"]) == (items.rows, items.dim, 10)
    assert {file.name for file in (tmp_path / "out").iterdir()} == names

"""The study of new items and users: what it says of them is counted again from the vectors that it leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import embexp
from embexp.errors import DataError, UsageError
from embexp.fields.recommendation import command
from embexp.fields.recommendation.data import drawn
from embexp.records import inventory
from embexp.runs import experiment, verification
from embexp.runs import run as single
from embexp.runs.verification import verify

USERS, ITEMS, GROUPS = 48, 36, 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users play what is of their group; the content of an item tells its group, with noise."""
    folder, generator = tmp_path_factory.mktemp("plays"), np.random.default_rng(0)
    lines = ["user,item,time"]
    for user in range(USERS):
        liked = [item for item in range(ITEMS) if item % GROUPS == user % GROUPS]
        lines += [f"u{user},i{item},{time}" for time, item in enumerate(generator.permutation(liked)[:9].tolist())]
    (folder / "plays.csv").write_text("\n".join(lines) + "\n")
    content = np.eye(GROUPS)[np.arange(ITEMS) % GROUPS] + 0.1 * generator.standard_normal((ITEMS, GROUPS))
    np.save(folder / "content.npy", content.astype(np.float32))
    (folder / "content.tokens.txt").write_text("".join(f"i{item}\n" for item in range(ITEMS)))
    return folder


def spec(data: Path, *more: str) -> embexp.RunSpec:
    return embexp.compose(
        [
            "experiment=recommendation",
            "study=new_items",
            f"study.content={data}/content.npy",
            "study.items=0.2",
            "study.users=0.2",
            f"data.path={data}/plays.csv",
            "data.timestamp=time",
            "tables.user.dim=8",
            "train.batch_size=64",
            "train.epochs=20",
            "train.early_stopping.patience=null",
            "recommendation.cutoffs=[3]",
            "output.tensorboard=false",
            "output.plots=false",
            "output.baselines=false",
            f"output.cache={data}/cache",
            *more,
        ]
    )


@pytest.fixture(scope="module")
def study(data: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    return experiment.run(spec(data), tmp_path_factory.mktemp("study"))


def new_ones() -> tuple[set[str], set[str]]:
    users = drawn([f"u{user}" for user in range(USERS)], "user", share=0.2, seed=0)
    return set(users), set(drawn([f"i{item}" for item in range(ITEMS)], "item", share=0.2, seed=0))


def rows(data: Path) -> list[tuple[str, str, int]]:
    found = [line.split(",") for line in (data / "plays.csv").read_text().splitlines()[1:]]
    return [(user, item, int(time)) for user, item, time in found]


def lists_of(study: Path, name: str) -> dict[str, np.ndarray]:
    tokens = (study / "vectors" / f"{name}.tokens.txt").read_text().split()
    return dict(zip(tokens, np.load(study / "vectors" / f"{name}.npy").astype(np.float64), strict=True))


def known(study: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    vectors = embexp.load_run(study / "base").vectors()
    users, items = vectors.tokens()
    found = ((users, vectors.of_users), (items, vectors.of_items))
    of_users, of_items = (dict(zip(names, of.astype(np.float64), strict=True)) for names, of in found)
    return of_users, of_items


def ndcg(scores: dict[str, float], relevant: set[str]) -> tuple[float, float]:
    """NDCG and recall at 3."""
    first = sorted(scores, key=lambda item: -scores[item])[:3]
    gain = sum(1 / np.log2(place + 2) for place, item in enumerate(first) if item in relevant)
    best = sum(1 / np.log2(place + 2) for place in range(min(3, len(relevant))))
    return gain / best, len(relevant.intersection(first)) / len(relevant)


def test_new_items_are_ranked_by_their_content(study: single.RunResult, data: Path) -> None:
    new_users, new_items = new_ones()
    of_new = lists_of(study.directory, "new_items")
    assert set(of_new) == new_items
    of_users, of_items = known(study.directory)
    assert not new_items & set(of_items)
    assert not new_users & set(of_users)
    wanted: dict[str, set[str]] = {}
    seen: dict[str, set[str]] = {}
    for user, item, _ in rows(data):
        (wanted if item in new_items else seen).setdefault(user, set()).add(item)
    asked = [user for user in of_users if user in wanted]
    for part, others in (("new_items", {}), ("new_items_among_all", of_items)):
        found = []
        for user in asked:
            ranked = {**of_new, **{item: vector for item, vector in others.items() if item not in seen[user]}}
            found.append(ndcg({item: float(of_users[user] @ vector) for item, vector in ranked.items()}, wanted[user]))
        metrics = study.summary["served"][part]["learned"]["metrics"]
        assert (metrics["ndcg_at_3"], metrics["recall_at_3"]) == pytest.approx(np.mean(found, axis=0), abs=1e-6)
    served = study.summary["served"]["new_items"]
    assert served["learned"]["metrics"]["ndcg_at_3"] > 2 * served["random"]["metrics"]["ndcg_at_3"]
    assert study.summary["metrics"]["test"]["new_items_ndcg_at_3"] == served["learned"]["metrics"]["ndcg_at_3"]
    low, high = served["learned"]["intervals"]["ndcg_at_3"]
    assert low < served["learned"]["metrics"]["ndcg_at_3"] <= high
    assert study.summary["new_items"]["users"] == len(asked)


def test_new_users_are_served_by_their_items(study: single.RunResult, data: Path) -> None:
    new_users, new_items = new_ones()
    of_new, (_, of_items) = lists_of(study.directory, "new_users"), known(study.directory)
    assert set(of_new) <= new_users
    found, settings = [], study.summary["new_users"]
    vectors = np.stack([*of_items.values()])
    gram = vectors.T @ vectors
    ridge = settings["penalty"] * np.trace(gram) / len(vectors) * np.eye(len(gram))
    for user in of_new:
        own = {item for other, item, time in rows(data) if other == user and time < 8 and item not in new_items}
        last = {item for other, item, time in rows(data) if other == user and time == 8}
        mine = np.stack([of_items[item] for item in own])
        vector = np.linalg.solve(settings["unobserved"] * gram + mine.T @ mine + ridge, mine.sum(axis=0))
        assert of_new[user] == pytest.approx(vector, rel=1e-4, abs=1e-5)
        scores = {item: float(of_new[user] @ vector) for item, vector in of_items.items() if item not in own}
        found.append(ndcg(scores, last))
    served = study.summary["served"]["new_users"]
    metrics = served["folded_in"]["metrics"]
    assert (metrics["ndcg_at_3"], metrics["recall_at_3"]) == pytest.approx(np.mean(found, axis=0), abs=1e-6)
    assert set(served) == {"folded_in", "ease", "popularity", "random"}


def test_recommend_lists_what_the_study_measures(
    study: single.RunResult, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, of_new = embexp.load_run(study.directory / "base"), lists_of(study.directory, "new_items")
    of_users, of_items = known(study.directory)
    seen: dict[str, set[str]] = {}
    for user, item, _ in rows(data):
        seen.setdefault(user, set()).add(item)
    only_new = run.recommend(count=ITEMS, content=data / "content.npy", only_new=True)
    together = run.recommend(["u3", "u2"], ITEMS, content=data / "content.npy")
    assert only_new.keys() == of_users.keys()
    assert list(together) == ["u3", "u2"]
    for found, others in ((only_new, {}), (together, of_items)):
        for user, listed in found.items():
            hidden = set() if others is not of_items else seen[user]
            wanted = {**of_new, **{item: vector for item, vector in others.items() if item not in hidden}}
            assert {item for item, _ in listed} == set(wanted)
            scores = [score for _, score in listed]
            assert scores == sorted(scores, reverse=True)
            assert scores == pytest.approx([float(of_users[user] @ wanted[item]) for item, _ in listed], abs=2e-6)
    content = ["--content", str(data / "content.npy"), "--only-new", "--count", "2"]
    assert command.main([str(study.directory / "base"), "--user", "u2", "--json", *content]) == 0
    shown = {"u2": [(each["item"], each["score"]) for each in json.loads(capsys.readouterr().out)["u2"]]}
    assert shown == {"u2": only_new["u2"][:2]}


def test_content_without_new_items_is_an_error(study: single.RunResult, data: Path) -> None:
    run, (_, of_items) = embexp.load_run(study.directory / "base"), known(study.directory)
    np.save(data / "old.npy", np.ones((len(of_items), 2), np.float32))
    (data / "old.tokens.txt").write_text("".join(f"{item}\n" for item in of_items))
    with pytest.raises(
        DataError, match=r"old.npy has vectors of 0 new items, and one is needed: its tokens, such as i"
    ):
        run.recommend(["u2"], content=data / "old.npy")
    with pytest.raises(UsageError, match="only_new lists items by their content, but content is None"):
        run.recommend(["u2"], only_new=True)


def test_nothing_that_was_trained_changes(study: single.RunResult, data: Path, tmp_path: Path) -> None:
    """The base run is the same bits as a run of its spec by itself, and whole."""
    inventory.check_whole(study.directory / "base")
    whole = spec(data)
    alone = single.run(whole.study.runs(whole, study.directory)["base"], tmp_path)
    base = embexp.load_run(study.directory / "base")
    assert {name: base.table(name).tobytes() for name in base.spec.tables} == {
        name: embexp.load_run(alone.directory).table(name).tobytes() for name in base.spec.tables
    }
    assert study.summary["runs"]["base"]["run_id"] == alone.summary["run_id"]


def test_it_is_resumed_verified_and_shown(study: single.RunResult, tmp_path: Path) -> None:
    said: list[str] = []
    again = experiment.resume(study.directory, observer=single.Observer(say=said.append))
    assert again.summary == study.summary
    assert said == ["all runs of the study have ended (completed); nothing is left to do"]

    def tables(name: str) -> dict[str, str]:
        summary = json.loads((study.directory / name / "summary.json").read_text())
        return {table: facts["digest"] for table, facts in summary["tables"].items()}

    before, kept = tables("base"), shutil.copytree(study.directory, tmp_path / "kept")
    shutil.rmtree(study.directory / "base")
    again = experiment.resume(study.directory, observer=single.Observer(say=said.append))
    assert said[1] == "missing: base/summary.json; what is missing is done again"
    assert tables("base") == before
    assert again.summary["metrics"] == study.summary["metrics"]

    def here(planned: verification.Rerun, directory: Path) -> None:
        """The run before it was done again."""
        shutil.copytree(kept, directory, dirs_exist_ok=True)

    assert verify(study.directory, again=here).identical
    console = Console(width=160, record=True, file=None, quiet=True)
    console.quiet = False
    with console.capture() as shown:
        console.print(experiment.results(study.summary, study.directory))
    text = shown.get()
    assert "new items, for known users" in text
    assert "vectors by their items" in text


def test_without_content_only_users_are_new(data: Path, tmp_path: Path) -> None:
    result = experiment.run(spec(data, "study.content=null", "train.epochs=1"), tmp_path)
    assert set(result.summary["served"]) == {"new_users"}
    assert result.summary["status"] == "completed"


def test_content_of_other_items_is_reported_before_the_training(data: Path, tmp_path: Path) -> None:
    np.save(data / "other.npy", np.ones((3, 2), np.float32))
    with pytest.raises(DataError, match=r"other.npy has no tokens: put the item ids into NAME.tokens.txt"):
        experiment.run(spec(data, f"study.content={data}/other.npy"), tmp_path)
    (data / "other.tokens.txt").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match=r"0 of 29 known items, and two are needed: its tokens, such as a, b, c,"):
        experiment.run(spec(data, f"study.content={data}/other.npy"), tmp_path)
    assert not (tmp_path / "base").exists()

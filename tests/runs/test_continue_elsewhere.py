"""`embexp continue` in every field, and that a link is the long run over the same examples, wherever it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.cli.commands import main
from embexp.system.tensor_bundle.increments import is_incremental
from tests.runs.animals import QUIET, write, write_experiment
from tests.strategies.cluster.cluster_runs import command, done


@pytest.mark.usefixtures("forked_jobs")
def test_a_graph_goes_on_with_new_entities_and_relations(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, low, high, relations in (("one", 0, 12, 2), ("two", 4, 16, 3)):
        triples = {
            (random.integers(low, high), random.integers(relations), random.integers(low, high)) for _ in range(200)
        }
        lines = [f"e{head}\tr{relation}\te{tail}" for head, relation, tail in sorted(triples)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    overrides = ["experiment=knowledge_graph", f"data.path={tmp_path / 'one.tsv'}", "train.epochs=1", *QUIET]
    overrides += ["tables.entity.dim=8", "tables.relation.dim=8"]
    first = embexp.load_run(embexp.run(overrides, tmp_path / "first", quiet=True).directory)
    given = ["parent.replay=0.25"]
    again = embexp.continue_run(tmp_path / "first", tmp_path / "two.tsv", given, tmp_path / "second", quiet=True)
    second = embexp.load_run(again.directory)
    from embexp.runs.prepare import read_data
    from embexp.system.parallel import quiet

    examples = read_data(second.spec, quiet).scan.examples
    lines = {name: (tmp_path / f"{name}.tsv").read_text().splitlines() for name in ("one", "two")}
    replayed = np.arange(2 * len(lines["two"]), examples.count)
    assert len(replayed) == pytest.approx(second.summary["examples"]["train"] / 4, abs=2)
    columns = {"source": "entity", "relation": "relation", "target": "entity"}
    names = [
        np.array(second.vocabulary(table).tokens())[examples.column(name, replayed)] for name, table in columns.items()
    ]
    assert {"\t".join(triple) for triple in zip(*(each[::2] for each in names), strict=True)} <= set(lines["one"])
    assert names[0][1::2].tolist() == names[2][::2].tolist()  # with the query of its head behind that of its tail
    assert np.array_equal(examples.labels, examples.column("target"))
    assert second.summary["parent"]["tables"]["entity"] == {"kept": 12, "new": 4, "unseen": 4, "dropped": 0}
    assert second.summary["parent"]["tables"]["relation"] == {"kept": 4, "new": 2, "unseen": 0, "dropped": 0}
    for table in ("entity", "relation"):
        before = first.vocabulary(table).tokens()
        assert second.vocabulary(table).tokens()[: len(before)] == before
    assert embexp.verify(again.directory).identical


@pytest.mark.usefixtures("forked_jobs")
def test_recommendation_goes_on_with_users_that_the_parent_lacks(tmp_path: Path) -> None:
    """Adjacency lists; earlier interactions are mixed in, and the change is that of users whom both know."""
    random = np.random.default_rng(0)
    for name, users, items in (("one", range(60), range(45)), ("two", range(20, 80), range(15, 60))):
        lines = []
        for user in users:
            liked = random.choice([item for item in items if item % 3 == user % 3], 6, replace=False)
            lines.append(" ".join(map(str, [user, *liked])))
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    overrides = ["experiment=recommendation", "data=adjacency", f"data.path={tmp_path / 'one.txt'}", *QUIET]
    embexp.run([*overrides, "train.epochs=2", "train.steps=null"], tmp_path / "one", quiet=True)
    given = ["parent.replay=0.3"]
    link = embexp.continue_run(tmp_path / "one", tmp_path / "two.txt", given, tmp_path / "two", quiet=True)
    assert link.summary["parent"]["tables"]["user"] == {"kept": 60, "new": 20, "unseen": 20, "dropped": 0}
    assert link.summary["examples"]["train"] == 288 + round(288 * 3 / 7)
    from embexp.runs.prepare import read_data
    from embexp.system.parallel import quiet

    data = read_data(embexp.load_run(link.directory).spec, quiet)
    assert data.as_before is not None
    users = [each.candidates.held_out("test").users for each in (data, data.as_before())]
    change = link.summary["parent"]["differences"]["test"]["ndcg_at_10"]
    assert change["users"] == len(np.intersect1d(*users)) < max(map(len, users))
    assert change["interval"][0] < change["value"] < change["interval"][1]
    assert embexp.verify(link.directory).identical


def test_words_of_skip_gram_keep_their_rows(tmp_path: Path) -> None:
    words, random = [f"w{number}" for number in range(8)], np.random.default_rng(0)
    for name, some in (("one", words[:6]), ("two", words[2:])):
        lines = [" ".join(random.choice(some, 12)) for _ in range(100)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    overrides = [
        "experiment=skipgram",
        f"data.path={tmp_path / 'one.txt'}",
        "train.epochs=1",
        "tables.word.dim=4",
        *QUIET,
    ]
    embexp.run([*overrides, "tables.context.dim=4"], tmp_path / "one", quiet=True)
    embexp.continue_run(tmp_path / "one", tmp_path / "two.txt", ["freeze=old_rows"], tmp_path / "two", quiet=True)
    one, two = (embexp.load_run(tmp_path / name) for name in ("one", "two"))
    assert two.vocabulary("word").tokens()[:6] == one.vocabulary("word").tokens()
    assert sorted(two.vocabulary("word").tokens()[6:]) == ["w6", "w7"]
    assert np.array_equal(two.table("word")[:6], one.table("word"))
    assert two.summary["parent"]["tables"]["word"] == {"kept": 6, "new": 2, "unseen": 2, "dropped": 0}


def test_standardised_labels_keep_their_unit(tmp_path: Path) -> None:
    """Those of the new data have another mean and deviation, and the dense part has learned in the parent's."""
    random, lines = np.random.default_rng(0), []
    for spread in (1.0, 7.0):
        users, items = random.integers(9, size=128), random.integers(5, size=128)
        values = spread * (1 + random.normal(size=128))
        lines.append([f"u{user},i{item},{value:.4f}" for user, item, value in zip(users, items, values, strict=True)])
    for name, part in zip(("one", "two"), lines, strict=True):
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,item,rating", *part]) + "\n")
    overrides = ["experiment=ratings", "data.label=rating", "train.epochs=1", "train.batch_size=32", *QUIET]
    overrides += ["data.shuffle=false", "data.split.validation=0", "data.split.test=0", "model=mlp", "optimizer=adam"]
    overrides += ["train.early_stopping.patience=null", "~tables.user_bias", "~features.user_bias"]
    overrides += ["~tables.item_bias", "~features.item_bias"]
    one = embexp.run([*overrides, f"data.path={tmp_path / 'one.csv'}"], tmp_path / "one", quiet=True)
    link = embexp.continue_run(tmp_path / "one", tmp_path / "two.csv", (), tmp_path / "link", quiet=True)
    assert link.summary["label_deviation"] == one.summary["label_deviation"]
    again = embexp.continue_run(tmp_path / "link", tmp_path / "two.csv", (), tmp_path / "again", quiet=True)
    assert again.summary["label_deviation"] == one.summary["label_deviation"]
    mine, before = (embexp.load_run(tmp_path / name).model.get_layer("head.rescaled") for name in ("again", "one"))
    assert before.get_weights()
    for now, then in zip(mine.get_weights(), before.get_weights(), strict=True):
        assert np.array_equal(now, then)


PLACES = {
    "cpu": (),
    "mirrored": ("strategy=mirrored",),
    "session": ("runtime=session",),
    "tpu": ("strategy=tpu_simulator",),
    "workers": ("strategy=multi_worker", "strategy.workers=2"),
}


def finish(words: list[str], place: str) -> None:
    """Runs a command, in a process of its own if others join it."""
    if place == "workers":
        done(command(*words))
    else:
        assert main(words) == 0


@pytest.mark.parametrize("place", PLACES)
def test_a_link_is_the_long_run_over_the_same_examples(tmp_path: Path, place: str) -> None:
    """Where files give the vocabularies, and nothing is shuffled or held out; the link saves only what moved."""
    here = tmp_path
    for name, users, seed in (("one", range(12), 5), ("two", range(6, 20), 6)):
        write(here / f"{name}.csv", users, 320, seed)
    one, two = ((here / f"{name}.csv").read_text() for name in ("one", "two"))
    (here / "both.csv").write_text(one + two.partition("\n")[2])
    (here / "users.txt").write_text("".join(f"u{number}\n" for number in reversed(range(60))))
    (here / "items.txt").write_text("".join(f"i{number}\n" for number in range(1, 8)))
    plain = (
        "data.shuffle=false",
        "data.split.validation=0",
        "data.split.test=0",
        "data.dense_features.age.transform=none",
        "features.size.buckets={boundaries: [5, 20], quantiles: null}",
        f"tables.user.vocabulary.path={here / 'users.txt'}",
        f"tables.item.vocabulary.path={here / 'items.txt'}",
        "train.epochs=1",
        "model.dropout=0.2",
        "optimizer.schedule.warmup_steps=15",
        "dense_optimizer.schedule.warmup_steps=12",
        *PLACES[place],
        *QUIET,
    )
    start = ["run", *write_experiment(here), *plain]
    for name in ("one", "both"):
        finish([*start, f"data.path={here / f'{name}.csv'}", f"hydra.run.dir={here / f'run-{name}'}"], place)
    given = ["continue", str(here / "run-one"), "--data", str(here / "two.csv"), "parent.schedules=continue"]
    finish([*given, f"hydra.run.dir={here / 'link'}"], place)
    link, long = (embexp.load_run(here / name) for name in ("link", "run-both"))
    assert is_incremental(here / "link/checkpoints/final/checkpoint") == (place != "session")
    assert link.vocabulary("user").tokens()[:3] == ["<oov>", "u59", "u58"]
    for table in ("user", "item", "size"):
        assert link.vocabulary(table).digest == long.vocabulary(table).digest
        assert np.array_equal(link.table(table), long.table(table))
    for mine, theirs in zip(link.model.get_weights(), long.model.get_weights(), strict=True):
        assert np.array_equal(mine, theirs)

"""The study of new items and users: a run without them, which then serves them by content and by a few items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from embexp.data.examples import ListColumn, lists_of
from embexp.fields.recommendation import evaluation, item_models, recommending
from embexp.fields.recommendation.data import HeldOut, Interactions
from embexp.fields.recommendation.evaluation import intervals_over_users
from embexp.fields.recommendation.recommending import Content, Vectors, of_new_items, read_content
from embexp.fields.recommendation.specs import Recommender
from embexp.reports import results
from embexp.runs import experiment
from embexp.runs.experiment import Study
from embexp.runs.finished import load_run
from embexp.runs.prepare import Data, read_data
from embexp.runs.run import Observer, RunResult
from embexp.specs.run import RunSpec
from embexp.specs.studies import BASE
from embexp.system import caching, digests, files, terminal
from embexp.training import intervals, ranking
from embexp.training.loop import Replay
from embexp.training.ranking import Lister

_USERS_TO_CHOOSE = 2_000
"""Number of users of the validation split that choose the penalties for vectors of users."""
_PARTS = {
    "new_items": "new items, for known users",
    "new_items_among_all": "new items among all, for known users",
    "new_users": "known items, for new users",
}
_METHODS = {
    "learned": "vectors by content",
    "folded_in": "vectors by their items",
    "content": "similar content",
    "popularity": "popularity",
    "ease": "EASE",
    "item_knn": "item-kNN",
    "random": "random",
}
_SHOWN = ("ndcg_at_", "recall_at_", "mrr")
_FILES = {
    "summary.json": "all results",
    "vectors/": "vectors of new items and users, with their ids",
    "base/": "the run, with its own summary and checkpoints",
}


def run(spec: RunSpec, directory: Path, observer: Observer, replay: Replay | None = None) -> RunResult:
    """Runs base without what is new, and measures how that is served; see `experiment.run_study`."""
    described = {"name": spec.name, "task": str(spec.task), "study": spec.study.kind}
    base_spec = spec.study.runs(spec, directory)[BASE]
    data, content = read_data(base_spec, observer.progress), None  # errors in them come before the training
    if (path := getattr(spec.study, "content", None)) is not None:
        assert data.candidates.new is not None  # the study draws some
        tokens = data.vocabularies[spec.features[spec.recommendation.item].table].tokens()
        kinds = (
            [tokens[row] for row in rows.tolist()]
            for rows in (_interactions(data).catalogue.rows, data.candidates.new.items)
        )
        cache = caching.cache_folder(spec.output.cache)
        content = read_content("study.content", path, *kinds, cache=cache, progress=observer.progress)

    def served(runs: Mapping[str, Mapping[str, Any]], ended: bool) -> Mapping[str, Any]:
        base = runs[BASE]
        summary: dict[str, Any] = {
            "status": "completed" if ended else "interrupted",
            **described,
            "run_id": digests.of_json([base["run_id"], None if content is None else content.digest]),
            "steps": base["steps"],
            "runs": {BASE: {key: base[key] for key in ("run_id", "status", "steps", "seconds", "metrics")}},
            "metrics": {"test": {}},
            "served": {},
            "warnings": [f"{BASE}: {warning}" for warning in base["warnings"]],
        }
        if ended:
            observer.progress("serving new items", None)
            loaded = load_run(directory / BASE)
            vectors, out = loaded.vectors(), directory / "vectors"
            measure = _Measure(spec.recommendation.cutoffs, spec.seed)
            if content is not None:
                _items(content, vectors, data, base_spec.model, measure, summary, out)
            assert data.candidates.new is not None  # the study draws some
            if len(data.candidates.new.users):
                _users(vectors, data, measure, summary, out)
            summary["metrics"]["test"] = {
                f"{part}_{name}": value
                for part, methods in summary["served"].items()
                for name, value in next(iter(methods.values()))["metrics"].items()
            }
        return summary

    return experiment.run_study(spec, directory, observer, served)


@dataclass(frozen=True)
class _Measure:
    """Measures the lists of users who have relevant items, at `recommendation.cutoffs`."""

    cutoffs: tuple[int, ...]
    seed: int

    def __call__(self, lister: Lister, items: int, relevant: ListColumn, unknown: np.ndarray, seen: ListColumn) -> Any:
        of_users: dict[str, list[np.ndarray]] = {}
        metrics = evaluation.evaluate_lists(
            lister,
            items,
            relevant=relevant,
            unknown=unknown,
            seen=seen,
            cutoffs=self.cutoffs,
            of_users=of_users,
        )
        values = {name: np.concatenate(blocks) for name, blocks in of_users.items()}
        return {
            "metrics": metrics,
            "intervals": intervals.around(metrics, intervals_over_users(values, self.seed)),
        }

    @property
    def first(self) -> str:
        """The metric that chooses penalties."""
        return f"ndcg_at_{self.cutoffs[0]}"


def _items(
    content: Content,
    vectors: Vectors,
    data: Data,
    model: Any,
    measure: _Measure,
    found: dict[str, Any],
    out: Path,
) -> None:
    """Adds the metrics of new items for the known users who have some of them."""
    assert data.candidates.new is not None
    assert isinstance(model, Recommender)
    known, new = _interactions(data), data.candidates.new.items[content.new]
    counts = known.catalogue.counts[content.known]
    of_new, penalty = of_new_items(content, vectors, model)
    popular = recommending.content_map(content.of_known, np.log1p(counts)[:, None], counts)
    who = data.scan.examples.column(known.user, data.candidates.new.of_items)
    item = data.scan.examples.column(known.item, data.candidates.new.of_items)
    place = np.minimum(np.searchsorted(new, item), len(new) - 1)
    what = np.where(new[place] == item, place, -1)
    users = np.intersect1d(who[what >= 0], vectors.users)
    relevant, own = lists_of(who, what, users, len(new)), np.searchsorted(vectors.users, users)
    seen, of_users = _taken(vectors.seen, own), vectors.of_users[own]
    none, nothing = (
        np.zeros(len(users), np.int64),
        ListColumn(np.empty(0, np.int64), np.zeros(len(users) + 1, np.int64)),
    )

    def measured(lister: Lister) -> Any:
        return measure(lister, len(new), relevant, none, nothing)

    alike = recommending.of_length_one(content.of_known, bias=False), recommending.of_length_one(content.of_new, False)
    whole = np.zeros((len(vectors.items), alike[0].shape[1]), np.float32)
    whole[content.known] = alike[0]
    profiles = np.asarray(item_models.matrix(seen, len(whole)) @ whole)
    chance = np.random.default_rng(measure.seed).random((len(users), len(new)), np.float32)
    found["served"]["new_items"] = {
        "learned": measured(ranking.listed_by(ranking.products(of_users, of_new))),
        "content": measured(ranking.listed_by(ranking.products(profiles, alike[1]))),
        "popularity": measured(ranking.same_for_all(popular(content.of_new)[:, 0])),
        "random": measured(ranking.listed_by(lambda start, stop: chance[start:stop])),
    }
    total, first = len(vectors.items), len(vectors.items)
    everything = np.concatenate([vectors.of_items, of_new])
    among = ListColumn(relevant.values + first, relevant.splits)
    found["served"]["new_items_among_all"] = {
        "learned": measure(
            ranking.listed_by(ranking.products(of_users, everything)), total + len(new), among, none, seen
        ),
        "popularity": measure(
            ranking.same_for_all(np.concatenate([np.log1p(known.catalogue.counts), popular(content.of_new)[:, 0]])),
            total + len(new),
            among,
            none,
            seen,
        ),
    }
    missing = len(content.new) - len(new)
    found["new_items"] = {
        "items": len(new),
        "users": len(users),
        "interactions": len(relevant.values),
        "without_content": missing,
        "known_items": int(content.known.sum()),
        "penalty": penalty,
    }
    _write(out / "new_items", of_new, content.names)
    if missing:
        found["warnings"].append(f"{missing:,} new items have no content, so they are not ranked")


def _users(vectors: Vectors, data: Data, measure: _Measure, found: dict[str, Any], out: Path) -> None:
    """Adds the metrics of known items for new users, who are known only by their items before the test split."""
    known, examples, new = _interactions(data), data.scan.examples, data.candidates.new
    assert new is not None
    held = _with_items(known.held_out(examples, new.asked, examples, [new.given]))
    unobserved, penalty = recommending.UNOBSERVED[1], recommending.PENALTIES[1]
    if len(data.scan.splits["validation"]):
        some, best = data.candidates.held_out("validation").some(_USERS_TO_CHOOSE), -np.inf
        for pair in ((a, b) for a in recommending.UNOBSERVED for b in recommending.PENALTIES):
            value = _listed(measure, recommending.folded_in(vectors.of_items, some.seen, *pair), vectors, some)
            if (reached := value["metrics"][measure.first]) > best:
                (unobserved, penalty), best = pair, reached
    folded = recommending.folded_in(vectors.of_items, held.seen, unobserved, penalty)
    items, name = len(vectors.items), item_models.name_of(len(vectors.items))
    train = data.scan.splits["train"]
    everyone = known.seen(examples, [train], np.unique(known.pairs(examples, train)[0]))
    trained = item_models.matrix(item_models.shortened(everyone), items)
    penalties = item_models.PENALTIES[name]
    weights = item_models.fit(name, trained, penalties[len(penalties) // 2])
    chance = np.random.default_rng(measure.seed).random((len(held.users), items), np.float32)
    counts = known.catalogue.counts.astype(np.float64)

    def measured(lister: Lister) -> Any:
        return measure(lister, items, held.relevant, held.unknown, held.seen)

    found["served"]["new_users"] = {
        "folded_in": _listed(measure, folded, vectors, held),
        name: measured(ranking.listed_by(item_models.scores(item_models.matrix(held.seen, items), weights))),
        "popularity": measured(ranking.same_for_all(counts)),
        "random": measured(ranking.listed_by(lambda start, stop: chance[start:stop])),
    }
    found["new_users"] = {
        "users": len(held.users),
        "given": len(held.seen.values),
        "asked": len(held.relevant.values),
        "unobserved": unobserved,
        "penalty": penalty,
    }
    names = vectors.vocabularies[0].tokens()
    _write(out / "new_users", folded, [names[row] for row in held.users.tolist()])


def _listed(measure: _Measure, of_users: np.ndarray, vectors: Vectors, held: HeldOut) -> Any:
    """The metrics of the lists that vectors of users give."""
    scores = ranking.products(of_users, vectors.of_items)
    return measure(ranking.listed_by(scores), len(vectors.items), held.relevant, held.unknown, held.seen)


def _with_items(held: HeldOut) -> HeldOut:
    """The users who have an item before the test split."""
    chosen = np.flatnonzero(np.diff(held.seen.splits))
    relevant, seen = _taken(held.relevant, chosen), _taken(held.seen, chosen)
    return HeldOut(held.users[chosen], held.examples[chosen], relevant, held.unknown[chosen], seen, held.skipped)


def _taken(column: ListColumn, rows: np.ndarray) -> ListColumn:
    places, splits = column.taken(rows)
    return ListColumn(column.values[places], splits)


def _interactions(data: Data) -> Interactions:
    found: Interactions = data.candidates.interactions
    return found


def _write(path: Path, vectors: np.ndarray, tokens: list[str]) -> None:
    """Writes `NAME.npy` and `NAME.tokens.txt`, which `pretrained=file` reads."""
    with files.atomic_write(path.with_suffix(".npy")) as file:
        np.save(file, vectors, allow_pickle=False)
    files.write_text(path.with_suffix(".tokens.txt"), "".join(f"{token}\n" for token in tokens))


@dataclass(frozen=True)
class Served:
    """A rich renderable of a study of new items and users."""

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the status, a table for each part, what was chosen, the files and warnings."""
        yield experiment.headline(self.summary)
        parts = self.summary.get("served", {})
        yield from results.spaced([self._table(part, methods, options) for part, methods in parts.items()], options)
        yield from map(Text, self._sentences())
        yield from results.files(self.directory, _FILES.items())
        yield from results.warnings(self.summary)

    def _table(self, part: str, methods: Mapping[str, Any], options: ConsoleOptions) -> Table:
        names = [name for name in next(iter(methods.values()))["metrics"] if name.startswith(_SHOWN)]
        table = terminal.table(options, [""], right=names)
        table.title, table.title_justify, table.title_style = _PARTS[part], "left", "bold"
        for method, measured in methods.items():
            table.add_row(_METHODS[method], *(f"{measured['metrics'][name]:.4f}" for name in names))
        return table

    def _sentences(self) -> Iterator[str]:
        if (items := self.summary.get("new_items")) is not None:
            yield (
                f"{items['items']:,} new items, {items['interactions']:,} interactions of {items['users']:,} known"
                f" users; the map is fitted to {items['known_items']:,} items, with penalty {items['penalty']:.3g}"
            )
        if (users := self.summary.get("new_users")) is not None:
            yield (
                f"{users['users']:,} new users by {users['given']:,} of their items, with {users['asked']:,} others to"
                f" find; chosen by validation: unobserved items weigh {users['unobserved']:g}, penalty"
                f" {users['penalty']:g}"
            )


def _results(summary: Mapping[str, Any], directory: Path) -> RenderableType:
    return Served(summary, directory)


STUDY = Study(run, experiment.resuming_study(run), _results)
"""`study=new_items`."""

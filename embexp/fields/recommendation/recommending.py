"""Vectors of the users and items of a finished run of task recommendation, and lists of the best items.

A score is the dot product of the two float32 vectors in float64, rounded to float32. So it does not depend on the order
in which a library adds, and whatever lists items by these vectors lists the same ones in the same order.

Items that nobody has yet get vectors from their content, and users by a few items, without any training. What was
trained is not touched: new vectors are put next to it. `study=new_items` measures them, and `embexp recommend` lists
items by them: `--content`, `--history`. Vectors of new users are by the model, or folded in.

`Run.recommend`, `Run.vectors`, and the exports of both sides are functions of this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from embexp.data.examples import Examples, ListColumn, lists_of
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import DataError, DivergedError, RunError, UsageError, VocabularyError
from embexp.fields.recommendation.specs import Recommender
from embexp.runs.finished import Written
from embexp.runs.prepare import read_recorded_data
from embexp.specs.base import summarize_names
from embexp.specs.data import Columnar
from embexp.specs.models import Model
from embexp.specs.pretrained import Match
from embexp.system import caching, files
from embexp.system.arrays import ArrayRows
from embexp.system.parallel import Progress, quiet
from embexp.training import ranking
from embexp.vectors import alignment, neighbors
from embexp.vectors.file_source import open_vectors
from embexp.vectors.write import write_vectors

if TYPE_CHECKING:
    from embexp.fields.recommendation.evaluation import ListEvaluator
    from embexp.runs.finished import Run
    from embexp.runs.prepare import Data
    from embexp.training.loop import Predictor

MOST_ITEMS = 50_000
"""Items that a map is fitted to, the most frequent ones: in some seconds for some hundred numbers of content."""
_PENALTIES = np.logspace(-2, 4, 25)
UNOBSERVED = (0.01, 0.1, 0.3)
"""Weights of items that a user does not have, next to 1 for those that the user has."""
PENALTIES = (1.0, 10.0, 100.0)
"""Ridge penalties of a user's vector, in units of the mean squared length of the items' vectors."""
_USERS_AT_ONCE = 1_024


@dataclass(frozen=True)
class Vectors:
    """Vectors of U users and of the I items of the catalogue.

    Attributes:
        users: int64 [U], their rows in the vocabulary, rising.
        items: int64 [I], their rows in the vocabulary, rising; an item's place here is its number.
        of_users: float32 [U, d].
        of_items: float32 [I, d], then those of new items; a bias is one more number, where that of the user is 1.
        counts: int64 [I], the items' interactions in the training split.
        seen: numbers of the items that each user has in any split, each once, rising.
        vocabularies: of users, and of items.
        new_items: names of items that are not of the catalogue; they come after it.
        new_users: names of all users, where the run does not know them; then `users` are their places here.
    """

    users: np.ndarray
    items: np.ndarray
    of_users: np.ndarray
    of_items: np.ndarray
    counts: np.ndarray
    seen: ListColumn
    vocabularies: tuple[Vocabulary, Vocabulary]
    new_items: tuple[str, ...] = ()
    new_users: tuple[str, ...] = ()

    def tokens(self) -> tuple[list[str], list[str]]:
        """The tokens of the users, and of the items."""
        users, items = (vocabulary.tokens() for vocabulary in self.vocabularies)
        named = [items[row] for row in self.items.tolist()]
        return [*self.new_users] or [users[row] for row in self.users.tolist()], [*named, *self.new_items]

    def check_finite(self) -> None:
        """Raises DivergedError if a vector has a number that is not finite."""
        if not (np.isfinite(self.of_users).all() and np.isfinite(self.of_items).all()):
            raise DivergedError("vectors of users or items are not finite numbers: training has diverged")

    def lists(
        self, count: int, *, include_seen: bool = False, progress: Progress = quiet
    ) -> Iterator[tuple[int, ranking.Best]]:
        """The best items for each user, without those that the user has seen.

        Args:
            count: items of each list.

        Yields:
            The number of the first of some users, and their lists.

        Raises:
            DivergedError: a score is not finite.
        """
        columns = np.ascontiguousarray(self.of_items.T, np.float64)
        users = len(self.users)

        def scores(start: int, stop: int) -> np.ndarray:
            progress("ranking items", start / max(1, users))
            return np.asarray(self.of_users[start:stop].astype(np.float64) @ columns, np.float32)

        nothing = ListColumn(np.empty(0, np.int64), np.zeros(users + 1, np.int64))
        hidden = nothing if include_seen else self.seen
        for start, _, block in ranking.user_blocks(scores, users, len(self.of_items), hidden):
            yield start, ranking.best_items(block, count)

    def named_lists(
        self, count: int, *, include_seen: bool = False, progress: Progress = quiet
    ) -> dict[str, list[tuple[str, float]]]:
        """What `lists` yields, by user: items and scores, the best first."""
        (names, tokens), found = self.tokens(), {}
        for start, best in self.lists(count, include_seen=include_seen, progress=progress):
            listed = zip(names[start : start + len(best.items)], best.items.tolist(), best.scores.tolist(), strict=True)
            for user, items, scores in listed:
                found[user] = [(tokens[item], score) for item, score in zip(items, scores, strict=True) if item >= 0]
        return found


def compute_vectors(
    evaluator: ListEvaluator,
    data: Data,
    runtime: Predictor,
    users: Sequence[str] | None = None,
    progress: Progress = quiet,
) -> Vectors:
    """Vectors of users of the run's own data, and of all items.

    A user's features are read from the last example of the user.

    Args:
        users: their tokens; None: all that have a row of their own.

    Raises:
        VocabularyError: a user is unknown.
        DataError: the data has no example of a user.
    """
    interactions, examples = data.candidates.interactions, data.scan.examples
    assert interactions is not None  # the task is recommendation
    shared = data.columns.ids
    known, items = (data.vocabularies[shared[column]] for column in (interactions.user, interactions.item))
    splits = list(data.scan.splits.values())
    rows = np.sort(np.concatenate(splits))
    everyone, last = np.unique(interactions.pairs(examples, rows)[0][::-1], return_index=True)
    who = everyone[everyone >= interactions.special[0]]
    if users is not None:
        who = known.rows(list(users))
        unknown = [user for user, row in zip(users, who, strict=True) if row < known.first]
        if unknown:
            raise VocabularyError(
                f"{summarize_names([repr(user) for user in unknown])}: not in the training split of the run, so "
                f"it has learned nothing about them"
            )
        who = np.unique(who)
    place = np.minimum(np.searchsorted(everyone, who), len(everyone) - 1)
    if (everyone[place] != who).any():
        raise DataError("the run's data has no example of some of these users")
    of_users, of_items = evaluator.vectors(data, runtime, data.columns, examples, rows[::-1][last[place]], progress)
    of_users, of_items = (np.ascontiguousarray(each, np.float32) for each in (of_users, of_items))
    seen = interactions.seen(examples, splits, who)
    catalogue = interactions.catalogue
    return Vectors(who, catalogue.rows, of_users, of_items, catalogue.counts, seen, (known, items))


def recommender(run: Run) -> Recommender:
    """The model of a run of task recommendation; raises RunError if the task is another."""
    if not isinstance(run.spec.model, Recommender):
        raise RunError(
            f"{run.folder.path}: task {run.spec.task} gives users and items no vectors; vectors, recommend and "
            f"indexes need task recommendation"
        )
    return run.spec.model


@dataclass(frozen=True)
class ContentMap:
    """An affine map from vectors of content to what was learned of items: ridge regression.

    Attributes:
        penalty: the ridge penalty.
    """

    penalty: float
    _predict: Callable[[np.ndarray], np.ndarray]

    def __call__(self, content: np.ndarray) -> np.ndarray:
        """float32 [n, k] for vectors of content, [n, c]."""
        return np.asarray(self._predict(np.asarray(content, np.float64)), np.float32).reshape(len(content), -1)


def content_map(content: np.ndarray, learned: np.ndarray, counts: np.ndarray) -> ContentMap:
    """The map from the content of known items that predicts best what was learned of an item that is left out.

    An item counts by log(1 + its interactions): more of them tell more of it. The penalty is the best of 25 by the
    error of each item predicted from all others, in closed form (Golub, Heath & Wahba 1979).

    Args:
        content: [I, c], of the known items.
        learned: [I, k], such as their vectors.
        counts: [I], their interactions, at least 1; the first items are the most frequent.
    """
    from sklearn.linear_model import RidgeCV

    some = slice(MOST_ITEMS)
    values = np.asarray(content[some], np.float64), np.asarray(learned[some], np.float64)
    fitted = RidgeCV(alphas=_PENALTIES).fit(*values, sample_weight=np.log1p(counts[some]))
    return ContentMap(float(fitted.alpha_), fitted.predict)


def of_length_one(vectors: np.ndarray, bias: bool) -> np.ndarray:
    """Vectors [n, d] scaled to length 1, but for the last number if that is a bias; one of length 0 stays.

    A predicted vector is a mean of likely ones, so it is shorter; the others are compared by their direction alone.
    """
    width = vectors.shape[1] - bias
    lengths = np.linalg.norm(vectors[:, :width], axis=1, keepdims=True)
    scaled = vectors[:, :width] / np.where(lengths > 0, lengths, 1)
    return np.ascontiguousarray(np.concatenate([scaled, vectors[:, width:]], axis=1), np.float32)


def folded_in(items: np.ndarray, lists: ListColumn, unobserved: float, penalty: float) -> np.ndarray:
    """Vectors of users by the items that they have, float32 [U, d], for trained vectors of items.

    A user's vector u minimises the sum of (1 - u·v)² over the user's items, plus `unobserved` times that of (u·v)² over
    all items, plus a multiple of |u|²: a step of the alternating least squares of Hu, Koren & Volinsky (2008), eq. 4.

    Args:
        items: [I, d].
        lists: numbers of the items that each of U users has.
        penalty: the multiple of |u|², in units of the mean squared length of the items' vectors.
    """
    vectors = np.asarray(items, np.float64)
    dim, gram = vectors.shape[1], vectors.T @ vectors
    # Vectors that are all 0 would leave nothing to solve for.
    unit = np.trace(gram) / len(vectors) or 1.0
    shared = unobserved * gram + penalty * unit * np.eye(dim)
    users = len(lists.splits) - 1
    found = np.empty((users, dim), np.float32)
    for start in range(0, users, _USERS_AT_ONCE):
        stop = min(start + _USERS_AT_ONCE, users)
        systems, sums = np.empty((stop - start, dim, dim)), np.empty((stop - start, dim))
        for place in range(stop - start):
            own = vectors[lists.values[lists.splits[start + place] : lists.splits[start + place + 1]]]
            systems[place], sums[place] = shared + own.T @ own, own.sum(axis=0)
        found[start:stop] = np.linalg.solve(systems, sums[..., None])[..., 0]
    return found


_LEAST = 2
"""The least number of items with content to fit a map."""


@dataclass(frozen=True)
class Content:
    """Vectors of the content of known and of new items.

    Attributes:
        digest: of the file.
        known: bool [I], which items of the catalogue have some.
        of_known: float32 [known, c].
        new: bool [N], which new items have some.
        of_new: float32 [new, c].
        names: of the new items that have some.
    """

    digest: str
    known: np.ndarray
    of_known: np.ndarray
    new: np.ndarray
    of_new: np.ndarray
    names: list[str]


def read_content(
    setting: str, path: str, known: Sequence[str], new: Sequence[str] | None, *, cache: Path, progress: Progress
) -> Content:
    """Reads the rows of items.

    Args:
        setting: what names the file, for errors.
        path: of the file.
        known: the items of the catalogue.
        new: the new ones, of which two must have content; None: all others that the file has, at least one.
        cache: see `open_vectors`.

    Raises:
        DataError: it is no file of vectors, has no tokens, or no rows of known items, or of new ones.
    """
    source = open_vectors(Path(path), cache=cache, progress=progress)
    if source.tokens is None:
        raise DataError(f"{setting}: {path} has no tokens: put the item ids into NAME.tokens.txt")
    others, least = new, _LEAST
    if others is None:
        old = set(known)
        others, least = [each for each in dict.fromkeys(source.tokens.to_pylist()) if each not in old], 1
    read, parts = source.read(0, source.rows), []
    for kind, items, wanted in (("known", known, _LEAST), ("new", others, least)):
        places, _ = alignment.match(pa.array(items, pa.large_string()), source.tokens, Match.EXACT)
        has = places >= 0
        if has.sum() < wanted:
            some = ", ".join(source.tokens.slice(0, 3).to_pylist())
            among = f" of {len(items):,}" if items else ""
            raise DataError(
                f"{setting}: {path} has vectors of {has.sum():,}{among} {kind} items, and {('one', 'two')[wanted - 1]}"
                f" {'is' if wanted == 1 else 'are'} needed: its tokens, such as {some}, must be item ids"
            )
        parts.append((has, np.asarray(read[places[has]], np.float32)))
    (of_known, of_new), names = parts, np.asarray(others, object)
    return Content(source.digest, *of_known, *of_new, names[of_new[0]].tolist())


def of_new_items(content: Content, vectors: Vectors, model: Recommender) -> tuple[np.ndarray, float]:
    """Vectors of new items by their content, float32 [new, d], and the ridge penalty of what maps content to vectors.

    Args:
        vectors: of the known items.
    """
    known = content.known
    learned = content_map(content.of_known, vectors.of_items[known], vectors.counts[known])
    found = learned(content.of_new)
    if model.normalize:
        found = of_length_one(found, bool(model.item_biases))
    return found, learned.penalty


def with_new_items(
    vectors: Vectors, model: Model, path: str, *, only: bool, cache: Path, progress: Progress
) -> Vectors:
    """Vectors with those of new items after the known ones, or with `only` these.

    Args:
        vectors: of a run of task recommendation.
        path: of a file of vectors of content; all items that the run does not know are new.
        cache: see `open_vectors`.

    Raises:
        DataError: see `read_content`.
    """
    assert isinstance(model, Recommender)
    content = read_content("content", path, vectors.tokens()[1], None, cache=cache, progress=progress)
    of_new, _ = of_new_items(content, vectors, model)
    names = tuple(content.names)
    if not only:
        return replace(vectors, of_items=np.concatenate([vectors.of_items, of_new]), new_items=names)
    nothing = ListColumn(np.empty(0, np.int64), np.zeros(len(vectors.users) + 1, np.int64))
    return replace(vectors, items=vectors.items[:0], of_items=of_new, seen=nothing, new_items=names)


Histories = Mapping[str, Sequence[str]]
"""Items of users that a run does not know, by the user's name."""


def read_histories(run: Run, file: str) -> dict[str, list[str]]:
    """The items of each user of a file in the form of the run's data; see `data.label_threshold` for which rows count.

    Raises:
        RunError: the task is another.
        DataError: it lacks a column, has no rows that count, or a label is no number.
    """
    recommender(run)  # others have no users
    spec = run.spec
    user, item = (spec.column_of(name) for name in (spec.recommendation.user, spec.recommendation.item))
    label = spec.data.label if isinstance(spec.data, Columnar) else None
    columns = run.columns_of_file(file, [user, item, *([] if label is None else [label])])
    kept = [True] * len(columns[user])
    if label is not None:
        assert isinstance(spec.data, Columnar)
        least = spec.data.label_threshold
        assert least is not None  # a rule of the task
        try:
            kept = [float(value) >= least for value in columns[label]]
        except ValueError as error:
            raise DataError(f"{file}: column {label!r}: {error}") from None
    found: dict[str, list[str]] = {}
    for name, value, counts in zip(columns[user], columns[item], kept, strict=True):
        if counts:
            found.setdefault(name, []).append(value)
    if not found:
        raise DataError(f"{file}: no row is an interaction, so there is no user to recommend anything to")
    return found


def vectors_of_new_users(
    evaluator: ListEvaluator,
    data: Data,
    runtime: Predictor,
    model: Recommender,
    features: Collection[str],
    histories: Histories,
    unknown: dict[str, int] | None = None,
    progress: Progress = quiet,
) -> Vectors:
    """Vectors of new users, and of all items.

    A model whose users are nothing but an id and a history of items computes them as users whose id is unknown. For
    other models, and where unknown ids have no row, a user's vector is folded in: see `_folded_in`. Other features of
    users are not used.

    Args:
        features: the id columns of the model's `user_features`.
        histories: not empty. Of the users, those without any item of the catalogue are left out.
        unknown: gets the items that are not of the catalogue, and how many of the users have each.

    Raises:
        VocabularyError: no user has an item of the catalogue.
    """
    interactions, made = data.candidates.interactions, data.columns.histories
    assert interactions is not None  # the task is recommendation
    catalogue, names = interactions.catalogue, list(histories)
    known, items = (data.vocabularies[data.columns.ids[name]] for name in (interactions.user, interactions.item))
    pairs = [(place, item) for place, name in enumerate(names) for item in dict.fromkeys(histories[name])]
    who = np.asarray([place for place, _ in pairs], np.int64)
    numbers = catalogue.numbers(items.rows([item for _, item in pairs]))
    missing: dict[str, int] = {} if unknown is None else unknown
    for (_, item), number in zip(pairs, numbers.tolist(), strict=True):
        if number < 0:
            missing[item] = missing.get(item, 0) + 1
    served = np.unique(who[numbers >= 0])
    if not len(served):
        some = summarize_names([repr(item) for item in missing])
        raise VocabularyError(
            f"the run knows none of these users' items, so it can't recommend anything to them: "
            f"{some or 'they have none'}"
        )
    lists = lists_of(who, numbers, served, catalogue.size)
    by_model = known.oov and made and {interactions.user, *made} >= {*features}
    by_model = by_model and all(history.column == interactions.item for history in made.values())
    examples = _examples(data, lists if by_model else ListColumn(lists.values[:1], np.array([0, 1])))
    rows = np.arange(examples.count)
    of_users, of_items = evaluator.vectors(data, runtime, data.columns, examples, rows, progress)
    if not by_model:
        of_users = _folded_in(of_items, lists, model, of_users[0])
    of_users, of_items = (np.ascontiguousarray(each, np.float32) for each in (of_users, of_items))
    new = tuple(names[place] for place in served.tolist())
    users = np.arange(len(new))
    return Vectors(users, catalogue.rows, of_users, of_items, catalogue.counts, lists, (known, items), new_users=new)


def _folded_in(items: np.ndarray, lists: ListColumn, model: Recommender, user: np.ndarray) -> np.ndarray:
    """Vectors of users by least squares over the vectors of items; see `folded_in`.

    If scores are cosines plus biases, the cosines are fitted. The vector then gets the length of all users' vectors,
    which the temperature decides. So biases count as much as in training.

    Args:
        user: vector of any user.
    """
    width = items.shape[1] - (model.normalize and bool(model.item_biases))
    folded = folded_in(items[:, :width], lists, UNOBSERVED[1], PENALTIES[1])
    if not model.normalize:
        return folded
    scaled = of_length_one(folded, bias=False) * np.linalg.norm(user[:width])
    return np.concatenate([scaled, np.ones((len(scaled), items.shape[1] - width))], axis=1)


def _examples(data: Data, lists: ListColumn) -> Examples:
    """An example for each list of items: a training example whose user is unknown and has these items."""
    interactions, examples = data.candidates.interactions, data.scan.examples
    assert interactions is not None
    users = len(lists.splits) - 1
    first = np.repeat(data.scan.splits["train"][:1], users)
    ids = np.array(examples.ids[first])
    ids[:, examples.id_columns.index(interactions.user)] = 0
    several = {
        name: ListColumn(column.values[:0], np.zeros(users + 1, np.int64)) for name, column in examples.lists.items()
    }
    of_items = ListColumn(interactions.catalogue.rows[lists.values].astype(np.int32), lists.splits)
    histories: dict[str, Any] = dict.fromkeys(examples.histories, of_items)  # by example, and not by user
    return replace(
        examples,
        count=users,
        ids=ids,
        lists=several,
        weights={
            name: values[:0] if data.columns.weights[name] in several else values[first]
            for name, values in examples.weights.items()
            if name in data.columns.weights
        },
        dense=np.zeros((users, examples.dense.shape[1]), np.float32),
        labels=None,
        example_weights=None,
        histories=histories,
    )


def recommend(
    run: Run,
    users: Sequence[str] | None = None,
    count: int = 10,
    *,
    histories: Histories | None = None,
    unknown: dict[str, int] | None = None,
    include_seen: bool = False,
    content: Path | str | None = None,
    only_new: bool = False,
    progress: Progress = quiet,
) -> dict[str, list[tuple[str, float]]]:
    """The best items for users of the run's own data or for new users; for task recommendation.

    Args:
        users: names of users; None: all users of the training split. Their features come from their last example.
        count: number of items per list; a user who has seen nearly everything gets fewer.
        histories: items by user name; these users are treated as new, see `vectors_of_new_users`. If the
            run knows none of a user's items, the list is empty.
        unknown: is filled with the items of `histories` that the run does not know, and the number of users that have
            each.
        include_seen: whether to list items that the user already has in any split of that data or in `histories`.
        content: a file with content vectors of items and their ids, to list items that the run does not know, as
            `study=new_items` measures; None: no new items.
        only_new: whether to list only new items.
        progress: called with each stage and the fraction of it that is done.

    Returns:
        By user, items and scores, the best first; ties are ordered by row.

    Raises:
        RunError: the task is not recommendation.
        UsageError: `count` is less than 1, `only_new` has no `content`, or `users` and `histories` are both given.
        VocabularyError: a user is unknown, or no user of `histories` has a known item.
        DataError: `content` is not a file of vectors, or lacks vectors of known or new items; or the run's own data has
            changed.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"Run.recommend: count must be a whole number of at least 1, not {count!r}")
    if only_new and content is None:
        raise UsageError("Run.recommend: only_new lists items by their content, but content is None")
    if users is not None and histories is not None:
        raise UsageError(
            "Run.recommend: users are in the run's data, but those of histories are not: give only one of them"
        )
    if histories is None:
        names, known = users, vectors(run, users, progress=progress)
    else:
        names, features = (
            list(histories),
            [run.spec.ids_of(name) for name in recommender(run).user_features],
        )
        evaluator, own = _evaluator(run), read_recorded_data(run.folder, run.spec, progress)
        known = vectors_of_new_users(
            evaluator, own, run.runtime, recommender(run), features, histories, unknown, progress
        )
    if content is not None:
        cache = caching.cache_folder(run.spec.output.cache)
        known = with_new_items(known, run.spec.model, str(content), only=only_new, cache=cache, progress=progress)
    found = known.named_lists(count, include_seen=include_seen, progress=progress)
    return found if names is None else {user: found.get(user, []) for user in names}


def vectors(run: Run, users: Sequence[str] | None = None, *, progress: Progress = quiet) -> Vectors:
    """Vectors of users and items of the run's own data, for task recommendation. Their dot products are the scores.

    Args:
        users: see `recommend`.
        progress: called with each stage and the fraction of it that is done.

    Raises:
        RunError: the task is not recommendation.
        VocabularyError: a user is unknown.
        DataError: the run's own data has changed.
    """
    recommender(run)
    evaluator, own = _evaluator(run), read_recorded_data(run.folder, run.spec, progress)
    return compute_vectors(evaluator, own, run.runtime, users, progress)


def _evaluator(run: Run) -> ListEvaluator:
    from embexp.fields.recommendation.evaluation import ListEvaluator

    found = run.evaluator()
    assert isinstance(found, ListEvaluator)  # the task is recommendation
    return found


_QUERIES = 2_000
"""Number of users whose vectors tune and measure an index."""


def write_sides(run: Run, directory: Path, out: Path, progress: Progress) -> Written:
    """Writes the vectors of users and items with their tokens.

    Raises:
        DivergedError: a vector is not finite.
        RunError: the task is not recommendation.
        DataError: a token has a line end.
    """
    return _written(vectors(run, progress=progress), directory, out, progress)


def write_index(run: Run, directory: Path, out: Path, progress: Progress, *, recall: float = 0.99) -> Written:
    """Writes the same, and an index of the items by faiss.

    Args:
        recall: the share of the best 10 items that a search is to find.

    Raises:
        RunError: faiss is missing, or does not reach the recall.
    """
    if fault := neighbors.missing_faiss():
        raise RunError(fault)
    found = vectors(run, progress=progress)
    found.check_finite()
    few = np.random.default_rng(0).permutation(len(found.of_users))[:_QUERIES]
    built = neighbors.build_index(found.of_items, found.of_users[few], recall=recall, progress=progress)
    built.index.save(directory / "items.faiss", built.effort)
    files.write_text(directory / "index.json", json.dumps(built.facts, indent=2) + "\n")
    return replace(_written(found, directory, out, progress), facts=built.facts)


def _written(found: Vectors, directory: Path, out: Path, progress: Progress) -> Written:
    found.check_finite()
    sides = {"users": found.of_users, "items": found.of_items}
    for (name, rows), tokens in zip(sides.items(), found.tokens(), strict=True):
        texts, file = pa.array(tokens, pa.large_string()), f"{name}.npy"
        write_vectors(
            ArrayRows(rows),
            texts,
            directory / file,
            named=out / file,
            any_token="embexp.load_run(RUN).vectors() in Python",
            progress=progress,
        )
    return Written({name: rows.shape for name, rows in sides.items()})

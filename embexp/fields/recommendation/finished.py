"""What a finished run of recommendation can do besides: `Run.recommend` and `Run.vectors`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.errors import UsageError
from embexp.fields.recommendation import new_users, recommending
from embexp.fields.recommendation.content import with_new_items
from embexp.runs.prepare import read_recorded_data
from embexp.system import caching
from embexp.system.parallel import Progress, quiet

if TYPE_CHECKING:
    from embexp.fields.recommendation.evaluation import ListEvaluator
    from embexp.runs.finished import Run


def recommend(
    run: Run,
    users: Sequence[str] | None = None,
    count: int = 10,
    *,
    histories: new_users.Histories | None = None,
    unknown: dict[str, int] | None = None,
    include_seen: bool = False,
    content: Path | str | None = None,
    only_new: bool = False,
    progress: Progress = quiet,
) -> dict[str, list[tuple[str, float]]]:
    """The best items for users of the run's own data, or new ones, of task recommendation.

    Args:
        users: their names; None: all users of the training split. Their features are those of their last example.
        count: items of each list; a user who has seen nearly everything gets fewer.
        histories: items of users by name, who are taken for new ones; see `new_users.vectors`. A user none of whose
            items the run knows gets an empty list.
        unknown: gets the items of `histories` that the run does not know, and how many of the users have each.
        include_seen: list items too that the user has in any split of that data, or in `histories`.
        content: file of vectors of the content of items, with their ids, to list those that the run does not know,
            as `study=new_items` measures it; None: no new items.
        only_new: list nothing but new items.
        progress: called with stages, and how much of each is done.

    Returns:
        By user the items and their scores, the best first; equal ones by rising row.

    Raises:
        RunError: the task is another.
        UsageError: `count` is less than 1, `only_new` has no `content`, or `users` and `histories` are both given.
        VocabularyError: a user is unknown, or nobody of `histories` has a known item.
        DataError: `content` is no file of vectors, or has none of known items, or of new ones; or the run's own
            data have changed.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"Run.recommend: count must be a whole number of at least 1, not {count!r}")
    if only_new and content is None:
        raise UsageError("Run.recommend: only_new lists items by their content, and content is None")
    if users is not None and histories is not None:
        raise UsageError("Run.recommend: users are of the run's data, and those of histories are not: give one")
    if histories is None:
        names, known = users, vectors(run, users, progress=progress)
    else:
        names, features = (
            list(histories),
            [run.spec.ids_of(name) for name in recommending.recommender(run).user_features],
        )
        evaluator, own = _evaluator(run), read_recorded_data(run.folder, run.spec, progress)
        known = new_users.vectors(
            evaluator, own, run.runtime, recommending.recommender(run), features, histories, unknown, progress
        )
    if content is not None:
        cache = caching.cache_folder(run.spec.output.cache)
        known = with_new_items(known, run.spec.model, str(content), only=only_new, cache=cache, progress=progress)
    found = known.named_lists(count, include_seen=include_seen, progress=progress)
    return found if names is None else {user: found.get(user, []) for user in names}


def vectors(run: Run, users: Sequence[str] | None = None, *, progress: Progress = quiet) -> recommending.Vectors:
    """Vectors of users and items of the run's own data, for task recommendation: products are scores.

    Args:
        users: see `recommend`.
        progress: called with stages, and how much of each is done.

    Raises:
        RunError: the task is another.
        VocabularyError: a user is unknown.
        DataError: the run's own data have changed.
    """
    recommending.recommender(run)
    evaluator, own = _evaluator(run), read_recorded_data(run.folder, run.spec, progress)
    return recommending.vectors(evaluator, own, run.runtime, users, progress)


def _evaluator(run: Run) -> ListEvaluator:
    from embexp.fields.recommendation.evaluation import ListEvaluator

    found = run.evaluator()
    assert isinstance(found, ListEvaluator)  # the task is recommendation
    return found

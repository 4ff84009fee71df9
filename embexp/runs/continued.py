"""A run that goes on from a parent: how good the parent is on the new data, and what the training added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.runs.evaluations import Details, Evaluated, Evaluator
from embexp.runs.prepare import Prepared
from embexp.specs.tasks import Direction
from embexp.system import digests
from embexp.system.parallel import Progress, part, quiet
from embexp.training import intervals
from embexp.training.loop import Predictor

EVALUATING_PARENT = "evaluating the parent on the new data"


@dataclass(frozen=True)
class Before:
    """The parent on the new data, before the first step.

    Attributes:
        metrics: by split.
        details: by split, see `Details`.
    """

    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    details: Mapping[str, Details] = field(default_factory=dict)


def evaluate_parent(
    prepared: Prepared, evaluator: Evaluator, runtime: Predictor, progress: Progress = quiet
) -> Before | None:
    """Evaluates the parent on the splits of the new data that do not train; None: the run has no parent.

    Tokens that the parent does not know have the row that it has for them, as in `embexp evaluate`.

    Args:
        runtime: whose variables hold the parent's values.
    """
    if prepared.data.as_before is None:
        return None
    progress(EVALUATING_PARENT, None)
    data = prepared.data.as_before()
    sizes = {split: len(rows) for split, rows in data.scan.splits.items() if split != "train" and len(rows)}
    metrics, details, done = {}, {}, 0
    for split, size in sizes.items():
        measured, found = evaluator.split(data, split), Details()
        assert measured is not None  # the split has examples
        closer = part(progress, done / sum(sizes.values()), (done + size) / sum(sizes.values()))
        with intervals.drawn_later():
            metrics[split], details[split] = measured(runtime, closer, found), found
        done += size
    return Before(metrics, details)


def as_json(prepared: Prepared, before: Before, evaluated: Evaluated) -> dict[str, Any]:
    """What summary.json has of the parent: what it is, its metrics on the new data, and the differences to them.

    Differences are those on the same examples; of recommendation, on the users whom both know, with their number as
    `users` if one has others. There are none where there are no such users, or it is not known whom a split has.
    """
    assert prepared.ancestor is not None
    seed = digests.seed_of(prepared.spec.seed, "intervals")[0]
    differences: dict[str, dict[str, Any]] = {}
    for split, metrics in before.metrics.items():
        final = evaluated.final.get(split, {})
        now, then = (each.get(split, {}).get("intervals") for each in (evaluated.details, before.details))
        ends: Mapping[str, intervals.Interval] = {}
        users: dict[str, int] = {}
        if now is None and then is not None and any(each.names is not None for each in then.drawn):
            continue  # perhaps of other users
        if now is not None and then is not None:
            if (pairs := intervals.pairs(then.drawn, now.drawn)) is None:
                continue
            ends = intervals.differences(*pairs, seed)
            if any(some is not each for some, each in zip(pairs[0], then.drawn, strict=True)):
                metrics, final = ({**each[0].metrics} for each in pairs)
                users = {"users": pairs[0][0].count}
        differences[split] = {
            name: {
                "value": (value := final[name] - was),
                **({"interval": [value + end for end in ends[name]]} if name in ends else {}),
                **users,
            }
            for name, was in metrics.items()
            if name in final
        }
    return {
        **prepared.ancestor.as_json(),
        "metrics": before.metrics,
        "differences": differences,
        "tables": {name: each for name in prepared.spec.tables if (each := rows_of(prepared, name))},
    }


def warnings(differences: Mapping[str, Mapping[str, Any]], metric: str, better: Direction | None) -> Iterator[str]:
    """A sentence for each split on which the parent is better than the run, surely.

    Args:
        differences: those of `as_json`.
        metric: the one that tells.
    """
    for split, changes in differences.items():
        ends = changes.get(metric, {}).get("interval")
        if ends is None or better is None:
            continue
        if (ends[0] if better is Direction.LOWER else -ends[1]) > 0:
            value = changes[metric]["value"]
            yield (
                f"the parent is better than this run: {split} {metric} changed by {value:+.4f} (95% interval"
                f" {ends[0]:+.4f} to {ends[1]:+.4f}): train for fewer epochs, with smaller steps, or with earlier"
                " examples (parent.replay=0.2)"
            )


def rows_of(prepared: Prepared, table: str) -> dict[str, int]:
    """How many rows of a table's tokens are kept, new, dropped, and not seen in the training split."""
    contract, now = prepared.data.contract, prepared.data.vocabularies[table]
    was = None if contract is None else contract.vocabularies.get(name := prepared.data.groups[table])
    if contract is None or not isinstance(was, TokenVocabulary) or not isinstance(now, TokenVocabulary):
        return {}
    kept = contract.before(name, now).size - was.first
    return {
        "kept": kept,
        "new": len(now.known) - kept,
        "unseen": int((now.known_frequencies[:kept] == 0).sum()),
        "dropped": len(was.known) - kept,
    }

"""How often `embexp compare` finds a difference where there is none: the target is 5% ± 1.5 points.

    python -m bench.compare [--quick] [--json FILE]

The two models of a pair come from the same distribution, so every p below 0.05 is a false positive. McNemar's exact p
can only take some values, so it is below 0.05 a little less often. With seeds, the variances of seeds and of examples
are added. That is conservative (see `embexp.training.significance`), so the target there is at most 6.5%.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np

import embexp
from bench import harness
from embexp.fields.columns.metrics import Measures, evaluate, intervals_of_examples
from embexp.fields.recommendation.evaluation import intervals_over_users
from embexp.runs.compare import Judged, Measured, compare_metric
from embexp.specs.run import RunSpec
from embexp.training import intervals
from embexp.training.intervals import Intervals

PAIRS, QUICK = 1_000, 100
LEVEL, WITHIN = 0.05, 0.015
EXAMPLES, USERS, SEEDS = 1_000, 400, 5
CLICKS = ("experiment=clicks", "metrics={accuracy: {}}")
LISTS = ("experiment=recommendation", "data.timestamp=time")


def measured(metrics: dict[str, float], found: Intervals) -> Measured:
    """The result of an evaluation, inside `intervals.drawn_later`."""
    [drawn] = found.drawn
    return Measured(metrics, (intervals.resampled(drawn, 0),), drawn.outcomes)


def clicks(random: np.random.Generator, spec: RunSpec, runs: int) -> list[Measured]:
    """Logits that are the truth plus noise. The runs of each half share a part of the noise, like runs of one model."""
    truth = random.normal(size=EXAMPLES)
    labels = (random.random(EXAMPLES) < 1 / (1 + np.exp(-truth))).astype(np.float64)
    noise, measures, found = random.normal(size=(2, EXAMPLES)), Measures(spec.listed_metrics), []
    for run in range(runs):
        logits = truth + 0.7 * noise[run * 2 // runs] + 0.3 * random.normal(size=EXAMPLES)
        drawn = intervals_of_examples(spec.task, labels, logits, measures, 0, rows=np.arange(EXAMPLES))
        found.append(measured(evaluate(spec.task, labels, logits, measures), drawn))
    return found


def lists(random: np.random.Generator, spec: RunSpec, runs: int) -> list[Measured]:
    """NDCG of users with one held-out item, whose ranks vary as widely as in real lists."""
    usual, found = random.exponential(2.5, USERS), []
    for _ in range(runs):
        places = np.ceil(np.exp(usual + random.normal(size=USERS) * 0.5))
        values = np.where(places <= 10, 1 / np.log2(places + 1), 0.0)
        drawn = intervals_over_users({"ndcg_at_10": values}, 0)
        found.append(measured({"ndcg_at_10": float(values.mean())}, drawn))
    return found


def composed(overrides: Sequence[str]) -> RunSpec:
    """A spec, which may read a file of users and items."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("user,item,time\na,b,1\n")
        file.flush()
        more = [f"data.path={file.name}"] if overrides == LISTS else []
        return embexp.compose([*overrides, *more])


def shares(pairs: int) -> Iterator[tuple[str, float]]:
    """The share of false positives of each test."""
    cases = (
        ("examples", clicks, CLICKS, ("auc", "accuracy", "log_loss"), 1),
        ("users", lists, LISTS, ("ndcg_at_10",), 1),
        ("seeds", clicks, CLICKS, ("auc", "log_loss"), SEEDS),
    )
    for kind, draw, overrides, metrics, runs in cases:
        spec, ps = composed(overrides), dict[str, list[float]]()
        judged = Judged.of(spec.task, spec.task.cutoffs_of(spec), spec.listed_metrics, spec.further_metrics)
        for number in range(pairs if runs == 1 else pairs // 5):
            with intervals.drawn_later():
                found = draw(np.random.default_rng([number, runs]), spec, 2 * runs)
            for name in metrics:
                one = compare_metric(name, found[:runs], found[runs:], judged, paired=True)
                assert one.p is not None
                ps.setdefault(f"{kind}: {name}, {one.test}", []).append(one.p)
        for name, values in ps.items():
            yield name, float(np.mean(np.array(values) < LEVEL))


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    options = harness.parser("compare", __doc__, quick=f"{QUICK} pairs, without the target").parse_args(argv)
    described, results, status = harness.introduce_in_a_line(), {}, 0
    for name, share in shares(QUICK if options.quick else PAIRS):
        least = 0.0 if name.startswith("seeds") else LEVEL - WITHIN
        met = least <= share <= LEVEL + WITHIN
        results[name], status = share, status or int(not met and not options.quick)
        print(f"{name:34} {share:6.1%}  {harness.word(met)}", flush=True)
    harness.save(options, described, false_positives=results)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

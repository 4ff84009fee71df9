"""Recommendation from implicit feedback, compared with the BPR of `implicit`: NDCG@10 and Recall@10 on the test split.

    python -m bench.recommendation [FOLDER] [--users N] [--items M] [--seeds N] [--quick] [--json FILE]

FOLDER has RecBole atomic files of MovieLens (ml-100k, ml-1m). The default is a generated data set with planted vectors
and popularity: 2,000 --users, 1,500 --items, about 50 interactions per user. Every rating is an interaction. Each
user's last one is the test example, and the one before is the validation example. Lists are from the whole catalogue,
without items that the user has seen. Both train on the same interactions. `implicit` has the settings of a grid with
the best validation NDCG@10, for one seed. embexp has the defaults of its experiment. Then both are trained with several
seeds. embexp computes the figures of both, and ranx computes them again.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness
from embexp.system import files

GRID: dict[str, list[Any]] = {
    "factors": [32, 64],
    "learning_rate": [0.01, 0.05],
    "regularization": [0.01, 0.03],
    "iterations": [50, 150],
}
"""The settings of `implicit.bpr.BayesianPersonalizedRanking` to try."""
OURS = {
    "matrix factorization with histories, BPR": ["loss=bpr"],
    "matrix factorization with histories, sampled softmax": [],
    "matrix factorization, sampled softmax": ["model=matrix_factorization"],
    "two towers, sampled softmax": ["model=two_tower"],
}
SHOWN = ("ndcg_at_10", "recall_at_10")
USERS, ITEMS, RANK = 2_000, 1_500, 8


def write_interactions(folder: Path, seed: int = 0, *, users: int = USERS, items: int = ITEMS) -> Path:
    """Writes a RecBole file of interactions. Users choose by planted vectors and popularity."""
    random = np.random.default_rng(seed)
    tastes, features = random.normal(0, 1, (users, RANK)), random.normal(0, 1, (items, RANK))
    popularity = -1.0 * np.log(random.permutation(items) + 10)
    lines = ["user_id:token\titem_id:token\ttimestamp:float\n"]
    for user in range(users):
        # The largest of utility + Gumbel noise are items in proportion to exp(utility), without repetition.
        utility = tastes[user] @ features.T / np.sqrt(RANK) * 2 + popularity + random.gumbel(0, 1, items)
        chosen = np.argsort(-utility)[: 10 + random.geometric(1 / 40)]
        for moment, item in enumerate(random.permutation(chosen)):
            lines.append(f"u{user}\ti{item}\t{moment}\n")
    folder.mkdir(parents=True)
    files.write_text(folder / "planted.inter", "".join(lines))
    return folder


class Split:
    """The interactions of a run, for both libraries."""

    def __init__(self, spec: Any) -> None:
        from scipy.sparse import coo_matrix

        from embexp.runs.prepare import read_data
        from embexp.system.parallel import quiet

        self.data = read_data(spec, quiet)
        scan, known = self.data.scan, self.data.candidates.interactions
        assert known is not None  # because the task is recommendation
        users, items = known.pairs(scan.examples, scan.splits["train"])
        shape = (int(users.max()) + 1, known.catalogue.size)
        self.train = coo_matrix((np.ones(len(users), np.float32), (users, items)), shape).tocsr()
        self.train.data[:] = 1
        self.held = {split: self.data.candidates.held_out(split) for split in ("validation", "test")}

    def metrics(self, users: np.ndarray, items: np.ndarray, split: str) -> dict[str, float]:
        """The metrics of the vectors of all users, in order of their rows, and of all items."""
        from embexp.fields.recommendation import evaluation as list_metrics
        from embexp.training import ranking

        held = self.held[split]
        lister = ranking.listed_by(ranking.products(users[held.users], items))
        return list_metrics.evaluate_lists(
            lister, len(items), relevant=held.relevant, unknown=held.unknown, seen=held.seen, cutoffs=(10, 20)
        )

    def of_ranx(self, users: np.ndarray, items: np.ndarray) -> dict[str, float]:
        """The printed test metrics, computed by ranx."""
        import ranx

        held, truth, lists = self.held["test"], {}, {}
        for place, user in enumerate(held.users.tolist()):
            scores = users[user] @ items.T
            seen = held.seen.values[held.seen.splits[place] : held.seen.splits[place + 1]]
            wanted = held.relevant.values[held.relevant.splits[place] : held.relevant.splits[place + 1]]
            unknown = {f"unknown {number}": 1 for number in range(held.unknown[place])}
            scores[seen] = -np.inf
            best = np.argsort(-scores, kind="stable")[:50]
            truth[str(user)] = {str(item): 1 for item in wanted} | unknown
            # Ranks instead of scores, because ranx has no rule for equal scores.
            lists[str(user)] = {str(item): -float(rank) for rank, item in enumerate(best)}
        names = [f"{name.partition('_')[0]}@10" for name in SHOWN]
        found = ranx.evaluate(ranx.Qrels(truth), ranx.Run(lists), names)
        return dict(zip(SHOWN, (float(found[name]) for name in names), strict=True))


def fitted(split: Split, settings: Mapping[str, Any], seed: int, threads: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The vectors of users and items of `implicit`'s BPR, and the seconds of its training."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(**settings, random_state=seed, num_threads=threads)
    began = time.perf_counter()
    model.fit(split.train, show_progress=False)
    seconds = time.perf_counter() - began
    return np.asarray(model.user_factors), np.asarray(model.item_factors), seconds


def tuned(split: Split, grid: Mapping[str, Sequence[Any]], threads: int) -> tuple[dict[str, Any], float]:
    """The settings of `implicit` with the best validation NDCG@10, and this NDCG@10."""
    best: tuple[float, dict[str, Any]] = (-1.0, {})
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        users, items, _ = fitted(split, settings, 0, threads)
        best = max(best, (split.metrics(users, items, "validation")["ndcg_at_10"], settings), key=lambda each: each[0])
    return best[1], best[0]


def trained(spec: Any, split: Split) -> tuple[np.ndarray, np.ndarray, dict[str, float], float]:
    """The vectors of a run of embexp, its own test metrics, and the seconds of the run."""
    import embexp
    from embexp.fields.recommendation.evaluation import ListEvaluator
    from embexp.runs import run as single

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = single.run(spec, Path(folder))
        seconds = time.perf_counter() - began
        run = embexp.load_run(folder)
        held = split.held["test"]
        data = split.data
        vectors, items = ListEvaluator(spec).vectors(
            data, run._restored.runtime, data.columns, data.scan.examples, held.examples
        )
        users = np.zeros((split.train.shape[0], vectors.shape[1]), np.float32)
        users[held.users] = vectors
        return users, items, result.summary["metrics"]["test"], seconds


def main(argv: list[str]) -> int:
    """Measures and prints."""
    quick = "two settings of implicit, few epochs, one seed"
    parser = harness.parser("recommendation", __doc__, quick=quick, threads=True)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for this
    warnings.filterwarnings("ignore")
    import embexp

    described = harness.introduce_in_a_line()
    seeds = 1 if options.quick else options.seeds
    grid = {name: values[-1:] if options.quick else values for name, values in GRID.items()}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or write_interactions(
            Path(scratch) / "planted", users=options.users, items=options.items
        )
        base = [
            "experiment=movielens_recommendation",
            f"data.path={folder}",
            f"output.cache={scratch}/cache",
            "output.plots=false",
            "output.tensorboard=false",
            f"strategy.intra_op_threads={options.threads}",
            *(["train.epochs=2"] if options.quick else []),
        ]
        split = Split(embexp.compose(base))
        train = split.train
        print(f"{folder.name}: {train.shape[0]:,} users, {train.shape[1]:,} items, {train.nnz:,} training interactions")
        counts = np.asarray(train.sum(axis=0), np.float64)
        popular = split.metrics(np.ones((train.shape[0], 1)), counts.T, "test")
        found["popularity"] = [_row(popular, 0.0)]
        settings, validation = tuned(split, grid, options.threads)
        print(f"implicit: the best of {len(list(itertools.product(*grid.values())))} settings: {settings}", end="")
        print(f", validation NDCG@10 {validation:.4f}")
        for seed in range(seeds):
            users, items, seconds = fitted(split, settings, seed, options.threads)
            _add(found, "implicit, BPR", split, users, items, seconds)
            for name, overrides in OURS.items():
                users, items, own, seconds = trained(embexp.compose([*base, *overrides, f"seed={seed}"]), split)
                _add(found, name, split, users, items, seconds, own)
    for name, rows in found.items():
        means = {key: statistics.mean(row[key] for row in rows) for key in rows[0]}
        spread = " ".join(f"{row['ndcg_at_10']:.4f}" for row in rows)
        print(f"{name:40} NDCG@10 {means['ndcg_at_10']:.4f} ({spread})  Recall@10 {means['recall_at_10']:.4f}", end="")
        print(f"  {means['seconds']:6.1f} s")
    theirs = {metric: statistics.mean(row[metric] for row in found["implicit, BPR"]) for metric in SHOWN}
    met = True
    for name in OURS:
        ours = {metric: statistics.mean(row[metric] for row in found[name]) for metric in SHOWN}
        met &= all(ours[metric] >= theirs[metric] for metric in SHOWN)
    print(f"all of embexp's metrics are at least those of implicit's BPR: {'met' if met else 'missed'}")
    harness.save(options, described, implicit=settings, found=found)
    return 0 if met or options.quick else 1


def _add(
    found: dict[str, Any],
    name: str,
    split: Split,
    users: np.ndarray,
    items: np.ndarray,
    seconds: float,
    own: Mapping[str, float] | None = None,
) -> None:
    """Adds the metrics of a training, after checking that ranx and the run itself computed the same."""
    metrics = split.metrics(users, items, "test")
    for others in (split.of_ranx(users, items), own or {}):
        for metric in SHOWN:
            if metric in others and abs(others[metric] - metrics[metric]) > 1e-6:
                raise SystemExit(f"{name}: {metric} is {metrics[metric]}, but elsewhere {others[metric]}")
    found.setdefault(name, []).append(_row(metrics, seconds))
    print("  ", name, " ".join(f"{metric} {metrics[metric]:.4f}" for metric in SHOWN), f"{seconds:.1f} s", flush=True)


def _row(metrics: Mapping[str, float], seconds: float) -> dict[str, float]:
    return {metric: metrics[metric] for metric in SHOWN} | {"seconds": seconds}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

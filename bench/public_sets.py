"""Shipped defaults on public data, compared with strong baselines on the same split, in one table.

    python -m bench.public_sets FOLDER [NAME…] [--seeds 3] [--json FILE] [--set KEY=VALUE …]

FOLDER has the data as their owners publish them: `adult/adult.csv`, `umls/train.txt` and so on (see SETS). A missing
set is skipped. Some files need to be written first:

- `planted_items.csv`: the output of `bench.planted_items`.
- `citeulike.csv`: columns user and item, from `users.dat` of CiteULike-a.
- `beauty.csv`, `toys.csv`, `sports.csv`, `games.csv`, `yelp.csv`: columns user, item and time. The time is the place in
  the sequences of Amazon's and Yelp's 5-cores.
- `sent/`: `rt-polarity.all`, `TREC.train.all`, `mpqa.all` and `stsa.binary.train` of Kim (2014), with a label before
  each text, and `R8.txt`, which joins both R8 files of TextGCN (2019).
- `small/`: tables of seaborn, and of scikit-learn with the label as `target`, such as `small/breast_cancer.csv`.

NAME is a part of the name of a set. Without a NAME, the sets in LONG are left out. A run is what `embexp new FILE`
writes, or a shipped experiment with paths, names of columns and a seed. The seed also draws the splits that the data do
not have. The baselines are those that a run fits itself. Lists have one more: ALS of `implicit`, with the best of 16
settings on the validation split. So do texts (the best of 13 scikit-learn classifiers on the validation split), Adult
(scikit-learn's boosted trees) and words (gensim). In the last column, `above` means that the mean is better than every
baseline.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness, words

QUIET = ("output.plots=false", "output.tensorboard=false", "output.digests=false")
ALS: dict[str, list[Any]] = {"factors": [32, 128], "regularization": [10.0, 50.0], "alpha": [1, 4, 15, 40]}
"""The settings of `implicit.als.AlternatingLeastSquares` to try, each with 15 iterations."""
USERS_TO_CHOOSE = 5_000
"""Maximum number of users of the validation split that choose among the settings."""
LESS = ("rmse", "log_loss")
"""Metrics for which lower is better."""
PAIRS = ("men", "simlex999", "wordsim353-rel", "wordsim353-sim")


@dataclass(frozen=True)
class PublicSet:
    """A data set, and the command line of its defaults.

    Attributes:
        needed: a file in the data folder.
        metric: metric on the test split.
        settings: overrides, in which `@` is the data folder, or arguments of `embexp new` if the first one is `new`.
        drawn: whether the seed also draws the split.
    """

    needed: str
    metric: str
    settings: tuple[str, ...]
    drawn: bool = False


def _graph(name: str, experiment: str = "knowledge_graph") -> PublicSet:
    return PublicSet(f"{name}/train.txt", "mrr", (f"experiment={experiment}", f"data.path=@/{name}"))


def _new(file: str, metric: str, *more: str) -> PublicSet:
    return PublicSet(file, metric, ("new", f"@/{file}", *more), drawn=True)


def _sequences(name: str) -> PublicSet:
    return PublicSet(
        f"{name}.csv", "ndcg_at_10", ("experiment=recommendation", f"data.path=@/{name}.csv", "data.timestamp=time")
    )


def _small(name: str, metric: str, label: str) -> PublicSet:
    return _new(f"small/{name}.csv", metric, "--label", label)


MOVIES = "ml-100k/ml-100k.inter"
STARS = (
    "experiment=ratings",
    "data=recbole",
    "data.path=@/ml-100k",
    "data.label=rating",
    "features.user.column=user_id",
    "features.item.column=item_id",
)
OF_EACH_USER = ("data.timestamp=null", "data.split={kind: random, within: user, group: user}")
LASTFM = (
    "experiment=recommendation",
    "data.path={train: @/lastfm/data1.txt, test: @/lastfm/test1.txt}",
    "data.delimiter=tab",
    "data.names=[user,item,count]",
    *OF_EACH_USER,
)
PAPERS = ("experiment=recommendation", "data.path=@/citeulike.csv", *OF_EACH_USER)
SETS = {
    "Adult": _new("adult/adult.csv", "auc", "--label", "income"),
    "subj": _new("texts/subj.all", "accuracy"),
    "custrev": _new("texts/custrev.all", "accuracy"),
    "MR": _new("sent/rt-polarity.all", "accuracy"),
    "TREC": _new("sent/TREC.train.all", "accuracy"),
    "MPQA": _new("sent/mpqa.all", "accuracy"),
    "SST-2": _new("sent/stsa.binary.train", "accuracy"),
    "R8": _new("sent/R8.txt", "accuracy"),
    "FilmTrust, ratings": _new("filmtrust/ratings.txt", "rmse"),
    "MovieLens, ratings": PublicSet(MOVIES, "rmse", STARS, drawn=True),
    "FilmTrust, lists": _new("filmtrust/ratings.txt", "ndcg_at_10", "--task", "recommendation"),
    "MovieLens, lists": PublicSet(MOVIES, "ndcg_at_10", ("experiment=movielens_recommendation", "data.path=@/ml-100k")),
    "LastFM, lists": PublicSet("lastfm/data1.txt", "ndcg_at_10", LASTFM),
    "CiteULike, lists": PublicSet("citeulike.csv", "ndcg_at_10", PAPERS, drawn=True),
    **{f"{name}, lists": _sequences(name.lower()) for name in ("Beauty", "Toys", "Sports", "Games", "Yelp")},
    "mpg, small": _small("mpg", "rmse", "mpg"),
    "tips, small": _small("tips", "rmse", "tip"),
    "penguins, small": _small("penguins", "log_loss", "species"),
    "iris, small": _small("iris", "log_loss", "target"),
    "wine, small": _small("wine", "log_loss", "target"),
    "cancer, small": _small("breast_cancer", "log_loss", "target"),
    "diabetes, small": _small("diabetes", "rmse", "target"),
    "digits, small": _small("digits", "log_loss", "target"),
    "UMLS": _graph("umls"),
    "Kinship": _graph("kinship"),
    "Nations": _graph("nations"),
    "corpus, words": PublicSet(
        "texts/corpus.txt", "spearman", ("experiment=skipgram", "data.path=@/texts/corpus.txt", "checkpoint.save=end")
    ),
    "Gowalla, lists": PublicSet("gowalla/train.txt", "ndcg_at_10", ("new", "@/gowalla")),
    "planted, lists": _sequences("planted_items"),
    "WN18RR": _graph("wn18rr", "knowledge_graph_large"),
}
LONG = ("Gowalla, lists", "planted, lists", "WN18RR")


def composed(each: PublicSet, data: Path, seed: int, scratch: Path, more: list[str]) -> Any:
    """The spec of the defaults for a set and a seed."""
    import embexp

    settings, config = [setting.replace("@", str(data)) for setting in each.settings], None
    if settings[0] == "new":
        config = scratch / "conf"
        command = [sys.executable, "-m", "embexp", *settings, "--name", "tried", "--out", str(config)]
        subprocess.run(command, check=True, capture_output=True)
        settings = ["experiment=tried"]
    if each.drawn:
        settings.append(f"data.split.seed={seed}")
    cache = f"output.cache={scratch / 'cache'}"
    return embexp.compose([*settings, f"seed={seed}", cache, *QUIET, *more], config_dir=config)


def measured(each: PublicSet, data: Path, seed: int, more: list[str]) -> dict[str, Any]:
    """The test metric of a run with its 95% interval, the metrics of its baselines, and the run's seconds.

    If the seed does not draw the split, baselines are only fitted for the first seed.
    """
    import embexp

    fitting = each.drawn or seed == 0
    if not fitting:
        more = ["output.baselines=false", *more]

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spec = composed(each, data, seed, scratch, more)
        began = time.perf_counter()
        run = embexp.run(spec, scratch / "run")
        found: dict[str, Any] = {"seconds": time.perf_counter() - began, "steps": run.summary["steps"]}
        fits = run.summary.get("baseline_fits", {}).values()
        found["seconds"] -= sum(fit["seconds"] for fit in fits)
        if each.metric == "spearman":
            pairs = [data / "word-pairs" / f"{name}.csv" for name in PAIRS]
            value = words.spearman(words.written(run.directory, scratch), pairs, scratch)
            theirs = {}
            if fitting:
                theirs = {"gensim": words.measured("gensim", 5, data / "texts" / "corpus.txt", pairs)["spearman"]}
            return found | {"embexp": value, "baselines": theirs}
        summary = run.summary
        found["embexp"] = summary["metrics"]["test"][each.metric]
        found["validation"] = summary["metrics"]["validation"][each.metric]
        found["interval"] = summary["evaluation"]["test"]["intervals"].get(each.metric)
        by_name = {name: splits["test"][each.metric] for name, splits in summary["baselines"].items()}
        if each.metric == "ndcg_at_10" and fitting:
            by_name |= als(spec, each.metric)
        if each.metric in ("accuracy", "auc"):
            by_name |= scikit_learn(spec, texts=each.metric == "accuracy")
        return found | {"baselines": by_name}


def als(spec: Any, metric: str) -> dict[str, float]:
    """The test metric of ALS with the best settings on the validation split; empty without `implicit`."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError:
        return {}
    from bench.recommendation import Split
    from embexp.fields.recommendation.evaluation import evaluate_lists
    from embexp.training import ranking

    split = Split(spec)
    some = split.held["validation"].some(USERS_TO_CHOOSE)

    def of(model: Any, held: Any) -> float:
        items = np.asarray(model.item_factors)
        scores = ranking.listed_by(ranking.products(np.asarray(model.user_factors)[held.users], items))
        lists = {"relevant": held.relevant, "unknown": held.unknown, "seen": held.seen, "cutoffs": (10, 20)}
        return float(evaluate_lists(scores, len(items), **lists)[metric])

    best: tuple[float, dict[str, Any], Any] = (-1.0, {}, None)
    for values in itertools.product(*ALS.values()):
        settings = dict(zip(ALS, values, strict=True))
        model = AlternatingLeastSquares(**settings, iterations=15, random_state=0)
        model.fit(split.train, show_progress=False)
        best = max(best, (of(model, some), settings, model), key=lambda each: each[0])
    print(f"ALS: {best[1]}, {best[0]:.4f} on validation", file=sys.stderr, flush=True)
    return {f"ALS {'/'.join(map(str, best[1].values()))}": of(best[2], split.held["test"])}


def scikit_learn(spec: Any, *, texts: bool) -> dict[str, float]:
    """The test accuracy of scikit-learn's best classifier on the validation split, or the AUC of its trees."""
    from scipy.sparse import csr_array
    from sklearn import ensemble, feature_extraction, linear_model, metrics, naive_bayes, svm

    from embexp.runs.prepare import read_data
    from embexp.system.parallel import quiet

    data = read_data(spec, quiet)
    examples, labels = data.scan.examples, data.scan.examples.labels
    assert labels is not None  # the label is a class
    train, validation, test = (np.asarray(data.scan.splits[name]) for name in ("train", "validation", "test"))
    if not texts:
        codes = [np.minimum(examples.column(name, np.arange(len(labels))), 254) for name in data.columns.id_columns]
        x = np.column_stack([*codes, examples.dense])
        trees = ensemble.HistGradientBoostingClassifier(categorical_features=range(len(codes)), random_state=0)
        trees.fit(x[train], labels[train])
        return {"trees": float(metrics.roc_auc_score(labels[test], trees.predict_proba(x[test])[:, 1]))}
    words = examples.lists["words"]
    counts = csr_array((np.ones(len(words.values)), words.values, words.splits), (len(labels), words.values.max() + 1))
    counts.sum_duplicates()
    tfidf = feature_extraction.text.TfidfTransformer(sublinear_tf=True).fit(counts[train]).transform(counts)
    tried = [(naive_bayes.MultinomialNB(alpha=alpha), counts > 0) for alpha in (0.1, 0.3, 1)]
    for strength in (0.1, 0.3, 1, 3, 10):
        tried.append((linear_model.LogisticRegression(C=strength, max_iter=1_000), tfidf))
        tried.append((svm.LinearSVC(C=strength / 3), tfidf))
    for model, x in tried:
        model.fit(x[train], labels[train])
    model, x = max(tried, key=lambda each: each[0].score(each[1][validation], labels[validation]))
    return {f"scikit-learn {model}": float(model.score(x[test], labels[test]))}


def row(name: str, found: list[dict[str, Any]]) -> tuple[str, bool]:
    """The line of the table for the runs of a set, and whether they are above their baselines."""
    metric, values = SETS[name].metric, [each["embexp"] for each in found]
    spread = f"{min(values):.4f} to {max(values):.4f}"
    if len(found) == 1 and found[0].get("interval"):
        spread = "{:.4f} to {:.4f}, 95%".format(*found[0]["interval"])
    baselines: dict[str, list[float]] = {}
    for each in found:
        for who, value in each["baselines"].items():
            baselines.setdefault(who.split(" ")[0], []).append(value)
    means = {who: float(np.mean(theirs)) for who, theirs in baselines.items()}
    sign = -1 if metric in LESS else 1
    above = all(sign * float(np.mean(values)) > sign * value for value in means.values())
    seconds = np.mean([each["seconds"] for each in found])
    shown = ", ".join(f"{who} {value:.4f}" for who, value in means.items())
    word = "above" if above else "BELOW"
    return f"| {name} | {metric} | {np.mean(values):.4f} | {spread} | {shown} | {seconds:.0f} | {word} |", above


def main(argv: list[str]) -> int:
    """Prints the table; returns 1 if a set is not above its baselines."""
    parser = argparse.ArgumentParser(prog="python -m bench.public_sets", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--set", action="append", default=[], help="an additional setting of the runs")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "OPENBLAS_NUM_THREADS": "1"}  # implicit asks for one BLAS thread
    warnings.filterwarnings("ignore")
    data = options.folder.resolve()
    if options.one is not None:
        print(json.dumps(measured(SETS[options.names[0]], data, options.one, options.set)))
        return 0
    described, tables, met = harness.introduce_in_a_line(), dict[str, Any](), True
    print(
        "| data | metric | embexp | lowest to highest | baselines | seconds | |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name, each in SETS.items():
        if not any(part in name for part in options.names) if options.names else name in LONG:
            continue
        if not (data / each.needed).exists():
            print(f"{name}: skipped, because {data / each.needed} does not exist", flush=True)
            continue
        further = [word for setting in options.set for word in ("--set", setting)]
        runs = [harness.figures("public_sets", data, name, "--one", seed, *further) for seed in range(options.seeds)]
        line, above = row(name, runs)
        tables[name], met = runs, met and above
        print(line, flush=True)
        harness.save(options, described, sets=tables)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

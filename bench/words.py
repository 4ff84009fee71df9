"""Skip-gram word vectors in embexp and gensim: processor seconds, and agreement with people's similarities.

    python -m bench.words [--quick] [--corpus FILE --pairs FILE…] [--json FILE]

Both read the same texts, one per line, with the same words, window, subsampling and negatives, in two threads and a new
process. embexp's time includes its imports and evaluations, and its cache is empty. gensim trains 5, 10 and 20 epochs,
and embexp one epoch of two draws of pairs. The benchmark looks for the fewest processor seconds in which gensim's mean
Spearman coefficient is no worse than embexp's. Without files, both read the texts that gensim ships, which are too
small for stable figures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

TARGET = 1.5
EPOCHS = {"gensim": (5, 10, 20), "embexp": (2,)}
_WORD = re.compile(r"\b\w\w+\b")


def measured(who: str, epochs: int, corpus: Path, pairs: list[Path]) -> dict[str, float]:
    """Processor seconds and seconds of a training, and the mean of Spearman's coefficients over the tests."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        file = _gensim(epochs, corpus, Path(folder)) if who == "gensim" else _embexp(epochs, corpus, Path(folder))
        seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        processor = used.ru_utime + used.ru_stime
        return {"processor": processor, "seconds": seconds, "spearman": spearman(file, pairs, Path(folder))}


def _gensim(epochs: int, corpus: Path, folder: Path) -> Path:
    from gensim.models import Word2Vec

    lines = corpus.read_text("utf-8", errors="replace").splitlines()
    texts = [_WORD.findall(line.lower()) for line in lines]
    model = Word2Vec(texts, vector_size=100, window=10, sg=1, negative=5, sample=3e-4, workers=2, epochs=epochs, seed=1)
    model.wv.save_word2vec_format(str(folder / "words.vec"))
    return folder / "words.vec"


def _embexp(epochs: int, corpus: Path, folder: Path) -> Path:
    import embexp

    quiet = [f"output.{name}=false" for name in ("plots", "tensorboard", "baselines", "digests")]
    settings = [
        "experiment=skipgram",
        f"data.path={corpus}",
        f"data.draws={epochs}",
        "train.epochs=1",
        "checkpoint.save=end",
    ]
    threads = ["strategy.intra_op_threads=2", f"output.cache={folder}/cache", *quiet]
    return written(embexp.run(embexp.compose([*settings, *threads]), folder / "run").directory, folder)


def written(directory: Path, folder: Path) -> Path:
    """Writes a run's word vectors into a folder, and returns the file."""
    import embexp

    run = embexp.load_run(directory)
    tokens, rows = run.vocabulary("word").tokens(), run.table("word")
    np.save(folder / "words.npy", rows)
    (folder / "words.tokens.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    return folder / "words.npy"


def spearman(file: Path, pairs: list[Path], folder: Path) -> float:
    """Spearman's coefficient with people's similarities, as a mean over files of pairs."""
    from embexp.vectors import quality
    from embexp.vectors.file_source import open_vectors

    source = open_vectors(file, cache=folder)
    assert source.tokens is not None
    lookup = quality.Lookup(source.tokens, rows=300_000)
    found = [quality.similarity(source, lookup, quality.read_pairs(each)) for each in pairs]
    return float(np.mean([each.spearman for each in found]))


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if the target is met, else 1."""
    parser = harness.parser("words", __doc__, quick="gensim with 5 epochs, embexp with one")
    parser.add_argument("--corpus", type=Path, help="texts, one per line (default: gensim's)")
    parser.add_argument("--pairs", type=Path, nargs="+", help="tests of similarity (default: gensim's WordSim-353)")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    corpus, pairs = options.corpus, options.pairs
    if corpus is None or pairs is None:
        from gensim.test.utils import datapath

        corpus, pairs = Path(datapath("lee_background.cor")), [Path(datapath("wordsim353.tsv"))]
    if options.measure:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        print(json.dumps(measured(options.measure[0], int(options.measure[1]), corpus, pairs)))
        return 0
    described, found = harness.introduce(), dict[str, dict[str, Any]]()
    for who, epochs in ({"gensim": (5,), "embexp": (1,)} if options.quick else EPOCHS).items():
        for each in epochs:
            words = ("--measure", who, each, "--corpus", corpus, "--pairs", *pairs)
            name = f"{who}, {each} {'epochs' if who == 'gensim' else 'draws'}"
            found[name] = harness.figures("words", *words)
            figures = "  ".join(f"{key} {value:.3f}" for key, value in found[name].items())
            print(f"{name:20} {figures}", flush=True)
    [ours] = [each for name, each in found.items() if name.startswith("embexp")]
    theirs = [each for name, each in found.items() if name.startswith("gensim")]
    as_good = [each["processor"] for each in theirs if each["spearman"] >= ours["spearman"]]
    ratio = ours["processor"] / min(as_good, default=max(each["processor"] for each in theirs))
    print(f"embexp / gensim at equal quality {ratio:.2f}  <= {TARGET} {harness.word(ratio <= TARGET)}")
    harness.save(options, described, found=found, ratio=ratio, target=TARGET)
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

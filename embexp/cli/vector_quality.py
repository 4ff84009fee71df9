"""What `embexp vectors evaluate` and `compare` measure, as JSON, as tables in the terminal, and as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from embexp.errors import DataError, plural
from embexp.system import terminal
from embexp.system.parallel import Progress
from embexp.system.printable import print
from embexp.vectors import comparison, quality, word_tests

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.system.arrays import Rows
    from embexp.vectors.comparison import Vectors


def evaluate(
    name: str,
    matrix: Rows,
    tokens: pa.Array | None,
    *,
    tests: Mapping[str, Sequence[str]],
    rows: int,
    any_case: bool,
    progress: Progress,
) -> dict[str, Any]:
    """Evaluates vectors by the tests in files.

    Args:
        name: of the vectors.
        tests: files by kind: `similarity`, `analogies`, `categories`.
        rows: so many of the first rows count.

    Returns:
        What `--json` prints.

    Raises:
        DataError: the vectors have no tokens; or a file is not of its form.
    """
    read = {
        "similarity": word_tests.read_pairs,
        "analogies": word_tests.read_analogies,
        "categories": word_tests.read_categories,
    }
    # All files are read before anything is computed.
    found: Any = {kind: [read[kind](Path(file)) for file in files] for kind, files in tests.items()}
    if tokens is None:
        raise DataError(
            f"{name}: found rows without tokens, expected a token for each row, by which the words of a test find their"
            " rows: name a file of tokens with --tokens, or put NAME.tokens.txt next to the file"
        )
    lookup = word_tests.Lookup(tokens, rows=rows, any_case=any_case)
    content: dict[str, Any] = {"vectors": name, "rows": matrix.rows, "dim": matrix.dim, "counted": len(lookup.keys)}
    content["similarity"] = [
        _similarity(test, quality.similarity(matrix, lookup, test)) for test in found["similarity"]
    ]
    content["analogies"] = [
        _analogies(test, quality.analogies(matrix, lookup, test, progress=progress), tokens)
        for test in found["analogies"]
    ]
    content["categories"] = [
        _categories(test, quality.categorisation(matrix, lookup, test)) for test in found["categories"]
    ]
    return content


def _similarity(test: word_tests.Pairs, found: quality.Similarity) -> dict[str, Any]:
    rows = zip(test.words, test.scores.tolist(), found.cosines.tolist(), strict=True)
    listed = [{"a": a, "b": b, "score": score, "cosine": cosine} for (a, b), score, cosine in rows]
    return {"file": str(test.path), **_plain(found), "each": listed}


def _analogies(test: word_tests.Analogies, found: quality.Answers, tokens: pa.Array) -> dict[str, Any]:
    add, mul = ([tokens[row].as_py() if row >= 0 else None for row in rows.tolist()] for rows in (found.add, found.mul))
    listed = [
        {"question": list(question), "section": test.sections[section], "3CosAdd": by_add, "3CosMul": by_mul}
        for question, section, by_add, by_mul in zip(test.questions, test.section, add, mul, strict=True)
    ]
    return {"file": str(test.path), "sections": [_plain(each) for each in found.sections], "each": listed}


def _categories(test: word_tests.Categories, found: quality.Categorisation) -> dict[str, Any]:
    rows = zip(test.words, test.categories, found.clusters.tolist(), strict=True)
    listed = [
        {"word": word, "category": category, "cluster": None if cluster < 0 else cluster}
        for word, category, cluster in rows
    ]
    return {"file": str(test.path), **_plain(found), "each": listed}


def _plain(found: Any) -> dict[str, Any]:
    """A data class as objects of JSON, without its arrays."""
    return {key: value for key, value in dataclasses.asdict(found).items() if not isinstance(value, np.ndarray)}


def compare(sets: Sequence[Vectors], *, count: int, sample: int, moved: int, progress: Progress) -> dict[str, Any]:
    """Compares sets of vectors.

    Returns:
        What `--json` prints: a `Comparison` (`embexp.vectors.comparison`), with percentiles 0 to 100 of the distances.
    """
    found = comparison.compare(sets, count=count, sample=sample, moved=moved, progress=progress)
    pairs = [
        _plain(pair) | {"distance_percentiles": np.percentile(pair.distances, range(101)).tolist()}
        for pair in found.pairs
    ]
    return _plain(found) | {"pairs": pairs}


def show_evaluation(content: Mapping[str, Any]) -> None:
    """Prints the figures of `evaluate`."""
    counted = f"; the first {content['counted']:,} count" if content["counted"] < content["rows"] else ""
    print(f"{content['vectors']}: {plural(content['rows'], 'row')} of dimension {content['dim']}{counted}\n")
    _print(
        {
            "similarity": Path(each["file"]).name,
            **_covered(each, "pairs"),
            "Spearman": _figure(each["spearman"]),
            "95% interval": _interval(each, "3f"),
            "p": _figure(each["p"], "2g"),
            "Pearson": _figure(each["pearson"]),
        }
        for each in content["similarity"]
    )
    for each in content["analogies"]:
        _print(
            {
                Path(each["file"]).name: section["name"],
                **_covered(section, "questions"),
                "3CosAdd": _figure((section["add"] or {}).get("share"), "1%"),
                "95% interval": _interval(section["add"]),
                "3CosMul": _figure((section["mul"] or {}).get("share"), "1%"),
                "its 95% interval": _interval(section["mul"]),
            }
            for section in each["sections"]
        )
    _print(
        {
            "categories": Path(each["file"]).name,
            **_covered(each, "words"),
            "clusters": str(each["categories"]),
            "purity": _figure(each["purity"]),
            "over ten starts": _interval(each, "3f"),
            "by chance": _figure(each["chance"]),
        }
        for each in content["categories"]
    )
    without = [each for each in content["similarity"] if each["spearman"] is None]
    without += [each for each in content["analogies"] if each["sections"][-1]["add"] is None]
    for each in [*without, *(each for each in content["categories"] if each["purity"] is None)]:
        print(f"{each['file']}: too few of its words have a row; --json lists them")


def _covered(each: Mapping[str, Any], of: str) -> dict[str, str]:
    return {of: f"{each[of]:,}", "covered": f"{each['covered'] / each[of]:.1%}"}


def show_comparison(content: Mapping[str, Any]) -> None:
    """Prints the figures of `compare`."""
    shared, count, dropped = content["shared"], content["count"], content["without_direction"]
    zeros = f", besides {plural(dropped, 'token')} with a row of zeros" if dropped else ""
    sampled = "all" if content["sampled"] == shared else f"{content['sampled']:,}"
    labels = [chr(ord("a") + place) if place < 26 else str(place + 1) for place in range(len(content["shapes"]))]
    for label, each in zip(labels, content["shapes"], strict=True):
        print(f"{label}  {each['name']}")
    print(f"\n{plural(shared, 'shared token')}{zeros}; the {count} nearest of {sampled} are compared\n")
    _print(
        {
            "": label,
            "rows": f"{each['rows']:,}",
            "dim": str(each["dim"]),
            "mean norm": f"{each['mean_norm']:.4g}",
            "norm by rank": _figure(each["norm_by_rank"], "3f"),
            "mean cosine": f"{each['mean_cosine']:.3f}",
            "effective dim": f"{each['effective_dim']:.1f}",
            "first component": f"{each['first_share']:.1%}",
        }
        for label, each in zip(labels, content["shapes"], strict=True)
    )
    _print(
        {
            "": f"{a}, {b}",
            "overlap": f"{each['overlap']['mean']:.1%}",
            "95% interval": _interval(each["overlap"]),
            "Jaccard": f"{each['jaccard']:.3f}",
            "CKA": f"{each['cka']:.3f}",
            "distance": f"{each['distance']:.3f}",
            "without turning": _figure(each["unaligned"], "3f"),
        }
        for (a, b), each in zip(combinations(labels, 2), content["pairs"], strict=True)
    )
    print(f"overlap of unrelated vectors: {content['chance']:.2%}")
    if (stability := content["stability"]) is not None:
        print(
            f"stability: {stability['mean']:.1%} of the neighbors are shared by two of the"
            f" {plural(len(content['shapes']), 'set')}, 95% interval {_interval(stability)}"
        )
        return
    (pair,) = content["pairs"]
    print()
    _print(
        {
            "rows of a": f"{band['first']:,} to {band['last']:,}",
            "tokens": f"{band['tokens']:,}",
            **{f"norm in {name}": f"{norm:.4g}" for name, norm in zip("ab", band["norms"], strict=True)},
            "distance": f"{band['distance']:.3f}",
            "overlap": _figure(band["overlap"], "1%"),
        }
        for band in pair["bands"]
    )
    for words, moved in (("moved most", pair["most"]), ("moved least", pair["least"])):
        if moved:
            listed = (f"{each['token']} {each['distance']:.3f}" for each in moved)
            print(f"{words}: {', '.join(listed)}")


def _figure(value: float | None, form: str = "4f") -> str:
    return "" if value is None else f"{value:.{form}}"


def _interval(each: Mapping[str, Any] | None, form: str = "1%") -> str:
    return "" if each is None or each["low"] is None else f"{each['low']:.{form}} to {each['high']:.{form}}"


def _print(rows: Iterable[Mapping[str, str]]) -> None:
    """Prints rows of a table, if there are any, with an empty line after it where it has no frame."""
    if listed := list(rows):
        console = terminal.console()
        first, *others = listed[0]
        table = terminal.table(console, [first], right=others)
        for row in listed:
            table.add_row(*map(Text, row.values()))
        console.print(table)
        if not console.is_terminal:
            print()

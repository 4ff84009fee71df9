"""What `embexp vectors evaluate` and `compare` measure, as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.text import Text

from embexp.errors import plural
from embexp.system import terminal
from embexp.system.printable import print


def show_evaluation(content: Mapping[str, Any]) -> None:
    """Prints the figures of `embexp.vectors.quality.evaluate`."""
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
    """Prints the figures of `embexp.vectors.comparison.as_json`."""
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

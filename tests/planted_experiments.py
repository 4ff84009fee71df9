"""Every shipped experiment on three data sets with a planted truth, at its defaults but for names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import planted_data

Make = Callable[[Path], list[str]]


def ratings(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        file = planted_data.ratings(folder / "ratings.csv", **form)
        return ["experiment=ratings", f"data.path={file}", "data.label=rating"]

    return make


def clicks(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        file = planted_data.clicks(folder / "clicks.csv", **form)
        return ["experiment=clicks", "data=csv", f"data.path={file}", "data.label=click", "data.list_columns=[history]"]

    return make


def texts(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        return ["experiment=text_classification", "data=text", f"data.path={planted_data.texts(folder / 't', **form)}"]

    return make


def corpus(**form: Any) -> Make:
    return lambda folder: ["experiment=skipgram", f"data.path={planted_data.corpus(folder / 'lines', **form)}"]


def films(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        lines = planted_data.ratings(folder / "ratings.csv", **form).read_text().splitlines()[1:]
        # RecBole's form, with a time.
        rows = ("\t".join([*line.split(","), str(time)]) + "\n" for time, line in enumerate(lines))
        head = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
        (folder / "films").mkdir()
        (folder / "films" / "films.inter").write_text(head + "".join(rows))
        return ["experiment=movielens", f"data.path={folder / 'films'}"]

    return make


def liked(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        file = planted_data.liked(folder / "liked.csv", **form)
        return ["experiment=recommendation", f"data.path={file}", "data.timestamp=time"]

    return make


def graph(**form: Any) -> Make:
    return lambda folder: ["experiment=knowledge_graph", f"data.path={planted_data.graph(folder / 'graph', **form)}"]


CASES = {
    "0 to 100 points": ratings(examples=4000, users=60, items=40, scale=(0, 100), step=1, seed=0),
    "eight items": ratings(examples=6000, users=500, items=8, scale=(1, 10), step=1, seed=1),
    "five stars": ratings(examples=20000, users=2000, items=400, scale=(1, 5), step=1, seed=2),
    "few films": films(examples=8000, users=150, items=80, scale=(1, 5), step=1, seed=3),
    "many films": films(examples=40000, users=800, items=600, scale=(1, 5), step=0.5, seed=4),
    "films that are rarely rated": films(examples=30000, users=3000, items=1000, scale=(1, 5), step=1, seed=5),
    "clicks of a half": clicks(examples=10000, users=100, items=100, rate=0.5, seed=0),
    "clicks of a tenth": clicks(examples=50000, users=1000, items=200, rate=0.1, seed=1),
    "clicks of a hundredth": clicks(examples=100000, users=1000, items=300, rate=0.01, seed=2),
    "two classes": texts(examples=1000, classes=2, words=1000, length=12, share=0.2, seed=0),
    "twenty classes": texts(examples=4000, classes=20, words=8000, length=40, share=0.15, seed=1),
    "short texts": texts(examples=5000, classes=3, words=3000, length=5, share=0.3, seed=2),
    "few sentences": corpus(sentences=1000, topics=5, words=300, length=12, seed=0),
    "many sentences": corpus(sentences=6000, topics=20, words=2000, length=14, seed=1),
    "rare words": corpus(sentences=6000, topics=60, words=6000, length=10, seed=2),
    "a small graph": graph(entities=60, groups=6, triples=1500, seed=0),
    "a graph of few triples": graph(entities=150, groups=10, triples=1500, seed=1),
    "a graph of many triples": graph(entities=100, groups=4, triples=4000, seed=2),
    "few liked items": liked(users=300, items=60, groups=4, each=12, seed=0),
    "many liked items": liked(users=1000, items=500, groups=10, each=15, seed=1),
    "short histories": liked(users=2000, items=300, groups=6, each=5, seed=2),
}
"""By name: overrides for data that is made in a folder."""

"""Graphs in one file, in CSV and in N-Triples: read as written, and divided so that train has every name."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import operator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.cli import commands
from embexp.data.columns import Columns
from embexp.data.scan import Scan, encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError, DataError
from embexp.fields.graphs import triples as ntriples
from embexp.fields.graphs.queries import Lines, divided
from embexp.fields.graphs.specs import GraphSplit, Triples
from embexp.fields.graphs.triples import files_of, lines_of

COLUMNS = Columns(ids={"source": "entity", "relation": "relation", "candidates": "entity"}, label="answer")
PEOPLE = [f"p{number}" for number in range(12)]
GRAPH = [
    (a, "knows" if (n + m) % 3 else "likes", b) for n, a in enumerate(PEOPLE) for m, b in enumerate(PEOPLE) if n < m
]
Triple = tuple[str, str, str]


def text(triples: list[Triple], mark: str = "\t") -> str:
    return "".join(f"{mark.join(triple)}\n" for triple in triples)


def scanned(path: Path, cache: Path, **settings: object) -> Scan:
    return scan(Triples(path=str(path), **settings), COLUMNS, cache=cache)  # type: ignore[arg-type]


def triples_of(found: Scan, split: str) -> list[Triple]:
    """Of the tail queries of a split."""
    entities, relations = (found.vocabularies[name].tokens() for name in ("entity", "relation"))
    rows = found.splits[split][::2]
    assert found.examples.labels is not None
    heads, kinds = (found.examples.column(name, rows) for name in ("source", "relation"))
    tails = found.examples.labels[rows].astype(int)
    return [(entities[h], relations[r], entities[t]) for h, r, t in zip(heads, kinds, tails, strict=True)]


names = st.integers(0, 6)
graphs = st.lists(st.tuples(names, st.integers(7, 9), names), min_size=1, max_size=60)
splits = st.builds(GraphSplit, validation=st.sampled_from([0.0, 0.1, 0.4]), test=st.sampled_from([0.1, 0.5]))


@given(graphs, splits)
def test_train_has_every_name(graph: list[tuple[int, int, int]], split: GraphSplit) -> None:
    lines = Lines({Path("g.tsv"): len(graph)}, np.array(graph, np.int32), [str(name) for name in range(10)])
    try:
        found = divided(lines, (0, 1, 2), split)
    except DataError:
        return
    counts = list(found.files.values())
    assert sorted(map(tuple, found.fields.tolist())) == sorted(graph)
    train, validation, test = (
        list(map(tuple, part.tolist())) for part in np.split(found.fields, np.cumsum(counts)[:-1])
    )
    assert {name for h, _, t in train for name in (h, t)} == {name for h, _, t in graph for name in (h, t)}
    assert {r for _, r, _ in train} == {r for _, r, _ in graph}
    assert not {*train} & {*validation, *test}
    assert not {*validation} & {*test}
    assert len(validation) <= max(1, round(split.validation * len(graph)))
    assert len(test) <= max(1, round(split.test * len(graph)))
    assert bool(validation) == bool(split.validation)
    again = divided(lines, (0, 1, 2), split)
    np.testing.assert_array_equal(again.fields, found.fields)
    assert again.files == found.files


def test_a_large_graph_gives_all_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text(text(GRAPH))
    found = scanned(tmp_path / "g.tsv", tmp_path / "cache")
    parts = {name: triples_of(found, name) for name in ("train", "validation", "test")}
    assert [len(part) for part in parts.values()] == [52, 7, 7]
    assert sorted(functools.reduce(operator.iadd, parts.values(), [])) == sorted(GRAPH)
    same = scanned(tmp_path / "g.tsv", tmp_path / "other cache")
    other = scanned(tmp_path / "g.tsv", tmp_path / "cache", split={"seed": 1})
    assert triples_of(same, "test") == parts["test"]
    assert triples_of(other, "test") != parts["test"]
    assert found.overlap == {}


def test_a_graph_without_a_spare_triple_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    with pytest.raises(DataError, match=r"no triple for validation.*data\.split\.validation=0"):
        scanned(tmp_path / "g.tsv", tmp_path / "cache")
    found = scanned(tmp_path / "g.tsv", tmp_path / "cache", split={"validation": 0.0, "test": 0.0})
    assert len(found.splits["train"]) == 4


def test_the_answer_itself_is_no_leak(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text(text([(a, f"r{n}", b) for a in PEOPLE for n in range(6) for b in PEOPLE if a != b]))
    assert scanned(tmp_path / "g.tsv", tmp_path / "cache").leaks == ()


@pytest.mark.parametrize("split", [False, True])
def test_a_header_line_of_other_names_is_refused(tmp_path: Path, *, split: bool) -> None:
    """It would be a triple of three entities that nothing else knows."""
    path = tmp_path / "graph"
    path.mkdir()
    files = ("train", "valid", "test") if split else ("g",)
    for name, part in zip(files, (GRAPH[:46], GRAPH[46:56], GRAPH[56:]), strict=False):
        (path / f"{name}.csv").write_text("person,bond,other\n" + text(part, ","))
    path = path if split else path / "g.csv"
    for columns in (None, ("head", "relation", "tail")):
        with pytest.raises(DataError, match=r"found 'person', 'bond', 'other' only in the first line.*header"):
            scanned(path, tmp_path / "cache", columns=columns)


quoted = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1, max_size=5)


@given(st.lists(st.tuples(quoted, quoted, quoted), min_size=1, max_size=6), st.sampled_from(",;|"))
def test_csv_is_read_as_python_reads_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Triple], mark: str
) -> None:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=mark, lineterminator="\n")
    writer.writerows([("tail", "no", "Relation", "HEAD"), *((t, "x", r, h) for h, r, t in rows)])
    path = tmp_path_factory.getbasetemp() / "graph.csv"
    path.write_text(file.getvalue(), "utf-8", newline="")
    assert [tuple(fields) for fields, _ in lines_of(path)] == rows
    assert sum(size for _, size in lines_of(path)) <= path.stat().st_size


def test_a_folder_of_csv_is_a_given_split(tmp_path: Path) -> None:
    for name, some in (("train", GRAPH[:50]), ("valid", GRAPH[50:60]), ("test", GRAPH[60:])):
        (tmp_path / f"{name}.csv").write_text("relation,head,tail\n" + text([(r, h, t) for h, r, t in some], ","))
    found = scanned(tmp_path, tmp_path / "cache")
    assert triples_of(found, "train") == GRAPH[:50]
    assert triples_of(found, "test") == GRAPH[60:]
    (tmp_path / "more.csv").write_text("head,relation,tail\np1,likes,p2\n")
    other = encode_file(
        tmp_path / "more.csv", Triples(path=str(tmp_path)), COLUMNS, found.vocabularies, cache=tmp_path / "cache"
    )
    entities = found.vocabularies["entity"].tokens()
    assert [entities[row] for row in other.column("source")] == ["p1", "p2"]


def test_files_agree_on_whether_they_say_what_fields_are(tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.csv").write_text("head,relation,tail\na,r,b\n" if name == "train" else "a,r,b\n")
    with pytest.raises(ConfigError, match=r"train.csv says .*, but valid.csv does not"):
        files_of(tmp_path)


def test_settings_that_do_not_fit_the_files(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("head,relation,tail\n" + text(GRAPH, ","))
    one = Triples(path=str(tmp_path / "g.csv"), columns=("head", "relation", "tail"))
    assert [fault.path for fault in source_of(one).head_faults(COLUMNS)] == ["data.columns"]
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.tsv").write_text(text(GRAPH))
    folder = Triples(path=str(tmp_path), split={"seed": 1})
    assert [fault.path for fault in source_of(folder).head_faults(COLUMNS)] == ["data.split"]
    (tmp_path / "g.ttl").write_text("")
    [fault] = source_of(Triples(path=str(tmp_path / "g.ttl"))).head_faults(COLUMNS)
    assert "N-Triples" in fault.remedy
    assert "split" not in Triples(path="a").model_dump(mode="json")


# https://www.w3.org/2013/N-TriplesTests/ has these lines, or the like, as what must be read and what must not.
GOOD = {
    "<http://example/s> <http://example/p> <http://example/o> .": ("http://example/s", "http://example/p", "http://example/o"),
    r"<http://example/\u0053> <http://example/p> <http://example/o> .": ("http://example/S", "http://example/p", "http://example/o"),
    "_:a  <http://example/p>\t_:b1 .  # comment": ("_:a", "http://example/p", "_:b1"),
    "_:1a<http://example/p>_:a.b.": ("_:1a", "http://example/p", "_:a.b"),
    '<http://example/s><http://example/p>"Alice".': ("http://example/s", "http://example/p", '"Alice"'),
    r'<s:a> <p:a> "x\ty\n\"\\\u00e9" .': ("s:a", "p:a", '"x\ty\n"\\\u00e9"'),
    r'<s:a> <p:a> "\U0001F600"@en-UK .': ("s:a", "p:a", '"\U0001f600"@en-UK'),
    '<s:a> <p:a> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .': (
        "s:a", "p:a", '"1"^^http://www.w3.org/2001/XMLSchema#integer'
    ),
    "<s:a> <p:a> \"It's a # . text\" .": ("s:a", "p:a", "\"It's a # . text\""),
}  # fmt: skip
BAD = [
    "<http://example/ space> <p:a> <o:a> .",
    r"<http://example/\u00ZZ11> <p:a> <o:a> .",
    r"<http://example/\n> <p:a> <o:a> .",
    "<s:a> _:b <o:a> .",
    '"s" <p:a> <o:a> .',
    "<s:a> <p:a> <o:a>",
    '<s:a> <p:a> "x" @en .',
    '<s:a> <p:a> "x"@1 .',
    r'<s:a> <p:a> "\z" .',
    "<s:a> <p:a> 'x' .",
    "<s:a> <p:a> 1 .",
    '<s:a> <p:a> "a" , "b" .',
    r'<s:a> <p:a> "\ud800" .',
    "@prefix a: <b> .",
]


@pytest.mark.parametrize("line", GOOD)
def test_n_triples(line: str) -> None:
    assert ntriples.triple_of(line) == list(GOOD[line])


@pytest.mark.parametrize("line", BAD)
def test_what_is_no_n_triple(line: str) -> None:
    assert ntriples.triple_of(line) is None
    assert not ntriples.is_nothing(line)


def test_a_long_line_is_read_once() -> None:
    for line in (
        "<" + "a" * 1_000_000,
        '<s:a> <p:a> "' + "\\\\" * 500_000,
        "_:" + "a." * 500_000,
        " " * 1_000_000 + "x",
    ):
        assert ntriples.triple_of(line) is None


@pytest.mark.parametrize("suffix", [".nt", ".nt.gz", ".txt"])
def test_a_file_of_n_triples(tmp_path: Path, suffix: str) -> None:
    lines = "".join(f"<e:{h}> <r:{r}> <e:{t}> .\n" for h, r, t in GRAPH)
    content = f"# a graph\n\n{lines}   # the end\n".encode()
    path = tmp_path / f"g{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    found = scanned(path, tmp_path / "cache")
    parts = functools.reduce(operator.iadd, (triples_of(found, name) for name in ("train", "validation", "test")), [])
    assert sorted(parts) == sorted((f"e:{h}", f"r:{r}", f"e:{t}") for h, r, t in GRAPH)
    path = tmp_path / "bad.nt"
    path.write_bytes(content + b"<a> <b> .\n")
    with pytest.raises(DataError, match=rf"line {len(GRAPH) + 4}: found '<a> <b> \.', expected a triple"):
        scanned(path, tmp_path / "cache")


@pytest.mark.parametrize("name", ["g.tsv", "g.csv", "g.nt"])
def test_new_recognises_a_graph_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    content = {
        "g.tsv": text(GRAPH),
        "g.csv": "subject,predicate,object\n" + text(GRAPH, ","),
        "g.nt": "".join(f"<e:{h}> <r:{r}> <e:{t}> .\n" for h, r, t in GRAPH),
    }[name]
    (tmp_path / name).write_text(content)
    assert commands.main(["new", str(tmp_path / name), "--out", str(tmp_path / "mine")]) == 0
    assert "66 triples of 12 entities and 2 relations" in capsys.readouterr().out
    yaml = (tmp_path / "mine/experiment/g.yaml").read_text()
    assert str(tmp_path / name) in yaml


def test_new_takes_no_ratings_for_a_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(a, b, str(n % 5)) for n, (a, _, b) in enumerate(GRAPH)]
    (tmp_path / "r.tsv").write_text(text(rows))
    assert commands.main(["new", str(tmp_path / "r.tsv"), "--out", str(tmp_path / "mine")]) == 2
    assert "triples" not in capsys.readouterr().out

from __future__ import annotations

from embexp.specs.base import merged, summarize_names


def test_the_first_are_named_and_the_rest_are_counted() -> None:
    names = [f"t{number}" for number in range(26)]
    assert summarize_names(names[:1]) == "t0"
    assert summarize_names(names[:2]) == "t0, t1"
    assert summarize_names(names[:4]) == "t0, t1, t2, t3"
    assert summarize_names(names[:5]) == "t0, t1, t2 and 2 more"
    assert summarize_names(names, "tables") == "t0, t1, t2 and 23 more tables"


def test_lines_that_say_the_same_of_several_tables_are_one() -> None:
    lines = [f"tables.t{number}: it costs: a lot" for number in range(26)]
    assert merged(["first", *lines, "last"]) == [
        "first",
        "tables.t0, tables.t1, tables.t2 and 23 more: it costs: a lot",
        "last",
    ]
    lines = ["no effect: tables.a.optimizer: frozen", "features.b: odd", "no effect: tables.c.optimizer: frozen"]
    assert merged(lines) == ["no effect: tables.a.optimizer, tables.c.optimizer: frozen", "features.b: odd"]
    assert merged(["tables.a: x", "tables.a: x", "tables.a: y"]) == ["tables.a: x", "tables.a: y"]
    assert merged(["validation: no auc, as tables: 5", ""]) == ["validation: no auc, as tables: 5", ""]

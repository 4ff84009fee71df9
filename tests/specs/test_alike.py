from __future__ import annotations

from embexp.specs.base import Note, after, merged, summarize_names


def test_the_first_are_named_and_the_rest_are_counted() -> None:
    names = [f"t{number}" for number in range(26)]
    assert summarize_names(names[:1]) == "t0"
    assert summarize_names(names[:2]) == "t0, t1"
    assert summarize_names(names[:4]) == "t0, t1, t2, t3"
    assert summarize_names(names[:5]) == "t0, t1, t2 and 2 more"
    assert summarize_names(names, "tables") == "t0, t1, t2 and 23 more tables"


def test_notes_that_say_the_same_of_several_tables_are_one() -> None:
    notes = [Note(f"tables.t{number}", "it costs: a lot") for number in range(26)]
    assert notes[0] == "tables.t0: it costs: a lot"
    assert merged(["first", *notes, "last", "first"]) == [
        "first",
        "tables.t0, tables.t1, tables.t2 and 23 more: it costs: a lot",
        "last",
    ]
    lines = list(after("no effect: ", [Note("tables.a.optimizer", "frozen"), Note("tables.c.optimizer", "frozen")]))
    assert merged([lines[0], "features.b: odd", lines[1]]) == [
        "no effect: tables.a.optimizer, tables.c.optimizer: frozen",
        "features.b: odd",
    ]
    notes = [Note("tables.a", "x"), Note("tables.a", "x"), Note("tables.a", "y"), Note("tables.b", "x", "warning: ")]
    assert merged(notes) == ["tables.a: x", "tables.a: y", "warning: tables.b: x"]

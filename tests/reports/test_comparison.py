"""How a comparison reads: as text, as HTML, as JSON and as data of the page."""

from __future__ import annotations

import json
import math

import pytest

from embexp.reports.comparison import Comparison, Contender, MetricCompared, Pair, RowCompared, as_text
from embexp.specs.tasks import Direction


def example() -> Comparison:
    """Two pairs of three models; a name and a token that would be markup."""
    models = (
        Contender("A", "outputs/a", {"[null, 0]": "outputs/a"}),
        Contender("B", "outputs/<b>", {"[null, 0]": "outputs/b/0", "[3, 1]": "outputs/b/1"}),
        Contender("C", "outputs/c", {"[null, 0]": "outputs/c"}),
    )
    first = (
        MetricCompared("auc", Direction.HIGHER, 0.75, 0.7562, (0.001, 0.0114), 0.02, "DeLong", 0.04, 900, "users", 450),
        MetricCompared("rmse", Direction.LOWER, 0.9, 0.9, (0.0, 0.0), 1.0, "bootstrap", 1.0, 900, "users"),
        MetricCompared("coverage", None, 0.25, 0.5),
    )
    rows = (RowCompared(7, {"user": "<u1>"}, "1", "0.2", "0.9"), RowCompared(9, {}, "", "0.1", "0.2"))
    pair = Pair("A", "B", first, 1, 12, 900, "users", "prediction", rows)
    return Comparison(
        models, (pair, Pair("A", "C", first[:1])), "the test split: 900 users", "0123456789abcdef", ("note",)
    )


def test_as_text() -> None:
    assert str(example()).splitlines() == [
        "A  outputs/a",
        "B  outputs/<b> (2 runs)",
        "C  outputs/c",
        "on the test split: 900 users, digest 01234567",
        "",
        "B − A          A       B  difference        95% interval  p (Holm)  test       B is      for 80% power",
        "auc       0.7500  0.7562     +0.0062  +0.0010 to +0.0114     0.040  DeLong     better        450 users",
        "rmse      0.9000  0.9000           0              0 to 0     1.000  bootstrap  the same               ",
        "coverage  0.2500  0.5000     +0.2500                                                                  ",
        "",
        "prediction: 12 of 900 users differ; the most different:",
        "example  user  label  prediction of A  of B",
        "      7  <u1>  1                  0.2   0.9",
        "      9                           0.1   0.2",
        "",
        "",
        "C − A       A       C  difference        95% interval  p (Holm)  test    C is    for 80% power",
        "auc    0.7500  0.7562     +0.0062  +0.0010 to +0.0114     0.040  DeLong  better      450 users",
        "",
        "note",
    ]


@pytest.mark.parametrize(
    ("direction", "difference", "p", "verdict"),
    [
        (Direction.HIGHER, 0.1, 0.01, "better"),
        (Direction.LOWER, 0.1, 0.01, "worse"),
        (Direction.LOWER, -0.1, 0.01, "better"),
        (None, -0.1, 0.01, "lower"),
        (Direction.HIGHER, 0.1, 0.05, "undecided"),
        (Direction.HIGHER, 0.0, 1.0, "the same"),
        (Direction.HIGHER, 0.1, None, ""),
    ],
)
def test_verdicts(direction: Direction | None, difference: float, p: float | None, verdict: str) -> None:
    assert MetricCompared("auc", direction, 0.5, 0.5 + difference, p=p).verdict == verdict
    if p is not None and p < 0.05:
        assert MetricCompared("auc", direction, 0.5, 0.5 + difference, p=p, adjusted=0.06).verdict == "undecided"


def test_small_and_large_differences_have_digits() -> None:
    metrics = (
        MetricCompared("small", None, 0.5, 0.500003, (1e-6, 5e-6)),
        MetricCompared("large", None, 2000.0, 1876.5, (-200.25, -40.0)),
        MetricCompared("broken", None, 0.5, math.inf),
    )
    columns = {column.heading: column.cells for column in Pair("A", "B", metrics).table()}
    assert columns["difference"] == ("+3e-06", "-123.5000", "+inf")
    assert columns["95% interval"] == ("+1e-06 to +5e-06", "-200.2500 to -40.0000", "")


def test_for_programs_and_notebooks() -> None:
    content = json.loads(as_text(example()))
    assert [each["letter"] for each in content["models"]] == ["A", "B", "C"]
    assert content["models"][1]["runs"][1] == {"data.fold": 3, "seed": 1, "directory": "outputs/b/1"}
    auc, *_ = content["pairs"][0]["metrics"]
    assert (auc["direction"], auc["verdict"], auc["interval"]) == ("higher", "better", [0.001, 0.0114])
    assert content["pairs"][0]["most_different"][0]["named"] == {"user": "<u1>"}
    html = example()._repr_html_()
    assert "&lt;u1&gt;" in html
    assert "<u1>" not in html
    page = example().for_page()
    assert page["pairs"][0]["differences"][0] == [pytest.approx(0.0062), 0.001, 0.0114, "better", "auc"]
    assert page["pairs"][1]["tables"][1] is None

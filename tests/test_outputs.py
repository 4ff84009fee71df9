"""What a page shows of an output is compared with what is printed: each rule has cases that hold and that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import outputs
from tests.outputs import Block, Ran

PRINTED = """\
drawing clicks
drawing clicks 40%, 0:07 left
step 10 of 20, loss 0.6931, 82.1 k examples/s
step 20 of 20, loss 0.6261, 308 k examples/s

  metric    train  validation    test
  log_loss  0.626      0.6478  0.6577
  auc                  0.6485  0.6311

job  optimizer  seconds  rows      MB
  0  sgd           19.1   600  0.0320
  1  adam           3.4   500  0.0644

results in /tmp/pytest-0/work/outputs with digest dd9cbb822704c527
"""


def ran(printed: str = PRINTED, *, as_shown: bool = True, replaced: tuple[str, ...] = ()) -> Ran:
    """A block that printed something."""
    return Ran(Block("sh", {}, "embexp run\n"), None, output=printed, as_shown=as_shown, replaced=frozenset(replaced))


METRICS = "…\n  metric    train  validation    test\n  log_loss  0.626      0.6478  0.6577\n…\n"
JOBS = "…\njob  optimizer  seconds  rows      MB\n  0  sgd           19.1   600  0.0320\n"


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        pytest.param(PRINTED, None, id="itself"),
        pytest.param(METRICS, None, id="a part"),
        pytest.param(METRICS.replace("0.6577", "0.66"), None, id="rounded"),
        pytest.param(METRICS.replace("0.6577", "0.5577"), "0.5577", id="another number"),
        pytest.param(METRICS.replace("0.6577", "0.6477 !"), "!", id="another word"),
        pytest.param(METRICS.replace("  log_loss", " log_loss"), None, id="another width"),
        pytest.param(METRICS.replace("…\n  m", "  m"), "metric", id="not the beginning"),
        pytest.param(METRICS.removesuffix("…\n"), "below", id="not the end"),
        pytest.param(METRICS.replace("…\n  m", "…\n  auc  0.6485  0.6311\n…\n  m"), "metric", id="another order"),
        pytest.param(JOBS.replace("19.1", "54.2") + "…\n", None, id="a column of seconds"),
        pytest.param(JOBS.replace("0.0320", "0.0301") + "…\n", "0.0301", id="not a column of seconds"),
        pytest.param(JOBS.replace("600", "300") + "…\n", "300", id="a column of rows"),
        pytest.param(JOBS + "\nresults in ~/films/o with digest aa9cbb8227\n", "results", id="a line left out"),
        pytest.param("…\nresults in ~/films/o with digest aa9cbb8227\n", None, id="an id and a folder"),
        pytest.param(f"step 20 of 20, loss 0.6261, 1,001 examples/s\n{METRICS}", None, id="the last step, a rate"),
        pytest.param(f"step 20 of 20, loss 0.4, 1,001 examples/s\n{METRICS}", "0.4", id="the loss of the last step"),
    ],
)
def test_a_run_as_it_is_shown_prints_what_is_shown(shown: str, found: str | None) -> None:
    absent = outputs.absent(shown.replace("step 20 of", "drawing clicks\nstep 20 of", shown != PRINTED), ran())
    assert (absent is None) if found is None else (absent is not None and found in absent.text)


@pytest.mark.parametrize(
    ("shown", "replaced", "found"),
    [
        pytest.param(METRICS.replace("0.6577", "0.12"), (), None, id="another number"),
        pytest.param(METRICS.replace("…\n  log", "  accuracy  0.5\n…\n  log"), (), None, id="a line left out"),
        pytest.param(
            "job  optimizer  seconds  rows      MB\n  0  ftrl  1  2  3 \n", ("ftrl", "adam"), None, id="another value"
        ),
        pytest.param(
            "job  optimizer  seconds  rows      MB\n  0  ftrl  1  2  3 \n", (), "ftrl", id="a value that stays"
        ),
        pytest.param(JOBS + "  1  sgd  2  2 2\n" * 9, (), None, id="more jobs"),
        pytest.param("…\nauc  0.5  0.5\nmetric train validation test\n", (), "metric", id="another order"),
    ],
)
def test_a_smaller_run_prints_such_lines(shown: str, replaced: tuple[str, ...], found: str | None) -> None:
    absent = outputs.absent(f"…\n{shown}…\n", ran(as_shown=False, replaced=replaced))
    assert (absent is None) if found is None else (absent is not None and found in absent.text)


def test_a_size_may_be_given_in_another_unit() -> None:
    assert outputs.absent("it has 0.064 MB\n", ran("it has 64 kB\n")) is None
    assert outputs.absent("it has 64 MB\n", ran("it has 64 kB\n")) is not None


@pytest.mark.parametrize(
    ("which", "shown"),
    [
        (
            "2",
            "…\n" + PRINTED[PRINTED.index("  metric") : PRINTED.index("\n\njob")] + "\n…\n",
        ),
        ("-1", "…\nresults in /tmp/pytest-0/work/outputs with digest dd9cbb822704c527\n"),
        ("-2..-1", "…\n" + PRINTED[PRINTED.index("job ") :]),
        ("all", PRINTED),
    ],
)
def test_paragraphs_of_an_output_are_shown(which: str, shown: str) -> None:
    assert outputs.selected(PRINTED, which) == shown


def test_of_many_lines_the_first_and_last_are_shown() -> None:
    shown = outputs.selected("".join(f"line {n}\n" for n in range(40)), "all").splitlines()
    assert shown == [*(f"line {n}" for n in range(10)), "…", *(f"line {n}" for n in range(36, 40))]
    with pytest.raises(ValueError, match="output=3: the output has 2 paragraphs"):
        outputs.selected("one\n\ntwo\n", "3")


PAGE = """\
```csv file=some.csv
a,b
```
```sh with=x=1
cat some.csv
pwd; echo failed >&2; exit 2
```
text
```sh
echo one; echo; echo 12
```

```text output=2
```
```sh
echo 100
```
```text output=all
101
```
"""


def test_the_outputs_of_a_page_are_written(tmp_path: Path) -> None:
    done = list(outputs.run(PAGE, tmp_path, tmp_path, tmp_path / "cache", full=True))
    assert [each.output.split() for each in done] == [["a,b", "~/work", "failed"], ["one", "12"], ["100"]]
    assert [each.status for each in done] == [2, 0, 0]
    written = outputs.refreshed(PAGE, done)
    assert written == PAGE.replace("output=2\n", "output=2\n…\n12\n")
    assert (
        outputs.fault("one\n", done[2]) == "below the block\necho 100\nthe page shows\none\nbut these are printed:\n100"
    )


def test_commands_without_their_output_are_found() -> None:
    page = "```sh {}\na\n```\n\n{}\n\n```python\n{}\n```\n"
    assert outputs.unshown(page.format("", "", "print(1)")) == ["a", "print(1)"]
    assert outputs.unshown(page.format("output=none", "", "x = 1")) == []
    assert outputs.unshown(page.format("", "![the picture](a.svg)", "x = 1")) == []
    assert outputs.unshown(page.format("", "```text output=all\nb\n```", "x = 1")) == []
    assert outputs.unshown(page.format("", "## Output\n\n```text output=all\nb\n```", "x = 1")) == []
    assert outputs.unshown(page.format("", "More:\n\n```text output=all\nb\n```", "x = 1")) == ["a"]
    assert outputs.unshown(page.format("", "```text\nb\n```", "x = 1")) == ["a"]


def test_a_page_begins_with_the_data_of_another(tmp_path: Path) -> None:
    (tmp_path / "data.md").write_text("```csv file=a/some.csv\na,b\n```\n```sh\necho no > other.csv\n```\n")
    (tmp_path / "page.md").write_text("<!-- the data of data.md -->\n\n```sh\ncat a/some.csv; ls\n```\n")
    (folder := tmp_path / "work").mkdir()
    data = outputs.data_of(tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    (done,) = outputs.run(page, tmp_path, folder, tmp_path / "cache", full=True, data=data)
    assert done.output.split() == ["a,b", "a"]


def test_a_block_knows_the_terminal_that_is_drawn_below_it() -> None:
    drawn = "```sh\na\n```\n\n![what is shown](pictures/{})\n"
    assert [each.drawn for name in ("run.svg", "run.png") for each in outputs.blocks(drawn.format(name))] == [
        "run",
        None,
    ]

"""The blocks of a page of the docs, run in their order, and what they print next to what the page shows.

A block `text output=…` directly after a block of `sh` or `python`, or below a heading there, shows what that prints, on
stdout and stderr, where neither is a terminal and lines have 100 columns; with `status=`, only on stderr. `output=all`
is the whole output. What is printed has paragraphs between empty lines, and each command of `sh` begins one: `output=2`
is the second, `output=-1` the last, `output=2..3` and `output=-3..-1` are several. A line `…` stands for lines that the
page leaves out. `python -m tests.outputs [PAGE…]` runs pages as they stand, and writes what they print into these
blocks, with at most 15 lines each; errors are whole. A block that still holds stays as it is, with all that was left
out by hand.

Every command has its output below it, as such a block or as a picture. The exceptions: Python that prints nothing, and
a block of `sh` with `output=none`, for commands that print nothing, what a page above has shown, or what depends on the
machine.

A page with a line `<!-- the data of PAGE -->` begins with the files that the blocks of that page make, other than `sh`.

The test compares a shown line with what is printed by two rules. In both, blanks, times, rates, ids, dates and folders
of the machine may differ, and an empty line counts for nothing:

- From the first block of a page on that `with=` made smaller, the shown lines must be printed in their order, each with
  any numbers, and with any of the values that `with=` has taken away or put there. Of a line with three numbers, a row
  of a table, only the first word counts. Further lines may be printed.
- Otherwise the lines between two `…` must follow one another in what is printed, and each number must be within 5% of
  the printed one, or differ by at most two units of its last digit: another processor rounds otherwise. Numbers in a
  column of seconds are times, and so are those of memory (`peak anonymous`). The lines that say how far a long stage is
  come when they like, so they are left out.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.system import files
from tests import preloaded, terminals

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DATA_OF = re.compile(r"^<!-- the data of (\S+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = r"^((?:timeout -s INT \d+ )?embexp run)"
LINES = 15
"""At most so many in a block that is written, the first ten and the last four if there are more."""
_DRAWINGS = {"output.plots", "output.tensorboard"}
"""Without these, a run is as it is shown but for a line of its files."""
_PLACE = "~/work"
"""What a page shows for the folder where its blocks run."""

_NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
_VARIES = re.compile(
    rf"""(?P<folder>(?<![\w.])(?:~|/[\w.+-]+)(?:/[\w.+-]+)*/?(?=[\w.]*))
    | (?P<date>\b\d{{4}}-\d\d-\d\d(?:[/_T\ ]\d\d[-:]\d\d(?:[-:]\d\d)?)?)
    | (?P<id>\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{{7,64}}\b)
    | (?P<time>\b\d+(?::\d\d)+\b|{_NUMBER}\ ?(?:[kMG]\ )?(?:[mµn]?s|min|h|seconds?|minutes?|hours?|[a-z]+/s)(?![\w/]))
    | (?P<size>{_NUMBER}\ (?:[kMGT]?B)(?!\w))
    | (?P<number>[+\-±−]?{_NUMBER}(?:\ ?%)?)""",
    re.VERBOSE,
)
_UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_STAGE = re.compile(r"\b\d+%(?:, \S+ left)?$|^loading TensorFlow$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its options, its text, and the path of a picture below it."""

    language: str
    options: dict[str, str]
    text: str
    start: int = 0
    end: int = 0
    picture: str = ""

    @property
    def runs(self) -> bool:
        """Whether its text is executed."""
        return self.language in ("sh", "python") and "file" not in self.options

    @property
    def drawn(self) -> str | None:
        """The name of the picture below it if that is of a terminal in `docs/pictures`."""
        found = re.fullmatch(r"pictures/(\w+)\.svg", self.picture)
        return found and found[1]

    def written(self, folder: Path) -> bool:
        """Whether it is a file, which is then in the folder."""
        if "file" in self.options:
            target = folder / self.options["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self.text)
        return "file" in self.options


def blocks(page: str) -> list[Block]:
    """The blocks of a page's text in their order."""
    found = []
    for block in BLOCK.finditer(page):
        options = dict(word.split("=", 1) for word in block[2].split())
        picture = re.match(r"\s*!\[[^\]]*\]\(([^)]*)\)", page[block.end() :])
        found.append(Block(block[1], options, block[3], block.start(), block.end(), picture[1] if picture else ""))
    return found


def data_of(path: Path) -> list[Block]:
    """The blocks that make the data of other pages which a page names."""
    others = [path.parent / name for name in DATA_OF.findall(path.read_text(encoding="utf-8"))]
    return [block for other in others for block in blocks(other.read_text(encoding="utf-8")) if block.language != "sh"]


def shown_below(page: str) -> list[tuple[Block, Block | None]]:
    """The blocks of a page's text that run, each with the block of text directly below it, if there is one."""
    found = blocks(page)

    def near(block: Block, below: Block | None) -> bool:
        return bool(
            below and below.language == "text" and re.fullmatch(r"\s*(?:#+ .*\s*)?", page[block.end : below.start])
        )

    return [
        (block, below if near(block, below) else None)
        for block, below in itertools.zip_longest(found, found[1:])
        if block.runs
    ]


def overrides(block: Block) -> list[list[str]]:
    """Keys and values of `with=`."""
    return [each.split("=", 1) for each in re.split(r",(?=[\w.@/]+=)", block.options.get("with", "")) if each]


def smaller(block: Block) -> str:
    """The commands, or calls, of a block with what makes its runs smaller."""

    def command(found: re.Match[str]) -> str:
        text = found[0]
        for key, value in overrides(block):
            text, there = re.subn(rf"(?<=[\s']){re.escape(key)}=[^\s']*", f"{key}={value}", text)
            text = text if there else re.sub(rf"{RUN}( -m)?\b", rf"\g<0> {key}={value}", text)
        return text

    if block.language == "sh":
        return re.sub(rf"{RUN}\b([^\n]*\\\n)*[^\n]*", command, block.text, flags=re.MULTILINE)
    text = block.text
    for key, value in overrides(block):
        text, there = re.subn(rf'"{re.escape(key)}=[^"]*"', f'"{key}={value}"', text)
        text = text if there else re.sub(r"\bembexp\.compose\(\[", rf'\g<0>"{key}={value}", ', text)
    return text


@dataclass(frozen=True)
class Ran:
    """What a block did.

    Attributes:
        missing: the data or the package without which it was not run, or None.
        printed: what it printed.
        output: the same, with `~/work` as its folder.
        seconds: it took.
        as_shown: neither it nor one above it was made smaller.
        replaced: values that made it or one above it smaller, and those in their place.
    """

    block: Block
    missing: str | None
    status: int = 0
    printed: str = ""
    output: str = ""
    seconds: float = 0.0
    as_shown: bool = True
    replaced: frozenset[str] = frozenset()


def run(
    page: str, commands: Path, folder: Path, cache: Path, *, full: bool, data: Sequence[Block] = ()
) -> Iterator[Ran]:
    """Runs the blocks of a page's text that run, in their order.

    Args:
        page: its text.
        commands: a folder with the commands `embexp` and `python`.
        folder: an empty folder where they run.
        cache: a folder for the caches of embexp.
        full: they run as they stand, without `with=`.
        data: blocks that make its data, see `data_of`. They run first, and nothing is told about them.

    Raises:
        subprocess.CalledProcessError: a block of the data failed.
    """
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(cache),
        "COLUMNS": "100",
        "PYTHONUNBUFFERED": "1",  # so that stdout and stderr come in the order of a terminal
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    as_shown, replaced = True, set[str]()
    for block in data:
        if not block.written(folder) and block.runs:
            subprocess.run([str(commands / "python"), "-c", block.text], cwd=folder, env=environment, check=True)
    for block in blocks(page):
        if block.written(folder) or not block.runs:
            continue
        if (needed := block.options.get("needs")) is not None:
            if not (DATA / needed).exists():
                yield Ran(block, needed)
                continue
            if not (folder / needed).exists():
                (folder / needed).symlink_to(DATA / needed)
        if (package := block.options.get("package")) is not None and importlib.util.find_spec(package) is None:
            yield Ran(block, package)
            continue
        text = block.text if full else smaller(block)
        if not full and any(key not in _DRAWINGS for key, _ in overrides(block)):
            as_shown = False
            replaced |= _replaced(block)
        start = time.perf_counter()
        result = subprocess.run(
            ["bash", "-euc", f"trap echo DEBUG\n{text}"]
            if block.language == "sh"
            else [str(commands / "python"), "-c", text],
            cwd=folder,
            env=environment | (terminals.environment(block.drawn) if block.drawn else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if "status" in block.options else subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
        printed = result.stderr if "status" in block.options else result.stdout
        output = printed.replace(str(folder), _PLACE).replace(str(cache), "~/.cache")
        yield Ran(block, None, result.returncode, printed, output, seconds, as_shown, frozenset(replaced))


def _replaced(block: Block) -> set[str]:
    """The words among the values that `with=` takes away or puts there."""
    found = set[str]()
    for key, value in overrides(block):
        for there in re.findall(rf"(?<=[\s'\"]){re.escape(key)}=([^\s'\"]*)", block.text):
            found |= {*there.split(","), *value.split(",")}
    return {word for word in found if re.fullmatch(r"[a-z]\w+", word)}


@dataclass(frozen=True)
class Line:
    """A line that is shown or printed.

    Attributes:
        shape: its text with `#` for all that varies.
        name: what another, smaller run also prints: its first word if it has three numbers, else its shape.
        numbers: of it, each with the unit of its last digit.
        timed: it has a time or a rate.
    """

    text: str
    shape: str
    name: str
    numbers: tuple[tuple[float, float], ...]
    timed: bool


_START, _END = (Line(f"(nothing {where} these lines)", where, where, (), timed=False) for where in ("above", "below"))
"""What `…` at the beginning and at the end of an output stands for, else."""


def lines(text: str, replaced: frozenset[str] = frozenset()) -> list[Line]:
    """The lines of a text but for empty ones and those of stages. Of lines in a row that tell a rate, only the last."""
    found: list[Line] = []
    above: list[str] = []
    for line in text.splitlines():
        above = [*above, line] if line.strip() else []
        if not line.strip() or _STAGE.search(line):
            continue
        new = _line(line, above, replaced)
        if found and new.timed and found[-1].timed and found[-1].shape == new.shape:
            found.pop()
        found.append(new)
    return found


def _line(text: str, above: Sequence[str], replaced: frozenset[str]) -> Line:
    numbers, timed = [], False
    for each in _VARIES.finditer(text):
        if each["time"]:
            timed = True
        elif (each["number"] or each["size"]) and not _of_seconds(each.start(), each.end(), above):
            amount, _, unit = each[0].rstrip(" %").lstrip("±").replace(",", "").replace("−", "-").partition(" ")
            digits, _, exponent = amount.partition("e")
            scale = _UNITS.get(unit, 1.0) * 10.0 ** int(exponent or 0)
            numbers.append((float(digits) * scale, scale / 10 ** len(digits.partition(".")[2])))
    shape = _VARIES.sub("#", text)
    for word in replaced:
        shape = re.sub(rf"\b{word}\b", "#", shape)
    shape = re.sub(r"# \(#\)", "#", " ".join(shape.split()))
    shape = re.sub(r"# ([a-z]+?)s\b", r"# \1", shape)
    name = shape if shape.count("#") < 3 else next(iter(re.findall(r"[^\s#*]\S*", shape)), "#")
    return Line(text, shape, name, tuple(numbers), timed)


def _of_seconds(start: int, end: int, above: Sequence[str]) -> bool:
    """Whether a number in a column stands under a heading of seconds, or of memory at its peak."""
    headings = (
        heading for line in above[:-1] for heading in re.finditer(r"\S*(?:seconds,?|ms|/s|anonymous)(?!\S)", line)
    )
    return any(heading.start() == start or heading.end() == end for heading in headings)


def absent(shown: str, ran: Ran) -> Line | None:
    """The first line that a page shows and that was not printed there, or None if all were."""
    printed, place = [_START, *lines(ran.output, ran.replaced), _END], 0
    chunks = [lines(chunk, ran.replaced) for chunk in re.split(r"^ *…$", shown, flags=re.MULTILINE)]
    chunks = [[_START, *chunks[0]], *chunks[1:]]
    for wanted in [*chunks[:-1], [*chunks[-1], _END]]:
        if ran.as_shown:
            start = max(range(place, len(printed) + 1), key=lambda start: _agreeing(wanted, printed[start:]))
            agreeing = _agreeing(wanted, printed[start:])
            if agreeing < len(wanted):
                return wanted[agreeing]
            place = start + agreeing
            continue
        for line, before in zip(wanted, [None, *wanted], strict=False):
            if before is None or before.name != line.name:
                there = [number for number in range(place, len(printed)) if printed[number].name == line.name]
                if not there:
                    return line
                place = there[0] + 1
    return None


def _agreeing(wanted: Sequence[Line], printed: Sequence[Line]) -> int:
    """How many lines agree before the first one that does not."""
    pairs = enumerate(zip(wanted, printed, strict=False))
    return next((n for n, pair in pairs if not _agree(*pair)), min(len(wanted), len(printed)))


def _agree(one: Line, other: Line) -> bool:
    return one.shape == other.shape and all(
        abs(a - b) <= max(0.05 * abs(b), 2 * digit)
        for (a, digit), (b, _) in zip(one.numbers, other.numbers, strict=False)
    )


def fault(shown: str, ran: Ran) -> str | None:
    """What is wrong with the output that a page shows, next to what is printed instead, or None."""
    line = absent(shown, ran)
    if line is None:
        return None
    printed = {each.shape: each.text for each in lines(ran.output, ran.replaced)}
    like = [printed[shape] for shape in difflib.get_close_matches(line.shape, printed, n=3)]
    return "\n".join(
        [
            f"below the block\n{ran.block.text}the page shows",
            line.text,
            "but these are printed:",
            *(like or [ran.output.strip()]),
        ]
    )


def selected(output: str, which: str, most: int | None = LINES) -> str:
    """What a block with `output=WHICH` shows of an output, with at most so many lines.

    Raises:
        ValueError: the output does not have these paragraphs.
    """
    paragraphs = [each.strip("\n") for each in re.split(r"\n(?:[ \t]*\n)+", output.rstrip()) if each.strip()]
    first, _, last = which.partition("..")
    if which == "all":
        first, last = "1", "-1"
    start, stop = (int(each) - 1 if int(each) > 0 else len(paragraphs) + int(each) for each in (first, last or first))
    if not 0 <= start <= stop < len(paragraphs):
        raise ValueError(f"output={which}: the output has {len(paragraphs)} paragraphs:\n{output}")
    shown = [line.rstrip() for line in "\n\n".join(paragraphs[start : stop + 1]).splitlines()]
    if most is not None and len(shown) > most:
        shown = [*shown[: most - 5], "…", *shown[-4:]]
    return "\n".join(["…"] * (start > 0) + shown + ["…"] * (stop < len(paragraphs) - 1)) + "\n"


def refreshed(page: str, ran: Sequence[Ran]) -> str:
    """A page's text with the outputs that its blocks printed, where those that it shows no longer hold.

    Raises:
        ValueError: an output does not have the paragraphs to show.
    """
    for (block, below), done in reversed(list(zip(shown_below(page), ran, strict=True))):
        if below is None or "output" not in below.options or done.missing is not None:
            continue
        if not below.text or absent(below.text, done) is not None:
            new = selected(done.output, below.options["output"], None if "status" in block.options else LINES)
            opening = page[below.start :].partition("\n")[0]
            page = f"{page[: below.start]}{opening}\n{new}```{page[below.end :]}"
    return page


def unshown(page: str) -> list[str]:
    """The first line of each block of a page's text without its output, if it should have one."""
    return [
        block.text.splitlines()[0]
        for block, below in shown_below(page)
        if "output" not in (below or block).options
        and not block.picture
        and (below is not None or block.language == "sh" or re.search(r"\bprint\(", block.text))
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Runs pages as they stand, and writes what their blocks print into them."""
    parser = argparse.ArgumentParser(prog="python -m tests.outputs", description=main.__doc__)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="such as docs/tutorial.md (default: all)")
    status = 0
    with preloaded.shared_commands() as forked, tempfile.TemporaryDirectory() as cache:
        for path in parser.parse_args(words).pages or PAGES:
            page, ran, jobs = path.read_text(encoding="utf-8"), [], preloaded.with_jobs(forked)
            with tempfile.TemporaryDirectory() as folder:
                for done in run(page, jobs, Path(folder), Path(cache), full=True, data=data_of(path)):
                    ran.append(done)
                    state = f"{done.seconds:5.1f} s" if done.missing is None else f"without {done.missing}"
                    print(f"{state}  {path}: {done.block.text.splitlines()[0]}", flush=True)
                    if done.status != int(done.block.options.get("status", "0")):
                        print(f"status {done.status}\n{done.output}", flush=True)
                        break
                else:
                    files.write_text(path, refreshed(page, ran))
                    continue
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

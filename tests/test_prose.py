"""The pages are easy to read: short sentences, and first a paragraph that says what the page is for.

Counted is what a reader sees: an inline code or a word with hyphens is one word, a link is its text, signs such as
`=` are none. Headings, paragraphs, list items and cells of tables are read apart. Code blocks are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST = 30  # words of a sentence
BUDGET = 60_000  # words of all pages in docs/, but for the page of all keys, which is made

FENCE = re.compile(r" *(```+|~~~+)")
ITEM = re.compile(r" *(?:[-*+]|\d+\.) +")
RULER = re.compile(r" *\|?[ :|-]*-[ :|-]*\|?$")
NO_END = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|approx|resp|Fig|Eq|Sec|Nos?|al|pp?)|\b[A-Z]|\.\.)\.[)\]\"'”’]*$")
MAYBE_END = re.compile(r"(?:\betc\.|…)[)\]\"'”’]*$")


@dataclass(frozen=True)
class Passage:
    """A heading, a paragraph, an item of a list, a row of a table, or something that is not prose."""

    kind: str
    line: int
    text: str


def passages(page: str) -> Iterator[Passage]:
    """The passages of a Markdown page in their order."""
    kind, start, gathered, fence = "", 0, list[str](), ""
    blank = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), page, flags=re.DOTALL)
    for number, line in enumerate([*blank.splitlines(), ""], 1):
        if fence:
            fence = "" if line.strip() == fence else fence
            continue
        new = (
            "code"
            if (opened := FENCE.match(line)) or (not kind and line.startswith("    ") and not ITEM.match(line))
            else "heading"
            if re.match(r"#+ ", line)
            else "row"
            if line.lstrip().startswith("|")
            else "item"
            if ITEM.match(line)
            else "other"
            if re.match(r" *(:::|<|!!!|---$)", line)
            else "paragraph"
        )
        goes_on = kind in ("item", "paragraph", "other", "code") and new in ("paragraph", "code") and not opened
        if gathered and not (goes_on and line.strip()):
            yield Passage(kind, start, "\n".join(gathered))
            kind, gathered = "", []
        if opened:
            fence = opened[1]
            yield Passage("code", number, line)
        elif line.strip():
            kind, start = kind or new, start if gathered else number
            gathered.append(line)


def readable(text: str) -> str:
    """The text as it is seen, without marks, its line breaks kept; a code is `…`, whatever is in it."""
    text = re.sub(r"(`+)(.+?)\1", lambda found: "`…`" + "\n" * found[2].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<(?:https?://|/?\w)[^>]*>", "", text)
    return re.sub(r"\*\*?|(?<!\w)_|_(?!\w)", "", text)


def sentences(text: str) -> Iterator[tuple[int, list[str]]]:
    """The sentences of a passage: the line where each begins, from 0, and its words."""
    found = [(text.count("\n", 0, word.start()), word[0]) for word in re.finditer(r"\S+", text)]
    begun: list[tuple[int, str]] = []
    for (line, word), (_, following) in pairwise([*found, (0, "")]):
        begun.append((line, word))
        ends = re.search(r"[.!?][)\]\"'”’]*$", word) and not NO_END.search(word)
        if MAYBE_END.search(word):
            ends = following.lstrip("([\"'“‘`")[:1].isupper()
        if ends or not following:
            yield begun[0][0], [each for _, each in begun if re.search(r"\w|`…`", each)]
            begun = []


def prose(page: str) -> Iterator[tuple[int, list[str]]]:
    """The sentences of a page, with their line, from 1."""
    for passage in passages(page):
        if passage.kind in ("code", "other") or (passage.kind == "row" and RULER.match(passage.text)):
            continue
        text = re.sub(r"^(#+ | *(?:[-*+]|\d+\.) +)", "", readable(passage.text))
        for part in re.split(r"(?<!\\)\|", text) if passage.kind == "row" else [text]:
            for line, words in sentences(part):
                yield passage.line + line, words


def length(page: str) -> int:
    """The words of a page as `wc` counts them, without fenced blocks: what is code, and what a command prints."""
    words, fence = 0, ""
    for line in page.splitlines():
        if fence:
            fence = "" if line.strip() == fence else fence
        elif opened := FENCE.match(line):
            fence = opened[1]
        else:
            words += len(line.split())
    return words


def test_all_pages_together_are_not_too_long() -> None:
    pages = [page for page in PAGES if ROOT / "docs" in page.parents and page.name != "keys.md"]
    lengths = {page.relative_to(ROOT).as_posix(): length(page.read_text(encoding="utf-8")) for page in pages}
    longest = sorted(lengths, key=lambda name: -lengths[name])[:5]
    assert sum(lengths.values()) <= BUDGET, f"shorten a page; the longest are {', '.join(longest)}"


def test_the_length_of_a_page_is_without_its_blocks() -> None:
    assert length("# A title\n\nTwo `words here`.\n\n```sh with=a=b\nnot this\n```\n| a | b |\n") == 11


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_sentences_are_short(page: Path) -> None:
    name = page.relative_to(ROOT)
    long = [
        f"{name}:{line}: {len(words)} words: {' '.join(words[:8])} …"
        for line, words in prose(page.read_text(encoding="utf-8"))
        if len(words) > LONGEST
    ]
    assert not long, f"sentences of more than {LONGEST} words:\n" + "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    found = list(passages(page.read_text(encoding="utf-8")))
    if page.parent == ROOT / "docs" / "patterns" and page.stem != "index":
        assert found.pop(1).text == "## Problem"
    assert [passage.kind for passage in found[:2]] == ["heading", "paragraph"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("One. Two words! Three words here? ", [1, 2, 3]),
        ("The MRR is 0.62. It was 0.5.", [4, 3]),
        ("Python 3.11 and TensorFlow 2.21.0 are needed. So is make.", [7, 3]),
        ("It reads summary.json, conf/init/NAME.yaml and v1.0.npz. embexp writes them.", [6, 3]),
        ("Some sources, e.g. Parquet, i.e. columns (cf. the table), sort. Others do not.", [10, 3]),
        ("Rendle et al. sample one item. So does J. Doe.", [6, 4]),
        ("Files, folders, etc. are read. Names, etc. Then the rest.", [5, 2, 3]),
        ("Wait … until it ends… The end.", [4, 2]),
        ("It runs (as before.) Then it stops.", [4, 3]),
        ('It says "not found." Then it stops.', [4, 3]),
        ("One; two: three, a-b-c — four/five = 6.", [6]),
        ("`a b. c` is code. `d` too", [3, 2]),
        ("See [the long page. Of two](a.md#b) and <https://a.org/b. c>.", [4, 3]),
        ("**Bold words.** _More_ snake_case *here*.", [2, 3]),
    ],
)
def test_a_sentence_ends_where_a_reader_ends_it(text: str, words: list[int]) -> None:
    assert [len(each) for _, each in sentences(readable(text))] == words


def test_a_page_is_read_by_passages() -> None:
    page = """# A title. Of two

First line
second line. Third
- item one
  goes on
    - nested `a
  b` end
1. numbered

| a | b c |
|---|---:|
| d `x \\| y` | e. f |

```sh with=a=b
not read. at all
```

<!-- nor
this --> after

    indented code
    again

::: embexp.rows
    options: none
"""
    assert [(line, len(words)) for line, words in prose(page)] == [
        *((1, 2), (1, 2), (3, 4), (4, 1), (5, 4), (7, 3), (9, 1)),
        *((11, 1), (11, 2), (13, 2), (13, 1), (13, 1), (20, 1)),
    ]
    assert [passage.kind for passage in passages("```sh\n# a\n```\ntext\n")] == ["code", "paragraph"]

"""Hooks of the documentation site: what its builder does not read as a code host does, and a check of what was built.

`mkdocs.yml` names this file. The pages stay plain Markdown, whose blocks `tests/test_docs.py` executes.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from nbconvert import MarkdownExporter

from embexp.config import folders
from embexp.config import keys as config_keys

ROOT = Path(__file__).resolve().parents[1]
gc.set_threshold(100_000, 50, 1_000)  # syntax trees and pages stay until the end, and looking through them takes long
_FENCE = re.compile(r"^(```+)(\w+)([ ]+\w+=[^\n]*)$", re.MULTILINE)
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_OUTSIDE = re.compile(r"\]\((?:\.\./)+(examples/[\w./-]+)\)")
_NOTEBOOK = re.compile(r"(\]\((?:[\w./-]+/)?\w+)\.ipynb(#[\w-]+)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds programs that pages link to, a page and pictures of each notebook, and the page of all keys."""
    examples = ROOT / "examples"
    for path in sorted([*examples.glob("*.py"), *examples.glob("*/README.md")]):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, f"{name}.txt", abs_src_path=str(path)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        for name, content in notebook_pages(path).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    keys = config_keys.page(config_keys.parts(folders.find()))
    files.append(File.generated(config, "reference/keys.md", content=keys))
    return files


def notebook_pages(path: Path) -> dict[str, str | bytes]:
    """A notebook as a Markdown page and its pictures, by file name; nothing is executed.

    The first line of a cell that draws, a comment, is the text of its pictures for those who can't see them.
    """
    key = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    book = nbformat.read(path, as_version=4)
    text, resources = MarkdownExporter().from_notebook_node(book, resources=key)
    drawing = [cell for cell in book.cells for each in cell.get("outputs", []) if "image/png" in each.get("data", {})]
    words = iter([cell.source.splitlines()[0].lstrip("# ") for cell in drawing])
    text = re.sub(r"!\[png\]\(", lambda _: f"![{next(words)}](", text)
    title, _, rest = text.lstrip().partition("\n")
    download = f'<a href="{path.name}" download>Download this notebook</a>, to run it or to change it.'
    return {f"{path.stem}.md": f"{title}\n\n{download}\n{rest}", **resources["outputs"]}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Takes the options for tests off the blocks of a page, and turns `file=NAME` and `composed=NAME` into titles.

    In a table, a code host wants the bars of code escaped; the site's builder shows the backslash.
    """

    def fence(found: re.Match[str]) -> str:
        options = dict(word.split("=", 1) for word in found[3].split())
        name = options.get("file") or (
            f"part of: --cfg job experiment={options['composed']}" if "composed" in options else ""
        )
        title = f' title="{name}"' if name else ""
        return f"{found[1]}{found[2]}{title}"

    def row(found: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace("\\|", "|"), found[0])

    markdown = _NOTEBOOK.sub(r"\1.md\2)", _ROW.sub(row, markdown))
    up = "../" * page.file.src_uri.count("/")
    return _OUTSIDE.sub(rf"]({up}\1.txt)", _FENCE.sub(fence, markdown))


def on_post_build(config: Any) -> None:
    """Fails the build if a link leads nowhere, or if a page would load something from the network."""
    if faults := list(site_faults(Path(config["site_dir"]))):
        raise PluginError("\n".join([f"{len(faults)} faults in the built site", *faults]))


class _Page(HTMLParser):
    """The anchors of a page, its links, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in {"canonical", "prev", "next", "alternate"}:
            self.loaded.append(given.get("href", ""))
        self.loaded += [given[name] for name in ("src", "poster", "data") if name in given]
        self.loaded += [each.split()[0] for each in given.get("srcset", "").split(",") if each.strip()]
        self.loaded += _urls_of_style(given.get("style", ""))


def _urls_of_style(text: str) -> list[str]:
    found = re.findall(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)", text)
    return [one or other for one, other in found]


def site_faults(site: Path) -> Iterator[str]:
    """The faults of a built site, one sentence each.

    Args:
        site: its folder.

    Yields:
        Links and anchors that are not there, and what a page or a style sheet would load from the network.
    """
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in page.loaded:
            yield from _not_loaded(name, path, target)
        for target in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or name.name == "404.html":
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.exists():
                yield f"{name} links to {target}, which is not there"
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors:
                yield f"{name} links to {target}, but that page has no such anchor"
    for path in sorted(site.rglob("*.css")):
        for target in _urls_of_style(path.read_text(encoding="utf-8")):
            yield from _not_loaded(path.relative_to(site), path, target)


def _not_loaded(name: Path, path: Path, target: str) -> Iterator[str]:
    parts = urlsplit(target)
    if parts.scheme == "data" or (name.name == "404.html" and not parts.netloc):
        return
    if parts.scheme or parts.netloc:
        yield f"{name} loads {target} from the network"
    elif parts.path and not (path.parent / unquote(parts.path)).exists():
        yield f"{name} loads {target}, which is not there"

"""The notebooks of the documentation run, in a fresh kernel each, and give the outputs that are committed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests import notebooks

BY_NAME = pytest.mark.parametrize("path", notebooks.PATHS, ids=lambda path: path.stem)


def kinds(cell: NotebookNode) -> list[list[str]]:
    """Of the outputs of a cell."""
    return [sorted(each.get("data", {each.get("name", ""): 0})) for each in cell.get("outputs", [])]


def words(cell: NotebookNode) -> Counter[str]:
    """Of the outputs of a cell: figures, and the order of what is nearly equal, differ between machines."""
    return Counter(re.findall(r"[^\W\d_]{2,}", re.sub(r"<[^>]*>", " ", " ".join(notebooks.texts(cell)))))


def left_behind(place: Path) -> list[psutil.Process]:
    """Processes that work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(place):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@pytest.mark.slow
@BY_NAME
def test_it_runs_and_gives_what_is_committed(path: Path) -> None:
    committed = nbformat.read(path, as_version=4)
    with notebooks.folder() as place:
        now = notebooks.executed(path, place)
        assert not left_behind(place)
    assert [cell.source for cell in now.cells] == [cell.source for cell in committed.cells]
    for cell, before in zip(now.cells, committed.cells, strict=True):
        assert kinds(cell) == kinds(before), f"{cell.id}: make notebooks"
        assert words(cell) == words(before), f"{cell.id}: make notebooks"


@BY_NAME
def test_what_is_committed_is_fit_to_be_read(path: Path) -> None:
    assert list(notebooks.faults(path)) == []
    book = nbformat.read(path, as_version=4)
    assert set(book.metadata) == {"kernelspec", "language_info", "executed"}
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert 8 <= len(book.cells) <= 15
    drawing = [cell for cell in code if any("image/png" in kinds for kinds in kinds(cell))]
    assert 1 <= len(drawing) <= 3
    for cell in drawing:
        assert re.match(r"# [A-Z][^\n]{30,}\n", cell.source), f"{cell.id}: begin with a comment that tells the picture"
    assert any(re.search(r"^ *assert ", cell.source, re.MULTILINE) for cell in code)


def test_links_lead_to_pages_and_headings() -> None:
    for path in notebooks.PATHS:
        for cell in nbformat.read(path, as_version=4).cells:
            targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", cell.source) if cell.cell_type == "markdown" else []
            for target in targets:
                assert (path.parent / target).exists(), f"{path.name}, {cell.id}: {target}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("RMSE 0.56, in outputs/ratings", ""),
        ("<div><p>a/b</p></div>", ""),
        ("at 10/20 of https://example.org/a/b", ""),
        ("in /home/ada/notes.csv", "'/home/ada/notes.csv' is a path"),
        ('<a href="/tmp/nb1/work">', "'/tmp/nb1/work' is a path"),
        (r"C:\\Users\\ada", "is a path"),
    ],
)
def test_paths_of_a_machine_are_found(text: str, fault: str, tmp_path: Path) -> None:
    [found] = faults_of(new_output("display_data", {"text/html": text}), tmp_path) or [""]
    assert fault in found
    assert bool(fault) == bool(found)


def test_warnings_and_errors_are_found(tmp_path: Path) -> None:
    assert "standard error" in faults_of(new_output("stream", name="stderr", text="oh"), tmp_path)[0]
    assert "an error" in faults_of(new_output("error", ename="E", evalue="", traceback=[]), tmp_path)[0]


def faults_of(output: NotebookNode, folder: Path) -> list[str]:
    """Of a notebook with one output."""
    book = notebooks.tidy(new_notebook(cells=[new_code_cell("1", execution_count=1, outputs=[output])]))
    nbformat.write(book, folder / "a.ipynb")
    return list(notebooks.faults(folder / "a.ipynb"))


def test_outputs_of_other_cells_are_found(tmp_path: Path) -> None:
    book = notebooks.tidy(new_notebook(cells=[new_code_cell("1 + 1", execution_count=2)]))
    book.cells[0].source = "2 + 2"
    nbformat.write(book, tmp_path / "a.ipynb")
    assert list(notebooks.faults(tmp_path / "a.ipynb")) == [
        "a.ipynb: its outputs are not those of its cells: make notebooks",
        "a.ipynb: its cells were not executed in their order: make notebooks",
    ]


def test_a_cell_that_raises_ends_with_its_kernel(tmp_path: Path) -> None:
    nbformat.write(new_notebook(cells=[new_code_cell("import os; assert os.listdir() == ['a']")]), tmp_path / "a.ipynb")
    with notebooks.folder() as place:
        with pytest.raises(CellExecutionError, match="AssertionError"):
            notebooks.executed(tmp_path / "a.ipynb", place)
        assert not left_behind(place)

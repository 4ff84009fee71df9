"""The notebooks of the documentation: executed in a fresh kernel, and written back with their outputs.

`make notebooks` runs this module. A notebook works in an empty folder; its kernel is this Python's, found without any
kernelspec that is installed, and talks over sockets in a folder of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from embexp.system import files

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 250_000
"""Bytes of a file."""
_SECONDS = 300
"""Of one cell."""
_MACHINE = re.compile(r"(?<![\w.:/<])(?:/[\w.~-]+){2,}|[A-Z]:\\\\|/?\b(?:home|tmp|Users)/")
"""A path of a machine, whichever."""


def executed(path: Path, place: Path) -> NotebookNode:
    """Executes a notebook in a fresh kernel, which has ended when this returns.

    Args:
        path: of the notebook.
        place: an empty folder, of short path, for all that the notebook and its kernel write.

    Returns:
        The notebook with new outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    book = nbformat.read(path, as_version=4)
    work = place / "work"
    work.mkdir()
    specs = KernelSpecManager(kernel_dirs=[], data_dir=str(place / "data"))  # leaves the kernel of `sys.executable`
    manager = AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=specs,
        connection_file=str(place / "kernel.json"),
        transport="ipc",
        ip=str(place / "socket"),
    )
    client = NotebookClient(
        book,
        km=manager,
        timeout=_SECONDS,
        record_timing=False,
        coalesce_streams=True,  # or what is printed with a pause is two outputs
        resources={"metadata": {"path": str(work)}},
    )
    client.execute(env=_environment(place), cleanup_kc=True)
    return tidy(book)


def _environment(place: Path) -> dict[str, str]:
    """Of the kernel: nothing of the user's own Jupyter, IPython, matplotlib or cache takes part."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER_", "PYTHONWARNINGS"))}
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "MPLCONFIGDIR": "matplotlib",
        "XDG_CACHE_HOME": "cache",
    }
    return {**own, **{name: str(place / folder) for name, folder in folders.items()}}


def tidy(book: NotebookNode) -> NotebookNode:
    """Leaves what a reader needs of a notebook's metadata, and notes of which sources its outputs are."""
    book.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
        executed=digest(book),
    )
    for number, cell in enumerate(book.cells, 1):
        cell.id = f"cell-{number:02}"
        cell.metadata = NotebookNode()
    return book


def digest(book: NotebookNode) -> str:
    """Of the sources of all code cells."""
    sources = "\0".join(cell.source for cell in book.cells if cell.cell_type == "code")
    return hashlib.sha256(sources.encode()).hexdigest()


def texts(cell: NotebookNode) -> Iterator[str]:
    """The outputs of a cell that are text, HTML among them."""
    for output in cell.get("outputs", []):
        if "text" in output:
            yield output.text
        yield from (value for kind, value in output.get("data", {}).items() if kind.startswith("text/"))


def faults(path: Path) -> Iterator[str]:
    """What is wrong with a notebook as it is committed, one sentence each; nothing is executed."""
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    if path.stat().st_size > LARGEST:
        yield f"{path.name} has {path.stat().st_size:,} bytes, more than {LARGEST:,}"
    if book.metadata.get("executed") != digest(book):
        yield f"{path.name}: its outputs are not those of its cells: make notebooks"
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != [*range(1, len(code) + 1)]:
        yield f"{path.name}: its cells were not executed in their order: make notebooks"
    for cell in code:
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                yield f"{path.name}, {cell.id}: an error, or a warning on the standard error"
        for text in texts(cell):
            if found := _MACHINE.search(text):
                yield f"{path.name}, {cell.id}: {found[0]!r} is a path of a machine"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty folder for a kernel: names of sockets have at most some hundred characters."""
    with tempfile.TemporaryDirectory(prefix="nb", ignore_cleanup_errors=True) as made:
        yield Path(made)


def main(names: list[str]) -> int:
    """Executes all notebooks, or those named, and writes each back, whole or not at all."""
    wrong = []
    for path in [FOLDER / f"{name}.ipynb" for name in names] or PATHS:
        with folder() as place:
            book = executed(path, place)
        files.write_text(path, nbformat.writes(book) + "\n")
        wrong += faults(path)
        print(path.relative_to(ROOT))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

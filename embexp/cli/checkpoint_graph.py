"""`embexp checkpoint graph`: a picture of the object graph in a checkpoint. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, print
from embexp.cli.finished import warn_of_checkpoint
from embexp.errors import CheckpointError, CommandLineError, RunError

USAGE = "embexp checkpoint graph PATH [-o FILE] [--all]"

HELP = f"""\
usage: {USAGE}

Draws which objects depend on which, by the names that the edges have in an object-based checkpoint: objects and layers
in black, variables in blue, optimizers in red, slot variables in orange. TensorFlow restores by the names of edges,
not of variables. An object with several paths is drawn once; at the others, its path is named.

PATH is the directory of a run (its final checkpoint, or else the newest), a checkpoint's directory, its prefix or its
.index file, or a SavedModel.

    -o FILE    Names the picture, an .svg, .png or .pdf (default: NAME.svg in the current directory, NAME that of PATH).
    --all      Draws all edges. Otherwise objects without variables are left out, and so are lists that only repeat what
               is drawn below the same object; +N beside an object counts the edges left out below it.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `graph`.
    """
    parser = Parser("checkpoint graph", USAGE)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if options.path is None:
        raise parser.incomplete("which checkpoint? Give its path")
    _draw(options.path, options.out, everything=options.all)
    return DONE


def _draw(path: Path, out: Path | None, *, everything: bool) -> None:
    from embexp.checkpoints import object_graph, opening, paths
    from embexp.checkpoints.drawing import picture
    from embexp.checkpoints.drawing.tree import spanning_tree, walk

    if out is not None and out.suffix.lower() not in picture.FORMATS:
        endings = ", ".join(picture.FORMATS)
        raise CommandLineError(f"embexp checkpoint graph: -o {out}: the ending must be one of {endings}")
    if path.is_file() and path.suffix in (".h5", ".hdf5", ".keras"):
        raise CheckpointError(
            f"{path} is a file of Keras, which has no object graph\n"
            "    tf.train.Checkpoint(model=model).write(PATH) writes a checkpoint of the model that has one"
        )
    if opening.find(path).suffix != ".index":
        raise CheckpointError(
            f"{path} is a name-based checkpoint, of TensorFlow's first format (V1), and has no object graph\n"
            f"    `embexp checkpoint convert {path} OUT --to object` writes an object-based one"
        )
    index = paths.index_of(path)
    if out is None:
        out = Path(f"{path.resolve().name.removesuffix('.index')}.svg")
    if out.is_dir():
        raise CommandLineError(f"embexp checkpoint graph: {out} is a directory: give -o the name of a file")
    warn_of_checkpoint(*paths.files_of(index))
    graph = object_graph.read(index)
    shown = path if path.name else path.resolve()
    tree = spanning_tree(graph, everything=everything)
    branches = list(walk(tree))
    drawn, hidden = len(branches) - 1, sum(branch.hidden for branch in branches)
    objects = sum(not branch.is_reference for branch in branches)
    counts = f"{objects} of {len(graph.nodes)} objects and {drawn} of {drawn + hidden} edges"
    note = f"{counts}; +N: edges that --all draws as well" if hidden else counts
    try:
        picture.write(tree, out, title=f"Dependency graph of {shown}", note=note)
    except OSError as error:
        raise RunError(f"{out} can't be written: {error.strerror or error}") from None
    print(f"wrote {out}: {counts}{' (--all draws all)' if hidden else ''}")

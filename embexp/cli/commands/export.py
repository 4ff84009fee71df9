"""`embexp export`: a finished run for other programs. TensorFlow is imported where its model is used."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.cli.commands.finished import check_finished
from embexp.errors import NotARunError, plural
from embexp.specs.fields import names, path_of
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.runs.deltas import Changed

KINDS = ("savedmodel", "npy", "word2vec", "projector", *names("exports"))
HELP = """\
usage: embexp export RUN OUT --as savedmodel|npy|word2vec|projector|vectors|index [--table NAME] [--binary]
                     [--tables inside|apart] [--recall SHARE] [--allow-code M:F]
       embexp export RUN OUT --since PARENT [--as savedmodel|npy] [--allow-code M:F]
       embexp export apply BASE DELTA OUT

Exports a finished run to OUT, a new directory, for programs without embexp. Tables are written in blocks, so they may
be larger than memory.

    --as savedmodel   Writes a TensorFlow SavedModel that predicts. It needs only TensorFlow, not Keras.
    --as npy          Writes NAME.npy, float32 [rows, dim], and NAME.tokens.txt, one token per row, for each table. You
                      can load them with pretrained=file.
    --as word2vec     Writes NAME.vec, word2vec's text format, for each table. It has the rows that have a token.
    --as projector    Writes files for TensorBoard's Embedding Projector. Open them with tensorboard --logdir OUT.
    --as vectors      Writes users.npy and items.npy, with their tokens, for task recommendation. The score of an item
                      is the dot product of the two vectors.
    --as index        Writes the same files and items.faiss, a faiss index of the items. index.json has its recall@10
                      and its queries per second on this machine.
    --recall SHARE    With index, sets the recall@10 that searches are tuned to reach (default: 0.99).
    --since PARENT    Writes a delta instead: the rows of each table that are new or have moved since PARENT, a run that
                      RUN continues. With savedmodel (the default), the delta includes the model without its tables.
    --tables apart    With savedmodel, writes OUT/model, a SavedModel without tables, and OUT/tables, the files of npy.
                      The model takes each feature's activation, float32 [B, …, dim].
    --table NAME      With npy, word2vec and projector, writes only this table. You can repeat it.
    --binary          With word2vec, writes the binary format, NAME.bin.
    --allow-code MODULE:FUNCTION
                      With savedmodel, vectors and index, allows a function that the run's record names, such as that
                      of its model.

To turn a complete export of PARENT and a delta into the complete export of RUN, use `embexp export apply`.

A SavedModel takes the columns of the run's data by name, and has these signatures:

    serving_default   Takes tokens as in the data: strings [B], or row numbers if ids are row numbers. A column with
                      several values per example is [B, N], padded with "" (or -1). Tokens without a row get the OOV
                      row, or are an error if there is none. Dates are strings as in the data.
    serving_ids       Takes row numbers, int64, instead of tokens.
    serving_ragged, serving_sparse, serving_ids_ragged, serving_ids_sparse
                      Take columns of several values as COLUMN_values and COLUMN_row_splits, or as COLUMN_indices,
                      COLUMN_values and COLUMN_dense_shape.
    serving_text      Takes whole texts, `text` [B], for text classification.
    tails, heads      Return the k best entities of a knowledge graph for head and relation, or for relation and tail.
                      serving_default and serving_ids score triples (head, relation, tail).
    recommend, recommend_with_seen
                      Return the k best items for users, as `embexp recommend` does, except those in `exclude`. Here and
                      above, k is one number, or one number per row of the request.

A column of weights has the same shape as its ids, and a column of numbers is float32 [B]. The output `predictions` is
what `embexp predict` writes. Task classification also has `probabilities` and `classes` [B, C]. In Python, `predict` of
the loaded model takes a dict of columns as tensors, ragged tensors or sparse tensors.
"""


APPLY_HELP = """\
usage: embexp export apply BASE DELTA OUT

Combines a complete export of an earlier run with a delta into the complete export of a later run. OUT, a new directory,
matches what `embexp export RUN OUT` writes: the same table files, or a SavedModel with the same tensors, tokens and
predictions.

    BASE     A complete export of the earlier run: a SavedModel, or a folder that --as npy wrote, with all tables.
    DELTA    The output of `embexp export RUN DELTA --since PARENT`, where PARENT is that earlier run.

The digests of all tables and tokens are compared first. If the base is wrong or the delta is damaged, it is refused.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    if list(arguments[:1]) == ["apply"]:
        return apply(arguments[1:])
    parser = Parser.of_run("export", HELP)
    parser.needs("out", "where to? Give a new directory, OUT")
    parser.values("--as", "--since")
    parser.add_argument("--table", action="append", default=[])
    parser.add_argument("--tables", choices=("inside", "apart"), default="inside")
    parser.add_argument("--recall")
    parser.switches("--binary")
    options = parser.parse(arguments, _faults)
    from embexp.records.folder import RunFolder
    from embexp.records.manifest import Kernels, choose_kernels

    kind = getattr(options, "as") or "savedmodel"  # of a delta
    _take_in_fields(Path(options.directory))
    if kind not in (kinds := (*KINDS, *(name for name in names("exports") if name not in KINDS))):
        parser.error(f"argument --as: invalid choice: {kind!r} (choose from {', '.join(map(repr, kinds))})")
    runs_model = kind == "savedmodel" or path_of("exports", kind) is not None
    allowed = options.allow_code if runs_model else None
    folder = RunFolder(Path(options.directory))
    if runs_model:
        choose_kernels(folder)
    since = [] if options.since is None else ["--since", options.since]
    check_finished(options.directory, "export", options.out, "--as", kind, *since, allow_code=allowed)
    from embexp.cli import stages

    if runs_model:
        Kernels.of_run(folder).load_tensorflow()
    from embexp.runs.finished import export

    further: dict[str, Any] = {} if options.recall is None else {"recall": float(options.recall)}
    with stages.show_stages() as shown:
        exported = export(
            options.directory,
            options.out,
            kind,
            tables=options.table,
            binary=options.binary,
            tables_apart=options.tables == "apart",
            since=options.since,
            allow_code=options.allow_code,
            progress=shown,
            **further,
        )
    for name, (rows, dim) in exported.tables.items():
        what = "vectors of" if runs_model and kind != "savedmodel" else "table"
        print(f"{what} {name}: {_rows_of(exported.changed[name]) if since else f'{rows:,} rows of dimension {dim}'}")
    for signature, inputs in exported.signatures.items():
        print(f"signature {signature}: {', '.join(f'{name} {what}' for name, what in inputs.items())}")
    if found := exported.facts:
        effort = "".join(f", {name} {value}" for name, value in found["effort"].items())
        print(f"index of faiss {found['version']}: {found['form']}{effort}")
        print(
            f"recall@{found['k']} {found['recall']:.4f}, {found['queries_per_second']:,.0f} queries per second; exact:"
            f" {found['exact_queries_per_second']:,.0f} ({found['queries']:,} queries, {found['threads']} threads)"
        )
    print(f"wrote {exported.path}")
    return DONE


def _rows_of(changed: Changed) -> str:
    """How many rows of a table are new, have moved and are the same, and what they take."""
    from embexp.system.terminal import byte_size

    counts = changed.counts
    size, whole = byte_size(changed.bytes), byte_size(changed.whole)
    rows = f"{plural(counts.new, 'new row')}, {counts.moved:,} moved, {counts.same:,} unchanged"
    return f"{rows}; {size}, the whole table {whole}"


def apply(arguments: Sequence[str]) -> int:
    """Runs `embexp export apply`."""
    parser = Parser("export apply", APPLY_HELP)
    parser.needs("base", "to what? Give BASE, a whole export of the earlier run")
    parser.needs("delta", "which delta? Give DELTA, what `embexp export RUN DELTA --since PARENT` wrote")
    parser.needs("out", "where to? Give a new directory, OUT")
    options = parser.parse(arguments, _faults_of_apply)
    from embexp.cli import stages
    from embexp.runs.finished import apply_delta

    with stages.show_stages() as shown:
        exported = apply_delta(options.base, options.delta, options.out, progress=shown)
    for name, (rows, dim) in exported.tables.items():
        print(f"table {name}: {rows:,} rows of dimension {dim}")
    print(f"wrote {exported.path}")
    return DONE


def _faults_of_apply(options: argparse.Namespace) -> Iterator[str]:
    for name, path in (("BASE", options.base), ("DELTA", options.delta)):
        if path is not None and not Path(path).is_dir():
            yield f"{path}: there is no such directory, and {name} is one"
    if options.out is not None and Path(options.out).exists():
        yield f"{options.out} already exists: give OUT another name"


def _take_in_fields(run: Path) -> None:
    """Takes in the fields that a run's spec names, which may bring exports."""
    from embexp.records.folder import RunFolder

    with contextlib.suppress(NotARunError):  # which is reported when the run is read
        RunFolder(run).recorded_spec()


def _faults(options: argparse.Namespace) -> Iterator[str]:
    kind = getattr(options, "as")
    if options.out is not None and Path(options.out).exists():
        yield f"{options.out} already exists: give OUT another name"
    if kind is None and options.since is None:
        yield f"as what? Add --as {', '.join(KINDS)}"
    if options.since is not None and kind not in (None, "savedmodel", "npy"):
        yield f"--since is for --as savedmodel and npy, not {kind}"
    if options.since is not None and options.table:
        yield "--table is for whole exports: a delta is of all tables of the run"
    if kind == "index":
        yield from _faults_of_index(options)
    elif options.recall is not None:
        yield "--recall is for --as index"
    if options.table and kind == "savedmodel":
        yield "--table is for files: a SavedModel needs all tables of the run"
    elif options.table and kind in ("vectors", "index"):
        yield "--table is for tables: vectors and indexes are of users and items"
    if options.tables == "apart" and kind not in (None, "savedmodel"):
        yield "--tables apart is for --as savedmodel"
    if options.tables == "apart" and options.since is not None:
        yield "--tables apart is for whole exports, not with --since"
    if options.binary and kind != "word2vec":
        yield "--binary is for --as word2vec"


def _faults_of_index(options: argparse.Namespace) -> Iterator[str]:
    from embexp.vectors import neighbors

    if fault := neighbors.missing_faiss():
        yield fault
    if options.recall is not None and not re.fullmatch(r"0?\.\d*[1-9]\d*|1(\.0*)?", options.recall):
        yield f"--recall {options.recall}: it must be a number above 0 and at most 1, such as 0.99"

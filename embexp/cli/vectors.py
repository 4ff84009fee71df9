"""`embexp vectors`: look into files of vectors, convert them, and find the rows near a token."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError, VocabularyError
from embexp.specs.vectors import Format, HeaderCount, InvalidText, NonFinite

if TYPE_CHECKING:
    from embexp.cli.run_table import RunTable
    from embexp.cli.stages import Stages
    from embexp.vectors.file_source import FileSource

USAGE = "embexp vectors info FILE | convert FILE_OR_RUN OUT | neighbors FILE_OR_RUN TOKEN… [flags]"

HELP = f"""\
usage: {USAGE}

    info FILE                     rows, dimension, type, tokens, what is odd in it, and whether it can be mapped
    convert FILE_OR_RUN OUT       to .npy, .safetensors (both with OUT.tokens.txt), .vec, .txt or .parquet, as float32
    neighbors FILE_OR_RUN TOKEN…  the rows with the greatest cosine to each token's: of a file or of a finished run

FILE is .npy, .npz, GloVe or word2vec text, word2vec binary, fastText .vec, .safetensors, .h5, .parquet, .arrow, or a
TensorFlow checkpoint (its prefix, .index or folder). Text and word2vec binary may be .gz or .zip, and are parsed once.
RUN is the folder of a finished run: of its table, convert writes the rows that a token stands for, with the tokens.

    --format FORMAT       {", ".join(Format)}; by suffix if not given
    --key NAME            which array, tensor, dataset, column, or file of a zip, where there are several
    --token-column NAME   the column or dataset of the tokens
    --tokens FILE         a token per line for a file without; NAME.tokens.txt beside it if not given
    --invalid-text WHAT   tokens that are not UTF-8: error (unless said otherwise), replace, skip
    --non-finite WHAT     NaN and infinities: error (unless said otherwise), zero, skip, keep
    --header-count WHAT   a header that names a wrong number of rows: error (unless said otherwise), ignore
    --cache DIR           where parsed text is kept; embexp's cache if not given
    --json                info, neighbors: one JSON object instead of text
    --overwrite           convert: replace OUT if it is there
    --count N             neighbors: how many of each; 10 if not given
    --table NAME          convert, neighbors: the table of a run, where it has several
"""

_SHOWN_TOKENS = 5


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: the words after `vectors`.
    """
    options = _parse(arguments)
    if options.help:
        print(HELP, end="")
        return DONE
    usage = f"\n    usage: {USAGE}"
    words = options.words
    match options.what:
        case None:
            raise CommandLineError(f"embexp vectors: do what?{usage}")
        case "info":
            if len(words) != 1:
                raise CommandLineError(f"embexp vectors info: give one FILE{usage}")
            _info(Path(words[0]), options)
        case "convert":
            if len(words) != 2:
                raise CommandLineError(f"embexp vectors convert: give FILE_OR_RUN and OUT{usage}")
            _convert(Path(words[0]), Path(words[1]), options)
        case "neighbors":
            if len(words) < 2:
                raise CommandLineError(f"embexp vectors neighbors: give FILE_OR_RUN and at least one TOKEN{usage}")
            _neighbors(Path(words[0]), words[1:], options)
    return DONE


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("vectors", USAGE)
    parser.add_argument("what", nargs="?", choices=("info", "convert", "neighbors"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--format", type=Format, choices=list(Format), metavar="FORMAT")
    parser.add_argument("--key")
    parser.add_argument("--token-column")
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--invalid-text", choices=list(InvalidText), type=InvalidText)
    parser.add_argument("--non-finite", choices=list(NonFinite), type=NonFinite)
    parser.add_argument("--header-count", choices=list(HeaderCount), type=HeaderCount)
    parser.add_argument("--cache")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--table")
    options = parser.parse_intermixed_args(list(arguments))
    for flag, given, commands in (
        ("--json", options.json, ("info", "neighbors")),
        ("--overwrite", options.overwrite, ("convert",)),
        ("--count", options.count is not None, ("neighbors",)),
        ("--table", options.table is not None, ("convert", "neighbors")),
    ):
        if given and options.what not in (None, *commands):
            raise CommandLineError(f"embexp vectors {options.what} has no flag {flag}: it is of {', '.join(commands)}")
    if options.count is not None and options.count < 1:
        raise CommandLineError(f"--count {options.count}: it must be at least 1")
    return options


def _open(path: Path, options: argparse.Namespace, stages: Stages) -> FileSource:
    from embexp.system import places
    from embexp.vectors.open import open_vectors

    return open_vectors(
        path,
        cache=places.cache(options.cache),
        format=options.format,
        key=options.key,
        token_column=options.token_column,
        tokens_file=options.tokens,
        invalid_text=options.invalid_text or InvalidText.ERROR,
        non_finite=options.non_finite or NonFinite.ERROR,
        header_count=options.header_count or HeaderCount.ERROR,
        progress=stages,
    )


def _stages() -> Stages:
    from rich.console import Console

    from embexp.cli.stages import Stages

    return Stages(Console(stderr=True))


def _info(path: Path, options: argparse.Namespace) -> None:
    from embexp.vectors.open import format_of

    stages = _stages()
    try:
        form = options.format or format_of(path)
        source = _open(path, options, stages)
        tokens = source.tokens
    finally:
        stages.close()
    known: dict[str, Any] = {
        "format": str(form),
        "rows": source.rows,
        "dim": source.dim,
        "dtype": source.dtype.name,
        "bytes": 4 * source.rows * source.dim,
        "mapped": source.in_place,
        "tokens": None if tokens is None else tokens.slice(0, _SHOWN_TOKENS).to_pylist(),
        "notes": dict(source.notes),
        "digest": source.digest,
    }
    if options.json:
        print(json.dumps(known))
        return
    from embexp.vectors.stored import counted

    known["bytes"] = f"{known['bytes']:,} as float32"
    known["mapped"] = "yes, nothing is copied" if source.in_place else "no, a mapped use converts it into the cache"
    if tokens is None:
        known["tokens"] = "none: a row is known by its number"
    else:
        more = ", …" if len(tokens) > _SHOWN_TOKENS else ""
        known["tokens"] = ", ".join(map(repr, known["tokens"])) + more
    known["rows"] = f"{source.rows:,}"
    notes = known.pop("notes")
    for name, value in known.items():
        print(f"{name:8}{value}")
    for what, count in notes.items():
        print(f"note    {counted(count, 'time')}: {what}")


def _convert(path: Path, out: Path, options: argparse.Namespace) -> None:
    from embexp.vectors import write

    write.form_of(out)
    stages = _stages()
    try:
        source = _source(path, options, stages, whole=False)
        outputs = write.outputs(out)
        for each in outputs:
            if each.exists() and any(each.samefile(read) for read in source.files):
                raise CommandLineError(f"embexp vectors convert: {each} is what is read: give OUT another name")
            if each.exists() and not options.overwrite:
                raise CommandLineError(
                    f"embexp vectors convert: {each} is there already: give OUT another name, or add --overwrite"
                )
        if len(outputs) > 1:
            for each in outputs:  # a matrix is never seen beside the tokens of another one
                each.unlink(missing_ok=True)
        write.write(source, source.tokens, out, progress=stages)
    finally:
        stages.close()
    print(f"{source.rows:,} rows of dimension {source.dim} in {out}")


def _neighbors(path: Path, words: Sequence[str], options: argparse.Namespace) -> None:
    from embexp.vectors import neighbors

    stages = _stages()
    try:
        matrix = _source(path, options, stages, whole=True)
        tokens = matrix.tokens
        numbers = [_row_of(path, word, tokens, matrix.rows) for word in words]
        found = neighbors.nearest(matrix, numbers, options.count or 10)
    finally:
        stages.close()
    named = {
        word: [(str(each.row) if tokens is None else tokens[each.row].as_py(), each.cosine) for each in near]
        for word, near in zip(words, found, strict=True)
    }
    if options.json:
        listed = {word: [{"token": name, "cosine": cosine} for name, cosine in near] for word, near in named.items()}
        print(json.dumps(listed))
        return
    for number, (word, near) in enumerate(named.items()):
        print(f"{'' if number == 0 else chr(10)}{word}")
        for name, cosine in near:
            print(f"  {cosine:7.4f}  {name}")


def _source(path: Path, options: argparse.Namespace, stages: Stages, *, whole: bool) -> FileSource | RunTable:
    """A file of vectors, or a table of a run (`whole`: see `run_table.read`)."""
    from embexp.cli import run_table

    if not run_table.is_run(path):
        if options.table is not None:
            raise CommandLineError(f"--table {options.table}: {path} is no run, and a file has no tables; take --key")
        return _open(path, options, stages)
    flags = ("format", "key", "token_column", "tokens", "invalid_text", "non_finite", "header_count")
    given = [name for name in flags if getattr(options, name)]
    if given:
        flag = given[0].replace("_", "-")
        raise CommandLineError(f"--{flag} is about a file, and {path} is a run: its tables are chosen with --table")
    return run_table.read(path, options.table, whole=whole)


def _row_of(path: Path, word: str, tokens: Any, rows: int) -> int:
    if tokens is None:
        if word.isdigit() and int(word) < rows:
            return int(word)
        raise VocabularyError(
            f"{path}: found no row {word!r}; it has no tokens, so rows are known by number, 0 to {rows - 1}"
        )
    import pyarrow.compute as pc

    row = pc.index(tokens, word).as_py()
    if row >= 0:
        return int(row)
    alike = tokens.filter(pc.equal(pc.utf8_lower(tokens), word.lower())).to_pylist()
    hint = f"; did you mean {alike[0]!r}?" if alike else ""
    raise VocabularyError(f"{path}: found no token {word!r} among {rows:,}{hint}")

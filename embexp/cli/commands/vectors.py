"""`embexp vectors`: inspect, convert, evaluate and compare vectors, and find the nearest rows of a token."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from embexp.cli.arguments import Parser, add_allow_code
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError, UsageError, VocabularyError, plural
from embexp.records.outputs import output
from embexp.specs.pretrained import Format, HeaderCount, InvalidText, NonFinite
from embexp.system.printable import print

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from embexp.cli.stages import Stages
    from embexp.system.arrays import Rows
    from embexp.vectors.file_source import FileSource

    Tokens: TypeAlias = pa.LargeStringArray | None

_ROWS, _SAMPLE, _MOVED, _COUNT = 300_000, 2_000, 10, 10
ACTIONS = ("info", "convert", "neighbors", "evaluate", "compare")
HELP = f"""\
usage: embexp vectors info|convert|neighbors|evaluate|compare FILE_OR_RUN… [OPTIONS]

    info FILE                     Shows rows, dimension, dtype, tokens, anomalies, and whether the file can be mapped.
    convert FILE_OR_RUN OUT       Writes .npy, .safetensors (both with OUT.tokens.txt), .vec, .txt, .bin or .parquet.
    neighbors FILE_OR_RUN TOKEN…  Finds the rows with the highest cosine similarity to the row of each token.
    evaluate FILE_OR_RUN          Evaluates vectors on word similarity, analogies and categories, from files that you
                                  give with the options below.
    compare FILE_OR_RUN…          Compares vectors of the same tokens: neighbors, drift, CKA, isotropy. If you give a
                                  folder of runs, such as a sweep over seeds, all finished runs in it are compared.

FILE is .npy, .npz, GloVe or word2vec text, word2vec binary, fastText .vec, .safetensors, .h5, .parquet, .arrow, or a
TensorFlow checkpoint (its prefix, .index or folder). Text and word2vec binary may be .gz or .zip, and are parsed once.
RUN is the folder of a finished run. convert writes the rows of its table that have a token, with these tokens.

    --format FORMAT       Reads the file as one of these formats (default: by suffix):
                          {", ".join(list(Format)[:8])},
                          {", ".join(list(Format)[8:])}.
    --key NAME            Selects the array, tensor, dataset, column, or file of a zip, if there are several.
    --token-column NAME   Selects the column or dataset of the tokens.
    --tokens FILE         Reads tokens, one per line, for files without tokens (default: NAME.tokens.txt).
    --invalid-text HOW    Handles tokens that are not UTF-8: error, replace, skip (default: error).
    --non-finite HOW      Handles NaN and infinities: error, zero, skip, keep (default: error).
    --header-count HOW    Handles a header with a wrong number of rows: error, ignore (default: error).
    --cache DIR           Sets the cache of parsed text (default: embexp's cache).
    --json                Prints one JSON object instead of text (except with convert). JSON has the exact tokens; in
                          text, control characters in a token are replaced by visible symbols.
    --force               With convert, replaces OUT if it exists.
    --count N             With neighbors and compare, finds N rows for each token (default: 10).
    --table NAME          Selects the table of a run, if it has several (except with info).
    --similarity FILE…    With evaluate, reads pairs of words with a score, the format of WordSim-353, SimLex-999 and
                          MEN.
    --analogies FILE…     With evaluate, reads lines of four words in sections that begin with `: NAME`, the format of
                          Google's analogies.
    --categories FILE…    With evaluate, reads a word and its category per line, or sections of words.
    --rows N              With evaluate, uses only the first N rows (default: {_ROWS}; 0: all).
    --match-case          With evaluate, distinguishes upper and lower case.
    --sample N            With compare, compares the neighbors of N random tokens (default: {_SAMPLE}).
    --moved N             With compare, lists the N tokens that moved most and least (default: {_MOVED}).
    --allow-code M:F      For an unfinished run, allows the function F of module M, which its record names.
"""

_SHOWN_TOKENS = 5


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    options = _parse(arguments)
    match options.action, options.operands:
        case "info", [file]:
            _info(Path(file), options)
        case "convert", [file_or_run, out]:
            _convert(Path(file_or_run), Path(out), options)
        case "neighbors", [file_or_run, *tokens]:
            _neighbors(Path(file_or_run), tokens, options)
        case "evaluate", [file_or_run]:
            _evaluate(Path(file_or_run), options)
        case "compare", files_or_runs:
            _compare(list(map(Path, files_or_runs)), options)
    return DONE


_OPERANDS = {
    "info": (1, 1, "give one FILE"),
    "convert": (2, 2, "give FILE_OR_RUN and OUT"),
    "neighbors": (2, None, "give FILE_OR_RUN and at least one TOKEN"),
    "evaluate": (1, 1, "give one FILE_OR_RUN"),
    "compare": (1, None, "give at least two of FILE_OR_RUN, or a folder of runs"),
}
"""How many operands each action takes, at least and at most, and what to say if it has others."""
_TESTS = ("similarity", "analogies", "categories")
_NUMBERS = {"count": 1, "rows": 0, "sample": 2, "moved": 0}
"""Options whose value is a number, and the least that it may be."""


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("vectors", HELP)
    parser.needs("action", "which action?", choices=ACTIONS)
    parser.add_argument("operands", nargs="*")
    parser.add_argument("--format", type=Format, choices=list(Format), metavar="FORMAT")
    parser.values("--key", "--token-column", "--cache", "--table")
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--invalid-text", choices=list(InvalidText), type=InvalidText)
    parser.add_argument("--non-finite", choices=list(NonFinite), type=NonFinite)
    parser.add_argument("--header-count", choices=list(HeaderCount), type=HeaderCount)
    parser.switches("--json", "--force", "--match-case")
    for name in _TESTS:
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar="FILE")
    for name in _NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    add_allow_code(parser)
    options = parser.parse(arguments)
    least, most, question = _OPERANDS[options.action]
    given = len(options.operands)
    missing = [question] if given < least or (most is not None and given > most) else []
    if options.action == "evaluate" and not any(getattr(options, name) for name in _TESTS):
        missing.append(f"name the tests: at least one of {', '.join(f'--{name} FILE' for name in _TESTS)}")
    if missing:
        parser.prog += f" {options.action}"
        raise parser.incomplete(*missing)
    of_runs, of_evaluate, of_compare = ACTIONS[1:], ("evaluate",), ("compare",)
    belong = {
        "json": ("info", "neighbors", "evaluate", "compare"),
        "force": ("convert",),
        "count": ("neighbors", "compare"),
        "table": of_runs,
        "allow_code": of_runs,
        **dict.fromkeys((*_TESTS, "rows", "match_case"), of_evaluate),
        **dict.fromkeys(("sample", "moved"), of_compare),
    }
    faults = [
        f"embexp vectors {options.action} has no option --{name.replace('_', '-')}: it belongs to {', '.join(actions)}"
        for name, actions in belong.items()
        if getattr(options, name) not in (None, False, []) and options.action not in actions
    ]
    faults += [
        f"--{name} {value}: it must be at least {least}"
        for name, least in _NUMBERS.items()
        if (value := getattr(options, name)) is not None and value < least
    ]
    if faults:
        raise CommandLineError("\n    ".join(faults))
    return options


def _open(path: Path, options: argparse.Namespace, stages: Stages) -> FileSource:
    from embexp.system import caching
    from embexp.vectors.file_source import open_vectors

    return open_vectors(
        path,
        cache=caching.cache_folder(options.cache, "--cache"),
        format=options.format,
        key=options.key,
        token_column=options.token_column,
        tokens_file=options.tokens,
        invalid_text=options.invalid_text or InvalidText.ERROR,
        non_finite=options.non_finite or NonFinite.ERROR,
        header_count=options.header_count or HeaderCount.ERROR,
        progress=stages,
    )


def _info(path: Path, options: argparse.Namespace) -> None:
    from embexp.cli.stages import show_stages
    from embexp.vectors.file_source import format_of

    with show_stages() as stages:
        format = options.format or format_of(path)
        source = _open(path, options, stages)
        tokens = source.tokens
    shown = None if tokens is None else tokens.slice(0, _SHOWN_TOKENS).to_pylist()
    size, mapped = 4 * source.rows * source.dim, source.in_place
    facts = {"format": str(format), "rows": source.rows, "dim": source.dim, "dtype": source.dtype.name, "bytes": size}
    if options.json:
        rest = {"mapped": mapped, "tokens": shown, "notes": dict(source.notes), "digest": source.digest}
        print(json.dumps(facts | rest))
        return
    facts |= {"rows": f"{source.rows:,}", "bytes": f"{size:,} as float32"}
    facts["mapped"] = "yes, nothing is copied" if mapped else "no, mapping it needs a converted copy in the cache"
    if mapped and source.dtype != "float32":
        facts["mapped"] = f"yes, nothing is copied if the table has dtype={source.dtype.name}"
    more = ", …" if tokens is not None and len(tokens) > _SHOWN_TOKENS else ""
    names = "none: rows are identified by number" if shown is None else ", ".join(map(repr, shown)) + more
    for name, value in {**facts, "tokens": names, "digest": source.digest}.items():
        print(f"{name:8}{value}")
    for note, count in source.notes.items():
        print(f"note    {plural(count, 'time')}: {note}")


def _convert(path: Path, out: Path, options: argparse.Namespace) -> None:
    from embexp.cli.stages import show_stages
    from embexp.vectors import write

    write.form_of(out)
    with show_stages() as stages:
        source, tokens, inputs = _rows(path, options, stages, whole=False)
        for each in write.outputs(out):
            output(each, "vectors convert", inputs=inputs, force=options.force, replaces=False, streams=False)
        write.write_vectors(source, tokens, Path(os.path.realpath(out)), progress=stages)
    print(f"{source.rows:,} rows of dimension {source.dim} in {out}")


def _neighbors(path: Path, queries: Sequence[str], options: argparse.Namespace) -> None:
    from embexp.cli.stages import show_stages
    from embexp.vectors import neighbors

    with show_stages() as stages:
        matrix, tokens, _ = _rows(path, options, stages, whole=True)
        rows = [_row_of(path, query, tokens, matrix.rows) for query in queries]
        found = neighbors.nearest(matrix, rows, options.count or _COUNT)
    named = {
        query: [(str(each.row) if tokens is None else tokens[each.row].as_py(), each.cosine) for each in near]
        for query, near in zip(queries, found, strict=True)
    }
    if options.json:
        listed = {query: [{"token": name, "cosine": cosine} for name, cosine in near] for query, near in named.items()}
        print(json.dumps(listed))
        return
    for number, (query, near) in enumerate(named.items()):
        print(f"{'' if number == 0 else chr(10)}{query}")
        for name, cosine in near:
            print(f"  {cosine:7.4f}  {name}")


def _evaluate(path: Path, options: argparse.Namespace) -> None:
    from embexp.cli.stages import show_stages
    from embexp.system.parallel import if_long
    from embexp.vectors import quality

    with show_stages() as stages:
        matrix, tokens, _ = _rows(path, options, stages, whole=False)
        rows = _ROWS if options.rows is None else options.rows
        content = quality.evaluate(
            str(path),
            matrix,
            tokens,
            quality.read_tests({name: getattr(options, name) for name in _TESTS}),
            rows=rows or matrix.rows,
            any_case=not options.match_case,
            progress=if_long(stages),
        )
    _written(content, options, "evaluation")


def _compare(paths: Sequence[Path], options: argparse.Namespace) -> None:
    from embexp.cli.stages import show_stages
    from embexp.system.parallel import if_long
    from embexp.vectors import comparison
    from embexp.vectors.comparison import Vectors
    from embexp.vectors.file_source import FileSource

    paths = [each for path in paths for each in _runs_of(path)]
    if len(paths) < 2:
        raise CommandLineError(f"embexp vectors compare: found only {', '.join(map(str, paths))}, expected two or more")
    with show_stages() as stages:
        sets = []
        for path in paths:
            rows, tokens, _ = _rows(path, options, stages, whole=False)
            values = rows.memory_map() if isinstance(rows, FileSource) else rows.read(0, rows.rows)
            sets.append(Vectors(str(path), values, tokens))
        found = comparison.compare(
            sets,
            count=options.count or _COUNT,
            sample=options.sample or _SAMPLE,
            moved=_MOVED if options.moved is None else options.moved,
            progress=if_long(stages),
        )
        content = comparison.as_json(found)
    _written(content, options, "comparison")


def _runs_of(path: Path) -> list[Path]:
    """The finished runs in a folder of runs; of anything else, the path itself."""
    from embexp.reports import collected

    if not path.is_dir() or collected.is_run(path) or any(path.glob("*.index")):
        return [path]
    records = collected.collect([path])
    found = [each.directory for each in records if each.directory and each.same_as is None and each.status.has_results]
    if not found:
        raise CommandLineError(f"embexp vectors compare: {path} has no run that has ended")
    return found


def _written(content: Mapping[str, Any], options: argparse.Namespace, what: str) -> None:
    """Prints what was measured."""
    from embexp.cli.commands.finished import write_json

    if options.json:
        write_json(content)
    else:
        (show_evaluation if what == "evaluation" else show_comparison)(content)


def _rows(path: Path, options: argparse.Namespace, stages: Stages, *, whole: bool) -> tuple[Rows, Tokens, list[Path]]:
    """The rows of a file of vectors, or of the table of a run: all (`whole`), or those with a token.

    Returns:
        The rows; their tokens, None where they are identified by number; and the files that they are read from.
    """
    if not (path.is_dir() and (path / "spec.json").exists()):
        if options.table is not None:
            raise CommandLineError(f"--table {options.table}: {path} is not a run, and a file has no tables; use --key")
        source = _open(path, options, stages)
        return source, source.tokens, list(source.files)
    file_only = ("format", "key", "token_column", "tokens", "invalid_text", "non_finite", "header_count")
    if given := [name for name in file_only if getattr(options, name)]:
        option = given[0].replace("_", "-")
        raise CommandLineError(f"--{option} applies to a file, and {path} is a run: choose its table with --table")
    from embexp.system.arrays import ArrayRows

    values, tokens = _read_table(path, options.table, whole=whole, allow_code=options.allow_code)
    return ArrayRows(values), tokens, []


def _row_of(path: Path, query: str, tokens: Any, rows: int) -> int:
    if tokens is None:
        if query.isdigit() and int(query) < rows:
            return int(query)
        raise VocabularyError(
            f"{path}: found no row {query!r}; it has no tokens, so rows are identified by number, 0 to {rows - 1}"
        )
    from embexp.vectors import neighbors

    return neighbors.row_of_token(tokens, query, str(path))


def _read_table(path: Path, table: str | None, *, whole: bool, allow_code: Sequence[str]) -> tuple[np.ndarray, Tokens]:
    """Reads a table of a run: of a finished one from its checkpoint, without its model and TensorFlow.

    Args:
        table: name; None: the only one.
        whole: all rows, the OOV row included, with row numbers as tokens where ids are row numbers; False: only rows
            that have a token, and no tokens where ids are row numbers.
        allow_code: functions that the spec of a run that has not ended may run.

    Raises:
        CommandLineError: the run has several tables, and `table` is None.
        UsageError: the run has no such table; or it has not ended, and its model is code that isn't allowed.
        RunError: the run has no checkpoint.
    """
    import pyarrow as pa

    from embexp.data.vocabularies.vocabulary import IdentityVocabulary, Vocabulary, stands_for_tokens
    from embexp.records.folder import RunFolder
    from embexp.runs.table_vectors import read_table

    folder = RunFolder(path)
    folder.check(folder.spec)
    spec = folder.read_spec()
    tables = list(spec.tables)
    if table is None and len(tables) > 1:
        raise CommandLineError(f"{path} has several tables, choose one with --table: {', '.join(tables)}")
    name = table or tables[0]
    if name not in tables:
        raise UsageError(f"{path} has no table {name!r}; its tables are {', '.join(tables)}")
    if folder.summary.exists():
        values = read_table(folder, name, cache=spec.output.cache)
    else:
        from embexp.cli.commands.finished import load_finished

        values = load_finished(str(path), "vectors", allow_code=allow_code).table(name)
    vocabulary = Vocabulary.read(folder.checked_vocabulary(name))
    if whole:
        return values, pa.array(vocabulary.tokens(), pa.large_string())
    if isinstance(vocabulary, IdentityVocabulary):
        return values, None
    # A table may have more rows than its vocabulary: the rest have no token.
    first = vocabulary.first if stands_for_tokens(vocabulary) else 0
    return values[first : vocabulary.size], pa.array(vocabulary.tokens(first), pa.large_string())


def show_evaluation(content: Mapping[str, Any]) -> None:
    """Prints the figures of `embexp.vectors.quality.evaluate`."""
    counted = f"; the first {content['counted']:,} count" if content["counted"] < content["rows"] else ""
    print(f"{content['vectors']}: {plural(content['rows'], 'row')} of dimension {content['dim']}{counted}\n")
    _print(
        {
            "similarity": Path(each["file"]).name,
            **_covered(each, "pairs"),
            "Spearman": _figure(each["spearman"]),
            "95% interval": _interval(each, "3f"),
            "p": _figure(each["p"], "2g"),
            "Pearson": _figure(each["pearson"]),
        }
        for each in content["similarity"]
    )
    for each in content["analogies"]:
        _print(
            {
                Path(each["file"]).name: section["name"],
                **_covered(section, "questions"),
                "3CosAdd": _figure((section["add"] or {}).get("share"), "1%"),
                "95% interval": _interval(section["add"]),
                "3CosMul": _figure((section["mul"] or {}).get("share"), "1%"),
                "its 95% interval": _interval(section["mul"]),
            }
            for section in each["sections"]
        )
    _print(
        {
            "categories": Path(each["file"]).name,
            **_covered(each, "words"),
            "clusters": str(each["categories"]),
            "purity": _figure(each["purity"]),
            "over ten starts": _interval(each, "3f"),
            "by chance": _figure(each["chance"]),
        }
        for each in content["categories"]
    )
    without = [each for each in content["similarity"] if each["spearman"] is None]
    without += [each for each in content["analogies"] if each["sections"][-1]["add"] is None]
    for each in [*without, *(each for each in content["categories"] if each["purity"] is None)]:
        print(f"{each['file']}: too few of its words have a row; --json lists them")


def _covered(each: Mapping[str, Any], of: str) -> dict[str, str]:
    return {of: f"{each[of]:,}", "covered": f"{each['covered'] / each[of]:.1%}"}


def show_comparison(content: Mapping[str, Any]) -> None:
    """Prints the figures of `embexp.vectors.comparison.as_json`."""
    shared, count, dropped = content["shared"], content["count"], content["without_direction"]
    zeros = f", plus {plural(dropped, 'token')} with a row of zeros" if dropped else ""
    sampled = "all" if content["sampled"] == shared else f"{content['sampled']:,}"
    labels = [chr(ord("a") + place) if place < 26 else str(place + 1) for place in range(len(content["shapes"]))]
    for label, each in zip(labels, content["shapes"], strict=True):
        print(f"{label}  {each['name']}")
    print(f"\n{plural(shared, 'shared token')}{zeros}; the {count} nearest neighbors of {sampled} are compared\n")
    _print(
        {
            "": label,
            "rows": f"{each['rows']:,}",
            "dim": str(each["dim"]),
            "mean norm": f"{each['mean_norm']:.4g}",
            "norm by rank": _figure(each["norm_by_rank"], "3f"),
            "mean cosine": f"{each['mean_cosine']:.3f}",
            "effective dim": f"{each['effective_dim']:.1f}",
            "first component": f"{each['first_share']:.1%}",
        }
        for label, each in zip(labels, content["shapes"], strict=True)
    )
    _print(
        {
            "": f"{a}, {b}",
            "overlap": f"{each['overlap']['mean']:.1%}",
            "95% interval": _interval(each["overlap"]),
            "Jaccard": f"{each['jaccard']:.3f}",
            "CKA": f"{each['cka']:.3f}",
            "distance": f"{each['distance']:.3f}",
            "without rotation": _figure(each["unaligned"], "3f"),
        }
        for (a, b), each in zip(combinations(labels, 2), content["pairs"], strict=True)
    )
    print(f"overlap of unrelated vectors: {content['chance']:.2%}")
    if (stability := content["stability"]) is not None:
        print(
            f"stability: {stability['mean']:.1%} of the neighbors are shared by two of the"
            f" {plural(len(content['shapes']), 'set')}, 95% interval {_interval(stability)}"
        )
        return
    (pair,) = content["pairs"]
    print()
    _print(
        {
            "rows of a": f"{band['first']:,} to {band['last']:,}",
            "tokens": f"{band['tokens']:,}",
            **{f"norm in {name}": f"{norm:.4g}" for name, norm in zip("ab", band["norms"], strict=True)},
            "distance": f"{band['distance']:.3f}",
            "overlap": _figure(band["overlap"], "1%"),
        }
        for band in pair["bands"]
    )
    for words, moved in (("moved most", pair["most"]), ("moved least", pair["least"])):
        if moved:
            listed = (f"{each['token']} {each['distance']:.3f}" for each in moved)
            print(f"{words}: {', '.join(listed)}")


def _figure(value: float | None, form: str = "4f") -> str:
    return "" if value is None else f"{value:.{form}}"


def _interval(each: Mapping[str, Any] | None, form: str = "1%") -> str:
    return "" if each is None or each["low"] is None else f"{each['low']:.{form}} to {each['high']:.{form}}"


def _print(rows: Iterable[Mapping[str, str]]) -> None:
    """Prints rows of a table, if there are any, with an empty line after it where it has no frame."""
    from rich.text import Text

    from embexp.system import terminal

    if listed := list(rows):
        console = terminal.console()
        first, *others = listed[0]
        table = terminal.table(console, [first], right=others)
        for row in listed:
            table.add_row(*map(Text, row.values()))
        console.print(table)
        if not console.is_terminal:
            print()

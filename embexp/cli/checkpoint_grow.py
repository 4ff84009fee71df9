"""`embexp checkpoint grow`: a checkpoint for a longer vocabulary. Imports no TensorFlow."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError
from embexp.specs.pretrained import Match, MissingRows

if TYPE_CHECKING:
    from embexp.growth.plan import TableGrowth

USAGE = "embexp checkpoint grow RUN_OR_CHECKPOINT --vocabulary NEW --out DIR [OPTIONS]"

HELP = f"""\
usage: {USAGE}

Writes a checkpoint whose tables have a row for each token of a new vocabulary, in its order. Rows are matched by token,
never by position, and keep their optimizer slots; new rows are filled, and their slots get initial values. The dense
part, the step counter and all other tables stay unchanged. A run starts from the checkpoint with pretrained=checkpoint
pretrained.path=DIR; freeze=old_rows then trains the new rows only.

RUN_OR_CHECKPOINT is the directory of a finished run, or a checkpoint that this command wrote.

    --vocabulary NEW     Names a file with a token per line: FILE if there is one table, else TABLE=FILE, repeated for
                         more; or a vocabulary, or a folder of them, as a run writes. A file of tokens keeps the OOV
                         row and the free rows of the old vocabulary.
    --out DIR            Names the new checkpoint, which must not exist.
    --missing VALUES     Fills new rows: {", ".join(MissingRows)} (default: initializer).
    --gone ACTION        Treats tokens that NEW lacks: drop, or keep after the new ones (default: drop).
    --match HOW          Decides when tokens are equal: {", ".join(Match)} (default: exact).
    --seed N             Sets the seed of new rows (default: the run's).
    --dry-run            Only shows what would be kept, moved, new and dropped.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `grow`.
    """
    parser = Parser("checkpoint grow", USAGE)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--vocabulary", action="append", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--missing", choices=[each.value for each in MissingRows], default="initializer")
    parser.add_argument("--gone", choices=("drop", "keep"), default="drop")
    parser.add_argument("--match", choices=[each.value for each in Match], default="exact")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    _check(parser, options)
    from embexp.records.folder import RunFolder

    with RunFolder(Path(options.directory)).reading():
        _grow(options)
    return DONE


def _check(parser: Parser, options: argparse.Namespace) -> None:
    faults = []
    if options.directory is None:
        faults.append("which run or checkpoint? Give its directory")
    if not options.vocabulary:
        faults.append("to which vocabulary? Add --vocabulary FILE, TABLE=FILE or FOLDER")
    if options.out is None and not options.dry_run:
        faults.append("where to? Add --out DIR, or --dry-run to write nothing")
    if options.out is not None and options.out.exists():
        faults.append(f"{options.out} already exists: give --out another name")
    if options.seed is not None and options.seed < 0:
        faults.append(f"--seed {options.seed}: it must be at least 0")
    if faults:
        raise parser.incomplete(*faults)


def _grow(options: argparse.Namespace) -> None:
    from embexp.cli.stages import Stages
    from embexp.growth import plan, write
    from embexp.growth.plan import Gone, growths
    from embexp.pretrained import earlier
    from embexp.system import caching
    from embexp.system.terminal import SafeConsole

    gone, match = Gone(options.gone), Match(options.match)
    source = earlier.open_run(Path(options.directory), cache=caching.cache_folder(None))
    tables = growths(source, plan.vocabulary_files(options.vocabulary, source), match=match, gone=gone)
    if not options.dry_run:
        stages = Stages(SafeConsole(stderr=True))
        try:
            write.write(
                source,
                tables,
                options.out,
                missing=MissingRows(options.missing),
                match=match,
                gone=gone,
                seed=options.seed,
                progress=stages,
            )
        except FileExistsError:
            raise CommandLineError(
                f"embexp checkpoint grow: {options.out} already exists: give --out another name"
            ) from None
        finally:
            stages.close()
    _show(tables)
    if options.dry_run:
        print("nothing was written (--dry-run)")
    else:
        print(f"wrote the checkpoint {options.out}: pretrained=checkpoint pretrained.path={options.out}")


def _show(tables: Mapping[str, TableGrowth]) -> None:
    from embexp.system import terminal
    from embexp.system.terminal import byte_size

    console = terminal.console()
    names = ["rows before", "kept in place", "moved", "new", "dropped", "rows after", "bytes before", "bytes after"]
    shown = terminal.table(console, ["table"], right=names, after=["slots"])
    for name, table in tables.items():
        counts = table.as_json()
        keys = ("rows_before", "kept_in_place", "moved", "new", "dropped", "rows")
        shown.add_row(
            name,
            *(f"{counts[key]:,}" for key in keys),
            byte_size(table.bytes_before),
            byte_size(table.bytes_after),
            ", ".join(table.slots),
        )
    console.print(shown)

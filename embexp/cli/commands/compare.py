"""`embexp compare`: finished runs on the same examples, with tests of their differences."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser, add_allow_code
from embexp.cli.commands import DONE
from embexp.cli.commands.finished import SPLITS, load_finished, stages_of_long_work
from embexp.errors import RunError
from embexp.system import stores
from embexp.system.printable import print

if TYPE_CHECKING:
    import argparse

    from embexp.records.outputs import Output
    from embexp.reports.comparison import Comparison
    from embexp.runs.finished import Run

HELP = """\
usage: embexp compare DIR DIR… [--data FILE | --split SPLIT] [--all-pairs] [--rows N] [--json FILE] [--html FILE] …

Compares finished runs on the same examples. Each run is evaluated again from its checkpoint, so you need no files of
predictions. Runs can only be compared if they evaluate the same examples. For each metric, the table shows both values,
the difference with its 95% confidence interval, the p-value, and how many examples or seeds would detect this
difference with 80% power. Intervals come from a paired bootstrap over examples, users or queries. Accuracy is tested
with McNemar's test, and AUC with DeLong's.

DIR is a run, or a folder of runs such as a sweep. Runs that differ only in the seed count as one model; runs that
differ in any other setting are different models. The first model is compared with all others, and p-values are
corrected for the number of comparisons (Holm).

    --data FILE     Evaluates on all of this file, or s3://BUCKET/KEY, with each run's vocabularies.
    --split SPLIT   Evaluates on a split of the runs' own data: test (the default), validation or train. Knowledge
                    graphs with new entities also have test_new and test_known.
    --all-pairs     Compares every pair of models.
    --rows N        Lists the N examples for which the models differ most (default: 3).
    --json FILE     Writes all figures as JSON.
    --html FILE     Writes a report page of these runs that includes the comparison.
    --force         Replaces files that embexp did not write, or that were changed since.
    --allow-code MODULE:FUNCTION   Allows a function that a run's record names, such as that of its model.

One FILE may be -, for standard output. The table then goes to standard error.

    embexp compare outputs/mlp outputs/dlrm
    embexp compare outputs/two_models --html differences.html
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("compare", HELP)
    parser.needs("directories", "which runs? Give the directories of two or more, or of a sweep", nargs="*")
    parser.values("--data")
    parser.add_argument("--split", choices=SPLITS)
    parser.switches("--all-pairs", "--force")
    parser.add_argument("--rows", type=int, default=3)
    for name in ("json", "html"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE")
    add_allow_code(parser)
    options = parser.parse(arguments, _faults)
    outputs = _outputs(options.json, options.html, force=options.force)
    from embexp.reports import comparison
    from embexp.runs import compare
    from embexp.system import terminal

    models = compare.contenders(options.directories)
    codes = compare.allowed_for(models, options.allow_code)

    def load(directory: str) -> Run:
        own = options.data is None
        return load_finished(directory, "compare", data=options.data, own_data=own, allow_code=codes[directory])

    with stages_of_long_work() as progress, stores.naming_urls():
        found = compare.compare(
            models,
            load,
            None if options.data is None else stores.local(options.data),
            split=options.split or "test",
            all_pairs=options.all_pairs,
            rows=options.rows,
            progress=progress,
        )
    piped = any(out.path is None for out in outputs.values())
    comparison.show(found, terminal.console(stderr=piped))
    _write(found, outputs)
    for out in outputs.values():
        if out.is_file:
            print(f"written: {out.named}", file=sys.stderr if piped else sys.stdout)
    return DONE


def _faults(options: argparse.Namespace) -> Iterator[str]:
    if options.data is not None and options.split is not None:
        yield "--split is for the runs' own data and --data for another file: give one of them"
    if options.rows < 0:
        yield f"--rows {options.rows}: it must be at least 0"
    if options.json is not None and options.json == options.html:
        yield f"--json {options.json}, --html {options.html}: name each file once"


def _outputs(json: Path | None, html: Path | None, *, force: bool) -> dict[str, Output]:
    """The files to write, by their kind.

    Raises:
        CommandLineError: one can't be written, or must not be.
    """
    from embexp.records.outputs import PAGE_MARK, output

    found = {}
    for name, path, mark in (("json", json, None), ("html", html, PAGE_MARK)):
        if path is not None:
            found[name] = output(path, f"compare --{name}", option=f"--{name}", force=force, mark=mark)
    return found


def _write(found: Comparison, outputs: Mapping[str, Output]) -> None:
    """Writes the files.

    Raises:
        RunError: one can't be written.
    """
    from embexp.reports import comparison, page
    from embexp.reports.collected import collect

    for name, out in outputs.items():
        if name == "json":
            text = comparison.as_text(found)
        else:
            directories = dict.fromkeys(each for model in found.contenders for each in model.directories.values())
            text = page.page_of(collect(directories), comparison=found.for_page())
        try:
            out.write(text)
        except OSError as error:
            raise RunError(f"{out.named} can't be written: {error.strerror}") from None

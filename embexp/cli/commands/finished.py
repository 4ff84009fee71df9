"""`embexp evaluate` and `predict`: what a finished run is used for; loading a run, and writing CSV."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
import math
import operator
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, warn
from embexp.errors import CommandLineError, ConfigError, DataError, EmbexpError, plural
from embexp.system import printable, stores
from embexp.system.printable import print
from embexp.system.stores import is_url

if TYPE_CHECKING:
    import argparse

    import numpy as np

    from embexp.records.outputs import Output
    from embexp.runs.finished import Run
    from embexp.system.parallel import Progress


SPLITS = ("test", "validation", "train", "test_new", "test_known")

EVALUATE_HELP = """\
usage: embexp evaluate DIR [--data FILE] [--split SPLIT] [--json] [--allow-code MODULE:FUNCTION]

Evaluates a finished run on a split of its own data, or on another file of the same format (with labels). Prints each
metric with half the width of its 95% confidence interval, from a bootstrap over examples, users or queries.

    --data FILE     Evaluates on all of this file, or s3://BUCKET/KEY, with the run's vocabularies.
    --split SPLIT   Evaluates on a split of the run's own data: test (the default), validation or train. Knowledge
                    graphs with new entities also have test_new and test_known.
    --json          Prints one JSON object instead of a table.
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""

PREDICT_HELP = """\
usage: embexp predict DIR --data FILE [--keep A,B,…] [--out FILE] [--force] [--safe]
                      [--allow-code MODULE:FUNCTION]

Predicts a number, the probability of label 1 or a class name for each example of a file. The file has the format of the
run's data; the label may be missing, even if there is no header line. Writes CSV in the order of the file, with these
columns:
  A, B, …               the columns that --keep names
  prediction            the prediction
  class                 the more probable class, for task binary if the classes have names
  probability of NAME   the probability of each class that has a name
  unknown               the features whose value is out of vocabulary (OOV), if there are any
Then prints, for each feature, how many rows lack a value and how many have an OOV value.

    --data FILE   Reads the examples from this file, or s3://BUCKET/KEY.
    --keep A,B,…  Copies these columns of the file.
    --out FILE    Writes to this file (default: -, standard output).
    --force       Replaces a file that `embexp predict` did not write, or that was changed since.
    --safe        Makes cells safe for spreadsheets: formulas such as =1+1 get a leading apostrophe, and control
                  characters are replaced by visible symbols. By default, --keep copies values unchanged.
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""


def evaluate(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser.of_run("evaluate", EVALUATE_HELP)
    parser.values("--data")
    parser.add_argument("--split", choices=SPLITS)
    parser.switches("--json")
    options = parser.parse(arguments)
    if options.data is not None and options.split is not None:
        raise CommandLineError("--split is for the run's own data and --data for another file: give one of them")
    data, split = options.data, options.split or "test"
    rest = ["--data", data] if data is not None else ["--split", split] if split != "test" else []
    run = load_finished(
        options.directory, "evaluate", *rest, data=data, own_data=data is None, allow_code=options.allow_code
    )
    details: dict[str, Any] | None = None if options.json else {}
    with stages_of_long_work() as progress, stores.naming_urls():
        own = None if data is None else stores.local(data)
        metrics = run.evaluate(own, split=split, progress=progress, details=details)
    if details is None:
        print(json.dumps(dict(metrics)))
    else:
        width, intervals = max(map(len, metrics), default=0), details.get("intervals", {})
        for name, value in metrics.items():
            ends = intervals.get(name)
            print(f"{name:{width}}  {value:.6f}" + ("" if ends is None else f"  ±{(ends[1] - ends[0]) / 2:.6f}"))
    return DONE


def predict(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser.of_run("predict", PREDICT_HELP)
    parser.needs("--data", "which data? Give --data FILE")
    parser.values("--out", "--keep")
    parser.switches("--force", "--safe")
    options = parser.parse(arguments)
    out = output_of(options, "predict", options.data)
    rest = ["--data", options.data]
    run = load_finished(options.directory, "predict", *rest, data=options.data, allow_code=options.allow_code)
    columns: dict[str, Sequence[object]] = {}
    if options.keep is not None:
        columns |= run.columns_of_file(stores.local(options.data), options.keep.split(","))
    with stages_of_long_work() as progress, stores.naming_urls():
        found = run.predictions(stores.local(options.data), progress=progress)
    columns["prediction"] = _texts(found.prediction)
    if found.classes is not None:
        columns["class"] = found.classes.tolist()
    columns |= {name: _texts(values) for name, values in found.further.items()}
    columns |= {f"probability of {name}": _texts(values) for name, values in found.probabilities.items()}
    _say_which(found.missing, "lack a value")
    if counts := _say_which(found.unknown, "have values that the run does not know"):
        rows = zip(*(found.unknown[name].tolist() for name in counts), strict=True)
        columns["unknown"] = [" ".join(itertools.compress(counts, row)) for row in rows]
        for names, alike in run.alike_unknown(stores.local(options.data)).items():
            first, second = alike.shown
            warn(
                f"{names}: {alike.count:,} of {alike.tokens:,} unknown values differ from a known one only by"
                f" {alike.differences}, such as {first} from {second}: correct the file, or train with"
                f" {alike.setting(run.spec.data.token_steps)}"
            )
    write_csv(out, list(columns), zip(*columns.values(), strict=True), safe=options.safe)
    return DONE


def _say_which(features: Mapping[str, np.ndarray], what: str) -> Mapping[str, int]:
    """Says of how many rows something is true, bool [n] by feature; returns the count of each feature that has some."""
    counts = {name: int(rows.sum()) for name, rows in features.items() if rows.any()}
    if counts:
        some = functools.reduce(operator.or_, features.values())
        listed = ", ".join(f"{name} in {count:,}" for name, count in counts.items())
        print(f"{int(some.sum()):,} of {len(some):,} rows {what}: {listed}", file=sys.stderr)
    return counts


def _texts(values: np.ndarray) -> list[str]:
    return [value if isinstance(value, str) else f"{value:.7g}" for value in values.tolist()]


COMMANDS = {
    "evaluate": SimpleNamespace(main=evaluate, HELP=EVALUATE_HELP),
    "predict": SimpleNamespace(main=predict, HELP=PREDICT_HELP),
}
"""As modules of commands, by name."""


@contextlib.contextmanager
def stages_of_long_work() -> Iterator[Progress]:
    """Shows the stages of the block that take long, on standard error."""
    from embexp.cli.stages import show_stages
    from embexp.system.parallel import if_long

    with show_stages() as stages:
        yield if_long(stages)


def load_finished(
    directory: str,
    command: str,
    *rest: str,
    data: str | None = None,
    own_data: bool = False,
    allow_code: Sequence[str] = (),
) -> Run:
    """Loads the run in a directory, to use its model; takes and raises what `check_finished` does.

    Args:
        data: another file that the command reads, or URL.
        own_data: whether the command reads the run's own data again.

    Raises:
        CommandLineError: there is no such file or folder of data.
        DataError: the run's own data have changed, see `prepare.check_recorded_data`.
    """
    from embexp.records.folder import RunFolder
    from embexp.records.manifest import Kernels, choose_kernels

    folder = RunFolder(Path(directory))
    choose_kernels(folder)
    check_finished(directory, command, *rest, allow_code=allow_code)
    if own_data:
        from embexp.runs.prepare import check_recorded_data

        check_recorded_data(folder, folder.read_spec())
    if data is not None and is_url(data):
        _fetch(directory, data)
    elif data is not None and not Path(data).exists():
        raise CommandLineError(f"--data {data}: there is no such file or folder")
    Kernels.of_run(folder).load_tensorflow()
    from embexp.runs.finished import load_run

    run = load_run(directory, allow_code=allow_code)
    if run.summary["status"] == "unfinished":
        print(
            f"{directory} has not ended: this is its checkpoint after {plural(run.summary['steps'], 'step')}",
            file=sys.stderr,
        )
    return run


def _fetch(directory: str, url: str) -> None:
    """Fetches data of an object store for a run.

    Raises:
        CommandLineError: they can't be had.
    """
    from embexp.records.folder import RunFolder
    from embexp.specs.data import Columnar
    from embexp.system import caching

    spec = RunFolder(Path(directory)).recorded_spec()
    try:
        cache = caching.cache_folder(spec.output.cache)
        stores.fetch({"--data": url}, cache=cache, flat=isinstance(spec.data, Columnar))
    except ConfigError as error:
        [fault] = error.faults
        raise CommandLineError("\n    ".join([f"--data {url}: {fault.rule}", fault.remedy]).rstrip()) from error


def check_finished(directory: str, command: str, *rest: str, allow_code: Sequence[str] | None = None) -> None:
    """Checks that a directory is that of a run, and the code that it names. Loads no TensorFlow, which takes seconds.

    Args:
        command: name of the command, for the error message about the directory of a study.
        allow_code: functions that the recorded spec may run; None: the command runs none.

    Raises:
        NotARunError: the directory holds no run.
        RunError: another process writes it.
        UsageError: the spec names code that isn't allowed.
        DataError: a file that the command reads is not what the run wrote. Others are a warning.
    """
    from embexp.errors import NotARunError
    from embexp.records import inventory
    from embexp.records.folder import RunFolder, check_code, named_functions
    from embexp.reports.jobs import noted_inventory, record_changes

    folder = RunFolder(Path(directory))
    with folder.reading():  # what is being written is refused now, and not after the import of TensorFlow
        folder.check(folder.spec, folder.summary, folder.vocabularies, folder.numbers, folder.coverage, folder.code)
        if runs := folder.runs_of_study():
            lines = (shlex.join(["embexp", command, str(run.path), *rest]) for run in runs.values())
            message = f"{folder.path} is the directory of a study; name one of its runs:"
            raise NotARunError("\n    ".join([message, *lines]))
        spec = folder.read_spec()
    if allow_code is not None:
        check_code(named_functions(spec), allow_code, record=folder.spec)
    # Of files that the command does not read, and of other checkpoints only the sizes are compared.
    if lost := inventory.losses(record_changes(folder.path, noted_inventory(folder.path), quick=True)):
        warn(inventory.warning(folder.path, lost))


def warn_of_checkpoint(*paths: Path) -> None:
    """Warns of a file of a checkpoint that is not what the run wrote, in whose folder it is."""
    from embexp.records.folder import check_checkpoint

    try:
        check_checkpoint(*paths)
    except DataError as error:
        warn(str(error))


def output_of(options: argparse.Namespace, command: str, *inputs: str | None) -> Output:
    """What --out names; see `outputs.output`. What the command reads includes the data that the run was trained on."""
    from embexp.records.folder import RunFolder
    from embexp.records.outputs import STANDARD_OUTPUT, output

    read = [each for each in inputs if each is not None]
    with contextlib.suppress(EmbexpError):  # what is no run is reported in its turn
        path = getattr(RunFolder(Path(options.directory)).recorded_spec().data, "path", None)
        read += [] if path is None else [str(path)]
    return output(options.out or STANDARD_OUTPUT, command, option="--out", inputs=read, force=options.force)


def write_csv(out: Output, header: Sequence[str], rows: Iterable[Sequence[object]], *, safe: bool = False) -> None:
    """Writes a header and rows, once all rows are known.

    Args:
        safe: whether cells are written as `printable.safe_cell` makes them, and not as they are.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    lines: Iterable[Sequence[object]] = itertools.chain([header], rows)
    table.writerows(([printable.safe_cell(str(cell)) for cell in line] for line in lines) if safe else lines)
    out.write(text.getvalue())


def write_json(content: object) -> None:
    """Writes a value to the standard output as one line of JSON."""
    printable.write_data(json.dumps(_plain(content), ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    """A value of JSON: data classes are objects, and NaN and infinity, which JSON lacks, null."""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value

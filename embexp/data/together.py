"""Data that several workers read together: each some of the files, and all have what one process makes of them.

A worker writes the examples of its files, which are neighbours, as a part: with codes of its own. Then the parts are
joined in the order of the files. The tokens of each part get the codes that one process would give them, as it numbers
them in the order in which they are first seen. So the folder in the cache is the same, byte for byte, and all that
follows from it: counts, vocabularies, splits.

Workers with one cache have it from one of them, the owner. Between caches, parts are sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from embexp import errors
from embexp.data import splits
from embexp.data.columns import Columns
from embexp.data.examples import (
    GROUP,
    LabelNumbers,
    Layout,
    SplitsWriter,
    no_examples,
    read_tokens,
    values_of_part,
)
from embexp.data.files.table_files import Table
from embexp.data.sources.columnar import CODES, ColumnarSource, Reading
from embexp.data.sources.source import Source, cached, key_of
from embexp.data.vocabularies.token_keys import Codes, packed
from embexp.errors import Code, ConfigError, EmbexpError, Fault, RunError
from embexp.specs.data import Data
from embexp.system import caching, digests, machine_faults
from embexp.system.arrays import ArrayWriter, mapped_array
from embexp.system.parallel import Progress, ahead, at_once

_TOKENS, _ROWS = 65_536, 16_384
"""How many are joined at a time: nobody holds the tokens of a column twice."""
_FINE = 8
"""A file is cut if it is larger than one part in so many of what a worker reads."""
Made = TypeVar("Made")


class Workers(Protocol):
    """Workers that read together, as one of them sees it; all call the same methods in the same order.

    Attributes:
        worker: its number.
        workers: how many there are.
    """

    worker: int
    workers: int

    def gathered(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        """What each worker says, JSON, in the order of the workers.

        Raises:
            RunError: a worker was lost.
        """

    def send(self, folder: Path, sender: int, receivers: Collection[int]) -> None:
        """Copies the files of a folder of one worker into a new folder of each of some others.

        Args:
            folder: where they are, or are written to; nothing is done by those who do neither.

        Raises:
            RunError: a worker was lost.
        """

    def counted(self, progress: Progress) -> Progress:
        """A `Progress` of what all workers have done together, shown by worker 0."""


Meeting = Callable[[Mapping[str, str]], AbstractContextManager[Workers | None]]
"""Returns a context in which workers read together, from what they must agree on; None: one process reads alone."""


def alone(facts: Mapping[str, str]) -> AbstractContextManager[None]:
    """One process reads alone."""
    return nullcontext()


def facts(data: Data) -> dict[str, str]:
    """What workers must agree on before they read together."""
    return {"kind of data": data.kind, "embexp": digests.of_package()[:12], "pyarrow": pa.__version__}


def read(
    source: Source, columns: Columns, make: Callable[[], Made], *, workers: Workers, cache: Path, progress: Progress
) -> Made:
    """What `make` makes of a source in this worker's cache, once it is there, and once for all workers of a cache.

    Raises:
        EmbexpError: what `make` raises, or the reading of the files, in any of the workers, with every fault.
    """
    with ExitStack() as stack:
        try:
            place = stack.enter_context(caching.workplace(cache))
        except OSError:  # a cache that is only to be read
            place = None
        names = [str(said["place"]) for said in workers.gathered({"place": place.name if place else ""})]
        seen = [number for number, name in enumerate(names) if name and (cache / name).is_dir()]
        sees = [[number, *said["seen"]] for number, said in enumerate(workers.gathered({"seen": seen}))]
        if source.parted and isinstance(source, ColumnarSource) and place is not None and all(names):
            parts = _Parts(workers, place, [cache / name for name in names], sees)
            _read_parts(source, columns, parts, cache=cache, progress=progress)
        if min(sees[workers.worker]) == workers.worker:
            found: list[Made] = []

            def make_own() -> dict[str, Any]:
                found.append(make())
                return {}

            _agreed(workers, make_own)
            return found[0]
        _agreed(workers, dict)
    return make()


@dataclass(frozen=True)
class _Parts:
    """Where the parts of all workers are.

    Attributes:
        place: this worker's folder for the time of the reading.
        places: where those of all are, if this worker sees them.
        sees: by worker, which workers' it sees; its own, too.
    """

    workers: Workers
    place: Path
    places: Sequence[Path]
    sees: Sequence[Sequence[int]]

    def of(self, worker: int) -> Path:
        """The part of a worker, as this one has it."""
        there = self.places[worker] if worker in self.sees[self.workers.worker] else self.place
        return there / f"part-{worker}"

    def owners(self) -> set[int]:
        """The first worker of each cache."""
        return {min(seen) for seen in self.sees}

    def send(self, sender: int) -> None:
        """Sends the part of a worker to those owners who do not see it."""
        if lacking := [owner for owner in sorted(self.owners()) if sender not in self.sees[owner]]:
            self.workers.send(self.of(sender), sender, lacking)


def _read_parts(source: ColumnarSource, columns: Columns, parts: _Parts, *, cache: Path, progress: Progress) -> None:
    """Has the encoded examples of all files in each cache; or nothing, if the workers do not have the same files."""
    workers, worker = parts.workers, parts.workers.worker
    readings: list[Reading] = []

    def look() -> dict[str, Any]:
        """Lists all files; takes the digests of some."""
        reading = source.reading(columns)
        readings.append(reading)
        paths = reading.located.paths()
        mine = shares([path.stat().st_size for path in paths], workers.workers)[worker]
        own = [(place, caching.settled_stamp(paths[place]), paths[place]) for place in mine]
        taken = at_once(lambda each: [*each[:2], caching.file_digest(each[2], cache=cache)], own)
        return {"files": digests.of_json([[path.name, path.stat().st_size] for path in paths]), "digests": taken}

    found = _agreed(workers, look)
    reading = readings[0]
    if len({said["files"] for said in found}) > 1:
        return  # each reads its own, and the start of the cluster says in what they differ
    paths = reading.located.paths()
    for place, stamp, digest in itertools.chain.from_iterable(said["digests"] for said in found):
        caching.remember(paths[place], stamp, digest, cache=cache)
    content = source.content(reading.located, cache)
    key = key_of(content, reading.settings)
    keys = _agreed(workers, lambda: {"key": key, "has": caching.exists(cache, CODES, key)})
    if len({said["key"] for said in keys}) > 1 or all(said["has"] for said in keys):
        return
    dealt = _dealt(reading.located.tables, workers.workers)

    def encode_own() -> dict[str, Any]:
        if dealt[worker]:
            parts.of(worker).mkdir()
            some = replace(reading.located, tables=dealt[worker])
            reading.write(parts.of(worker), some, progress=workers.counted(progress), part=True)
        return {}

    _agreed(workers, encode_own)
    full = [number for number, share in enumerate(dealt) if share]
    for number in full:
        parts.send(number)

    def join_all() -> dict[str, Any]:
        if worker in parts.owners():
            of = [(parts.of(number), dealt[number]) for number in full]
            make = partial(_join, reading, of, progress)
            cached(CODES, content, reading.settings, make, cache=cache)
        return {}

    _agreed(workers, join_all)


def _dealt(tables: Sequence[Table], workers: int) -> list[tuple[Table, ...]]:
    """For each worker files that are neighbours, or pieces of large ones, of about as many bytes together."""
    bytes_of = [table.path.stat().st_size for table in tables]
    pieces: list[tuple[int, int, int]] = []
    """Number of the table, and where the piece begins and ends; 0 and 0: all."""
    sizes: list[int] = []
    for number, (table, size) in enumerate(zip(tables, bytes_of, strict=True)):
        cuts = table.cuts() if size * workers * _FINE > sum(bytes_of) else ()
        found = list(itertools.pairwise(cuts)) or [(0, 0)]
        pieces += [(number, *each) for each in found]
        sizes += [size * (stop - start) // cuts[-1] if cuts else size for start, stop in found]
    dealt = []
    for share in shares(sizes, workers):
        whole: list[Table] = []
        for number, group in itertools.groupby(pieces[share.start : share.stop], lambda piece: piece[0]):
            mine = list(group)
            start, stop = mine[0][1], mine[-1][2]
            whole.append(tables[number].piece(start, stop) if stop else tables[number])
        dealt.append(tuple(whole))
    return dealt


def shares(sizes: Sequence[int], workers: int) -> list[range]:
    """Neighbours for each worker, of about the same size together; some may have none."""
    ends = np.cumsum(np.asarray(sizes, np.float64) + 1)
    of = ((ends - (np.asarray(sizes) + 1) / 2) * workers / ends[-1]).astype(int)
    return [range(*map(int, np.searchsorted(of, (worker, worker + 1)))) for worker in range(workers)]


def _agreed(workers: Workers, work: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """What each worker says after its work.

    Raises:
        EmbexpError: in all workers the same, with the faults of all in their order, where the work of some has any.
    """
    own: Exception | None = None
    try:
        said = work()
    except ConfigError as error:
        own, said = error, {"faults": [asdict(fault) for fault in error.faults]}
    except EmbexpError as error:
        own, said = error, {"error": type(error).__name__, "text": str(error)}
    except Exception as error:
        if (sentence := machine_faults.sentence(error)) is None:
            raise
        own, said = error, {"error": "RunError", "text": f"{sentence} (worker {workers.worker})"}
    found = workers.gathered(said)
    if not any("faults" in each or "error" in each for each in found):
        return found
    raised: EmbexpError
    faults = [
        Fault(**{**fault, "code": Code(fault["code"]), "fix": tuple(fault["fix"])})
        for each in found
        for fault in each.get("faults", ())
    ]
    if faults:
        raised = ConfigError(list(dict.fromkeys(faults)))
    else:
        wrong = [each for each in found if "error" in each]
        kind = getattr(errors, wrong[0]["error"], RunError)
        raised = kind("\n".join(dict.fromkeys(each["text"] for each in wrong)))
    raised.told = True
    raise raised from own


def _join(reading: Reading, parts: Sequence[tuple[Path, Sequence[Table]]], progress: Progress, folder: Path) -> None:
    """Writes the examples of all parts, as those of one process, into an empty folder."""
    progress("joining the data that workers have read", None)
    columns, layouts = reading.columns, [Layout.read(part) for part, _ in parts]
    first = layouts[0]
    tables = [*first.token_tables, *([GROUP] if reading.group is not None else [])]
    codes = {table: Codes() for table in tables}
    rows_of = [_numbers(part, layout, codes) for (part, _), layout in zip(parts, layouts, strict=True)]
    names = None
    if columns.label is not None and columns.classes is not None:
        names = LabelNumbers(columns.classes, columns.label, reading.classes, extends=reading.further_classes)
    of_ids = [first.tables[column] for column in first.ids]
    of_lists = {f"list.{place}.values": first.tables[column] for place, column in enumerate(first.lists)}
    of_lists |= {"groups": GROUP}

    def blocks(name: str) -> Iterator[np.ndarray]:
        """An array of all parts, with the codes that tokens have in the whole."""
        for (part, _), number_of in zip(parts, rows_of, strict=True):
            array = mapped_array(part / f"{name}.npy")
            for start, stop in splits.chunks(len(array), _ROWS):
                block = array[start:stop]
                if name == "ids":
                    found = [number_of[table].take(block[:, place]) for place, table in enumerate(of_ids)]
                    block = np.stack(found, 1) if found else block
                elif name in of_lists:
                    block = number_of[of_lists[name]].take(block)
                elif name == "labels" and names is not None:
                    block = names.encode(values_of_part(block, part))
                yield block

    for path in sorted(parts[0][0].glob("*.npy")):
        array = mapped_array(path)
        with ArrayWriter(folder / path.name, array.dtype, array.shape[1] if array.ndim > 1 else None) as writer:
            if path.name.endswith(".splits.npy"):
                ends = SplitsWriter(writer)
                for part, _ in parts:
                    array = mapped_array(part / path.name)
                    for start, stop in splits.chunks(len(array) - 1, _ROWS):
                        ends.append(array[start : stop + 1] - array[start])
                continue
            for block in ahead(blocks(path.stem)):
                writer.append(block)
    for number, table in enumerate(first.token_tables):
        codes[table].write(folder / f"tokens.{number}.arrow")
    files: dict[Path, int] = {}
    for (_, of_part), layout in zip(parts, layouts, strict=True):
        paths = iter(of_part)
        for name, count in layout.files:
            path = next(table.path for table in paths if table.path.name == name)
            files[path] = files.get(path, 0) + count
    skipped = sum(layout.skipped for layout in layouts)
    if not (count := sum(files.values())):
        raise no_examples(skipped)
    named = [(path.name, rows) for path, rows in files.items()]
    whole = replace(first, count=count, files=named, skipped=skipped)
    if names is not None:
        names.finish(folder, whole)
    whole.write(folder)


def _numbers(part: Path, layout: Layout, codes: Mapping[str, Codes]) -> dict[str, np.ndarray]:
    """By table, int32: the code that each of a part's has in the whole; `codes` get to know the tokens."""

    def of_table(table: str) -> np.ndarray:
        tokens = read_tokens(part, layout, table)
        some = (tokens.slice(start, _TOKENS) for start in range(0, len(tokens), _TOKENS))
        return np.concatenate([codes[table].encode(packed(each)) for each in some])

    return dict(zip(codes, at_once(of_table, codes), strict=True))

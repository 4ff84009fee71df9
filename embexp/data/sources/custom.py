"""The user's own source: a function that reads a file, whose rows are kept as Parquet and read as such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Never

from embexp.data.columns import Columns
from embexp.data.files import arrow_table, table_files
from embexp.data.sources.columnar import ColumnarSource
from embexp.data.sources.source import FORMAT
from embexp.errors import ConfigError, Fault
from embexp.specs.data import CustomData
from embexp.system import caching, digests
from embexp.system.parallel import Progress
from embexp.system.user_code import NamedFunction, described, read_user_code

if TYPE_CHECKING:
    from embexp.data.examples import Encoded

_DIGEST = "digest"


def source(data: CustomData) -> CustomSource:
    """The source that a config describes."""
    return CustomSource(data, data.kind, arrow_table.locate, function=data.function, args=data.args)


@dataclass(frozen=True)
class CustomSource(ColumnarSource):
    """Rows that `function(path, **args)` returns for each file.

    It returns what `pyarrow.table` takes (a table, a dict of columns, a data frame of pandas or Polars), or an iterator
    of such parts. Nothing is called before the data is read.

    Attributes:
        function: `package.module:function`.
        args: passed on to it.
    """

    parted: ClassVar[bool] = False  # what the function returns is in a file already

    function: str = ""
    args: Mapping[str, Any] | None = None

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Missing files; what is in them only the function knows."""
        try:
            table_files.data_files(self._paths)
        except ConfigError as error:
            return [*self._split_faults(), *error.faults]
        return self._split_faults()

    def column_names(self) -> Never:
        """Raises ConfigError: only calling the function would show them."""
        rule = "the columns of your own source are known only after it is read, so a pattern can't match them"
        raise ConfigError([Fault("data", self.function, rule, "write out the names")])

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the columns that the function returned."""
        return self._read(cache)[1]

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """The wanted columns of what the function returns."""
        folder, digest = self._read(cache)
        read = ColumnarSource(
            self.data, self.kind, lambda _, wanted: arrow_table.locate([folder], wanted), other=self.other
        )
        return replace(read.encode(columns, cache=cache, progress=progress), digest=digest)

    def _read(self, cache: Path) -> tuple[Path, str]:
        """The folder of Parquet files that hold what the function returned, and the digest of that.

        It is called again if the files, its code or its arguments have changed.

        Raises:
            ConfigError: a file is missing, or the function can't be called or returns something else.
        """
        files = table_files.data_files(self._paths)
        function = NamedFunction("data", self.function, self.args or {}, "path")
        contents = [caching.file_digest(file, cache=cache) for file in files]
        key = [FORMAT, self.function, read_user_code(self.function).digest, dict(function.args), contents]

        def make(folder: Path) -> None:
            found = [_write(function, file, folder / f"{number:06}.parquet") for number, file in enumerate(files)]
            (folder / f"_{_DIGEST}").write_text(digests.of_json(found))

        folder = caching.folder(cache, "custom", digests.of_json(key), make)
        return folder, self.with_splits((folder / f"_{_DIGEST}").read_text())


def _write(function: NamedFunction, file: Path, out: Path) -> str:
    """Calls the function and writes what it returns.

    Returns:
        The digest of the columns, whatever Parquet makes of them.
    """
    import hashlib

    import pyarrow.parquet as pq

    sha, writer = hashlib.sha256(), None
    try:
        for table in _tables(function, function(str(file))):
            if writer is None:
                writer = pq.ParquetWriter(out, table.schema)
                sha.update(str(table.schema.remove_metadata()).encode())
            elif table.schema != writer.schema:
                raise function.fault(f"its parts for {file} differ in their columns or in the types of columns")
            writer.write_table(table)
            for batch in table.to_batches():
                sha.update(batch.serialize())
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise function.fault(f"it returned nothing for {file}")
    return sha.hexdigest()


def _tables(function: NamedFunction, found: Any) -> Iterator[Any]:
    """What the function returned, or the parts of an iterator, as Arrow tables."""
    import pyarrow as pa

    parts = found if isinstance(found, Iterator) else iter([found])
    while True:
        try:
            part = next(parts, None)
        except Exception as error:
            raise function.fault(f"it raised {described(error)}") from error
        if part is None:
            return
        try:
            yield part if isinstance(part, pa.Table) else pa.table(part)
        except (TypeError, ValueError, pa.ArrowException) as error:
            rule = "it must return columns (an Arrow table, a dict, a data frame) or an iterator of such"
            raise function.fault(f"{rule}: {str(error).splitlines()[0]}") from error

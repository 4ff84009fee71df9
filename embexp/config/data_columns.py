"""The names of the columns of a config's data, from the headers of its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from embexp.config import fetched, pydantic_errors
from embexp.errors import ConfigError, Fault
from embexp.specs.data import Data


def data_columns(container: Any) -> Sequence[str]:
    """The names of all columns, in the order of the file.

    Args:
        container: the node `data` as plain values, with absolute paths.

    Raises:
        ConfigError: the data is not described, is of a kind without columns, or its files can't be read.
    """
    from embexp.data.sources.factory import source_of

    try:
        data: Data = TypeAdapter(Data).validate_python(container)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(["data", *(str(part) for part in first["loc"][1:])])
        raise ConfigError([Fault(path, "invalid", pydantic_errors.rule_of(first))]) from None
    fetched.ensure(data)
    return source_of(data).column_names()

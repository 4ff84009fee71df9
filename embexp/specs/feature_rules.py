"""Rules between a feature, its table, its column and the batch."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from embexp.errors import Fault

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.tables import Feature


def list_rule(column: str, holds: str = "one id per example") -> str:
    """The rule for a setting of lists of ids on a column that holds none."""
    return f"column {column!r} holds {holds}, and this setting is for columns that hold several"


def no_table(feature: Feature, spec: RunSpec, path: str) -> Iterator[Fault]:
    """A table that does not exist."""
    if feature.table not in spec.tables and spec.tables:
        near = difflib.get_close_matches(feature.table, spec.tables, n=1)
        yield Fault(
            f"{path}.table",
            repr(feature.table),
            "there is no table of that name",
            f"did you mean {near[0]!r}?" if near else f"the tables are {', '.join(spec.tables)}",
        )


def weights_of_sequence(feature: Feature, path: str) -> Iterator[Fault]:
    """Weights of a sequence."""
    if feature.max_sequence_length and feature.weights is not None:
        yield Fault(
            f"{path}.weights",
            repr(feature.weights),
            f"a sequence has no weights, and max_sequence_length is {feature.max_sequence_length}",
            "remove the weights, or set max_sequence_length to 0 to combine the rows",
        )


def one_id(feature: Feature, spec: RunSpec, name: str) -> Iterator[Fault]:
    """Settings of lists on a column with one id per example."""
    column = feature.column or name
    if spec.data.holds_one_id(column):
        for key, value in feature.settings_of_lists().items():
            yield Fault(
                f"features.{name}.{key}",
                value,
                list_rule(column),
                "leave it out, or name a column that holds several (data.list_columns says which do in CSV files)",
            )


def weights_of_shape(feature: Feature, path: str) -> Iterator[Fault]:
    """Weights of the sequences that output_shape makes."""
    shape = feature.output_shape
    if shape and not feature.max_sequence_length and feature.weights is not None and math.prod(shape[1:]) > 1:
        yield Fault(
            f"{path}.weights",
            repr(feature.weights),
            f"a sequence has no weights, and output_shape makes sequences of {math.prod(shape[1:])}",
            "remove the weights or the output_shape",
        )


def length_of_shape(feature: Feature, path: str) -> Iterator[Fault]:
    """An output_shape of another length than max_sequence_length."""
    length, shape = feature.max_sequence_length, feature.output_shape
    if shape and length and math.prod(shape[1:]) != length:
        yield Fault(
            f"{path}.output_shape",
            str(list(shape)),
            f"after the batch it must have the {length} positions of max_sequence_length",
            f"write [{shape[0]}, {length}], or remove it",
        )


def batch_of_shape(feature: Feature, spec: RunSpec, path: str) -> Iterator[Fault]:
    """An output_shape of another batch than train.batch_size."""
    shape = feature.output_shape
    if shape and shape[0] != (batch := spec.train.batch_size):
        yield Fault(
            f"{path}.output_shape",
            str(list(shape)),
            f"its first number is the batch, and train.batch_size is {batch}",
            f"write {[batch, *shape[1:]]}, or remove it",
        )

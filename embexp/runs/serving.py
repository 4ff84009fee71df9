"""A finished run as a SavedModel: the dense part is restored, the tables go from file to file.

A model takes what the files of the run's data hold, under the names of
their columns. A column with several values per example comes in one of three forms, here and in the names of the
signatures:

| form | `predict` takes | a signature takes |
|---|---|---|
| padded | a tensor [B, N], filled up with "" or -1 | `COLUMN` [B, N] |
| ragged | a `tf.RaggedTensor` [B, None] | `COLUMN_values` [n], `COLUMN_row_splits` [B + 1] |
| sparse | a `tf.SparseTensor` [B, N] | `COLUMN_indices` [n, 2], `COLUMN_values` [n], `COLUMN_dense_shape` [2] |

Its weights have the same form; ragged and sparse weights share the splits, or indices and shape, of their ids.

A column of tokens that is also one of numbers comes as text, which is both; with row numbers, its numbers come as
`COLUMN_number`.

The arithmetic of numeric columns is that of `embexp.data.numbers`, in float64. Only the logarithms may differ in their
last bit, and so, once in a hundred million values, float32 by one unit in the last place.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf
from scipy import sparse

from embexp.checkpoints import restoring, streaming
from embexp.data.batches import Batch
from embexp.data.columns import Columns, columns_of
from embexp.data.files.dialect import NULLS
from embexp.data.numbers import FittedColumn
from embexp.data.vocabularies.vocabulary import (
    LINE_ESCAPES,
    BucketVocabulary,
    HashVocabulary,
    TokenVocabulary,
    Vocabulary,
    has_line_ends,
    lines_of,
    write_tokens,
)
from embexp.errors import RunError
from embexp.records.folder import RunFolder
from embexp.runs import execute
from embexp.runs.prepare import fitted_numbers, read_recorded_data
from embexp.runs.served_dates import DateColumns, stripped
from embexp.specs import vocabularies
from embexp.specs.data import CSV, DateColumn, Transform, Typed
from embexp.specs.fields import imported
from embexp.specs.run import RunSpec
from embexp.specs.tables import Combiner, Feature
from embexp.specs.vocabularies import WHOLE_NUMBER
from embexp.strategies.strategy import OneDevice
from embexp.system import digests
from embexp.system.arrays import ArrayRows, Rows
from embexp.system.parallel import Progress
from embexp.tables.row_engine import ExportedLookup, ExportedTable
from embexp.training.step import Input, Step
from embexp.vectors.pretrained.earlier import EarlierCheckpoint


class Served(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """A vocabulary in a graph.

    Attributes:
        size: number of rows.
        takes: dtype of the values: `tf.string` of tokens, `tf.float32` of numbers in buckets, or `tf.int64` if they are
            the row numbers themselves.
        rows: the row of each value, int64, of the shape of the values; row numbers are returned as they are.
        find: the same, where values without a row are no error but have a negative number.
    """

    def __init__(self, size: int, takes: Any, rows: Callable[[Any], Any]) -> None:
        super().__init__()
        self.size, self.takes, self.rows, self.find = size, takes, rows, rows


def served(name: str, vocabulary: Vocabulary, folder: Path) -> Served:
    """A vocabulary in a graph.

    Args:
        name: of the vocabulary, for its file and for errors.
        folder: where the file of tokens is written; exporting copies it.
    """
    match vocabulary:
        case TokenVocabulary():
            return ServedTokens(name, vocabulary, folder)
        case HashVocabulary():
            return Served(vocabulary.size, tf.string, partial(_hash_rows, vocabulary))
        case BucketVocabulary():
            return Served(vocabulary.size, tf.float32, partial(_bucket_rows, vocabulary))
        case _:  # ids that are row numbers; the lookup checks them
            return Served(vocabulary.size, tf.int64, lambda values: tf.cast(values, tf.int64))


def _bucket_rows(vocabulary: BucketVocabulary, values: Any) -> Any:
    """Rows for numbers, where NaN is a missing value. There is no signature with row numbers."""
    place = tf.searchsorted(tf.constant(vocabulary.boundaries, tf.float32), values, "right")
    return tf.cast(tf.where(tf.math.is_nan(values), 0, place + 1), tf.int64)


def _hash_rows(vocabulary: HashVocabulary, values: Any) -> Any:
    if values.dtype != tf.string:
        return tf.cast(values, tf.int64)
    values = normalized(values, vocabulary.steps)
    found = tf.strings.to_hash_bucket_fast(values, vocabulary.buckets)
    return tf.where(values == "", tf.zeros_like(found), found + 1) if vocabulary.missing else found


class ServedTokens(Served):
    """Tokens: `tf.lookup` tables, initialized from a file of tokens, one per line; tokens of the rare row come last."""

    def __init__(self, name: str, vocabulary: TokenVocabulary, folder: Path) -> None:
        """Writes the file and makes the table; see `served`."""
        super().__init__(vocabulary.size, tf.string, self._rows_of)
        self.find = self._found
        self._of, self._first, self._oov = name, vocabulary.first, vocabulary.oov
        self._missing, self._rare = vocabulary.missing_frequency is not None, vocabulary.rare is not None
        self._known, self._steps = len(vocabulary.known), vocabulary.steps
        tokens = lines_of(vocabulary)
        self._file, self._escaped = folder / f"{name}.tokens.txt", has_line_ends(tokens)
        write_tokens(self._file, tokens)
        lines = tf.lookup.TextFileInitializer(
            str(self._file),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        if not len(tokens):  # all values were too rare, and TensorFlow makes no empty table: one key, and no line
            lines = tf.lookup.KeyValueTensorInitializer(tf.constant([""]), tf.constant([-1], tf.int64))
        self._rows = tf.lookup.StaticHashTable(lines, -1)

    def _found(self, values: Any) -> Any:
        """The row of each token, or a negative number if it has none."""
        if values.dtype != tf.string:
            return tf.cast(values, tf.int64)
        values = normalized(values, self._steps)
        line = self._rows.lookup(_escaped(values) if self._escaped else values)
        # Lines without a token get -1, which is row 0 at once if there is one OOV row before the tokens.
        simple = self._first == self._oov <= 1
        return line + self._first if simple else self._with_special_rows(values, line)

    def _rows_of(self, values: Any) -> Any:
        """The row of each token. Without an OOV row, the graph raises an InvalidArgumentError for an unknown token."""
        found = self._found(values)
        if self._oov or values.dtype != tf.string:
            return found
        unknown = tf.boolean_mask(values, found < 0)
        message = f"tokens without a row in the vocabulary of table {self._of}, which has no OOV row"
        with tf.control_dependencies(
            [tf.raw_ops.Assert(condition=tf.equal(tf.size(unknown), 0), data=[message, unknown])]
        ):
            return tf.identity(found)

    def _with_special_rows(self, tokens: Any, line: Any) -> Any:
        others = tf.fill(tf.shape(line), tf.constant(-1, tf.int64))
        if self._oov:
            others = tf.strings.to_hash_bucket_fast(tokens, self._oov)
        if self._missing:
            others = tf.where(tokens == "", tf.constant(self._oov, tf.int64), others)
        found = tf.where(line < 0, others, line + self._first)
        if self._rare:
            found = tf.where(line >= self._known, tf.constant(self._first - 1, tf.int64), found)
        return found


def _escaped(tokens: Any) -> Any:
    for plain, escape in LINE_ESCAPES:
        # A pattern and a rewrite of RE2 write a backslash twice.
        tokens = tf.strings.regex_replace(tokens, plain.replace("\\", "\\\\"), escape.replace("\\", "\\\\"))
    return tokens


def normalized(tokens: Any, steps: Collection[vocabularies.Step]) -> Any:
    """Tokens after some steps, as `normalized_text` makes them; all but `nfc`, which TensorFlow lacks."""
    if vocabularies.Step.STRIP in steps:
        tokens = stripped(tokens)
    if vocabularies.Step.LOWER in steps:
        tokens = lowered(tokens)
    if vocabularies.Step.NUMBER in steps:
        tokens = tf.strings.regex_replace(tokens, WHOLE_NUMBER, r"\1\2")
    return tokens


def lowered(texts: Any) -> Any:
    """In lower case, whatever the language of the machine: with a Turkish one, TensorFlow makes I another letter."""
    texts = tf.strings.regex_replace(tf.strings.lower(texts), "\u0130", "i\u0307")
    return tf.strings.lower(texts, encoding="utf-8")


def numbers_of_texts(texts: Any, decimal: str = ".", thousands: str = "") -> Any:
    """float32: the numbers that texts hold, NaN where one stands for a missing value; of the shape of the texts.

    A text that is no number is an InvalidArgumentError of the running graph.

    Args:
        decimal: the point of the numbers.
        thousands: between their groups of three digits; "" for nothing.
    """
    plain = tf.strings.strip(texts)
    missing = tf.reduce_any(plain[..., None] == tf.constant(NULLS), axis=-1)
    if thousands:
        plain = tf.strings.regex_replace(plain, re.escape(thousands), "")
    if decimal != ".":
        plain = tf.strings.regex_replace(plain, re.escape(decimal), ".")
    return tf.cast(tf.strings.to_number(tf.where(missing, "nan", plain), tf.float64), tf.float32)


def transformed_numbers(column: FittedColumn, values: Any) -> list[Any]:
    """float32 [n], NaN where a value is missing, to what the model gets: columns, float32 [n] each.

    A number that the data may not have is an InvalidArgumentError of the running graph.
    """
    missing = tf.math.is_nan(values)
    found = tf.cast(_checked(column, values, missing), tf.float64)
    if column.fill is not None:
        found = tf.where(missing, tf.constant(column.fill, tf.float64), found)
    for transform in column.transforms:
        found = _transformed(column, found, transform)
    return [tf.cast(found, tf.float32), *([tf.cast(missing, tf.float32)] if column.indicator else [])]


def _checked(column: FittedColumn, values: Any, missing: Any) -> Any:
    """The values, after checking that they are finite, or missing if the column allows it."""
    allowed = tf.math.is_finite(values)
    expected = "finite numbers, as data.dense_features has missing: error"
    if column.fill is not None:
        allowed, expected = allowed | missing, "finite numbers, or NaN for missing ones"
    wrong = tf.boolean_mask(values, ~allowed)
    message = f"column {column.name}: expected {expected}, found"
    with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.equal(tf.size(wrong), 0), data=[message, wrong])]):
        return tf.identity(values)


def _transformed(column: FittedColumn, values: Any, transform: Transform) -> Any:
    match transform:
        case Transform.NONE:
            return values
        case Transform.LOG1P:
            return tf.sign(values) * tf.math.log1p(tf.abs(values))
        case Transform.STANDARDIZE:
            return (values - tf.constant(column.mean, tf.float64)) / tf.constant(column.scale, tf.float64)
        case Transform.QUANTILE:
            return _ranks(values, tf.constant(column.quantiles, tf.float64), len(column.quantiles) - 1)


def _ranks(values: Any, quantiles: Any, steps: int) -> Any:
    left = tf.searchsorted(quantiles, values, "left")
    right = tf.searchsorted(quantiles, values, "right")
    low = tf.clip_by_value(right - 1, 0, steps - 1)
    below, above = tf.gather(quantiles, low), tf.gather(quantiles, low + 1)
    between = (tf.cast(low, tf.float64) + (values - below) / (above - below)) / steps
    found = tf.where(right > left, tf.cast(left + right - 1, tf.float64) / 2 / steps, between)
    found = tf.where(values >= quantiles[-1], tf.ones_like(found), found)
    return tf.where(values <= quantiles[0], tf.zeros_like(found), found)


def traced(function: Callable[..., Any], **specs: Any) -> Any:
    """A function for a signature, which takes arguments by keyword only."""
    return tf.function(lambda **given: function(**given), autograph=False).get_concrete_function(**specs)


_NO_DATES: Mapping[str, DateColumn] = MappingProxyType({})
_NUMBER = "_number"
"""Suffix for the numbers of a column that is read as tokens and as numbers, if the signature takes rows."""
Signatures = dict[str, Any]
"""Concrete functions by the names under which a SavedModel lists them."""
Predict = Callable[[Batch], Any]
"""From ids (row numbers) and numbers of examples to logits; see `training.step.Step.predict`."""


Outputs = Callable[[Any], dict[str, Any]]
"""From logits to outputs by name."""


def write(
    run: EarlierCheckpoint,
    tables: Mapping[str, Rows],
    directory: Path,
    allow_code: Collection[str],
    *,
    without_rows: bool = False,
    progress: Progress,
) -> dict[str, dict[str, str]]:
    """Writes a run's model into an empty directory.

    Args:
        allow_code: functions that the recorded spec may run.
        without_rows: leaves out the rows of the run's tables, for `streaming.add_tables`.

    Returns:
        Name and description of each input, by signature.

    Raises:
        RunError: the model can't be exported.
    """
    progress("tracing the model", None)
    # Its own seed: a user's model may draw, though what it draws is overwritten.
    keras.utils.set_random_seed(digests.seed_of(run.spec.seed, "keras")[0])
    spec, tables = _with_sums(run.folder, run.spec, tables, progress)
    columns, shared = columns_of(spec.data, spec.features, spec.tables, labelled=False)
    with tempfile.TemporaryDirectory(prefix="embexp-") as assets:
        vocabularies = {
            group: served(group, run.vocabulary(group), Path(assets)) for group in dict.fromkeys(shared.values())
        }
        exported = {
            name: ExportedTable(name, rows.rows, rows.dim, combiner=spec.tables[name].combiner)
            for name, rows in tables.items()
        }
        # Of the tables that it was trained with.
        adapters = execute.adapters_of(run.spec.features, run.spec.tables)
        model, inputs = _dense_part(replace(run, spec=spec), columns, tables, adapters)
        step = Step(ExportedLookup(exported, spec.features), model, inputs, OneDevice())
        pieces = Pieces(run, step, columns, shared, vocabularies, _parts(model), tuple(allow_code), progress)
        module = imported(spec.task.serving)(pieces)
        module.tables = {name: table.variable for name, table in exported.items()}
        with streaming.traced_for_saving():
            signatures = module.signatures()
            if spec.data.serving:
                signatures |= imported(spec.data.serving)(spec.data, module, columns)
        written = {name: rows for name, rows in tables.items() if not (without_rows and name in run.tables)}
        streaming.write_saved_model(module, signatures, written, directory, progress=progress)
    return {name: _inputs(function) for name, function in signatures.items()}


def write_apart(
    run: EarlierCheckpoint,
    tables: Mapping[str, Rows],
    directory: Path,
    allow_code: Collection[str],
    *,
    progress: Progress,
) -> dict[str, dict[str, str]]:
    """Writes a run's model without its tables into an empty directory: it takes rows, feature by feature.

    Args:
        tables: of which only the shapes count.
        allow_code: functions that the recorded spec may run.

    Returns:
        Name and description of each input, by signature.

    Raises:
        RunError: the model can't be exported so.
    """
    spec = run.spec
    if not spec.task.takes_rows:
        raise RunError(
            f"a model of task {spec.task} looks up rows itself, including rows that no example names, so its "
            f"tables can't be separate; export the whole SavedModel"
        )
    progress("tracing the model", None)
    keras.utils.set_random_seed(digests.seed_of(spec.seed, "keras")[0])
    columns, _ = columns_of(spec.data, spec.features, spec.tables, labelled=False)
    model, _ = _dense_part(run, columns, tables, execute.adapters_of(spec.features, spec.tables))
    step = Step(GivenRows(), model, {name: Input(name) for name in spec.features}, OneDevice())
    shapes = {name: each.activation_shape(tables[each.table].dim) for name, each in spec.features.items()}
    pieces = Pieces(run, step, columns, {}, {}, _parts(model), tuple(allow_code), progress, shapes)
    module = imported(spec.task.serving)(pieces)
    with streaming.traced_for_saving():
        signatures = module.signatures()
    streaming.write_saved_model(module, signatures, {}, directory, progress=progress)
    return {name: _inputs(function) for name, function in signatures.items()}


def _dense_part(
    run: EarlierCheckpoint, columns: Columns, tables: Mapping[str, Rows], adapters: Mapping[str, tuple[str, int]]
) -> tuple[Any, Mapping[str, Input]]:
    """A run's model with its values, and the columns that each feature reads.

    Args:
        adapters: see `execute.adapters_of`.
    """
    spec, classes = run.spec, run.summary.get("classes", ())
    sizes = {name: table.rows for name, table in tables.items()}
    dense = execute.dense_settings(spec, rows=sizes, width=columns.dense_width, classes=len(classes), total_steps=1)
    dense = replace(dense, adapters=adapters)
    model = execute.dense_model(dense, {name: table.dim for name, table in tables.items()})
    restoring.restore_weights(model, run.folder.final_checkpoint)
    return model, dense.inputs


class GivenRows:
    """An `EmbeddingBackend` for a model that is given the rows, as activations float32 [B, …, dim] by feature."""

    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes the rows."""
        self._activations = dict(features)

    def activations(self) -> dict[str, Any]:
        """The rows that were taken."""
        return self._activations

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Raises RuntimeError: there is no table."""
        raise RuntimeError(f"feature {feature} has no table here")

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Raises RuntimeError: this backend trains nothing."""
        raise RuntimeError("rows that are passed in are not trained")


def _with_sums(
    folder: RunFolder, spec: RunSpec, tables: Mapping[str, Rows], progress: Progress
) -> tuple[RunSpec, Mapping[str, Rows]]:
    """The spec and tables of a model that looks up the sum of a history: it has a row for each user.

    These rows are in memory. So are the rows of the items while they are summed.
    """
    named = {name: feature for name, feature in spec.features.items() if feature.history_of is not None}
    if not named:
        return spec, tables
    histories = read_recorded_data(folder, spec, progress).scan.examples.histories
    features, made, rows = dict(spec.features), dict(spec.tables), dict(tables)
    for name, feature in named.items():
        history, table = histories[feature.ids_column(name)], f"{name}_of_{feature.history_of}"
        items, own = tables[feature.table], spec.tables[feature.table]
        lengths = np.diff(history.splits)[:, None].astype(np.float32)
        ones = np.ones(len(history.values), np.float32)
        each = sparse.csr_array((ones, history.values, history.splits), shape=(len(lengths), items.rows))
        powers = {Combiner.SUM: 0.0, Combiner.SQRTN: 0.5, Combiner.MEAN: 1.0}
        rows[table] = ArrayRows((each @ items.read(0, items.rows)) / np.maximum(lengths, 1) ** powers[own.combiner])
        made[table] = own.model_copy(update={"combiner": Combiner.SUM})
        features.pop(name)  # it comes last, because it has the vocabulary of the user
        features[name] = Feature(table=table, column=history.user)
    for name in {feature.table for feature in named.values()} - {feature.table for feature in features.values()}:
        del made[name], rows[name]
    return spec.model_copy(update={"features": features, "tables": made}), rows


def _parts(model: Any) -> list[Any]:
    """The resources that a model's graph reads: its variables, and others such as lookup tables in layers."""
    resource = tf.saved_model.experimental.TrackableResource
    found = [
        descendant for descendant in tf.train.TrackableView(model).descendants() if isinstance(descendant, resource)
    ]
    return [*(variable.value for variable in model.variables), *found]


@dataclass(frozen=True)
class Pieces:
    """What a served model is made of.

    Attributes:
        run: whose model it is.
        step: predicts with the model, of row numbers.
        columns: that the model reads.
        shared: by table, the name of its vocabulary.
        vocabularies: from tokens to rows, by their names.
        parts: what holds the variables that the step reads.
        allow_code: functions that the recorded spec may run.
        shapes: by feature, the shape of an example's rows, which the model is given; None: it looks them up.
    """

    run: EarlierCheckpoint
    step: Step
    columns: Columns
    shared: Mapping[str, str]
    vocabularies: Mapping[str, Served]
    parts: Sequence[Any]
    allow_code: tuple[str, ...]
    progress: Progress
    shapes: Mapping[str, tuple[int, ...]] | None = None


def _several(run: EarlierCheckpoint) -> dict[str, bool]:
    """Whether each id column has several values per example, by name.

    Raises:
        RunError: an earlier version made the run, and did not record this.
    """
    try:
        return {name: column == "several" for name, column in run.summary["columns"].items()}
    except KeyError:
        raise RunError(
            f"{run.folder.summary} has no `columns`: an earlier version of embexp made this run without "
            f"recording which columns hold several values per example; train again to export the model"
        ) from None


def _inputs(function: Any) -> dict[str, str]:
    """The dtype and shape of each input of a signature."""
    _, named = function.structured_input_signature
    return {name: f"{spec.dtype.name} {_described(name, spec.shape)}" for name, spec in named.items()}


def _described(name: str, shape: Any) -> str:
    return "[] or [B]" if shape.rank is None else f"[{', '.join(_sizes(name, shape))}]"


def _sizes(name: str, shape: Any) -> list[str]:
    """A shape for people: B examples, n values in all, N values in an example."""
    unknown = ["B", "N"]
    if name.endswith(("_values", "_indices")):
        unknown = ["n"]
    elif name.endswith("_row_splits"):
        unknown = ["B + 1"]
    return [unknown[place] if size is None else str(size) for place, size in enumerate(shape)]


class Form(StrEnum):
    """How a column with several values per example is given."""

    PADDED = "padded"
    RAGGED = "ragged"
    SPARSE = "sparse"


@dataclass(frozen=True)
class IdColumn:
    """A column of ids.

    Attributes:
        name: of the column in the data.
        several: whether an example has several values.
        weights: columns of weights for them.
        ids: name of its ids for the model; "": that of the column.
    """

    name: str
    vocabulary: Served
    several: bool
    weights: tuple[str, ...] = ()
    ids: str = ""


class FeatureModel(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """A model that takes columns by name.

    Attributes:
        predict: `predict({column: values})`, a `tf.function` for each form of tokens and of row numbers.
    """

    def __init__(
        self,
        predict: Predict,
        outputs: Outputs,
        columns: Sequence[IdColumn],
        dense: Sequence[FittedColumn],
        parts: Sequence[Any],
        *,
        marks: tuple[str, str] = (".", ""),
        dates: Mapping[str, DateColumn] = _NO_DATES,
    ) -> None:
        """Takes the pieces of a model.

        Args:
            outputs: what is returned of logits.
            dense: columns of numbers, as the data's files have them, that the model gets in this order.
            parts: what holds the variables that `predict` reads.
            marks: the decimal point of numbers in text, and what separates thousands, or "".
            dates: columns of which others are made.

        Raises:
            RunError: two inputs would have one name.
        """
        super().__init__()
        of_rows = tf.function(predict, autograph=False)  # one graph for tokens and row numbers, padded or ragged
        self._logits: Predict = lambda batch: of_rows(batch)  # no attribute that TensorFlow would save by itself
        self._outputs = outputs
        self._columns, self._dense = tuple(columns), tuple(dense)
        self._parts, self._vocabularies = list(parts), [column.vocabulary for column in columns]
        self._marks = marks
        self._numbers = tuple(column.name for column in self._dense)
        tokens = {column.name for column in self._columns if column.vocabulary.takes == tf.string}
        floating = [column.name for column in self._columns if column.vocabulary.takes.is_floating]
        both = [name for name in dict.fromkeys([*self._numbers, *floating]) if name in tokens]
        self._as_both = _number_names(both, self._columns, self._numbers)
        read = dict.fromkeys([*self._numbers, *(column.name for column in self._columns)])
        self._dates = DateColumns(dates)
        self._made = {name: self._dates.made[name][0] for name in read if name in self._dates.made}
        self._tokens = frozenset(tokens)
        self._named = _arguments(self._columns, self._numbers, self._as_both, tuple(self._made.values()))
        self.predict = tf.function(self._predict, autograph=False)

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms that differ: all, or only the first if every column holds one value."""
        return tuple(Form) if any(column.several for column in self._columns) else (Form.PADDED,)

    def signatures(self) -> Signatures:
        """Traces `predict` and the signatures: of tokens `serving_default`, of row numbers `serving_ids`."""
        found = {}
        for form in self.forms:
            end = "" if form is Form.PADDED else f"_{form}"
            for tokens, name in ((True, f"serving{end}" if end else "serving_default"), (False, f"serving_ids{end}")):
                # With names: TensorFlow gives some to specs without, and for these it traces again when it saves.
                specs = self._specs(form, tokens=tokens)
                for column, spec in specs.items():
                    if isinstance(spec, tf.TensorSpec):
                        specs[column] = tf.TensorSpec(spec.shape, spec.dtype, f"features_{self._named[column]}")
                self.predict.get_concrete_function(specs)
                found[name] = self._signature(form, tokens=tokens)
        return found

    def _predict(self, features: Mapping[str, Any]) -> dict[str, Any]:
        features = self._with_made(with_same_counts(features))
        ids: dict[str, Any] = {}
        weights: dict[str, Any] = {}
        for column in self._columns:
            given = {name: features[name] for name in column.weights}
            value = features[column.name]
            if column.vocabulary.takes.is_floating:
                value = self._number(column.name, features)
            ids[column.ids or column.name], own = _rows(column, value, given)
            weights |= own
        dense = _transformed_columns(self._dense, {name: self._number(name, features) for name in self._numbers})
        return self._outputs(self._logits(Batch(ids, weights, dense, None)))

    def _with_made(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """The columns and those that dates make. If the signature takes rows, it takes them for these columns, too."""
        wanted = {name: column for name, column in self._made.items() if name not in features}
        clocks = {column: self._dates.clock(column, features[column]) for column in dict.fromkeys(wanted.values())}
        made = {
            name: (self._dates.tokens if name in self._tokens else self._dates.numbers)(name, clocks[column])
            for name, column in wanted.items()
        }
        return {**features, **made}

    def _number(self, name: str, features: Mapping[str, Any]) -> Any:
        """The values of a column of numbers, float32. The input may have its tokens."""
        given = features[name]
        if given.dtype == tf.string:
            return numbers_of_texts(given, *self._marks)
        return features[self._as_both[name]] if name in self._as_both else given

    def _specs(self, form: Form, *, tokens: bool) -> dict[str, Any]:
        specs: dict[str, Any] = {}
        numbers = {name: tf.TensorSpec([None], tf.float32) for name in self._numbers}
        for column in self._columns:
            takes = column.vocabulary.takes
            if takes.is_floating:
                numbers[column.name] = tf.TensorSpec([None], takes)
                continue
            specs[column.name] = _spec(form if column.several else None, takes if tokens else tf.int64)
            specs |= {name: _spec(form, tf.float32) for name in column.weights}
        for name, own in self._as_both.items():
            spec = numbers.pop(name)
            if not tokens:  # a token tells the number, but a row does not
                numbers[own] = spec
        found = specs | numbers
        if not tokens:
            return found
        dates = {column: tf.TensorSpec([None], tf.string) for column in self._made.values()}
        return {name: spec for name, spec in found.items() if name not in self._made} | dates

    def _signature(self, form: Form, *, tokens: bool) -> Any:
        """A function of plain tensors, for a server to call."""
        taken = self._specs(form, tokens=tokens)
        shared = {name: column.name for column in self._columns for name in column.weights}

        def call(**given: Any) -> Any:
            features = {}
            for name, spec in taken.items():
                of_ids, own = self._named[shared.get(name, name)], self._named[name]
                if isinstance(spec, tf.RaggedTensorSpec):
                    features[name] = tf.RaggedTensor.from_row_splits(
                        given[f"{own}_values"], given[f"{of_ids}_row_splits"]
                    )
                elif isinstance(spec, tf.SparseTensorSpec):
                    features[name] = tf.SparseTensor(
                        given[f"{of_ids}_indices"], given[f"{own}_values"], given[f"{of_ids}_dense_shape"]
                    )
                else:
                    features[name] = given[own]
            return self.predict(features)

        plain: dict[str, Any] = {}
        for name, spec in taken.items():
            plain |= _plain_specs(self._named[name], spec, owns_places=name not in shared)
        return tf.function(call, autograph=False).get_concrete_function(**plain)


class RowModel(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """A model that takes the rows of its features, and columns of numbers.

    Attributes:
        predict: `predict({feature: rows, column: numbers})`, a `tf.function`.
    """

    def __init__(
        self,
        predict: Predict,
        outputs: Outputs,
        shapes: Mapping[str, tuple[int, ...]],
        dense: Sequence[FittedColumn],
        parts: Sequence[Any],
        *,
        dates: Mapping[str, DateColumn] = _NO_DATES,
    ) -> None:
        """Takes the pieces of a model.

        Args:
            outputs: what is returned of logits.
            shapes: by feature, the shape of an example's rows.
            dense: columns of numbers, as the data's files have them, that the model gets in this order.
            parts: what holds the variables that `predict` reads.
            dates: columns of which columns of numbers are made.
        """
        super().__init__()
        self._logits, self._outputs, self._dense = predict, outputs, tuple(dense)
        self._parts, self._features, self._dates = list(parts), tuple(shapes), DateColumns(dates)
        of_files = {each.name: self._dates.made.get(each.name, (each.name, ""))[0] for each in dense}
        self._numbers = {name: f"{file}{_NUMBER}" if file in shapes else file for name, file in of_files.items()}
        self._read = {own: of_files[name] for name, own in self._numbers.items() if name in self._dates.made}
        of_inputs = {**shapes, **dict.fromkeys(self._numbers.values(), ())}
        self._specs = {
            name: tf.TensorSpec([None, *shape], tf.string if name in self._read else tf.float32)
            for name, shape in of_inputs.items()
        }
        self.predict = tf.function(self._predict, [self._specs], autograph=False)

    def signatures(self) -> Signatures:
        """The one signature, of plain tensors."""
        named = arguments(list(self._specs))

        def call(**given: Any) -> Any:
            return self.predict({name: given[own] for name, own in named.items()})

        specs = {named[name]: spec for name, spec in self._specs.items()}
        return {"serving_default": tf.function(call, autograph=False).get_concrete_function(**specs)}

    def _predict(self, given: Mapping[str, Any]) -> dict[str, Any]:
        given = with_same_counts(given)
        clocks = {own: self._dates.clock(column, given[own]) for own, column in self._read.items()}
        values = {
            name: self._dates.numbers(name, clocks[own]) if own in clocks else given[own]
            for name, own in self._numbers.items()
        }
        numbers = _transformed_columns(self._dense, values)
        return self._outputs(self._logits(Batch({name: given[name] for name in self._features}, {}, numbers, None)))


def _transformed_columns(columns: Sequence[FittedColumn], values: Mapping[str, Any]) -> Any:
    """The model's input from columns of numbers, float32 [B, width], or [1, 0] without such columns."""
    found = [number for column in columns for number in transformed_numbers(column, values[column.name])]
    return tf.stack(found, axis=1) if found else tf.zeros([1, 0])


def argument(column: str) -> str:
    """The name of a column as an argument of a signature: letters, digits and underscores, a letter first."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", column)
    return name if name[:1].isalpha() else f"c_{name}"


_Model = TypeVar("_Model", bound=FeatureModel)


def row_model(pieces: Pieces, outputs: Outputs) -> FeatureModel | RowModel:
    """A model that takes columns by name or, if it is given rows, these by feature.

    Args:
        outputs: from logits to what the model returns.
    """
    if pieces.shapes is None:
        return feature_model(pieces, outputs)
    dense = _fitted(pieces)
    return RowModel(pieces.step.predict, outputs, pieces.shapes, dense, pieces.parts, dates=_dates(pieces))


def _fitted(pieces: Pieces) -> tuple[FittedColumn, ...]:
    """The numeric columns of the model, as they were fitted."""
    columns = pieces.columns
    return fitted_numbers(pieces.run.folder, columns) or tuple(FittedColumn(name) for name in columns.dense)


def feature_model(pieces: Pieces, outputs: Outputs, kind: type[_Model] = FeatureModel) -> _Model:
    """A model that takes columns by name.

    Args:
        outputs: from logits to what the model returns.
        kind: its class.
    """
    run, columns, vocabularies = pieces.run, pieces.columns, pieces.vocabularies
    several = _several(run)
    ids = [
        IdColumn(
            name,
            vocabularies[group],
            several[name],
            tuple(weight for weight, weighed in columns.weights.items() if weighed == name),
        )
        for name, group in columns.ids.items()
    ]
    ids += [
        IdColumn(bucket.column, vocabularies[bucket.table], several=False, ids=name)
        for name, bucket in columns.buckets.items()
    ]
    dense, marks, dates = _fitted(pieces), run.spec.data.number_marks, _dates(pieces)
    return kind(pieces.step.predict, outputs, ids, dense, pieces.parts, marks=marks, dates=dates)


def _dates(pieces: Pieces) -> Mapping[str, DateColumn]:
    """The columns of dates in the run's data."""
    data = pieces.run.spec.data
    return data.dates if isinstance(data, CSV | Typed) else _NO_DATES


def _number_names(both: Sequence[str], columns: Sequence[IdColumn], dense: Sequence[str]) -> dict[str, str]:
    """A unique name for the numbers of each column that has tokens and numbers, next to its row numbers."""
    taken = {*dense, *(name for column in columns for name in (column.name, *column.weights))}
    found: dict[str, str] = {}
    for column in both:
        names = itertools.chain([f"{column}{_NUMBER}"], (f"{column}{_NUMBER}_{count}" for count in itertools.count(2)))
        found[column] = next(name for name in names if name not in taken)
        taken.add(found[column])
    return found


def _arguments(
    columns: Sequence[IdColumn], dense: Sequence[str], as_both: Mapping[str, str], dates: Sequence[str] = ()
) -> dict[str, str]:
    """The argument names of columns, see `arguments`.

    Raises:
        RunError: two inputs have the same name.
    """
    # A number may go both into buckets and to the model. It may also be a token.
    numbers = dict.fromkeys([*dense, *(column.name for column in columns if column.vocabulary.takes.is_floating)])
    taken = [column for column in columns if not column.vocabulary.takes.is_floating]
    names = [*(name for column in taken for name in (column.name, *column.weights))]
    names += [as_both.get(name, name) for name in numbers]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RunError(
            f"two columns would both be {twice!r} in the exported model, which takes each column once; rename "
            f"one of them in the data and train again"
        )
    return arguments([*names, *dict.fromkeys(name for name in dates if name not in names)])


def arguments(names: Sequence[str]) -> dict[str, str]:
    """The names of inputs -> those of arguments, which are numbered where they would be the same."""
    # Those that are arguments as they are keep their names. A graph knows no case of letters.
    found: dict[str, str] = {}
    lower = set[str]()
    for name in sorted(names, key=lambda name: argument(name) != name):
        base, number = argument(name), 1
        while (own := base if number == 1 else f"{base}_{number}").lower() in lower:
            number += 1
        lower.add(own.lower())
        found[name] = own
    return found


def _spec(form: Form | None, dtype: Any) -> Any:
    match form:
        case None:
            return tf.TensorSpec([None], dtype)
        case Form.PADDED:
            return tf.TensorSpec([None, None], dtype)
        case Form.RAGGED:
            return tf.RaggedTensorSpec([None, None], dtype, 1, tf.int64)
        case Form.SPARSE:
            return tf.SparseTensorSpec([None, None], dtype)


def _plain_specs(name: str, spec: Any, *, owns_places: bool) -> dict[str, Any]:
    values = tf.TensorSpec([None], spec.dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        places = {f"{name}_row_splits": tf.TensorSpec([None], tf.int64)}
    elif isinstance(spec, tf.SparseTensorSpec):
        places = {
            f"{name}_indices": tf.TensorSpec([None, 2], tf.int64),
            f"{name}_dense_shape": tf.TensorSpec([2], tf.int64),
        }
    else:
        return {name: spec}
    return {f"{name}_values": values, **(places if owns_places else {})}


def _rows(column: IdColumn, value: Any, weights: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Row numbers and weights of a column for a lookup: a tensor [B], or a ragged or sparse one [B, None]."""
    if isinstance(value, tf.RaggedTensor):
        return value.with_values(column.vocabulary.rows(value.values)), dict(weights)
    if isinstance(value, tf.SparseTensor):
        return value.with_values(column.vocabulary.rows(value.values)), dict(weights)
    if not column.several:
        return column.vocabulary.rows(value), {}
    kept = value != "" if value.dtype == tf.string else value >= 0
    ragged = tf.ragged.boolean_mask(value, kept)
    ids = ragged.with_values(column.vocabulary.rows(ragged.values))
    return ids, {name: ids.with_values(tf.boolean_mask(weight, kept)) for name, weight in weights.items()}


def with_same_counts(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs; a call fails if they have different numbers of examples, because TensorFlow would repeat one example.

    They are compared before any other operation reads them, which might fail with a message of its own.
    """
    (first, of_first), *others = ((name, _count(value)) for name, value in inputs.items())
    # By one operation each: `tf.debugging` adds two graphs to every check.
    differ = f"and {first} have different numbers of examples:"
    checks = [
        tf.raw_ops.Assert(condition=tf.equal(count, of_first), data=[f"{name} {differ}", count, of_first])
        for name, count in others
    ]
    with tf.control_dependencies(checks):
        same: dict[str, Any] = tf.nest.map_structure(tf.identity, dict(inputs), expand_composites=True)
    return same


LENGTH = tf.TensorSpec(None, tf.int32, "k")
"""How many answers are listed: a scalar, or one for each row of a request, [B], as rows of TensorFlow Serving are."""


def lengths(k: Any, rows: Any) -> Any:
    """How many answers are listed for each row of a request, int32 [rows, 1]; or [1, 1] for all, of a scalar.

    Another number of them, or a negative one, is an InvalidArgumentError of the running graph.
    """
    fits = tf.equal(tf.rank(k), 0) | tf.equal(tf.size(k), rows)
    checks = [
        tf.debugging.assert_equal(fits, True, "k must be one number, or one number per row of the request"),
        tf.debugging.assert_non_negative(k, "k must be at least 0"),
    ]
    with tf.control_dependencies(checks):  # else another operation might fail before
        return tf.reshape(k, [-1, 1])


def longest(each: Any, most: Any) -> Any:
    """The longest of such lists, of at most so many answers: int32."""
    return tf.minimum(tf.reduce_max(tf.pad(each, [[0, 1], [0, 0]])), most)


def _count(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor):
        return value.nrows()
    return value.dense_shape[0] if isinstance(value, tf.SparseTensor) else tf.shape(value, tf.int64)[0]

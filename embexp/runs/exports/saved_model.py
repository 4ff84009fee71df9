"""A finished run as a SavedModel: the dense part is restored, the tables go from file to file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from embexp.checkpoints import store, streaming
from embexp.data.columns import Columns, columns_of
from embexp.data.numbers import FittedColumn
from embexp.errors import RunError
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.runs import execute
from embexp.runs.exports.inputs import Served, served, words_of_texts
from embexp.runs.exports.signatures import FeatureModel, IdColumn, TripleModel
from embexp.runs.recorded import fitted_numbers
from embexp.specs.data import RELATION, SOURCE, Text, Triples
from embexp.specs.models import Task
from embexp.specs.run import RunSpec
from embexp.strategies.one_device import OneDevice
from embexp.system import digests
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress
from embexp.tables.serving import ExportedLookup, ExportedTable
from embexp.training.step import Input, Step

Inputs = dict[str, dict[str, str]]
"""Name and description of each input, by signature."""


def write(run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, progress: Progress) -> Inputs:
    """Writes a run's model into an empty directory.

    Args:
        tables: the rows of its tables.
        progress: called as writing goes on.

    Returns:
        The inputs of each signature.

    Raises:
        RunError: the model can't be exported.
    """
    progress("tracing the model", None)
    # Its own seed: a user's model may draw, though what it draws is overwritten.
    keras.utils.set_random_seed(digests.seed_of(run.spec.seed, "keras")[0])
    columns, shared = columns_of(run.spec.data, run.spec.features, run.spec.tables, labelled=False)
    with tempfile.TemporaryDirectory(prefix="embexp-") as assets:
        vocabularies = {
            group: served(group, run.vocabulary(group), Path(assets)) for group in dict.fromkeys(shared.values())
        }
        exported = {
            name: ExportedTable(name, rows.rows, rows.dim, combiner=run.spec.tables[name].combiner)
            for name, rows in tables.items()
        }
        model = _model(run, exported, columns)
        step = _step(run.spec, exported, model)
        module = _module(run, step, columns, vocabularies, _parts(model))
        module.tables = {name: table.variable for name, table in exported.items()}
        signatures = module.signatures()
        if isinstance(run.spec.data, Text) and isinstance(module, FeatureModel):
            signatures["serving_text"] = _text_signature(module, run.spec.data, next(iter(columns.ids)))
        streaming.write_saved_model(module, signatures, tables, directory, progress=progress)
    return {name: _inputs(function) for name, function in signatures.items()}


def _model(run: EarlierCheckpoint, tables: Mapping[str, ExportedTable], columns: Columns) -> Any:
    """The dense part, with the weights of the run."""
    spec = run.spec
    model = execute.dense_model(
        spec,
        {name: table.dim for name, table in tables.items()},
        execute.DenseSettings(
            width=columns.dense_width, total_steps=1, outputs=max(1, len(run.summary.get("classes", ())))
        ),
    )
    store.restore_weights(model, run.folder.final_checkpoint)
    return model


def _step(spec: RunSpec, tables: Mapping[str, ExportedTable], model: Any) -> Step:
    """The forward pass of the run's step."""
    return Step(
        backend=ExportedLookup(tables, spec.features),
        model=model,
        loss=lambda labels, logits: None,
        optimizer=None,
        inputs={name: Input(spec.ids_of(name), feature.weights) for name, feature in spec.features.items()},
        counter=None,
        strategy=OneDevice(),
    )


def _parts(model: Any) -> list[Any]:
    """What a model's graph reads: its variables, and resources such as lookup tables of its layers."""
    resource = tf.saved_model.experimental.TrackableResource
    found = [each for each in tf.train.TrackableView(model).descendants() if isinstance(each, resource)]
    return [*(variable.value for variable in model.variables), *found]


def _module(
    run: EarlierCheckpoint, step: Step, columns: Columns, vocabularies: Mapping[str, Served], parts: list[Any]
) -> FeatureModel | TripleModel:
    spec, predict = run.spec, step.predict
    if spec.task is Task.RANKING:
        assert isinstance(spec.data, Triples)  # a rule between the settings
        entities = columns.ids[SOURCE]
        return TripleModel(
            predict,
            vocabularies[entities],
            vocabularies[columns.ids[RELATION]],
            run.vocabulary(entities).tokens(),
            reciprocal=spec.data.reciprocal,
            parts=parts,
        )
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
        IdColumn(each.column, vocabularies[each.table], several=False, ids=name)
        for name, each in columns.buckets.items()
    ]
    dense = fitted_numbers(run.folder, columns) or tuple(FittedColumn(name) for name in columns.dense)
    return FeatureModel(predict, spec.task, run.summary.get("classes", ()), ids, dense, parts)


def _several(run: EarlierCheckpoint) -> dict[str, bool]:
    """By id column, whether it holds several values per example.

    Raises:
        RunError: an earlier version made the run, and did not record it.
    """
    try:
        return {name: each == "several" for name, each in run.summary["columns"].items()}
    except KeyError:
        raise RunError(
            f"{run.folder.summary} has no `columns`: an earlier version of embexp made this run, and did not record"
            " which columns hold several values per example; train again to export the model"
        ) from None


def _text_signature(module: FeatureModel, data: Text, column: str) -> Any:
    """A signature of whole texts."""

    def call(**given: Any) -> Any:
        return module.predict(
            {column: words_of_texts(given["text"], max_length=data.max_length, separator=data.token_separator)}
        )

    return tf.function(call, autograph=False).get_concrete_function(text=tf.TensorSpec([None], tf.string))


def _inputs(function: Any) -> dict[str, str]:
    """Dtype and shape of each input of a signature."""
    _, named = function.structured_input_signature
    return {name: f"{spec.dtype.name} [{', '.join(_sizes(name, spec.shape))}]" for name, spec in named.items()}


def _sizes(name: str, shape: Any) -> list[str]:
    """A shape for people: B examples, n values in all, N in an example."""
    unknown = ["B", "N"]
    if name.endswith(("_values", "_indices")):
        unknown = ["n"]
    elif name.endswith("_row_splits"):
        unknown = ["B + 1"]
    return [unknown[place] if size is None else str(size) for place, size in enumerate(shape)]

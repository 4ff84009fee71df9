"""The inputs of a model: the name of its dense input, and the rules for its features. Imports no TensorFlow."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from embexp.errors import Fault
from embexp.specs.data import CANDIDATES, RELATION, SOURCE
from embexp.specs.models import (
    DLRM,
    MLP,
    BagOfWords,
    ComplEx,
    DistMult,
    Dot,
    KerasModel,
    KnowledgeGraph,
    MatrixFactorization,
    Model,
    Recommender,
    RotatE,
    Task,
    TextCNN,
    TransE,
    TwoTower,
)
from embexp.specs.run import RunSpec

DENSE = "dense.features"
"""Name of the input of dense features, float32 [B, n]. A feature's name has no dot, so none can clash with it."""

Shapes = Mapping[str, tuple[int | None, ...]]
"""Shape of each feature's activation without the batch: (dim,) when combined, (length, dim) when a sequence."""


def faults(model: Model, *, shapes: Shapes, dense_width: int, classes: bool = False) -> list[Fault]:
    """The reasons why `model` can't take these inputs.

    Args:
        dense_width: number of dense features.
        classes: whether it must return a logit per class, as task classification requires.

    Returns:
        Faults under `model.`, `features.` and `data.`; empty if the model can be built.
    """
    match model:
        case Dot():
            return [*_dot_faults(model, shapes, dense_width), *(_one_logit() if classes else ())]
        case MLP():
            return list(_static_faults(model.kind, shapes))
        case DLRM():
            return list(_dlrm_faults(shapes, dense_width))
        case BagOfWords():
            return []
        case TextCNN():
            return list(_text_faults(shapes))
        case TransE() | DistMult() | ComplEx() | RotatE():
            return list(_graph_faults(model, shapes))
        case MatrixFactorization() | TwoTower():
            return list(_recommender_faults(model, shapes, dense_width))
        case KerasModel():
            return []


def run_faults(spec: RunSpec) -> list[Fault]:
    """The `faults` of the model of a run whose dims are known."""
    activations = {
        name: feature.activation_shape(spec.tables[feature.table].width) for name, feature in spec.features.items()
    }
    return faults(
        spec.model,
        shapes=activations,
        dense_width=spec.data.dense_width,
        classes=spec.task is Task.CLASSIFICATION,
    )


def _dot_faults(model: Dot, shapes: Shapes, dense_width: int) -> Iterator[Fault]:
    named = {"left": model.left, "right": model.right, "biases": model.biases}
    yield from _not_there(named, shapes)
    vectors = {name: shapes[name] for name in (*model.left, *model.right) if name in shapes}
    yield from _vector_faults("dot", vectors)
    yield from _bias_faults("model.biases", model.biases, shapes)
    yield from _not_named("dot", named, shapes)
    yield from _no_dense("dot", dense_width)


def _recommender_faults(model: Recommender, shapes: Shapes, dense_width: int) -> Iterator[Fault]:
    named = {
        "user_features": model.user_features,
        "item_features": model.item_features,
        "item_biases": model.item_biases,
    }
    yield from _not_there(named, shapes)
    if isinstance(model, MatrixFactorization):
        vectors = {name: shapes[name] for name in (*model.user_features, *model.item_features) if name in shapes}
        yield from _vector_faults(model.kind, vectors)
    else:
        yield from _static_faults(model.kind, shapes)
    for name in model.user_features:
        if name in model.item_side:
            yield Fault("model.user_features", repr(name), "it is also a feature of the item", "leave it to one side")
    yield from _bias_faults("model.item_biases", model.item_biases, shapes)
    yield from _not_named(model.kind, named, shapes)
    yield from _no_dense(model.kind, dense_width)


def _not_there(named: Mapping[str, Sequence[str]], shapes: Shapes) -> Iterator[Fault]:
    """Features that the settings of a model name and the run lacks."""
    for key, names in named.items():
        for name in names:
            if name not in shapes:
                near = difflib.get_close_matches(name, shapes, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"the features are {_listed(shapes)}"
                yield Fault(f"model.{key}", repr(name), "it must name features of this run", remedy)


def _not_named(kind: str, named: Mapping[str, Sequence[str]], shapes: Shapes) -> Iterator[Fault]:
    """Features of the run that no setting of a model names, but for those that a misspelt name means."""
    names = [name for names in named.values() for name in names]
    meant = [difflib.get_close_matches(name, shapes, n=1) for name in names if name not in shapes]
    used = {*names, *(near for found in meant for near in found)}
    *keys, last = (f"model.{key}" for key in named)
    for name in shapes:
        if name not in used:
            yield Fault(
                f"features.{name}",
                "unused",
                f"every feature must be used, and {kind} uses only those that it names",
                f"add {name!r} to {', '.join(keys)} or {last}, or remove the feature",
            )


def _bias_faults(path: str, names: Sequence[str], shapes: Shapes) -> Iterator[Fault]:
    for name in names:
        if name in shapes and tuple(shapes[name]) != (1,):
            yield Fault(path, repr(name), f"a bias has dim 1, but {name!r} gives {_shape(shapes[name])}")


def _no_dense(kind: str, dense_width: int) -> Iterator[Fault]:
    if dense_width:
        yield Fault(
            "data.dense_features",
            f"{dense_width} columns",
            f"{kind} takes no dense features",
            "remove them, or take model=mlp or model=dlrm" if kind == "dot" else "remove them",
        )


def _one_logit() -> Iterator[Fault]:
    yield Fault(
        "model",
        "dot",
        "a product of two vectors is one number, and task classification needs one for each class",
        "take model=mlp, model=bag_of_words or model=text_cnn, or another task",
    )


def _text_faults(shapes: Shapes) -> Iterator[Fault]:
    if not any(len(shape) == 2 for shape in shapes.values()):
        yield Fault(
            "model",
            "text_cnn without a sequence",
            "it needs a sequence of words, and every feature here is one vector per example",
            "set max_sequence_length of a feature, or take model=bag_of_words",
        )
    for name, shape in shapes.items():
        if len(shape) > 2:
            yield Fault(
                f"features.{name}",
                f"activations of shape {_shape(shape)}",
                "text_cnn takes a sequence of vectors, or one vector, per feature",
                f"leave features.{name}.output_shape unset",
            )


def _graph_faults(model: KnowledgeGraph, shapes: Shapes) -> Iterator[Fault]:
    required = (SOURCE, RELATION, CANDIDATES)
    if missing := [name for name in required if name not in shapes]:
        lacking = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield Fault(
            "features",
            _listed(shapes),
            f"{model.kind} takes the features {', '.join(required)}, but {lacking}",
            "take graph=knowledge_graph",
        )
        return
    for name in shapes:
        if name not in required:
            rule = f"every feature must be used, and {model.kind} uses only {', '.join(required)}"
            yield Fault(f"features.{name}", "unused", rule, "remove the feature")
    vectors = {name: shapes[name] for name in required if name in shapes}
    yield from _vector_faults(model.kind, vectors)
    odd = {name: shape[-1] for name, shape in vectors.items() if shape[-1] is None or shape[-1] % 2}
    if isinstance(model, ComplEx | RotatE) and odd:
        found = ", ".join(f"{name} {dim}" for name, dim in odd.items())
        rule = f"a complex number is two of a row's numbers, so dims must be even, but there is {found}"
        yield Fault("model", model.kind, rule, "set an even dim for its table")


def _dlrm_faults(shapes: Shapes, dense_width: int) -> Iterator[Fault]:
    yield from _vector_faults("dlrm", shapes)
    if len(shapes) + bool(dense_width) < 2:
        yield Fault(
            "model",
            "dlrm of a single vector",
            "it needs two vectors that interact: two features, or one feature and dense features",
            "add a feature, or take model=mlp",
        )


def _vector_faults(kind: str, shapes: Shapes) -> Iterator[Fault]:
    """Faults unless there is one vector per feature, all of one dim."""
    for name, shape in shapes.items():
        if len(shape) != 1:
            yield Fault(
                f"features.{name}",
                f"a sequence of shape {_shape(shape)}",
                f"{kind} takes one vector per feature",
                f"set features.{name}.max_sequence_length to 0 and leave output_shape unset, or take model=mlp",
            )
    dims = {name: shape[-1] for name, shape in shapes.items()}
    if len(set(dims.values())) > 1:
        found = ", ".join(f"{name} {dim}" for name, dim in dims.items())
        yield Fault("model", kind, f"the vectors it multiplies must have one dim, but have {found}")


def _static_faults(kind: str, shapes: Shapes) -> Iterator[Fault]:
    for name, shape in shapes.items():
        if None in shape:
            yield Fault(
                f"features.{name}",
                f"activations of shape {_shape(shape)}",
                f"{kind} concatenates all activations, so their length must be known",
                f"set features.{name}.max_sequence_length",
            )


def _shape(shape: tuple[int | None, ...]) -> str:
    return "[B, " + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"

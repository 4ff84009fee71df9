"""The model of a run: the dense part, from activations by feature name to the logits of each example."""

from __future__ import annotations

from embexp.specs.models.dense_model import DENSE, MLP, Activation, DenseModel, KerasModel, Shapes

__all__ = ["DENSE", "MLP", "Activation", "DenseModel", "KerasModel", "Model", "Shapes"]

Model = DenseModel
"""Any model: those of the core, and those that fields bring."""

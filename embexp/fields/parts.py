"""What the parts of a field are made of that need TensorFlow: evaluations, layers of models, served models."""

from embexp.fields.columns.metrics import auc, log_loss
from embexp.runs.evaluations import Details, Evaluation, Evaluator, Predicted, predictions
from embexp.runs.finished import Written
from embexp.runs.serving import FeatureModel, Pieces, feature_model
from embexp.training import models as layers
from embexp.training.baseline import Reference
from embexp.training.models import Head

__all__ = [
    "Details",
    "Evaluation",
    "Evaluator",
    "FeatureModel",
    "Head",
    "Pieces",
    "Predicted",
    "Reference",
    "Written",
    "auc",
    "feature_model",
    "layers",
    "log_loss",
    "predictions",
]

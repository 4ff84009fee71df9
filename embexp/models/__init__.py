"""The dense part of a run: from activations by feature name to one logit per example, its loss and its optimizer."""

"""The dense part of a run: from activations by feature name to logits, its loss and its optimizer."""

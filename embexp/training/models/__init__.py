"""The dense part of a run: models from activations by feature name to logits, their losses and optimizers."""

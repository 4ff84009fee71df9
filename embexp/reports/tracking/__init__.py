"""Trackers that a run reports to: TensorBoard, MLflow, Weights & Biases. None of them can end a run or change it."""

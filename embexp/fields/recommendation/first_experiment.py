"""The first experiment of interactions, as `embexp new` writes it."""

from __future__ import annotations

from embexp.cli.first_experiment import Experiment, Role, data, quoted


def lines(experiment: Experiment) -> list[str] | None:
    """All but the head of an experiment on interactions of users with items; None: it is of another task."""
    if experiment.task != "recommendation":
        return None
    [user], [item] = experiment.columns(Role.USER), experiment.columns(Role.ITEM)
    return [
        "defaults:",
        f"  - override /data: {experiment.sample.kind}",
        "  - override /graph: recommendation    # a vector of each user and item, and a bias of each item",
        "  - override /model: matrix_factorization_history    # a user is also the mean of the items that the user has",
        "  - override /loss: sampled_softmax",
        "  - override /optimizer: adam_recommendation",
        "  - override /dense_optimizer: adam",
        "",
        f"name: {experiment.name}",
        "task: recommendation",
        *data(experiment),
        "features:",
        f"  user: {{column: {quoted(user.name)}}}",
        f"  item: {{column: {quoted(item.name)}}}",
        "train:",
        "  batch_size: 1024",
        "  epochs: 100",
        "  # Stops when the validation metric no longer improves, and keeps the best epoch.",
        "  early_stopping: {patience: 10}",
    ]

"""The first experiment of ratings, as `embexp new` writes it; other tables of columns are `cli.first_experiment`'s."""

from __future__ import annotations

from embexp.cli.first_experiment import Experiment, Role, Wishes, data, interaction, quoted
from embexp.data.files.samples import ColumnFacts
from embexp.specs.tasks import Labels


def lines(experiment: Experiment) -> list[str] | None:
    """All but the head of an experiment that predicts ratings, which users give items; None: there is more to it."""
    pair = _pair(experiment)
    if pair is None:
        return None
    user, item = pair
    return [
        "defaults:",
        f"  - override /data: {experiment.sample.kind}",
        "  - override /graph: ratings           # a vector and a bias of each user and item",
        "  - override /model: biased_dot",
        "  - override /optimizer: sgd_ratings   # tuned for ratings of any scale, with this batch size",
        "  - override /dense_optimizer: adam",
        "",
        f"name: {experiment.name}",
        "task: regression",
        *data(experiment, dates=False),
        "features:",
        f"  user: {{column: {quoted(user.name)}}}",
        f"  item: {{column: {quoted(item.name)}}}",
        "train:",
        "  batch_size: 256",
        "  epochs: 20",
        "  standardize_labels: true   # one learning rate for labels of any scale",
        "  early_stopping: {patience: 5}",
    ]


def _pair(experiment: Experiment) -> tuple[ColumnFacts, ColumnFacts] | None:
    """The columns of the user and the item, if the label is a number and there are no other columns."""
    if experiment.labels is not Labels.NUMBER:
        return None
    tables = [use.facts for use in experiment.uses if Role.TABLE in use.roles]
    others = [
        use for use in experiment.uses if {Role.NUMBER, Role.BUCKETS} & set(use.roles) or use.roles == (Role.DATES,)
    ]
    return interaction(tables, Wishes()) if len(tables) == 2 and not others else None

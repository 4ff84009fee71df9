"""Rules between task recommendation and data, model, features, strategy and runtime."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from embexp.errors import CombinationFault, Fault
from embexp.specs.models import Recommender, Task

if TYPE_CHECKING:
    from embexp.specs.data import Columnar
    from embexp.specs.run import RunSpec


def label_faults(data: Columnar, spec: RunSpec) -> Iterator[Fault]:
    """Tasks that need labels without any, and labels of interactions that no threshold turns into 0 and 1."""
    recommends = spec.task is Task.RECOMMENDATION
    if data.label is None and not recommends:
        rule = f"task {spec.task} needs labels"
        yield Fault("data.label", "null", rule, "name their column, or choose experiment=recommendation")
    if data.label is None and data.label_threshold is not None:
        rule = "there are no labels that it could divide"
        yield Fault("data.label_threshold", f"{data.label_threshold:g}", rule, "set data.label, or this to null")
    if data.label is not None and recommends and data.label_threshold is None:
        yield Fault(
            "data.label_threshold",
            "null",
            "an interaction is a row whose label is at least the threshold",
            "set it (to 1 for labels of 0 and 1), or data.label=null if every row is an interaction",
        )


def no_interactions(spec: RunSpec) -> Iterator[Fault]:
    """Data that holds no interactions of users and items."""
    if spec.data.kind not in ("csv", "parquet", "recbole"):
        rule = "task recommendation reads interactions of users and items, one per row of a file"
        yield Fault("data", spec.data.kind, rule, "choose data=interactions, data=parquet or data=recbole")


def no_recommender(spec: RunSpec) -> Iterator[Fault]:
    """A model that gives no vectors of users and items."""
    if not isinstance(spec.model, Recommender):
        rule = "task recommendation needs a model that gives users and items vectors"
        yield Fault("model", spec.model.kind, rule, "choose model=matrix_factorization or model=two_tower")


def identified(spec: RunSpec, path: str, name: str, *, item: bool) -> Iterator[Fault]:
    """A user or an item that no feature of its side identifies."""
    if not isinstance(spec.model, Recommender):
        return
    key = "item_features" if item else "user_features"
    side = spec.model.item_features if item else spec.model.user_features
    if name not in side:
        near = difflib.get_close_matches(name, side, n=1)
        rule = f"it must be one of model.{key}, which are {', '.join(side)}"
        yield Fault(path, repr(name), rule, f"did you mean {near[0]!r}?" if near else f"add it to model.{key}")


def own_rows(spec: RunSpec, name: str) -> Iterator[Fault]:
    """A user or an item that shares its row with others."""
    if name not in spec.features:
        return
    feature = spec.features[name]
    rule = "it identifies users or items, so each value needs a row of its own"
    if feature.buckets.given:
        yield Fault(f"features.{name}.buckets", "set", rule, "remove them")
    if feature.table in spec.tables and (buckets := spec.tables[feature.table].vocabulary.hash_buckets) is not None:
        yield Fault(f"tables.{feature.table}.vocabulary.hash_buckets", str(buckets), rule, "set it to null")


def shared_columns(spec: RunSpec) -> Iterator[Fault]:
    """A column of features of both sides: the items of a batch are not those of its users."""
    if not isinstance(spec.model, Recommender):
        return
    items = {spec.column_of(name) for name in spec.model.item_side if name in spec.features}
    for name in spec.model.user_features:
        if name in spec.features and spec.column_of(name) in items:
            rule = "it is a feature of the user, and a feature of the item reads the same column"
            yield Fault(f"features.{name}", spec.column_of(name), rule, "leave it to one side")


def several_replicas(spec: RunSpec) -> Iterator[CombinationFault]:
    """Strategies that divide a batch."""
    if spec.strategy.kind not in ("cpu", "gpu"):
        rule = "task recommendation compares the items of a batch, which this strategy divides among replicas"
        yield CombinationFault("strategy", spec.strategy.kind, rule, "choose strategy=cpu or strategy=gpu")


def no_estimator(spec: RunSpec) -> Iterator[CombinationFault]:
    """The runtime estimator."""
    if spec.executing_runtime == "estimator":
        rule = "task recommendation has no estimator"
        yield CombinationFault("runtime", "estimator", rule, "set runtime=session or runtime=function")

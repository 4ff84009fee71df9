"""What task recommendation recommends, and how it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator

from embexp.errors import Fault
from embexp.specs import recommendation_rules as rules
from embexp.specs.base import Spec
from embexp.specs.bounds import RowCount
from embexp.specs.models import Task
from embexp.specs.partial import where_known

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Recommendation(Spec):
    """Items are recommended to users; each is identified by a feature. For other tasks it has no effect."""

    user: str = "user"
    """Feature that identifies the user."""
    item: str = "item"
    """Feature that identifies the item."""
    cutoffs: Annotated[tuple[RowCount, ...], Field(min_length=1)] = (10, 20)
    """Lengths k of the lists of which Recall@k, NDCG@k, hit rate@k and coverage@k are measured; early stopping watches
    NDCG at the first."""

    @field_validator("cutoffs")
    @classmethod
    def _different(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(cutoffs)) < len(cutoffs):
            raise ValueError("the cutoffs must all be different")
        return cutoffs

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Data, a model, features or a strategy that task recommendation does not take."""
        if spec.task is not Task.RECOMMENDATION:
            return iter(())
        return where_known(
            rules.no_interactions(spec),
            rules.no_recommender(spec),
            rules.identified(spec, f"{scope.path}.user", self.user, item=False),
            rules.identified(spec, f"{scope.path}.item", self.item, item=True),
            rules.own_rows(spec, self.user),
            rules.own_rows(spec, self.item),
            rules.shared_columns(spec),
            rules.several_replicas(spec),
            rules.no_estimator(spec),
        )

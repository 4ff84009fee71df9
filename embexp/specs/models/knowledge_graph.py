"""Models of knowledge graphs, which score candidates for queries."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Fraction, NonNegative, where_known
from embexp.specs.models.dense_model import DenseModel, Shapes, listed, vector_faults

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


_FEW_TRIPLES, _N3_OF_FEW, _N3_OF_MANY = 5, 0.1, 0.05
"""Triples per entity, and the weight of N3 below and from there on."""


class RankingLoss(StrEnum):
    """The loss over the candidates of a query."""

    SOFTMAX = "softmax"
    """-log p[answer] with p = softmax(scores of the candidates)."""
    BINARY = "binary"
    """The log loss of each candidate's sigmoid, 1 for the answer and 0 for others; their mean."""


class KnowledgeGraph(DenseModel):
    """Base class of knowledge graph models, with the features source, relation and candidates of the same dim."""

    loss: RankingLoss = RankingLoss.SOFTMAX
    label_smoothing: Fraction = 0.0
    """e: the answer counts 1 - e, and each of the C candidates, the answer too, e / C on top."""
    n3: NonNegative | Literal["auto"] = 0.0
    """Weight of the N3 regularizer: the mean over the queries of sum |x|^3 over source and relation, where |x| of a
    complex number is its modulus (Lacroix et al. 2018). The answer is the source of the triple's other query. auto: by
    the number of triples per entity, see `with_n3`."""
    l2: NonNegative = 0.0
    """Weight of the L2 regularizer: the mean over the queries of sum x^2 over source and relation."""
    dropout: Fraction = 0.0
    """Dropout rate of the combination of source and relation."""
    relation_prediction: Annotated[NonNegative, Field(exclude_if=operator.not_)] = 0.0
    """Weight of -log p[relation], added to the loss: p is the softmax of the scores that all relations have between
    source and answer (Chen et al. 2021)."""
    has_weights = False
    by_distance: ClassVar[bool] = False
    """Whether scores are a margin minus distances, which take more time and memory than products."""
    complex_valued: ClassVar[bool] = False
    """Whether two of a row's numbers are a complex number."""

    in_step = "embexp.fields.graphs.models:in_step"

    def settled(self, spec: RunSpec, *, rows: Mapping[str, int], examples: int) -> Self:
        """With a weight of N3; a triple is two queries."""
        from embexp.specs.data.graphs import CANDIDATES

        return self.with_n3(examples / 2, rows.get(spec.features[CANDIDATES].table, 0))

    def with_n3(self, triples: float, entities: int) -> Self:
        """The same model with a weight of N3: auto is 0.1 for fewer than five triples per entity, else 0.05.

        Rows that few triples move need more of it. The weights were chosen on validation splits, see
        docs/knowledge_graphs.md.

        Args:
            triples: of the training split.
        """
        if self.n3 != "auto":
            return self
        return self.model_copy(update={"n3": _N3_OF_FEW if triples < _FEW_TRIPLES * entities else _N3_OF_MANY})

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking, and what does not go with the prediction of relations."""
        if spec.task != "ranking":
            rule = f"it scores the candidates of queries, and task {spec.task} has none"
            yield Fault(scope.path, self.kind, rule, "choose another model, or experiment=knowledge_graph")
        if self.relation_prediction:
            yield from where_known(self._of_all_positives(spec, scope))

    def _of_all_positives(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        from embexp.specs.data.graphs import Positives, Triples

        if isinstance(spec.data, Triples) and spec.data.positives is Positives.ALL:
            rule = "it predicts the relation between source and answer, and with data.positives=all a query has several"
            path, value = f"{scope.path}.relation_prediction", f"{self.relation_prediction:g}"
            yield Fault(path, value, rule, "set data.positives=one, or leave it 0")

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Other features than source, relation and candidates, and vectors that are not of one dim."""
        from embexp.specs.data.graphs import CANDIDATES, RELATION, SOURCE

        required = (SOURCE, RELATION, CANDIDATES)
        if missing := [name for name in required if name not in shapes]:
            lacking = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            yield Fault(
                "features",
                listed(shapes),
                f"{self.kind} takes the features {', '.join(required)}, but {lacking}",
                "take graph=knowledge_graph",
            )
            return
        for name in shapes:
            if name not in required:
                rule = f"every feature must be used, and {self.kind} uses only {', '.join(required)}"
                yield Fault(f"features.{name}", "unused", rule, "remove the feature")
        vectors = {name: shapes[name] for name in required if name in shapes}
        yield from vector_faults(self.kind, vectors)
        odd = {name: shape[-1] for name, shape in vectors.items() if shape[-1] is None or shape[-1] % 2}
        if self.complex_valued and odd:
            found = ", ".join(f"{name} {dim}" for name, dim in odd.items())
            rule = f"a complex number is two of a row's numbers, so dims must be even, but there is {found}"
            yield Fault("model", self.kind, rule, "set an even dim for its table")

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """A margin of softmax."""
        if getattr(self, "margin", 0.0) and self.loss is RankingLoss.SOFTMAX:
            yield "model.margin: a softmax depends only on differences of scores"


class TransE(KnowledgeGraph):
    """margin - |source + relation - candidate| (Bordes et al. 2013)."""

    kind: Literal["transe"] = "transe"
    implementation = "embexp.fields.graphs.models:transe"
    by_distance = True
    norm: Literal[1, 2] = 1
    """1: the sum of the absolute differences; 2: the Euclidean distance."""
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""


class DistMult(KnowledgeGraph):
    """sum source * relation * candidate (Yang et al. 2015)."""

    kind: Literal["distmult"] = "distmult"
    implementation = "embexp.fields.graphs.models:distmult"


class ComplEx(KnowledgeGraph):
    """Re(sum source * relation * conj(candidate)) of complex vectors (Trouillon et al. 2016).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts.
    """

    kind: Literal["complex"] = "complex"
    implementation = "embexp.fields.graphs.models:complex_product"
    complex_valued = True


class RotatE(KnowledgeGraph):
    """margin - sum |source * relation / |relation| - candidate| of complex numbers (Sun et al. 2019).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts. Those of a relation only rotate.
    """

    kind: Literal["rotate"] = "rotate"
    implementation = "embexp.fields.graphs.models:rotate"
    by_distance = complex_valued = True
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""

"""How well some examples are predicted, whatever they are: what tasks need beside predictions is put together here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from embexp.data import answers, batches
from embexp.data.candidates import Candidates
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.vocabulary import Vocabulary
from embexp.errors import DataError
from embexp.specs.data import CANDIDATES, Triples
from embexp.specs.run import RunSpec
from embexp.training.evaluation import evaluate
from embexp.training.ranking import Questions
from embexp.training.runtime import Runtime


def candidates_of(spec: RunSpec, vocabularies: Mapping[str, Vocabulary]) -> Candidates | None:
    """What the answers of task ranking are among, by table's vocabulary; None for other tasks.

    Raises:
        DataError: there is but one entity, of which nothing can be told.
    """
    if not isinstance(spec.data, Triples):
        return None
    (table,) = {each.table for name, each in spec.features.items() if spec.column_of(name) == CANDIDATES}
    entities = vocabularies[table].size
    if entities < 2:
        raise DataError(f"{spec.data.path}: found {entities} entity, expected 2 or more, to tell answers from others")
    return Candidates(entities, spec.data.negatives, spec.seed)


def evaluation(
    spec: RunSpec,
    columns: Columns,
    examples: Examples,
    rows: np.ndarray,
    candidates: Candidates | None,
    known: Sequence[Examples] = (),
) -> Callable[[Runtime], dict[str, float]]:
    """From a runtime to metrics of some examples.

    Args:
        spec: the run.
        columns: what it reads of them.
        examples: encoded.
        rows: int64, which to look at.
        candidates: of task ranking, see `candidates_of`.
        known: of task ranking, more examples whose answers are right.
    """
    shown = batches.evaluation_batches(
        examples,
        rows,
        columns,
        batch_size=spec.evaluation_batch_size,
        full=spec.fixed_batch,
        candidates=candidates,
    )
    questions = None
    if candidates is not None:
        questions = Questions(answers.known(examples, rows, known), answers.for_heads(rows))
    return lambda runtime: evaluate(spec.task, runtime, shown, len(rows), questions)

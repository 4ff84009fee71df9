"""Whether jobs that are done would give the same bits today: their data, files and code are those of then."""

from __future__ import annotations

from collections.abc import Sequence

from embexp.errors import EmbexpError
from embexp.specs.studies import NoStudy
from embexp.sweeps.ledger import LedgerJob


def changed(jobs: Sequence[LedgerJob]) -> list[str]:
    """A sentence for each job whose run_id is no longer the recorded one. Reads data (or its cache), not TensorFlow.

    Args:
        jobs: with results.
    """
    from embexp.runs.prepare import prepare

    found = []
    for job in jobs:
        spec = job.checked_spec
        if not isinstance(spec.study, NoStudy) or job.run_id is None or job.same_as is not None:
            continue
        try:
            run_id = prepare(spec).run_id
        except EmbexpError as error:
            found.append(f"job {job.number}: {' '.join(str(error).split())}")
            continue
        if run_id != job.run_id:
            found.append(f"job {job.number} was run_id {job.run_id[:12]}, and would be {str(run_id)[:12]} now")
    return found

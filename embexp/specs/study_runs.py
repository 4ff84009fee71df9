"""The ordinary runs of a study. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embexp.specs.freezing import FreezeOldRows
from embexp.specs.pretrained import Checkpoint
from embexp.specs.run import RunSpec
from embexp.specs.studies import NewEntitiesStudy, NoStudy
from embexp.specs.triples import NewEntities, TrainedTriples, Triples

BASE, GROWN, FULL = "base", "grown", "full"
DESCRIPTIONS: Mapping[str, str] = {
    BASE: "trained without the new entities",
    GROWN: "base with rows for them, only new rows are trained",
    FULL: "all trained from the start",
}
"""Descriptions of the runs of a study of new entities, by name, which is also their directory; in order."""


def study_runs(spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
    """The specs of the runs of a study of new entities, by name, in order.

    Args:
        spec: without `faults`.
        directory: of the study.

    Raises:
        TypeError: the spec is not a study of new entities.
    """
    study, data = spec.study, spec.data
    if not isinstance(study, NewEntitiesStudy) or not isinstance(data, Triples):
        raise TypeError(f"{spec.name} is not a study of new entities")

    def run(name: str, trained: TrainedTriples, **settings: Any) -> RunSpec:
        new = NewEntities(share=study.share, seed=study.seed, train=trained)
        changed = {"study": NoStudy(), "name": f"{spec.name}/{name}", "data": _with(data, new_entities=new)}
        run_spec: RunSpec = _with(spec, **changed, **settings)
        return run_spec

    grown = study.grown
    return {
        BASE: run(BASE, TrainedTriples.KNOWN),
        GROWN: run(
            GROWN,
            grown.triples,
            pretrained=Checkpoint(path=str(directory / BASE)),
            freeze=FreezeOldRows(),
            optimizer=_with(spec.optimizer, learning_rate=grown.learning_rate),
            train=_with(
                spec.train,
                epochs=grown.epochs,
                batch_size=grown.batch_size,
                early_stopping=_with(spec.train.early_stopping, patience=grown.patience),
            ),
        ),
        FULL: run(FULL, TrainedTriples.ALL),
    }


def _with(model: Any, **settings: Any) -> Any:
    """A copy with changed settings; None: unchanged."""
    return model.model_copy(update={key: value for key, value in settings.items() if value is not None})

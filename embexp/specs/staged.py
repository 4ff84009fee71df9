"""A study as the ordinary runs that it consists of. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from embexp.errors import Fault
from embexp.specs.data import NewEntities, Trained, Triples
from embexp.specs.freezing import FreezeOldRows
from embexp.specs.partial import known_or, of_each, where_known
from embexp.specs.pretrained import Checkpoint, NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.studies import NewEntitiesStudy, NoStudy
from embexp.specs.tables import NoFreeze, Table

BASE, GROWN, FULL = "base", "grown", "full"
WORDS: Mapping[str, str] = {
    BASE: "trained without the new entities",
    GROWN: "base with rows for them, which alone are trained",
    FULL: "all trained from the start",
}
"""The runs of a study of new entities, in their order; each lies in the folder of its name."""


def stages(spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
    """The runs of a study of new entities, by name, in their order.

    Args:
        spec: without `faults`.
        directory: of the study.

    Raises:
        TypeError: the spec is no such study.
    """
    study, data = spec.study, spec.data
    if not isinstance(study, NewEntitiesStudy) or not isinstance(data, Triples):
        raise TypeError(f"{spec.name} is no study of new entities")

    def run(name: str, trained: Trained, **settings: Any) -> RunSpec:
        new = NewEntities(share=study.share, seed=study.seed, train=trained)
        changed = {"study": NoStudy(), "name": f"{spec.name}/{name}", "data": _with(data, new_entities=new)}
        made: RunSpec = _with(spec, **changed, **settings)
        return made

    grown = study.grown
    return {
        BASE: run(BASE, Trained.KNOWN),
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
        FULL: run(FULL, Trained.ALL),
    }


def _with(model: Any, **settings: Any) -> Any:
    """A copy with some settings changed; None: as it is."""
    return model.model_copy(update={key: value for key, value in settings.items() if value is not None})


def faults(spec: RunSpec) -> Iterator[Fault]:
    """Settings that a study has no use for, as it makes them itself.

    Args:
        spec: it may be known in part.
    """
    if known_or(True, lambda: isinstance(spec.study, NoStudy)):
        return
    if known_or(False, lambda: not isinstance(spec.data, Triples)):
        rule = f"its new entities are a knowledge graph's, and the data is of kind {spec.data.kind}"
        yield Fault("study", spec.study.kind, rule, "take data=triples, or study=none")
        return
    yield from where_known(
        _new_entities(spec),
        _made("", spec),
        of_each(lambda: spec.tables, lambda name: _made(f"tables.{name}.", spec.tables[name])),
        _checkpoint(spec),
    )


def _new_entities(spec: RunSpec) -> Iterator[Fault]:
    if isinstance(spec.data, Triples) and spec.data.new_entities is not None:
        rule = "the study says of each of its runs which entities are new to it"
        yield Fault("data.new_entities", "a mapping", rule, "leave it null, and set study.share and study.seed")


def _made(place: str, settings: RunSpec | Table) -> Iterator[Fault]:
    """What the study itself says of the tables of its runs."""
    yield from where_known(_own_values(place, settings), _own_policy(place, settings))


def _own_values(place: str, settings: RunSpec | Table) -> Iterator[Fault]:
    pretrained = settings.pretrained
    if not isinstance(pretrained, NoPretrained | None):
        rule = "the values of the grown run are those of the base run, and the others have none to start from"
        yield Fault(f"{place}pretrained", pretrained.kind, rule, "leave it out, or set study=none")


def _own_policy(place: str, settings: RunSpec | Table) -> Iterator[Fault]:
    freeze = settings.freeze
    if not isinstance(freeze, NoFreeze | None):
        rule = "what the grown run freezes are the rows of the base run, and the others train all rows"
        yield Fault(f"{place}freeze", freeze.kind, rule, "leave it out, or set study=none")


def _checkpoint(spec: RunSpec) -> Iterator[Fault]:
    if not spec.output.checkpoint:
        rule = "the grown run begins with the checkpoint of the base run"
        yield Fault("output.checkpoint", "false", rule, "leave it true, or set study=none")

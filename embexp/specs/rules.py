"""Every rule between the parts of a run. Each stands with the choice that it belongs to: see `Spec.faults`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import Spec
from embexp.specs.partial import where_known
from embexp.specs.run import RunSpec
from embexp.specs.scope import Scope


def faults(spec: RunSpec) -> list[Fault]:
    """Everything that is right by itself and wrong beside the rest, in the order of the config's keys.

    Args:
        spec: it may be known in part: rules look at no more than what they need.
    """

    def of(part: Spec, scope: Scope) -> Iterator[Fault]:
        yield from part.faults(spec, scope)  # begins here, also where it is no generator

    return list(where_known(*(of(part, scope) for scope, part in parts(spec))))


def combination_faults(spec: RunSpec) -> list[CombinationFault]:
    """Those of `faults` that make a job impossible, so that a sweep leaves it out."""
    return [fault for fault in faults(spec) if isinstance(fault, CombinationFault)]


def parts(spec: RunSpec) -> Iterator[tuple[Scope, Spec]]:
    """The run and all that is known of its parts, down to the last, each before those within it."""
    return _parts(spec, spec, "")


def _parts(spec: RunSpec, part: Spec, path: str) -> Iterator[tuple[Scope, Spec]]:
    yield spec.scope_of(path), part
    for name in type(part).model_fields:
        value = part.__dict__.get(name)  # which has what is known, and no more
        named = value if isinstance(value, Mapping) else {"": value}
        for key, inner in named.items():
            if isinstance(inner, Spec):
                yield from _parts(spec, inner, ".".join(filter(None, (path, name, key))))

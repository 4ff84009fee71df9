"""Applies every rule between the parts of a run. Each rule is defined with its choice: see `Spec.faults`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import Spec
from embexp.specs.partial import where_known
from embexp.specs.run import RunSpec
from embexp.specs.scope import Scope


def faults(spec: RunSpec) -> list[Fault]:
    """The faults between valid parts of a run, in the order of the config's keys.

    Args:
        spec: may be partial.
    """

    def deferred(part: Spec, scope: Scope) -> Iterator[Fault]:
        yield from part.faults(spec, scope)  # called only inside `where_known`

    return list(where_known(*(deferred(part, scope) for scope, part in parts(spec))))


def combination_faults(spec: RunSpec) -> list[CombinationFault]:
    """The faults for which a sweep skips a job."""
    return [fault for fault in faults(spec) if isinstance(fault, CombinationFault)]


def parts(spec: RunSpec) -> Iterator[tuple[Scope, Spec]]:
    """The run and all known parts of it, each before its inner parts."""
    return _parts(spec, spec, "")


def _parts(spec: RunSpec, part: Spec, path: str) -> Iterator[tuple[Scope, Spec]]:
    yield spec.scope_of(path), part
    for name in type(part).model_fields:
        value = part.__dict__.get(name)  # has only known fields
        named = value if isinstance(value, Mapping) else {"": value}
        for key, inner in named.items():
            if isinstance(inner, Spec):
                yield from _parts(spec, inner, ".".join(filter(None, (path, name, key))))

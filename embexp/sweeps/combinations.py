"""The jobs of Hydra's basic sweeper: counted before they are made, as a product of a few lists may fill all memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep
from hydra.errors import HydraException

from embexp.errors import CommandLineError, ConfigError, Fault

_LISTED = 8
"""Factors of a number of jobs that are listed."""


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of each job of Hydra's basic sweeper, in its order: the last key's values vary fastest.

    Raises:
        CommandLineError: a swept key has no list of values.
    """
    choices = {key: [f"{key}={text}" for text in texts(each)] for key, each in _by_key(overrides).items()}
    return [list(each) for each in itertools.product(*choices.values())]


def factors(overrides: Sequence[Override]) -> dict[str, int]:
    """The number of values of each swept key; no job is made.

    Raises:
        CommandLineError: a swept key has no list of values.
    """
    return {key: count(each) for key, each in _by_key(overrides).items() if each.is_sweep_override()}


def limit(factors: Mapping[str, int], most: int) -> None:
    """Checks the number of jobs of a sweep.

    Args:
        factors: whose product it is, by what there are several of.
        most: `sweep.max_jobs`.

    Raises:
        ConfigError: there are more.
    """
    jobs = math.prod(factors.values())
    if jobs <= most:
        return
    several = [f"{number:,} of {key}" for key, number in factors.items() if number > 1]
    more = f" × {len(several) - _LISTED} more" if len(several) > _LISTED else ""
    rule = f"the sweep has {jobs:,} jobs ({' × '.join(several[:_LISTED])}{more})"
    remedy = f"sweep over fewer values, or set sweep.max_jobs={jobs}"
    raise ConfigError([Fault("sweep.max_jobs", str(most), rule, remedy)])


def count(override: Override) -> int:
    """The number of values of a swept key.

    Raises:
        CommandLineError: it has no list of values.
    """
    value = override.value()
    if isinstance(value, RangeSweep):
        found = steps(value)
    elif isinstance(value, ChoiceSweep):
        found = len(value.list)
    else:
        found = len(_texts(override))
    if not found:
        raise _without_values(override)
    return found


def texts(override: Override) -> list[str]:
    """The values of a key as overrides have them; of one that is not swept, its only one.

    Raises:
        CommandLineError: it is swept, but has no list of values.
    """
    if not override.is_sweep_override():
        return [str(override.get_value_element_as_str())]
    found = _texts(override)
    if not found:
        raise _without_values(override)
    return found


def steps(value: RangeSweep) -> int:
    """The number of values of a range, which is not made; 0 for one without an end, or without steps."""
    limits = (value.start, value.stop, value.step)
    if not value.step or not all(each is not None and math.isfinite(each) for each in limits):
        return 0
    start, stop, step = (Decimal(each) for each in limits if each is not None)
    return max(0, math.ceil((stop - start) / step))


def _texts(override: Override) -> list[str]:
    value = override.value()
    if isinstance(value, RangeSweep) and not steps(value):
        return []
    try:
        found = list(override.sweep_string_iterator()) if override.is_discrete_sweep() else []
    except HydraException as error:
        raise CommandLineError(f"{override.input_line}: {error}") from error
    if isinstance(value, RangeSweep) and not isinstance(value.range(), range):
        meant = dict(_decimals(value))
        return [meant.get(float(text), text) for text in found]
    return found


def _decimals(value: RangeSweep) -> Iterable[tuple[float, str]]:
    """Each number of a range of floats, as Hydra sums it up in binary, and as the one that its decimals mean.

    The third of `range(0.1, 1, 0.1)` is 0.30000000000000004 to Hydra.
    """
    first, step = Decimal(repr(value.start)), Decimal(repr(value.step))
    for number, exact in enumerate(value.range()):
        yield exact, repr(float(first + number * step))


def _by_key(overrides: Iterable[Override]) -> dict[str, Override]:
    """The overrides by key; of two with one key, the later counts, in the place of the earlier."""
    return {each.get_key_element(): each for each in overrides}


def _without_values(override: Override) -> CommandLineError:
    return CommandLineError(
        f"{override.input_line}: this sweep names no values to try\n"
        "    give the values: key=1,2,3 or 'key=range(0,5)'; an interval is for a search: hydra/sweeper=optuna"
    )

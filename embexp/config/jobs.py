"""Composes and checks the jobs of a sweep: many configs that have most of their files in common."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from embexp.config import composition, named_code, selections
from embexp.config.loader import Loader
from embexp.config.quick import Quick, QuickComposer, texts
from embexp.errors import CombinationFault, ConfigError
from embexp.specs.run import RunSpec

_FEW = 8
"""Jobs that are all composed by Hydra."""
_OF_THE_APP = re.compile(r"\$\{(?!hydra[.:]|now:)")
"""An interpolation that may differ from job to job."""


@dataclass(frozen=True)
class Candidate:
    """A job that has been composed and checked.

    Attributes:
        spec: what the user asked for.
        container: the config as plain values.
        choices: the choice of each group.
        impossible: settings that are valid, but can't be combined; a sweep skips the job.
        added: keys that its overrides added to those of the files.
        config: composes the config as Hydra does.
    """

    spec: RunSpec
    container: Mapping[str, Any]
    choices: Mapping[str, str | None]
    impossible: tuple[CombinationFault, ...]
    added: frozenset[str]
    config: Callable[[], DictConfig]

    def is_like(self, other: Candidate) -> bool:
        """Whether both are the same job, wherever the values come from."""
        told, also = ([(each.path, each.value, each.rule) for each in job.impossible] for job in (self, other))
        same = (self.spec, self.container, dict(self.choices), self.added)
        return told == also and same == (other.spec, other.container, dict(other.choices), other.added)


@dataclass(frozen=True)
class _Like:
    """A job that both ways have composed.

    Attributes:
        config: by Hydra.
        in_files: the node `hydra` of its files.
    """

    config: DictConfig
    in_files: Any


class Candidates:
    """Composes and checks the jobs of a batch.

    Hydra takes a third of a second for a config. So it composes some of the jobs, each choice among them, and if
    `QuickComposer` gives the same for those, that composes the others, but for those with faults.
    """

    def __init__(self, loader: Loader, hydra: Sequence[str], batch: Sequence[Sequence[str]]) -> None:
        """Composes those that are compared.

        Args:
            loader: composes configs.
            hydra: overrides for Hydra itself.
            batch: the overrides of each job.
        """
        self._loader = loader
        self._hydra = hydra
        self._composer = QuickComposer(loader)
        self._known: dict[tuple[str, ...], Candidate] = {}
        self._like: _Like | None = self._compared(batch) if len(batch) > _FEW else None

    def candidate(self, overrides: Sequence[str]) -> Candidate:
        """A job.

        Raises:
            ConfigError: with all faults.
        """
        if tuple(overrides) in self._known:
            return self._known[tuple(overrides)]
        return self._quick(overrides) or self.by_hydra(overrides)

    def by_hydra(self, overrides: Sequence[str]) -> Candidate:
        """A job that Hydra composes, with the source of each fault.

        Raises:
            ConfigError: with all faults.
        """
        job = composition.candidate(self._loader, [*self._hydra, *overrides])
        composed = job.composition
        made = selections.choices(composed.config)
        return Candidate(job.spec, composed.container, made, job.impossible, composed.added, lambda: composed.config)

    def _compared(self, batch: Sequence[Sequence[str]]) -> _Like | None:
        """Composes jobs in both ways; returns what the others have in common with them, None where the ways differ."""
        like = None
        for overrides in _samples(self._composer, batch):
            try:
                job = self.by_hydra(overrides)
            except ConfigError:
                continue  # such jobs are left to Hydra anyway
            self._known[tuple(overrides)] = job
            found = self._composer.compose(overrides)
            if found is None:
                continue
            config = job.config()
            like = like or _Like(copy.deepcopy(config), found.hydra)
            quick = self._checked(found, overrides, like)
            if quick is None or not quick.is_like(job) or not _is_fixed(config):
                return None
        return like

    def _quick(self, overrides: Sequence[str]) -> Candidate | None:
        """A job that is composed without Hydra; None: Hydra has to."""
        found = None if self._like is None else self._composer.compose(overrides)
        if found is None or self._like is None or found.hydra != self._like.in_files:
            return None
        return self._checked(found, overrides, self._like)

    def _checked(self, found: Quick, overrides: Sequence[str], like: _Like) -> Candidate | None:
        here = composition.runs_here(like.config)
        spec, faults = composition.check_container(found.container, self._loader.permission, here=here)
        impossible = tuple(fault for fault in faults if isinstance(fault, CombinationFault))
        if spec is None or len(impossible) < len(faults):
            return None
        config = partial(self._composer.config, overrides, self._hydra, like.config)
        return Candidate(spec, found.container, found.choices, impossible, found.added, config)


def _samples(composer: QuickComposer, batch: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """The first job, the last one, and as few others as have every choice of the batch."""
    left = {text for overrides in batch for text in overrides if composer.is_choice(text)}
    following: Sequence[str] | None = batch[0]
    while following is not None:
        yield following
        left -= set(following)
        following = max(batch, key=lambda each: len(left & set(each))) if left else None
    if batch[-1] != batch[0]:
        yield batch[-1]


def _is_fixed(config: DictConfig) -> bool:
    """Whether the code that the node `hydra` names is the same for all jobs."""
    content: Any = OmegaConf.to_container(config.hydra, resolve=False)
    found = (text for kind in named_code.NODES for text in texts(content.get(kind) or {}))
    return not any(map(_OF_THE_APP.search, found))

"""Enters planned jobs into the ledger, or finds them there if an earlier process has planned the same sweep."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from embexp.config import record
from embexp.errors import CommandLineError
from embexp.reports.record import Status
from embexp.runs import recorded_code
from embexp.specs.sweeping import Sweep
from embexp.sweeps import shares
from embexp.sweeps.checking import PlannedJob
from embexp.sweeps.ledger import Ledger, LedgerJob


class Enrolment:
    """Finds the places of planned jobs in the ledger.

    Jobs are found by what they ask for, not by their number: the n-th job that asks for a run is the n-th of the ledger
    that does. So a sweep can be extended, and a search that is started again meets the jobs that it has tried.
    """

    def __init__(self, ledger: Ledger, *, at_once: int) -> None:
        """Prepares it.

        Args:
            ledger: of the sweep.
            at_once: number of jobs that will share this machine's cores.
        """
        self._ledger = ledger
        self._at_once = at_once
        self._jobs = {job.number: job for job in ledger.jobs()}
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for job in self._jobs.values():
            self._numbers[job.identity].append(job.number)
        self._asked: Counter[str] = Counter()

    def find(self, planned: Iterable[PlannedJob]) -> tuple[list[LedgerJob], list[LedgerJob]]:
        """The ledger's jobs for planned ones, and those of them that it lacks; writes nothing.

        Raises:
            CommandLineError: a job of the ledger names other code than the planned one.
        """
        self._jobs |= {job.number: job for job in self._ledger.jobs()}  # an earlier batch has ended meanwhile
        found, new = [], []
        for job in planned:
            identity = job.identity
            known, place = self._numbers[identity], self._asked[identity]
            self._asked[identity] += 1
            if place == len(known):
                added = self._entry(job, identity, max(self._jobs, default=-1) + 1)
                self._jobs[added.number] = added
                known.append(added.number)
                new.append(added)
            elif _reconsidered(self._jobs[known[place]], job):
                self._jobs[known[place]] = self._entry(job, identity, known[place])
                new.append(self._jobs[known[place]])
            elif not recorded_code.is_same(self._jobs[known[place]].checked_spec, job.spec):
                raise CommandLineError(
                    f"{self._ledger.path}: job {known[place]} names other code than the sweep that you ask for\n"
                    "    choose another hydra.sweep.dir, or start anew beside it with --fresh"
                )
            found.append(self._jobs[known[place]])
        return found, new

    def meet(self, numbers: Sequence[int]) -> list[int]:
        """Counts jobs of the ledger as asked for, without planning them again; returns those that it has."""
        found = [number for number in numbers if number in self._jobs]
        for number in found:
            self._asked[self._jobs[number].identity] += 1
        return found

    def unasked(self) -> list[LedgerJob]:
        """The jobs of the ledger that were not planned."""
        numbers = [n for identity, known in self._numbers.items() for n in known[self._asked[identity] :]]
        return [self._jobs[number] for number in sorted(numbers)]

    def _entry(self, job: PlannedJob, identity: str, number: int) -> LedgerJob:
        own = {"sweep": Sweep(objective=job.spec.sweep.objective), "seeds": 1}  # the rest concerns the sweep alone
        spec = shares.with_threads(job.spec.model_copy(update=own), self._at_once)
        entry = LedgerJob(number, job.overrides, job.settings, spec.model_dump_json(), identity)
        if job.skip:
            return replace(entry, state=Status.SKIPPED, reason=job.skip)
        for other in self._numbers[identity]:
            first = self._jobs[other]
            if first.state is not Status.SKIPPED and first.same_as is None and other != number:
                entry = replace(entry, same_as=other, directory=first.directory)
                return replace(entry, state=first.state, reason=first.reason, run_id=first.run_id)
        taken = {each.directory for each in self._jobs.values()}
        config = None if job.config is None else job.config()
        wanted = name = str(number if config is None else record.job_directory(config, number))
        count = 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        if config is None:
            return replace(entry, directory=name)
        sweep = self._ledger.directory
        record.note_sweep(config, sweep)
        return replace(entry, directory=name, hydra=record.texts(config, sweep / name))


def _reconsidered(known: LedgerJob, job: PlannedJob) -> bool:
    """Whether a job that was skipped is to run now, or the other way round."""
    if known.state is Status.SKIPPED:
        return not job.skip
    return bool(job.skip) and not known.state.has_results and known.same_as is None

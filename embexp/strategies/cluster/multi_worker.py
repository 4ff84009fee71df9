"""The strategy `multi_worker`: processes, on one machine or many, that share each batch and the rows of the tables.

Worker 0 does what the one process of another strategy does, and tells the others to train so many steps with it, to
answer a lookup, or to read and write their rows. So evaluations, checkpoints, reports and the end of a training are its
own, and nothing is decided twice.

In an evaluation, worker 0 predicts, and the others look their rows up, score their candidates and keep items, so none
needs more than its own rows and a block of others. Worker 0 tells them of each batch before it predicts that. Queries
of a graph go to all workers: each looks up all of them, and counts how its own candidates stand, see
`one_vs_all.standings`. Of recommendation, worker 0 computes the vectors of items and users; each worker keeps those of
some neighbours in the catalogue, see `training.ranking`; vectors of users go to all workers, and what each knows of
their lists comes back.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager

from embexp.errors import DivergedError, EmbexpError, RunError
from embexp.initialization import filling
from embexp.initialization.filling import TablePlan
from embexp.specs import strategies as specs
from embexp.specs.base import Note
from embexp.specs.tables import Feature
from embexp.specs.tasks import CANDIDATES, KNOWN
from embexp.strategies import pieces
from embexp.strategies.cluster import places, reading, rendezvous, shard_files, watch
from embexp.strategies.cluster.control import Follower, Leader, status
from embexp.strategies.cluster.places import Workers
from embexp.strategies.cluster.rendezvous import Connection
from embexp.strategies.cluster.rows import MirroredTable, SharedRows, WorkerTable, make_tables, sharded
from embexp.strategies.cluster.shard_files import ShardFiles
from embexp.strategies.mirrored import sizes
from embexp.strategies.strategy import Embeddings, OneDevice, OnHost, Run, Strategy
from embexp.system import environment, interruption
from embexp.training import ranking
from embexp.training.loop import Runtime
from embexp.training.one_vs_all import Part
from embexp.training.ranking import Best, Found, ItemPart, Listed, Lister, Pairs, UserVectors
from embexp.training.step import Assembly, ReplicaBatch, relations_of

_FAREWELL_SECONDS = 10.0
_STAGE = "training"
_OF_OTHERS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)
"""What TensorFlow raises where another worker is the cause."""


def build(spec: specs.MultiWorker, *, traced: bool) -> Strategy:
    """The worker that this process is; with one worker, the strategy `cpu`: nothing is shared.

    Raises:
        RunError: what has started this process contradicts the config.
    """
    if spec.workers == 1:
        return OneDevice()
    if traced:
        raise RunError("a step of strategy=multi_worker can't be traced without its workers; plan with strategy=cpu")
    return MultiWorker(spec, places.place(spec, os.environ))


class MultiWorker(Strategy):
    """One worker; a `Strategy`.

    Attributes:
        place: which worker it is.
    """

    def __init__(self, spec: specs.MultiWorker, place: places.Place) -> None:
        """Starts nothing, see `active`."""
        self.place, self._spec = place, spec
        self.notes = (
            "strategy multi_worker: TensorFlow's servers listen on all network interfaces and accept any "
            "client: keep the ports of the workers closed to others",
        )
        self.devices = tuple(f"worker {worker}, CPU:0" for worker in range(spec.workers))
        self._device = f"/job:worker/replica:0/task:{place.worker}/device:CPU:0"
        self._leader: Leader | None = None
        self._follower: Follower | None = None
        self._rows: SharedRows | None = None
        self._tables: Mapping[str, WorkerTable] = {}
        self._files: ShardFiles | None = None
        self._parts: Assembly | None = None
        self._share = 1.0
        self._conductor: _Conductor | None = None
        self._reported = [0.0] * spec.workers
        self.told: Mapping[str, Any] = {}

    def reading(self, facts: Mapping[str, str]) -> AbstractContextManager[Any]:
        """Workers that read the data together; see `Strategy.reading`."""
        return reading.together(self._spec, self.place, facts)

    @contextlib.contextmanager
    def active(self, run: Callable[[], Run] | None = None) -> Iterator[None]:
        """Within the block, all workers are there; at its end they end.

        Raises:
            RunError: a worker does not come, or would do another run; or one was lost within the block.
        """
        if run is None:
            raise RunError("strategy=multi_worker only trains: plan and measure with strategy=cpu")
        if eager.context()._initialized:
            raise RunError(
                "TensorFlow is already running in this process, so it can no longer become a worker: start the "
                "run in a new process"
            )
        if self.place.worker:
            yield from self._following(run())
        else:
            yield from self._leading(run())

    def _leading(self, run: Run) -> Iterator[None]:
        spec, started = self._spec, None
        address = self.place.leader or rendezvous.free_address()
        listening = rendezvous.listener(address)
        try:
            if self.place.loopback:
                started = Workers(spec.workers, address, run.folder)
            members = rendezvous.gather(
                listening,
                address,
                workers=spec.workers,
                facts={**run.facts, rendezvous.WORKERS: str(spec.workers)},
                told={"first_step": run.first_step, "folder": str(run.folder.absolute())},
                seconds=spec.start_seconds,
                settings=run.settings,
                stage=_STAGE,
                failed=(lambda: None) if started is None else started.ended,
            )
            leader = Leader(members, silence_seconds=spec.silence_seconds, abort=self._abort)
            try:
                beats = {f"worker {number}": member.connections["beats"] for number, member in members.items()}
                self._form([address, *(member.address for member in members.values())], beats)
                self._leader = leader
                yield
            except EmbexpError:
                raise
            except _OF_OTHERS as error:
                leader.failed(error)
            finally:
                leader.end()
                if leader.fault is not None:
                    environment.silence_end()  # TensorFlow reports then that it can't reach the other workers
                if started is not None:
                    started.end(_FAREWELL_SECONDS if leader.fault is None else 1.0)
                leader.close()
        finally:
            if started is not None:
                started.end(0.0)

    def _following(self, run: Run) -> Iterator[None]:
        assert self.place.leader is not None
        own = self.place.own or rendezvous.free_address(self.place.host)
        joined = rendezvous.join(
            self.place.leader,
            own,
            worker=self.place.worker,
            workers=self._spec.workers,
            facts=run.facts,
            seconds=self._spec.start_seconds,
            settings=run.settings,
            stage=_STAGE,
        )
        self.told = joined.told
        self._follower = Follower(joined, self.place.worker, silence_seconds=self._spec.silence_seconds)
        try:
            self._form(joined.addresses, {"worker 0": joined.connections["beats"]})
            with interruption.noted(self._follower.signalled):
                yield
        except _OF_OTHERS as error:
            self._follower.wait_for_cause()
            self._follower.report(_first_line(error))
            raise
        except Exception as error:
            self._follower.report(str(error) if isinstance(error, EmbexpError) else _first_line(error))
            raise
        finally:
            self._follower.close()

    def _abort(self, reason: str) -> None:
        """Ends what operations of this process wait for."""
        with contextlib.suppress(Exception):
            eager.context().abort_collective_ops(tf.errors.UNAVAILABLE, reason)

    def _form(self, addresses: Sequence[str], others: Mapping[str, Connection]) -> None:
        """Has TensorFlow form its cluster; if one of the others is lost meanwhile, this process ends."""
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(addresses)}),
            task_type="worker",
            task_id=self.place.worker,
            rpc_layer="grpc",
        )
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        connections = {name: connection.fileno() for name, connection in others.items()}
        # TensorFlow takes SIGTERM for itself, and does nothing.
        with watch.watched(connections, seconds=self._spec.start_seconds), interruption.kept():
            # Its object is kept, as it ends its cluster with itself.
            self._cluster = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
        pieces.cut(self._spec.pieces, self._device)

    def host(self) -> AbstractContextManager[Any]:
        """The processor of this worker."""
        context: AbstractContextManager[Any] = tf.device(self._device)
        return context

    scope = host

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
        most_ids: Mapping[str, int],
    ) -> Embeddings:
        """Makes this worker's rows of the tables; see `Strategy.embeddings`."""
        self._tables = make_tables(
            plans,
            worker=self.place.worker,
            workers=self._spec.workers,
            block=self._spec.block_rows,
            leader=self._leader,
        )
        if self._leader is not None:
            own = sharded(self._tables)
            self._files = ShardFiles(own, self._leader, self._spec.workers)
            for table in own.values():
                table.together = self._files
        optimizers = {name: plan.optimizer for name, plan in plans.items() if plan.optimizer is not None}
        self._rows = SharedRows(
            self._tables,
            features,
            optimizers,
            worker=self.place.worker,
            workers=self._spec.workers,
            step=counter,
            total_steps=total_steps,
        )
        return Embeddings(dict[str, Any](self._tables), OnHost(self._rows, self.host), load=self._send_dense)

    def reset(self, tables: Mapping[str, Any], plans: Mapping[str, TablePlan]) -> dict[str, int]:
        """Has each worker reset those of its rows that start again; see `Strategy.reset`."""
        assert self._leader is not None
        self._leader.tell({"command": "reset"})
        self._reset_own()
        self._leader.replies()
        counts = {name: int(np.count_nonzero(plan.resets())) for name, plan in plans.items() if plan.resets is not None}
        for name in counts:
            tables[name].touched_state.forget()
        return counts

    def _reset_own(self) -> None:
        own = {name: table.own for name, table in self._tables.items()}
        filling.reset_rows(own, {name: table.plan for name, table in self._tables.items()})

    def conducted(self, runtime: Runtime, parts: Assembly) -> Runtime:
        """The runtime of worker 0, which takes the others along; of another worker, the runtime that it leads."""
        self._parts = parts
        if self._leader is None:
            return runtime
        self._send_dense()
        self._conductor = _Conductor(runtime, self._leader, self._exchange, self._spec.workers)
        return self._conductor

    def share(self, batch_size: int) -> slice | None:
        """The examples of each batch of a training that this worker takes."""
        counts = sizes(batch_size, self._spec.workers)
        start = sum(counts[: self.place.worker])
        self._share = counts[self.place.worker] / batch_size
        return slice(start, start + counts[self.place.worker])

    def predicted(self, batches: Any) -> Any:
        """Batches of an evaluation: worker 0 has them, and the others hear of them."""
        assert self._rows is not None
        if self._leader is None or not self._rows.asks:
            return batches
        ranked = KNOWN in batches.element_spec.ids and self._rows.shares(CANDIDATES)
        return Announced(batches, self._leader, ranked=ranked)

    def part(self, feature: str, rows: int) -> Part:
        """Of a feature's first rows, so many, those that this worker has."""
        assert self._rows is not None
        return self._rows.part(feature, rows)

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` once, with this worker's part of a batch, or with a whole batch to predict."""
        with self.scope():
            known, relations = batch.ids.get(KNOWN), relations_of(batch)
            return function(ReplicaBatch(batch.dense, batch.labels, self._share, known, relations))

    def total(self, results: Any) -> Any:
        """This worker's result: `_Conductor` adds those of the others."""
        return results

    joined = total

    def number(self) -> Any:
        """The number of this worker, which draws random numbers of its own."""
        return self.place.worker

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """The sums of tensors over all workers."""
        present = [tf.convert_to_tensor(each) for each in gradients if each is not None]
        sums = iter(self._exchange.sums(present))
        return [None if each is None else next(sums) for each in gradients]

    def averaged(self, variables: Sequence[Any]) -> None:
        """Sets each variable to its mean over all workers."""
        means = self._exchange.means([tf.convert_to_tensor(each) for each in variables])
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)

    def timing(self) -> dict[str, Any]:
        """Seconds that each worker has exchanged for since the last call: least where the others wait for it."""
        assert self._conductor is not None
        before, self._reported = self._reported, self._conductor.seconds
        return {"exchange_seconds": [round(b - a, 6) for a, b in zip(before, self._reported, strict=True)]}

    def facts(self) -> dict[str, Any]:
        """How rows are shared, and what was sent, for the summary; compares the copies of mirrored tables."""
        assert self._rows is not None
        moving = [each for each in self._tables.values() if isinstance(each, MirroredTable) and not each.frozen]
        differing = {table.name: workers for table in moving if (workers := table.differing())}
        cluster = {
            "workers": self._spec.workers,
            "block_rows": {name: table.partition.block for name, table in sharded(self._tables).items()},
            **({"differing_copies": differing} if moving else {}),
            "shares_files": self._files is None or self._files.shared,
            "exchange_seconds": [] if self._conductor is None else self._conductor.seconds,
            **self._exchange.facts(),
        }
        rule = "differ bit for bit from worker 0's, which is kept, because their processors compute differently"
        warnings = [Note(f"tables.{name}", f"copies of workers {each} {rule}") for name, each in differing.items()]
        return {"cluster": cluster, "warnings": warnings}

    def serve(self, runtime: Runtime, iterator: Any, predicted: Any) -> int:
        """As another worker than 0, does what worker 0 says until the end.

        Args:
            iterator: yields this worker's parts of the batches.
            predicted: `element_spec` of whole batches of evaluations.

        Returns:
            The exit status: that of the signal which has ended the run, if one has.

        Raises:
            RunError: worker 0 is gone, or a fault of the inputs.
        """
        assert self._follower is not None
        assert self._rows is not None
        rows, follower, keeper = self._rows, self._follower, Keeper()

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def lookup() -> Any:
            with self.host():
                return rows.serve()

        while True:
            head, arrays = follower.next()
            match head["command"]:
                case "train":
                    loss, seconds = _trained(runtime, self._exchange, iterator, head["steps"])
                    follower.answer({"loss": loss, "seconds": seconds})
                case "lookup":
                    lookup()
                case "rank":
                    for _ in runtime.predict(Told(predicted, arrays)):
                        pass  # worker 0 has the same
                case "dense":
                    self._take_dense(arrays)
                case "reset":
                    self._reset_own()
                    follower.answer({})
                case "end":
                    return status(head.get("signal"))
                case _:
                    if not keeper.serve(follower, head, arrays):
                        shard_files.serve_rows(self._tables, self.place.worker, follower, head, arrays)

    def _dense(self) -> list[Any]:
        """All variables but those of tables, in the same order on all workers."""
        if self._parts is None:
            return []
        step = self._parts.step
        variables = [*step.model.variables, *step.optimizer.variables]
        return [*(each.value for each in variables), step.counter]

    def _send_dense(self) -> None:
        """Gives all workers the dense part of worker 0."""
        if self._leader is not None and self._parts is not None:
            self._leader.tell({"command": "dense"}, [np.asarray(each.numpy()) for each in self._dense()])

    def _take_dense(self, arrays: Sequence[np.ndarray]) -> None:
        for variable, value in zip(self._dense(), arrays, strict=True):
            variable.assign(value)

    @property
    def _exchange(self) -> Any:
        assert self._rows is not None
        return self._rows.exchange


class _Conductor:
    """The runtime of worker 0; `Runtime`.

    Attributes:
        seconds: of exchanges in all training steps so far, by worker.
    """

    def __init__(self, runtime: Runtime, leader: Leader, exchange: Any, workers: int) -> None:
        self._runtime, self._leader, self._exchange, self._workers = runtime, leader, exchange, workers
        self.seconds = [0.0] * workers

    @property
    def graph_def_bytes(self) -> int | None:
        return self._runtime.graph_def_bytes

    @property
    def fused_operations(self) -> list[str] | None:
        return self._runtime.fused_operations

    def train(self, iterator: Any, steps: int) -> float:
        """Does `steps` steps on all workers, and returns the sum of their losses."""
        self._leader.tell({"command": "train", "steps": steps})
        with self._explained():
            own, seconds = _trained(self._runtime, self._exchange, iterator, steps)
        replies = self._leader.replies()
        added = [seconds, *(float(reply["seconds"]) for reply in replies)]
        self.seconds = [a + b for a, b in zip(self.seconds, added, strict=True)]
        return own + sum(float(reply["loss"]) for reply in replies)

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Labels and logits of batches, which this worker predicts alone."""
        with self._explained():
            yield from self._runtime.predict(batches)

    def keep(self, count: int) -> SharedItems:
        """Begins to keep the vectors of so many items, each worker some; see `SharesItems`."""
        return SharedItems(self._leader, self._workers, count)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Names the worker that is the cause of an error."""
        try:
            yield
        except _OF_OTHERS as error:
            self._leader.failed(error)


def _trained(runtime: Runtime, exchange: Any, iterator: Any, steps: int) -> tuple[float, float]:
    """The sum of this worker's losses of some steps, and the seconds that it has exchanged in them."""
    before = exchange.seconds
    return runtime.train(iterator, steps), exchange.seconds - before


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


class Announced:
    """Batches, each of which the other workers hear of before its rows are looked up.

    Attributes:
        element_spec: of the batches.
    """

    def __init__(self, batches: Any, leader: Leader, *, ranked: bool) -> None:
        """Takes a dataset.

        Args:
            ranked: whether all workers get the batches, as each has some of the candidates.
        """
        self._batches, self._leader, self._ranked = batches, leader, ranked
        self.element_spec = batches.element_spec

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            if self._ranked:
                flat = tf.nest.flatten(_sent(batch), expand_composites=True)
                self._leader.tell({"command": "rank"}, [np.asarray(each.numpy()) for each in flat])
            else:
                self._leader.tell({"command": "lookup"})
            yield batch


@dataclass(frozen=True)
class Told:
    """One batch of queries that worker 0 has announced.

    Attributes:
        element_spec: of batches of queries, the same as that of worker 0.
        arrays: what has come.
    """

    element_spec: Any
    arrays: Sequence[np.ndarray]

    def __iter__(self) -> Iterator[Any]:
        flat = [tf.constant(each) for each in self.arrays]
        batch = tf.nest.pack_sequence_as(_sent(self.element_spec), flat, expand_composites=True)
        candidates = tf.range(self.element_spec.ids[CANDIDATES].shape[1])[None]
        yield batch._replace(ids={**batch.ids, CANDIDATES: candidates})


def _sent(batch: Any) -> Any:
    """What of a batch of queries is sent: all but the candidates, which are all there are."""
    return batch._replace(ids={name: each for name, each in batch.ids.items() if name != CANDIDATES})


class SharedItems:
    """Items of which each worker keeps some; `KeptItems`."""

    def __init__(self, leader: Leader, workers: int, count: int) -> None:
        """Begins to keep items.

        Args:
            count: how many there will be; workers without any take no part.
        """
        self._leader, self._added = leader, 0
        ends = itertools.pairwise(part * count // workers for part in range(workers + 1))
        # Worker 0 has the last ones, as there may be fewer items than workers.
        parts = {(number + 1) % workers: part for number, part in enumerate(ends)}
        self._ranges = {worker: (start, stop) for worker, (start, stop) in parts.items() if start < stop}
        start, stop = self._ranges[0]
        self._own = ItemPart(start, stop - start)
        for worker, (start, stop) in self._others():
            leader.send(worker, {"command": "items", "first": start, "count": stop - start})

    def add(self, vectors: np.ndarray) -> None:
        """Sends the vectors of the next items, float32 [n, d], to the workers that keep them."""
        first, self._added = self._added, self._added + len(vectors)
        for worker, (start, stop) in self._ranges.items():
            part = vectors[max(0, start - first) : max(0, stop - first)]
            if not len(part):
                continue
            if worker:
                self._leader.send(worker, {"command": "item_vectors"}, [part])
            else:
                self._own.add(part)

    def lister(self, users: UserVectors) -> Lister:
        """Lists by the scores of all workers."""

        def lists(start: int, stop: int, seen: Pairs, relevant: Pairs, k: int) -> Listed:
            some = users(stop - start)
            for worker, of_part in self._others():
                arrays = [some, *_within(seen, of_part), *_within(relevant, of_part)]
                self._leader.send(worker, {"command": "find_items", "k": k}, arrays)
            own = self._ranges[0]
            found = [_found(self._own, some, _within(seen, own), _within(relevant, own), k)]
            found += [self._leader.reply(worker) for worker, _ in self._others()]
            if diverged := [head["diverged"] for head, _ in found if "diverged" in head]:
                raise DivergedError(diverged[0])
            parts = [Found(Best(items, scores), *columns) for _, (items, scores, *columns) in found]
            together = ranking.joined(parts, k)
            for worker, _ in self._others():
                self._leader.send(worker, {"command": "items_before"}, together[1:])
            places = 1.0 + self._own.before(*together[1:])
            for worker, _ in self._others():
                places += self._leader.reply(worker)[1][0]
            return Listed(together.best.items, places)

        return lists

    def _others(self) -> list[tuple[int, tuple[int, int]]]:
        return [(worker, of_part) for worker, of_part in self._ranges.items() if worker]


def _within(pairs: Pairs, items: tuple[int, int]) -> Pairs:
    """Those of some neighbouring items."""
    chosen = (pairs[1] >= items[0]) & (pairs[1] < items[1])
    return pairs[0][chosen], pairs[1][chosen]


class Keeper:
    """The items that another worker than 0 keeps."""

    def __init__(self) -> None:
        """Keeps none."""
        self._part = ItemPart(0, 0)

    def serve(self, follower: Follower, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> bool:
        """Does what worker 0 says of items; returns whether that was about items."""
        match head["command"]:
            case "items":
                self._part = ItemPart(head["first"], head["count"])
            case "item_vectors":
                self._part.add(arrays[0])
            case "find_items":
                users, of_seen, seen, of_relevant, relevant = arrays
                follower.answer(*_found(self._part, users, (of_seen, seen), (of_relevant, relevant), head["k"]))
            case "items_before":
                follower.answer({}, [self._part.before(*arrays)])
            case _:
                return False
        return True


def _found(part: ItemPart, users: np.ndarray, seen: Pairs, relevant: Pairs, k: int) -> tuple[dict[str, Any], list[Any]]:
    """What a worker answers about the lists of users."""
    try:
        best, *others = part.find(users, seen, relevant, k)
    except DivergedError as error:
        return {"diverged": str(error)}, []
    return {}, [*best, *others]

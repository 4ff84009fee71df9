"""Restoring into objects of any kind, with an account of every value.

TensorFlow restores: from a view of the checkpoint, which is an index of its own over the same data files. What it must
not restore is left out of the view's object graph, and names are made keys in it. So nothing is copied, TensorFlow's
own restore on creation holds, and the view's path is plain. Tables, and large variables that exist, are assigned in
blocks, and parts of partitioned variables from slices.

Values that wait: restored when their variables are created, also while Keras builds a model by tracing its call.

TensorFlow leaves a position of the checkpoint at every object that lacks a part which the checkpoint has. Two things go
wrong with Keras 3. A model without a `build` of its own is built by tracing `call`: its variables have no value until
the trace ends, TensorFlow's restore raises, Keras catches that and makes the layer's variables again, when nothing
waits any more. So the positions here give a variable without a value another initializer. And an optimizer, when it is
built, puts another list in the place of an empty one, which would have been restored. That one is hidden before.

A variable that turns out to have another shape or type keeps what it has, as those do that exist before.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import restore as tensorflow_restore
from tensorflow.python.client.session import BaseSession

from embexp.checkpoints import naming, objects, store
from embexp.checkpoints.account import Account, LiveAccount, Mismatch
from embexp.checkpoints.object_graph import TRAINABLE
from embexp.checkpoints.objects import VARIABLE, assign, part_of, resource_variables
from embexp.checkpoints.store import CHECKPOINT_NAME, plain_path, plain_temporary
from embexp.errors import CheckpointError
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle.increments import ChangedMatrix, Values
from embexp.system.tensor_bundle.index import index_of, prefix_of
from embexp.system.tensor_bundle.tensor import Tensor
from embexp.system.tensor_bundle.writer import KEY_END, OBJECT_GRAPH, BundleWriter
from embexp.tables.checkpointing import StreamedTable

if TYPE_CHECKING:
    from embexp.checkpoints.growing import RowMap, Tokens
    from embexp.checkpoints.matching import Matching

_NOTHING: tuple[Any, ...] = ((), {}, (), {})
"""What TensorFlow is to restore for an object: operations, tensors, states of Python, registered savers."""


class Deferred:
    """What still waits after TensorFlow has restored all that exists."""

    def __init__(self, coordinator: Any, matching: Matching) -> None:
        """Takes the place of TensorFlow's own positions.

        Args:
            coordinator: TensorFlow's record of the restore.
        """
        self.matching = matching
        self._without_value: list[_Position] = []
        for trackable in list(coordinator.all_python_objects):
            for positions in trackable._deferred_dependencies.values():
                positions[:] = [
                    _Position(coordinator, each.proto_id, self) if each.checkpoint is coordinator else each
                    for each in positions
                ]
            self.adopt_slots(trackable, coordinator)

    def adopt_slots(self, optimizer: Any, coordinator: Any) -> None:
        """Takes the place of positions of slot variables that an optimizer of TensorFlow 1 has yet to make."""
        for by_variable in getattr(optimizer, "_deferred_slot_restorations", {}).values():
            for positions in by_variable.values():
                positions[:] = [
                    _Position(coordinator, each.proto_id, self)
                    if each.checkpoint is coordinator and not isinstance(each, _Position)
                    else each
                    for each in positions
                ]

    def add(self, position: _Position) -> None:
        """Takes a variable of a graph that has no value yet, so that no operation can restore it."""
        self._without_value.append(position)

    def catch_up(self) -> None:
        """Adds the operations that restore variables of a graph which had no value when they were bound."""
        for position in self._without_value:
            position.restore_now()
        self._without_value.clear()


def hide_lists(root: Any) -> None:
    """Hides the empty lists of optimizers that are not built, so that what they should hold waits for those to come."""
    for each in tf.train.TrackableView(root).descendants():
        if isinstance(each, keras.optimizers.Optimizer) and not each.built:
            each._delete_tracking(TRAINABLE)


class _Position(tensorflow_restore.CheckpointPosition):  # type: ignore[misc]  # TensorFlow is untyped
    """A part of an object that the checkpoint has, by the name of the edge to it."""

    __slots__ = ("_deferred",)

    def __init__(self, checkpoint: Any, proto_id: int, deferred: Deferred) -> None:
        super().__init__(checkpoint=checkpoint, proto_id=proto_id)
        self._deferred = deferred

    def create_child_position(self, node_id: int) -> _Position:
        return _Position(self.checkpoint, node_id, self._deferred)

    def restore_now(self) -> None:
        with tf.init_scope():
            self.checkpoint.new_restore_ops(self._restore_descendants())

    def create_slot_variable_position(self, optimizer_object: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().create_slot_variable_position(optimizer_object, *args, **kwargs)
        self._deferred.adopt_slots(optimizer_object, self.checkpoint)
        return found

    def _single_restore(self) -> Any:
        trackable, uid, matching = self.trackable, self.checkpoint.restore_uid, self._deferred.matching
        trackable._maybe_initialize_trackable()
        if uid <= trackable._update_uid:
            return super()._single_restore()
        from embexp.checkpoints.growing import RowMap

        unlike = matching.settle_late(self.proto_id, trackable)
        if unlike is not None:
            for slot in self.checkpoint.slot_restorations.get(self.proto_id, ()):
                # TensorFlow would create the slot variable by its value.
                del self.checkpoint.object_graph_proto.nodes[slot.slot_variable_id].attributes[:]
        without_value = isinstance(trackable, keras.Variable) and trackable._value is None
        if not isinstance(unlike, Mismatch) and without_value and not tf.executing_eagerly():
            self._deferred.add(self)
            return _NOTHING
        if isinstance(unlike, RowMap):
            key = next(each.key for each in matching.stored if each.node == self.proto_id)
            if without_value:
                trackable._initializer = _grown_initializer(matching.tensors[key], unlike, trackable._initializer)
            elif tf.executing_eagerly():
                assign_grown(trackable, matching.tensors[key], unlike)
        elif unlike is None and not without_value:
            return super()._single_restore()
        elif unlike is None:
            trackable._initializer = _restored_initializer(self, trackable._initializer)
        trackable._update_uid = uid
        return _NOTHING


def _restored_initializer(position: _Position, initializer: Any) -> Any:
    """Reads the value of a Keras variable when it gets one; in the trace before, a placeholder is made."""

    def restored(shape: Any, dtype: Any = None) -> Any:
        if tf.executing_eagerly():
            return position.value_tensors()[VARIABLE]
        return initializer(shape, dtype=dtype)

    return restored


def _grown_initializer(values: Values, rows: RowMap, initializer: Any) -> Any:
    def restored(shape: Any, dtype: Any = None) -> Any:
        initial = initializer(shape, dtype=dtype)
        if not tf.executing_eagerly():
            return initial
        value = np.array(initial)
        rows.assign(values, value.__setitem__)
        return tf.constant(value)

    return restored


def assign_grown(variable: Any, values: Values, rows: RowMap) -> None:
    """Assigns the rows of a value that a variable has, in the default session if it is one of a graph.

    A variable of a graph that has no value yet is initialized.

    Raises:
        DataError: a data file is damaged or cut short; rows may be assigned then.
    """
    if tf.executing_eagerly() and (parts := resource_variables(variable)):

        def scatter(numbers: np.ndarray, block: np.ndarray) -> None:
            for each in parts:
                each.scatter_update(tf.IndexedSlices(block, numbers))

        rows.assign(values, scatter)
        return
    part, session = part_of(variable), tf.compat.v1.get_default_session()
    variable = variable.value if isinstance(variable, keras.Variable) else variable
    if tf.executing_eagerly():
        value = np.array(variable)
    else:
        try:
            value = np.array(session.run(variable))
        except tf.errors.FailedPreconditionError:
            session.run(variable.initializer)
            value = np.array(session.run(variable))
    columns: tuple[slice, ...] = ()
    if part is not None:
        rows = replace(rows, places=rows.places[part.start[0] : part.start[0] + part.shape[0]])
        columns = tuple(slice(at, at + size) for at, size in zip(part.start[1:], part.shape[1:], strict=True))
    rows.assign(values, lambda numbers, block: value.__setitem__(numbers, block[(slice(None), *columns)]))
    assign(variable, value)


_BLOCK_BYTES = 1 << 22
_OPTIMIZER = "optimizer/"
_OTHER_PARTS = ("embedding/", "random/", "step", "save_counter", OBJECT_GRAPH)


def restore(
    path: Path | str,
    into: Any,
    *,
    only: Collection[str] | None = None,
    rename: Mapping[str, Any] | None = None,
    rows: Literal["grow"] | None = None,
    vocabularies: Mapping[str, tuple[Tokens, Tokens]] | None = None,
) -> LiveAccount:
    """Restores a checkpoint into objects.

    An object-based checkpoint is matched by the graph of objects; variables that are created later get their values
    then. A name-based checkpoint is matched by global names, or by the paths of Keras variables; all variables must
    already exist. In eager mode, existing variables get their values at once. In a TensorFlow 1 graph,
    `run_restore_ops` of the account assigns them; until then, the asserts fail in a session that has other values.
    Variables with a different shape or type keep their values. Large variables need no second copy in memory.

    Args:
        path: a checkpoint's prefix, one of its files, or its folder; a SavedModel; a run's directory; or a
            `.weights.h5` or `.keras` file. Names in such a file are the names of its datasets, such as
            `layers/dense/vars/0`.
        into: a `tf.train.Checkpoint`, a `tf.Module`, a Keras model or another trackable; a mapping of trackables or
            variables by name; or a list of variables. Keys of a mapping are edges from the root. Parts of a partitioned
            variable of TensorFlow 1 get their slices of a name-based checkpoint, whatever its parts.
        only: object paths or names to restore, with `*` for anything; an object includes all its parts. They are the
            checkpoint's paths and names, before `rename`; those that it lacks are looked up in the program. Slot
            variables of TensorFlow 1 optimizers belong to the optimizer. None: everything.
        rename: maps a path or name in the checkpoint to the new path or name, or to the variable. An object is moved
            with all its parts.
        rows: "grow": a variable with more rows than in the checkpoint, and otherwise the same shape and type, gets the
            checkpoint's rows first and keeps its initial values in the others. The same holds for optimizer slots.
            None: such a variable keeps all its values.
        vocabularies: by object path or name, two vocabularies of a variable: the checkpoint's and the program's. Each
            is a list with one token per row, or the path of a file with one token per line. Rows of the variable and
            its slots are matched by token; rows of new tokens keep their initial values.

    Returns:
        The account, which changes as waiting variables are created. Check it with `assert_complete` or
        `assert_consumed`.

    Raises:
        CheckpointError: the checkpoint is damaged, `only`, `rename` or `vocabularies` name something that it does not
            have, a vocabulary does not fit, or the graph is finalized.
        DataError: there is no such checkpoint, or one of its files is damaged.
    """
    if rows not in (None, "grow"):
        raise CheckpointError(f"rows = {rows!r}: must be 'grow' or None")
    from embexp.checkpoints.growing import maps_by_token

    by_token = maps_by_token(vocabularies or {})
    objects.require_open_graph(
        path, "restored", "restore before the session is created, and run the account's operations in it"
    )
    checkpoint = objects.checkpoint_of(into)
    names = objects.names_of(into, objects.graph_of(checkpoint))
    counts = isinstance(into, tf.train.Checkpoint) and tf.executing_eagerly()
    return _restored(Path(path), checkpoint, names, {}, only, rename, counts=counts, rows=rows, by_token=by_token)


def restore_run(
    path: Path, checkpoint: Any, *, only: Collection[str] | None = None, rename: Mapping[str, str] | None = None
) -> LiveAccount:
    """Restores a checkpoint, of whatever program, into a run, whose variables have the names of `naming`.

    See `restore`. Tables are assigned in blocks.

    Args:
        checkpoint: the run's `tf.train.Checkpoint`, all of whose variables exist.
        only: what to restore; None: everything.
        rename: where to restore what has another path or name in the checkpoint.
    """
    names = naming.variable_names(checkpoint)
    return _restored(path, checkpoint, names, names, only, rename, counts=False)


def matched_run(checkpoint: Any, index: Path, source: object) -> Matching:
    """Matches a checkpoint with the run that it was written from, or one like it, all of whose variables exist.

    Args:
        checkpoint: the run's `tf.train.Checkpoint`.
        index: of the checkpoint, of either kind, which may be incremental.
        source: what errors call it.

    Raises:
        CheckpointError: a variable is missing, extra or of another shape or type; or the checkpoint is damaged.
        DataError: the checkpoint is damaged.
    """
    from embexp.checkpoints import matching

    names = naming.variable_names(checkpoint)
    found = matching.match(index, objects.graph_of(checkpoint), names, {})
    shown = names if found.by_name else {}
    if faults := matching.Taking(str(source), checkpoint, found, found.objects, None, shown).take().faults():
        raise CheckpointError("\n".join([f"{source} does not fit what it is restored into:", *faults]))
    return found


def read_run(checkpoint: Any, directory: Path) -> None:
    """Restores all of a run's checkpoint, of either kind, whole or incremental, eagerly into a like object.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged; or a variable is missing, extra or of another shape,
            which TensorFlow's own checks detect only in part.
        DataError: rows of a table are damaged.
    """
    index = index_of(Path(store.prefix_in(directory)))
    found = matched_run(checkpoint, index, directory)
    assigned = _assignable(found)
    with temporary(index) as folder, _readable(directory):
        checkpoint.read(found.write_view(folder, assigned)).assert_existing_objects_matched().expect_partial()
    for key, variable in assigned.items():
        assign_rows(variable, found.tensors[key])


def _restored(
    path: Path,
    checkpoint: Any,
    names: Mapping[str, str],
    shown: Mapping[str, str],
    only: Collection[str] | None,
    rename: Mapping[str, Any] | None,
    *,
    counts: bool,
    rows: Literal["grow"] | None = None,
    by_token: Mapping[str, RowMap] | None = None,
) -> LiveAccount:
    """Restores into a `tf.train.Checkpoint`.

    Args:
        names: global names of its variables, by object path.
        shown: those by which the account calls them; variables that are not in it have their own.
        counts: whether TensorFlow's count of saves is a part of it.
    """
    from embexp.checkpoints import matching

    with contextlib.ExitStack() as stack:
        index = _index(path, stack)
        hide_lists(checkpoint)
        found = matching.match(index, objects.graph_of(checkpoint), names, rename or {}, only, rows, by_token)
        assigned = _assignable(found)
        without = {*found.unused, *found.grown, *found.joined, *assigned}
        if any(isinstance(values, ChangedMatrix) and key not in without for key, values in found.tensors.items()):
            increments.require_whole(index)  # TensorFlow is to restore it, perhaps into what does not exist yet
        prefix = found.write_view(stack.enter_context(temporary(index)), without)
        read = checkpoint.restore if counts and matching.SAVE_COUNTER in found.tensors else checkpoint.read
        with _readable(index):
            status = read(prefix).expect_partial()
        deferred = Deferred(status._checkpoint, found)
        # What waits is read when it is created: the view lasts as long as TensorFlow's record of what waits.
        weakref.finalize(status._checkpoint, stack.pop_all().close)
    source = str(path if store.is_keras_file(path) else prefix_of(index))
    bound = status._checkpoint.object_by_proto_id
    taking = matching.Taking(source, checkpoint, found, bound, only, shown, unreached=not shown)

    ran: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

    def run(session: Any = None) -> None:
        opened = _session(session)
        deferred.catch_up()
        status.run_restore_ops(session=opened)
        with contextlib.nullcontext() if opened is None else opened.as_default():
            for key, variable in assigned.items():
                assign_rows(variable, found.tensors[key])
            bound = taking.bound()
            for key, of_key in {**found.joined, **found.grown}.items():
                if key in bound:
                    assign_grown(bound[key], found.tensors[key], of_key)
        if opened is not None:
            ran.setdefault(opened, set()).update(bound)

    def initialize(session: Any = None) -> None:
        if not tf.executing_eagerly():
            run(session)
            taking.initialize(_session(session))

    def take(session: Any = None) -> Account:
        opened = _raw(session) or tf.compat.v1.get_default_session()
        done = set().union(*ran.values()) if opened is None else ran.get(opened, set())
        left = [each for key, each in taking.bound().items() if key not in done]
        sessions = (_open_sessions() if left else []) if opened is None else [opened]
        return taking.take(done, initial=any(_has_values(each, left) for each in sessions))

    if tf.executing_eagerly():
        run()
        return LiveAccount(lambda session: taking.take(), lambda session: None, initialize)
    return LiveAccount(take, run, initialize)


def _index(path: Path, stack: contextlib.ExitStack) -> Path:
    """The index of a checkpoint; that of Keras' weights is in a temporary folder until the stack is closed."""
    if not store.is_keras_file(path):
        return store.find_index(path)
    return write_keras_bundle(path, Path(stack.enter_context(temporary(path))))


@contextlib.contextmanager
def _readable(source: object) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, ValueError, IndexError, AssertionError) as error:
        raise CheckpointError(f"{source}: TensorFlow can't restore it: {error}") from error


def temporary(index: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder for a view, whose path TensorFlow takes as it is; `index` is for the error."""
    return tempfile.TemporaryDirectory(prefix="embexp-", dir=plain_temporary(index.parent))


def _session(session: Any) -> Any:
    found = _raw(session) or tf.compat.v1.get_default_session()
    if found is None and not tf.executing_eagerly():
        raise CheckpointError("no session: pass one, or call this in a `with session.as_default():` block")
    return found


def _raw(session: Any) -> Any:
    """The session inside a monitored one, or the session itself."""
    return session._tf_sess() if hasattr(session, "_tf_sess") else session


def _open_sessions() -> list[Any]:
    """All sessions of the process: TensorFlow has no list of them, and most programs do not make one the default."""
    found = [each for each in gc.get_objects() if issubclass(type(each), BaseSession)]
    return [each for each in found if not each._closed]


def _has_values(session: Any, variables: list[Any]) -> bool:
    """Whether a session has a value of the smallest of some variables: they are initialized together."""
    known = [
        variable
        for each in variables
        if isinstance(variable := each.value if isinstance(each, keras.Variable) else each, tf.Variable)
        and variable.shape.is_fully_defined()
    ]
    if not known or session.graph is not known[0].graph:
        return False
    try:
        session.run(min(known, key=lambda variable: variable.shape.num_elements()))
    except tf.errors.FailedPreconditionError:
        return False
    return True


def _assignable(found: Matching) -> dict[str, Any]:
    """What TensorFlow does not restore, by the key of its value.

    Tables of runs; of name-based checkpoints, parts of partitioned variables; eagerly, variables larger than a block,
    and matrices that a checkpoint does not have in one place: in a graph, a variable that is not initialized takes
    the tensor over, so there is no second copy.
    """
    return {
        stored.key: variable
        for stored, variable in found.restored()
        if stored.key in found.tensors
        and stored.key not in {*found.grown, *found.joined}
        and (
            isinstance(variable, StreamedTable)
            or (tf.executing_eagerly() and not isinstance(found.tensors[stored.key], Tensor))
            or (found.by_name and _is_slice(variable, found.tensors[stored.key]))
            or (
                tf.executing_eagerly()
                and resource_variables(variable)
                and _is_large(found.tensors[stored.key])
                and not found.proto.nodes[stored.node].children
            )
        )
    }


def _is_slice(variable: Any, values: Values) -> bool:
    """Whether a variable is a part of what is stored whole; a part may also be stored alone."""
    part = part_of(variable)
    return part is not None and part.whole == values.entry.shape


def assign_rows(variable: Any, values: Values) -> None:
    """Assigns the rows of a tensor in blocks, or a slice of it; to a variable of a graph, in the default session.

    Raises:
        CheckpointError: rows that can't be assigned would change.
        DataError: a data file is damaged or cut short; rows may be assigned then.
    """
    if (part := part_of(variable)) is not None and part.whole == values.entry.shape:
        values.verify()
        value = values.read(part.start[0], part.start[0] + part.shape[0])
        columns = (slice(at, at + size) for at, size in zip(part.start[1:], part.shape[1:], strict=True))
        assign(variable, value[(slice(None), *columns)])
    elif (parts := resource_variables(variable)) and tf.executing_eagerly():
        start = 0
        for block in values.blocks(max(1, _BLOCK_BYTES // increments.row_bytes(values))):
            rows = tf.range(start, start + len(block), dtype=tf.int64)
            for each in parts:
                each.scatter_update(tf.IndexedSlices(block, rows))
            start += len(block)
    else:
        together = getattr(variable, "together", None)
        try:
            if together is None or not together.restore(variable, values):
                variable.restore(values.blocks(variable.rows_per_block))
        except ValueError as error:
            folder = values.entry.pieces[0].path.parent
            raise CheckpointError(f"{folder} does not fit what it is restored into: {values.key}: {error}") from error


def _is_large(values: Values) -> bool:
    entry, dtype = values.entry, values.dtype
    if dtype is None or dtype == np.dtype(object) or not entry.shape:
        return False
    return all(piece.shape[1:] == entry.shape[1:] for piece in entry.pieces) and (
        entry.shape[0] * increments.row_bytes(values) > _BLOCK_BYTES
    )


def write_keras_bundle(path: Path, folder: Path) -> Path:
    """Writes a name-based checkpoint with the weights of a `.weights.h5` or `.keras` file, and returns its index.

    Variables are named as datasets are, such as `layers/dense/vars/0`. One at a time is in memory.

    Args:
        folder: an empty one, for the checkpoint.

    Raises:
        DataError: the file can't be read.
    """
    from embexp.checkpoints import contents

    with contextlib.closing(BundleWriter(folder / CHECKPOINT_NAME)) as writer:
        for key, stored in contents.open_checkpoint(path).entries.items():
            if stored.numeric:
                value = stored.values.value()
                writer.add_bytes(
                    key, tf.as_dtype(value.dtype).as_datatype_enum, value.shape, np.ascontiguousarray(value)
                )
        writer.finish()
    return index_of(folder / CHECKPOINT_NAME)


@dataclass(frozen=True)
class DenseValues:
    """Values to restore into a dense part.

    Attributes:
        notes: what is not restored, and why.
        first: values of the first columns of variables, whose others keep their initial values.
    """

    values: list[tuple[Any, np.ndarray]]
    notes: tuple[str, ...] = ()
    first: tuple[tuple[Any, np.ndarray], ...] = ()

    def assign(self) -> None:
        """Assigns the values to eager variables, or in the default session."""
        for variable, value in self.values:
            assign(variable, value)
        for variable, value in self.first:
            whole = tf.convert_to_tensor(variable)
            now = whole.numpy() if tf.executing_eagerly() else tf.compat.v1.get_default_session().run(whole)
            assign(variable, np.concatenate([value, now[..., value.shape[-1] :]], axis=-1))

    def fill(self, session: Any) -> None:
        """Assigns the values to variables of a graph, in a session."""
        with session.as_default():
            self.assign()


def read_dense(
    parts: Any, index: Path, *, same_optimizer: bool, random: bool = False, outputs: tuple[int, int] | None = None
) -> DenseValues:
    """Reads the values of a dense part from an earlier checkpoint, matched by their place in model and optimizer.

    Args:
        parts: a `tf.train.Checkpoint` with model, optimizer, random and step, all of whose variables exist.
        index: the `.index` file of the earlier checkpoint.
        same_optimizer: whether the optimizers are of the same kind, so that slots can be restored.
        random: whether random generators, such as those of dropout, go on from where they were.
        outputs: how many the model had, and has now, if it may have more; those that are new keep their initial values.

    Raises:
        CheckpointError: weights differ in number or shape; the message lists them all.
        DataError: the checkpoint is damaged.
    """
    from embexp.checkpoints.contents import WEIGHTS_OF_OPTIMIZER

    weights, slots = _variables(parts)
    every = increments.tensors(increments.chain(prefix_of(index)))
    stored = {key.removesuffix(KEY_END): each for key, each in every.items() if not key.startswith(_OTHER_PARTS)}
    stored_slots = {
        key: values
        for key, values in stored.items()
        if key.startswith(_OPTIMIZER) and not key.startswith(WEIGHTS_OF_OPTIMIZER)
    }
    stored_weights = {key: values for key, values in stored.items() if key not in stored_slots}
    first, first_slots = (_take_grown(*each, outputs) for each in ((weights, stored_weights), (slots, stored_slots)))
    if faults := [*_faults(weights, stored_weights)]:
        raise CheckpointError(
            f"the dense part of {index.parent} does not match this experiment's: {'; '.join(faults)}. Use the "
            f"same model again, or set pretrained.dense=false to start with a new dense part"
        )
    values = [(variable, _checked(stored_weights[key])) for key, variable in weights.items()]
    if random:
        states = {f"random/{place}{KEY_END}": variable for place, variable in enumerate(parts.random)}
        values += [(variable, _checked(every[key])) for key, variable in states.items() if key in every]
    fresh = [key for key in slots if key not in stored_slots or _shape(slots[key]) != stored_slots[key].entry.shape]
    if not slots or not weights:
        return DenseValues(values, first=first)
    if not same_optimizer or fresh:
        why = "differ in number or shape" if same_optimizer else "belong to another kind of optimizer"
        return DenseValues(values, (f"dense_optimizer: starts afresh because the checkpoint's slots {why}",), first)
    values += [(variable, _checked(stored_slots[key])) for key, variable in slots.items()]
    first += first_slots
    if extra := len(stored_slots.keys() - slots.keys()):
        return DenseValues(
            values, (f"dense_optimizer: {extra} slots of the checkpoint are ignored: it has no such slots",), first
        )
    return DenseValues(values, first=first)


def _take_grown(
    variables: dict[str, Any], stored: dict[str, Values], outputs: tuple[int, int] | None
) -> tuple[tuple[Any, np.ndarray], ...]:
    """Takes variables out that have a column for each output, of which there were fewer; with their stored values."""
    if outputs is None or outputs[0] == outputs[1]:
        return ()
    keys = [
        key
        for key, variable in variables.items()
        if key in stored
        and (stored[key].entry.shape[-1:], _shape(variable)[-1:]) == ((outputs[0],), (outputs[1],))
        and stored[key].entry.shape[:-1] == _shape(variable)[:-1]
    ]
    return tuple((variables.pop(key), _checked(stored.pop(key))) for key in keys)


def _checked(values: Values) -> np.ndarray:
    values.verify()
    return values.value()


def _variables(parts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """By key, the model's variables and those of the optimizer alone."""
    # Without the tables.
    seen = tf.train.Checkpoint(model=parts.model, optimizer=parts.optimizer, random=parts.random, step=parts.step)
    model_weights = {id(variable.value) for variable in parts.model.weights}
    weights, slots = {}, {}
    for value in objects.graph_of(seen).values:
        variable = value.object.value if isinstance(value.object, keras.Variable) else value.object
        if id(variable) in model_weights:
            weights[value.path] = variable
        elif value.path.startswith(_OPTIMIZER):
            slots[value.path] = variable
    return weights, slots


def _faults(weights: Mapping[str, Any], stored: Mapping[str, Values]) -> list[str]:
    faults = []
    for key, variable in weights.items():
        if key not in stored:
            faults.append(f"it lacks {_name(variable)} {_shape(variable)}")
        elif stored[key].entry.shape != _shape(variable):
            faults.append(f"{_name(variable)} is {_shape(variable)} and was {stored[key].entry.shape}")
    return faults + [
        f"it has an extra {key} {values.entry.shape}" for key, values in stored.items() if key not in weights
    ]


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.shape.as_list())


def _name(variable: Any) -> str:
    return str(variable.name).split(":")[0]


def restore_weights(model: Any, directory: Path) -> None:
    """Restores all weights of a Keras model from a run's checkpoint.

    Raises:
        CheckpointError: a weight is missing or of another shape.
    """
    store.prefix_in(directory)  # raises if there is none, with the directory's own name
    like = tf.train.Checkpoint(model=model)
    with plain_path(directory) as path:
        try:
            like.read(store.prefix_in(path)).expect_partial().assert_existing_objects_matched()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            raise CheckpointError(f"{directory} does not fit the model: {error}") from error

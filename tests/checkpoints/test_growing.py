"""Variables whose rows differ from the checkpoint's, and their slots, of every kind of optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.cli.commands import main
from embexp.errors import CheckpointError

v1 = tf.compat.v1
OLD = [f"word {number}" for number in range(50)]
NEW = ["new a", *OLD[:20:-1], "new b", *OLD[:10], "new c"]  # 42 rows; words 10 to 20 are gone
PLACES = np.array([OLD.index(token) if token in OLD else -1 for token in NEW])
"""Of each row, by NumPy and Python's own lists."""


def by_row(before: np.ndarray, initial: np.ndarray) -> np.ndarray:
    return np.concatenate([before, initial[len(before) :]])


def by_token(before: np.ndarray, initial: np.ndarray) -> np.ndarray:
    return np.where((PLACES >= 0)[:, None], before[PLACES], initial)


HOW: dict[str, tuple[int, dict[str, Any], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "by row": (52, {"rows": "grow"}, by_row),
    "by token": (len(NEW), {"vocabularies": {"table": (OLD, NEW)}}, by_token),
}
GRAD = tf.IndexedSlices(tf.random.stateless_uniform([3, 10], [1, 2]), tf.constant([4, 30, 9]))


def keras_optimizer(kind: Callable[[], Any], rows: int) -> tuple[dict[str, Any], Callable[[], list[Any]]]:
    optimizer = kind()
    table = keras.Variable(np.random.default_rng(rows).standard_normal((rows, 10)), dtype="float32", name="table")
    optimizer.build([table])
    return {"table": table, "optimizer": optimizer}, lambda: [table, *optimizer.variables[2:]]


def tensorflow_1(kind: Callable[[], Any], rows: int) -> tuple[dict[str, Any], Callable[[], list[Any]]]:
    optimizer = kind()
    table = tf.Variable(np.random.default_rng(rows).standard_normal((rows, 10)), dtype=tf.float32, name="table")
    optimizer.apply_gradients([(tf.zeros([rows, 10]), table)])
    return {"table": table, "optimizer": optimizer}, lambda: [
        table,
        *(optimizer.get_slot(table, name) for name in optimizer.get_slot_names()),
    ]


def tables(kind: Callable[[], Any], rows: int) -> tuple[dict[str, Any], Callable[[], list[Any]]]:
    """As embexp's runs and `TPUEmbedding` have tables and slots; the table is under the name `table` here, too."""
    root, values = tf.__internal__.tracking.AutoTrackable(), np.random.default_rng(rows).standard_normal((rows, 10))
    table, slot = (tf.Variable(values * n, dtype=tf.float32, name=name) for n, name in [(1, "w"), (2, "a")])
    root._track_trackable(table, "table")
    root._track_trackable(slot, "table/accumulators")
    return {"embedding": root, "table": table}, lambda: [table, slot]


OPTIMIZERS = {
    "tables": (tables, None),
    "Keras Adagrad": (keras_optimizer, lambda: keras.optimizers.Adagrad(0.1)),
    "Keras Adam": (keras_optimizer, lambda: keras.optimizers.Adam(0.1)),
    "TensorFlow 1 Adagrad": (tensorflow_1, lambda: v1.train.AdagradOptimizer(0.1)),
    "TensorFlow 1 Adam": (tensorflow_1, lambda: v1.train.AdamOptimizer(0.1)),
    "TensorFlow 1 FTRL": (tensorflow_1, lambda: v1.train.FtrlOptimizer(0.1)),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_table_and_slots(tmp_path: Path, optimizer: str, how: str) -> None:
    make, kind = OPTIMIZERS[optimizer]
    rows, arguments, expected = HOW[how]
    saved, of_saved = make(kind, 50)
    random = np.random.default_rng(0)
    for each in of_saved():
        each.assign(random.standard_normal((50, 10)))
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "c"))
    into, of_into = make(kind, rows)
    initial = [each.numpy() for each in of_into()]
    refused = checkpoints.restore(path, into)
    assert len(refused.mismatched) == len(initial)
    account = checkpoints.restore(path, into, **arguments)
    account.assert_consumed()
    for before, began, now in zip(of_saved(), initial, of_into(), strict=True):
        np.testing.assert_array_equal(now, expected(before.numpy(), began))
    kept, new, dropped = (50, 2, 0) if how == "by row" else (39, 3, 11)
    assert [(each.kept, each.new, each.dropped) for each in account.grown] == [(kept, new, dropped)] * len(initial)
    assert f"float32 [{rows}, 10]: {kept} rows kept, {new} new, {dropped} dropped" in str(account)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_from_a_saver_into_a_session(tmp_path: Path, how: str, resource: bool, parts: int) -> None:
    """Name-based, with Adagrad's accumulators under the names of TensorFlow 1, and in parts."""
    rows, arguments, expected = HOW[how]
    before = np.random.default_rng(0).standard_normal((50, 10)).astype(np.float32)

    @contextlib.contextmanager
    def program(rows: int, parts: int, values: np.ndarray) -> Any:
        with tf.Graph().as_default(), v1.Session() as session:
            table = v1.get_variable(
                "table",
                initializer=lambda shape, dtype, partition_info=None: values[
                    (0 if partition_info is None else partition_info.var_offset[0]) :
                ][: shape[0]],
                shape=[rows, 10],
                dtype=tf.float32,
                use_resource=resource,
                partitioner=v1.fixed_size_partitioner(parts) if parts > 1 else None,
            )
            gradient = [(tf.ones(each.shape), each) for each in (table if parts > 1 else [table])]
            train = v1.train.AdagradOptimizer(0.1).apply_gradients(gradient)

            def read() -> list[np.ndarray]:
                names = [
                    [each for each in v1.global_variables() if ("Adagrad" in each.name) == slot] for slot in (0, 1)
                ]
                return [np.concatenate(session.run(each)) for each in names]

            session.run(v1.global_variables_initializer())
            yield session, train, read

    with program(50, 1, before) as (session, train, read):
        session.run(train)
        saved = read()
        path = v1.train.Saver().save(session, str(tmp_path / "c"))
    with program(rows, parts, np.ones([rows, 10], np.float32)) as (session, _, read):
        initial = read()
        account = checkpoints.restore(path, v1.global_variables(), **arguments)
        account.run_restore_ops(session).assert_consumed()
        for old, began, now in zip(saved, initial, read(), strict=True):
            np.testing.assert_array_equal(now, expected(old, began))
        assert {round(float(each), 4) for each in initial[1].ravel()} == {0.1}


@pytest.mark.parametrize("how", HOW)
def test_what_is_made_after_the_restore(tmp_path: Path, how: str) -> None:
    """A Keras model that its first call builds, and optimizers of Keras and TensorFlow 1 that are built by a step."""
    rows, arguments, expected = HOW[how]

    class Net(keras.Model):
        def __init__(self, rows: int) -> None:
            super().__init__()
            self.table = keras.layers.Embedding(rows, 10)

        def call(self, ids: Any) -> Any:
            return self.table(ids)

    class Lazy(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.optimizer = v1.train.MomentumOptimizer(0.0, 0.5)

        def step(self, rows: int) -> None:
            if not hasattr(self, "table"):
                self.table = tf.Variable(tf.ones([rows, 10]))
            self.optimizer.apply_gradients([(tf.zeros([rows, 10]), self.table)])

    def made(rows: int) -> dict[str, Any]:
        return {"net": Net(rows), "adam": keras.optimizers.Adam(0.1), "lazy": Lazy()}

    def variables(parts: dict[str, Any], rows: int) -> list[Any]:
        parts["net"](np.zeros(1, int))
        table, lazy = parts["net"].table.embeddings, parts["lazy"]
        if not parts["adam"].built:
            parts["adam"].build([table])
        lazy.step(rows)  # halves the momentum
        return [table, lazy.table, *parts["adam"].variables[2:], lazy.optimizer.get_slot(lazy.table, "momentum")]

    first, second = made(50), made(rows)
    for each in variables(first, 50):
        each.assign(np.random.default_rng(1).standard_normal((50, 10)))
    path = checkpoints.save(tmp_path / "c", first)
    if "vocabularies" in arguments:
        arguments = {"vocabularies": dict.fromkeys(["net/table/_embeddings", "lazy/table"], (OLD, NEW))}
    account = checkpoints.restore(path, second, **arguments)
    into = [each.numpy() for each in variables(second, rows)]
    account.assert_consumed()
    saved = [each.numpy() for each in variables(first, 50)]  # after the same step
    new = PLACES < 0 if how == "by token" else np.arange(rows) >= 50
    assert np.all(np.abs(into[0][new]) <= 0.05)  # the initializer's
    initial = [into[0], np.ones([rows, 10]), *[np.zeros([rows, 10], np.float32)] * 3]
    for before, began, now in zip(saved, initial, into, strict=True):
        np.testing.assert_array_equal(now, expected(before, began))
    assert len(account.grown) == 5


def test_files_of_tokens_and_what_stays_refused(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("\n".join(OLD) + "\n")
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n")
    before = np.arange(500, dtype=np.float32).reshape(50, 10)
    path = checkpoints.save(tmp_path / "c", {"table": tf.Variable(before), "other": tf.Variable(tf.ones([5]))})
    into = {"table": tf.Variable(tf.zeros([len(NEW), 10])), "other": tf.Variable(tf.zeros([7]))}
    files = (tmp_path / "old.txt", str(tmp_path / "new.txt"))
    account = checkpoints.restore(path, into, vocabularies={"table": files})
    np.testing.assert_array_equal(into["table"], by_token(before, np.zeros([len(NEW), 10])))
    assert [each.wanted.path for each in account.mismatched] == ["other"]
    checkpoints.restore(path, into, vocabularies={"table": files}, rows="grow").assert_consumed()
    assert into["other"].numpy().tolist() == [1] * 5 + [0] * 2
    # Fewer rows, another dimension and another type are no growth.
    for other in (tf.zeros([49, 10]), tf.zeros([52, 11]), tf.zeros([52, 10], tf.float64), tf.zeros([52])):
        account = checkpoints.restore(path, {"table": tf.Variable(other)}, rows="grow", only=["table"])
        assert (len(account.mismatched), len(account.restored)) == (1, 0)
    with pytest.raises(CheckpointError, match=r"rows = 'more': must be 'grow' or None"):
        checkpoints.restore(path, into, rows="more")  # type: ignore[arg-type]
    for pair, said in {
        (("a", "b"), ("b",)): r"table .* does not have the 2 rows of its old vocabulary",
        (("a", "a"), ("b",)): "found 1 tokens more than once, such as 'a'",
        (("a", "b"), ("c",)): "have no token in common",
    }.items():
        with pytest.raises(CheckpointError, match=said):
            checkpoints.restore(path, into, vocabularies={"table": pair})
    with pytest.raises(CheckpointError, match="the checkpoint has no variable tabel; its matrices are table"):
        checkpoints.restore(path, into, vocabularies={"tabel": (OLD, NEW)})


def grow(*arguments: object) -> int:
    return main(["checkpoint", "grow", *map(str, arguments)])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [(optimizer, "object") for optimizer in OPTIMIZERS if optimizer != "tables"]
    + [("Keras Adagrad", "name"), ("Keras Adam", "name")],
)
def test_a_file_of_any_program(tmp_path: Path, optimizer: str, kind: str, how: str) -> None:
    """TensorFlow restores the grown checkpoint into larger variables, and has the dense part and counters, too."""
    make, optimizer_kind = OPTIMIZERS[optimizer]
    rows, _, expected = HOW[how]
    saved, of_saved = make(optimizer_kind, 50)
    saved["dense"] = tf.Variable(tf.ones([50]), name="dense")
    random = np.random.default_rng(0)
    for each in of_saved():
        each.assign(1 + random.random((50, 10)))
    checkpoints.save(tmp_path / "given" / "c", saved, kind=kind)
    (tmp_path / "old").write_text("\n".join(OLD))
    (tmp_path / "new").write_text("\n".join(NEW))
    chosen = ["--rows", "table=52"]
    if how == "by token":
        chosen = ["--from", f"table={tmp_path / 'old'}", "--vocabulary", f"table={tmp_path / 'new'}"]
    assert grow(tmp_path / "given", *chosen, "--missing", "mean", "--dry-run") == 0
    assert not (tmp_path / "grown").exists()
    assert grow(tmp_path / "given", *chosen, "--missing", "mean", "--out", tmp_path / "grown") == 0
    path = tf.train.latest_checkpoint(str(tmp_path / "grown"))
    into, of_into = make(optimizer_kind, rows)
    into["dense"] = tf.Variable(tf.zeros([50]), name="dense")
    if kind == "object":
        tf.train.Checkpoint(**into).read(path).assert_consumed()
    else:
        names = {each.path: each.path.replace(into["optimizer"].name, saved["optimizer"].name, 1) for each in of_into()}
        for each in of_into():
            each.assign(tf.train.load_variable(path, names[each.path]))
        into["dense"].assign(tf.train.load_variable(path, "dense"))
    assert into["dense"].numpy().tolist() == [1] * 50
    table, *slots = of_saved()
    means = np.broadcast_to(table.numpy().mean(0, dtype=np.float64).astype(np.float32), (rows, 10))
    np.testing.assert_allclose(of_into()[0], expected(table.numpy(), means), rtol=1e-7)
    for number, (before, now) in enumerate(zip(slots, of_into()[1:], strict=True)):
        accumulates = "Adam" not in optimizer and number == 0
        began = np.full((rows, 10), before.numpy().min() if accumulates else 0, np.float32)
        np.testing.assert_array_equal(now, expected(before.numpy(), began))


def test_what_a_file_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints.save(tmp_path / "given" / "c", {"table": tf.Variable(tf.ones([50, 10])), "b": tf.Variable(1.0)})
    (tmp_path / "old").write_text("\n".join(OLD[:9]))
    for words, said in {
        ("--vocabulary", "table=x"): [
            "add --from table=OLD",
            "what fills new rows? Add --missing: must be zeros, mean",
        ],
        ("--from", "table=x", "--rows", "table=7", "--rows", "u"): [
            "add --vocabulary table=NEW",
            "--rows u: must be NAME=N",
        ],
        ("--rows", "table=7", "--rows", "c=9", "--missing", "mean"): [
            "table (Variable) float32 [50, 10] has more rows than 7",
            "has no variable c; its matrices are table",
        ],
        ("--from", f"table={tmp_path / 'old'}", "--vocabulary", f"table={tmp_path / 'old'}", "--missing", "zeros"): [
            "its old vocabulary has 9 tokens, expected one for each row"
        ],
    }.items():
        assert grow(tmp_path / "given", *words, "--out", tmp_path / "grown") in (1, 2)
        shown = capsys.readouterr().err
        for each in said:
            assert each in shown
    assert not (tmp_path / "grown").exists()

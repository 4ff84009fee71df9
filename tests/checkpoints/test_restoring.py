"""Restoring with an account: what TensorFlow's own asserts say, and what they don't."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.checkpoints import restoring
from embexp.errors import CheckpointError, DataError
from embexp.system.tensor_bundle.tensor import Tensor


class Net(tf.Module):
    """Two layers; the second one's attribute has a name of choice."""

    def __init__(self, second: str = "l2", *, units: int = 2, value: float = 0.0) -> None:
        super().__init__()
        self.l1 = Layer(value + 1)
        setattr(self, second, Layer(value + 2, units))


class Layer(tf.Module):
    def __init__(self, value: float, units: int = 2) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.fill([3, units], float(value)), name="kernel")
        self.bias = tf.Variable(tf.fill([units], float(value)), name="bias")


class Lazy(tf.Module):
    """A layer that makes its variables at its first call, as `tf.Module`s do in the documentation."""

    def __call__(self, x: Any) -> Any:
        if not hasattr(self, "kernel"):
            self.kernel = tf.Variable(tf.zeros([x.shape[-1], 2]), name="kernel")
        return x @ self.kernel


def paths(values: Any) -> list[str]:
    return sorted(each.path for each in values)


def equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(one.variables, other.variables, strict=True))


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return str(tf.train.Checkpoint(Net(value=10)).write(str(tmp_path / "net")))


def test_everything_is_restored_and_said(saved: str) -> None:
    net = Net()
    account = checkpoints.restore(saved, net)
    assert equal(net, Net(value=10))
    account.assert_consumed().assert_complete()
    assert paths(account.restored) == ["l1/bias", "l1/kernel", "l2/bias", "l2/kernel"]
    assert (account.missing, account.extra, account.mismatched, account.waiting, account.left_out) == ((),) * 5
    (kernel,) = (each for each in account.restored if each.path == "l1/kernel")
    assert (kernel.name, kernel.shape, kernel.dtype) == ("kernel", (3, 2), "float32")
    assert str(account) == f"{saved}: 4 restored"


def test_a_renamed_attribute_passes_tensorflow_and_fails_here(tmp_path: Path) -> None:
    """The documented checks of TensorFlow pass although the second layer has nothing from the checkpoint."""
    path = tf.train.Checkpoint(net=Net(value=10)).write(str(tmp_path / "net"))
    net = Net("renamed")
    status = tf.train.Checkpoint(net=net).read(path)
    status.assert_nontrivial_match().expect_partial()
    assert not np.array_equal(net.renamed.kernel, Net(value=10).l2.kernel)

    account = checkpoints.restore(path, {"net": net})
    with pytest.raises(CheckpointError, match=r"(?s)2 missing.*net/renamed/bias.*2 extra.*net/l2/bias") as error:
        account.assert_consumed()
    assert "net/renamed/kernel (kernel) float32 [3, 2]" in str(error.value)
    with pytest.raises(CheckpointError, match="missing"):
        account.assert_complete()


def test_before_there_is_a_variable_tensorflow_passes_and_this_fails(saved: str) -> None:
    class Empty(tf.Module):
        pass

    tf.train.Checkpoint(Empty()).read(saved).assert_existing_objects_matched().expect_partial()
    account = checkpoints.restore(saved, Empty())
    with pytest.raises(CheckpointError, match="nothing restored"):
        account.assert_complete()
    assert paths(account.waiting) == ["l1/bias", "l1/kernel", "l2/bias", "l2/kernel"]


def test_by_name_tensorflow_passes_with_unused_entries_and_this_fails(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path / "c", {"a": tf.Variable(1.0), "b": tf.Variable(2.0)}, kind="name")
    mine = tf.Variable(0.0, name="a")
    tf.train.Checkpoint(v=mine).read(str(path)).assert_consumed()
    assert float(mine) == 1
    account = checkpoints.restore(path, [mine])
    account.assert_complete()
    assert [each.name for each in account.extra] == ["b"]
    with pytest.raises(CheckpointError, match=r"1 extra in the checkpoint:\n    b float32 \[\]"):
        account.assert_consumed()


@pytest.mark.parametrize("kind", ["object", "name"])
def test_other_shapes_and_types_are_listed_and_nothing_is_assigned(tmp_path: Path, kind: str) -> None:
    stored = {"a": tf.Variable(tf.ones([2, 3])), "b": tf.Variable([1, 2]), "c": tf.Variable(5.0)}
    path = checkpoints.save(tmp_path / "c", stored, kind=kind)
    into = {"a": tf.Variable(tf.zeros([3, 2])), "b": tf.Variable([0.0, 0.0]), "c": tf.Variable(0.0)}
    account = checkpoints.restore(path, into)
    assert float(into["c"]) == 5
    assert not np.any(into["a"].numpy())
    assert not np.any(into["b"].numpy())
    assert sorted(map(str, account.mismatched)) == [
        f"a ({into['a'].name[:-2]}) float32 [3, 2], in the checkpoint float32 [2, 3]",
        f"b ({into['b'].name[:-2]}) float32 [2], in the checkpoint int32 [2]",
    ]
    for check in (account.assert_complete, account.assert_consumed):
        with pytest.raises(CheckpointError, match="2 with a different shape or type"):
            check()


@pytest.mark.parametrize("make", [Lazy, lambda: keras.layers.Dense(2, use_bias=False)], ids=["tf.Module", "Keras"])
def test_restored_on_creation_and_the_account_says_so(tmp_path: Path, make: Any) -> None:
    x = tf.ones([1, 3])
    first = make()
    first(x)
    first.kernel.assign(np.arange(6, dtype=np.float32).reshape(3, 2))
    wanted = first(x)
    path = checkpoints.save(tmp_path / "c", {"net": {"dense": first}, "step": tf.Variable(3)})

    second, step = make(), tf.Variable(0)
    account = checkpoints.restore(path, {"net": {"dense": second}, "step": step})
    assert (paths(account.restored), len(account.waiting), account.extra) == (["step"], 1, ())
    assert "waiting for variables that do not exist yet" in str(account)
    with pytest.raises(CheckpointError, match="waiting"):
        account.assert_consumed()
    np.testing.assert_array_equal(second(x), wanted)
    account.assert_consumed()
    assert len(account.restored) == 2


def test_restored_on_creation_without_the_initializer(saved: str) -> None:
    calls = []

    class Own(tf.Module):
        def build(self) -> None:
            def initializer(shape: Any, dtype: Any, **_: Any) -> Any:
                calls.append(shape)
                return tf.zeros(shape, dtype)

            from tensorflow.python.checkpoint.checkpoint import add_variable

            self.kernel = add_variable(self, "kernel", [3, 2], initializer=initializer)
            self.bias = add_variable(self, "bias", [2], initializer=initializer)

    own = Own()
    checkpoints.restore(saved, {"l1": own})
    own.build()
    np.testing.assert_array_equal(own.kernel, Net(value=10).l1.kernel)
    assert calls == []


def test_what_waits_is_restored_though_the_account_is_gone(tmp_path: Path) -> None:
    first = keras.layers.Dense(2)
    first.build((None, 3))
    path = checkpoints.save(tmp_path / "[1] c", first)
    second = keras.layers.Dense(2)
    checkpoints.restore(path, second)
    second.build((None, 3))
    np.testing.assert_array_equal(second.kernel, first.kernel)


def test_an_object_put_in_the_place_of_a_restored_one_is_not_said_to_be_restored(saved: str) -> None:
    net = Net()
    account = checkpoints.restore(saved, net).assert_consumed()
    net.l2 = Layer(0.0)
    assert paths(account.missing) == ["l2/bias", "l2/kernel"]
    with pytest.raises(CheckpointError, match="2 missing"):
        account.assert_consumed()


@pytest.mark.parametrize(
    ("only", "restored"),
    [
        (["l1"], ["l1/bias", "l1/kernel"]),
        (["*/kernel"], ["l1/kernel", "l2/kernel"]),
        (["kernel"], ["l1/kernel", "l2/kernel"]),
        (["l2/bias", "l1/*"], ["l1/bias", "l1/kernel", "l2/bias"]),
    ],
)
def test_only_what_is_named_is_restored(saved: str, only: list[str], restored: list[str]) -> None:
    net, before, after = Net(), Net(), Net(value=10)
    account = checkpoints.restore(saved, net, only=only)
    assert paths(account.restored) == restored
    assert paths(account.left_out) == sorted({"l1/bias", "l1/kernel", "l2/bias", "l2/kernel"} - {*restored})
    account.assert_consumed()
    for layer in ("l1", "l2"):
        for name in ("kernel", "bias"):
            source = after if f"{layer}/{name}" in restored else before
            wanted = getattr(getattr(source, layer), name)
            np.testing.assert_array_equal(getattr(getattr(net, layer), name), wanted)


def test_a_name_stands_for_itself_and_an_object_for_what_it_has(tmp_path: Path) -> None:
    stored = {name: tf.Variable(1.0) for name in ("table", "table/Adam", "net/a", "net/b")}
    path = checkpoints.save(tmp_path / "c", stored, kind="name")
    into = {name: tf.Variable(0.0) for name in stored}
    account = checkpoints.restore(path, into, only=["table", "net"]).assert_consumed()
    assert sorted(each.name for each in account.now.left_out) == ["table/Adam"]
    assert float(into["table/Adam"]) == 0
    shared = tf.Module()
    shared.net, shared.optimizer = tf.Module(), tf.Module()
    shared.net.deep = tf.Module()
    shared.net.deep.w = shared.optimizer.w = tf.Variable(1.0)
    shared.optimizer.slot = tf.Variable(1.0)
    path = checkpoints.save(tmp_path / "d", shared)
    assert checkpoints.restore(path, shared, only=["net"]).assert_consumed().restored[0].path == "optimizer/w"


def with_two_optimizers() -> Any:
    """Two variables, each trained by an optimizer of TensorFlow 1 of its own, the first by both."""
    root = tf.Module()
    for name in ("generator", "discriminator"):
        part = tf.Module()
        part.w = tf.Variable([1.0, 2.0], name=f"{name}/w")
        setattr(root, name, part)
    root.of_both, root.of_one = tf.compat.v1.train.AdamOptimizer(0.1), tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
    ones = tf.ones([2])
    root.of_both.apply_gradients([(ones, root.generator.w), (ones, root.discriminator.w)])
    root.of_one.apply_gradients([(ones, root.generator.w)])
    return root


@pytest.mark.parametrize("kind", ["object", "name"])
def test_slots_belong_to_their_optimizer(tmp_path: Path, kind: str) -> None:
    path = checkpoints.save(tmp_path / "c", with_two_optimizers(), kind=kind)
    account = checkpoints.restore(path, with_two_optimizers(), only=["generator"]).assert_consumed()
    assert paths(account.restored) == ["generator/w"]
    if kind == "object":
        root = with_two_optimizers()
        root.of_one.get_slot(root.generator.w, "momentum").assign([7.0, 7.0])
        account = checkpoints.restore(path, root, only=["of_one"]).assert_consumed()
        assert paths(account.restored) == ["generator/w/.OPTIMIZER_SLOT/of_one/momentum"]
        assert root.of_one.get_slot(root.generator.w, "momentum").numpy().tolist() == [1.0, 1.0]
        account = checkpoints.restore(path, with_two_optimizers(), only=["generator/*"])
        assert len(account.restored) == 4  # a pattern is about the path as a text


@pytest.mark.parametrize("rows", [2, 2_000_000], ids=["small", "in blocks"])
def test_two_values_for_one_tied_variable(tmp_path: Path, rows: int) -> None:
    """The variable has the value that TensorFlow gives it, and the account has the other one."""

    def made(*values: float) -> Any:
        module = tf.Module()
        for name, value in zip("abc", values, strict=False):
            setattr(module, name, tf.Variable(tf.fill([rows], value), name=name))
        return module

    def tied(names: str) -> Any:
        module = tf.Module()
        variable = tf.Variable(tf.zeros([rows]))
        for name in names:
            setattr(module, name, variable)
        return module

    path = checkpoints.save(tmp_path / "c", made(1.0, 2.0))
    theirs, ours = tied("ab"), tied("ab")
    tf.train.Checkpoint(theirs).read(str(path)).assert_consumed()
    account = checkpoints.restore(path, ours)
    np.testing.assert_array_equal(ours.a, theirs.a)
    account.assert_complete().assert_existing_objects_matched()
    assert [(each.value.path, each.instead.path) for each in account.dropped] == [("b", "a")]
    with pytest.raises(CheckpointError, match=r"1 dropped .*:\n    b \(b\) float32 .*, whose variable was .* from a$"):
        account.assert_consumed()
    only = tied("ab")
    checkpoints.restore(path, only, only=["b"]).assert_consumed()
    assert only.a.numpy()[0] == 2
    later: Any = tf.Module()
    account = checkpoints.restore(path, later)
    later.b = later.a = tf.Variable(tf.zeros([rows]))  # Python assigns from left to right
    assert later.a.numpy()[0] == 2
    assert [(each.value.path, each.instead.path) for each in account.dropped] == [("a", "b")]
    if rows == 2:
        module = made(1.0, 2.0, 3.0)
        module.a = tf.Variable([1.0])
        other = tied("abc")
        account = checkpoints.restore(checkpoints.save(tmp_path / "d", module), other)
        assert other.a.numpy().tolist() == [2.0, 2.0]
        assert [each.stored.path for each in account.mismatched] == ["a"]
        assert [(each.value.path, each.instead.path) for each in account.dropped] == [("c", "b")]


def test_a_list_in_another_order_is_warned_of(tmp_path: Path) -> None:
    def made(*names: str) -> Any:
        module = tf.Module()
        module.towers = [tf.Variable([float(len(name))], name=name) for name in names]
        return module

    path = checkpoints.save(tmp_path / "c", made("user", "product", "category"))
    account = checkpoints.restore(path, swapped := made("product", "user", "category"))
    assert float(swapped.towers[0][0]) == len("user")
    said = r"towers/0 \(product\) has the value of user; towers/1 \(user\) has the value of product\. Restore with"
    for check in (account.assert_consumed, account.assert_complete, account.assert_existing_objects_matched):
        with pytest.warns(UserWarning, match=said) as warned:
            check()
        assert warned[0].filename == __file__
    assert [each.path for each in account.reordered] == ["towers/0", "towers/1"]
    assert "2 of lists whose order seems to have changed:\n    towers/0 (product)" in str(account)
    for right in (made("user", "product", "category"), made("product", "x", "y"), made("product", "category", "x")):
        checkpoints.restore(path, right).assert_consumed()  # warnings are errors here
    rename = {"towers/0": "towers/1", "towers/1": "towers/0"}
    checkpoints.restore(path, swapped, rename=rename).assert_consumed()
    assert float(swapped.towers[0][0]) == len("product")


def sequential(names: tuple[str, ...]) -> keras.Model:
    return keras.Sequential([keras.Input((3,)), *(keras.layers.Dense(3, name=name) for name in names)])


def functional(names: tuple[str, ...]) -> keras.Model:
    inputs = outputs = keras.Input((3,))
    for name in names:
        outputs = keras.layers.Dense(3, name=name)(outputs)
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize("make", [sequential, functional])
def test_layers_that_are_matched_by_their_number(tmp_path: Path, make: Any) -> None:
    """TensorFlow passes though `b` has the values of `a`; what Keras numbered or someone renamed is no other layer."""

    def restored(before: str, after: str) -> list[str]:
        first, second = make(tuple(before.split())), make(tuple(after.split()))
        path = checkpoints.save(tmp_path / "c", {"model": first})
        tf.train.Checkpoint(model=second).read(str(path)).assert_existing_objects_matched().expect_partial()
        np.testing.assert_array_equal(
            second.layers[-len(after.split())].kernel, first.layers[-len(before.split())].kernel
        )
        account = checkpoints.restore(path, {"model": second})
        if account.reordered:
            with pytest.warns(
                UserWarning, match=r"the order of a list seems to have changed .* \(.*b/.*\) has the value of"
            ):
                account.assert_complete()
        else:
            account.assert_complete()
        return [
            f"{each.name.split('/')[-2]} has {each.stored.split('/')[-2]}"
            for each in account.reordered
            if each.name.endswith("kernel")
        ]

    assert restored("a b", "b a") == ["b has a", "a has b"]
    assert restored("a b", "b") == ["b has a"]
    assert restored("a b c", "c a b") == ["c has a", "a has b", "b has c"]
    for before, after in (
        ("a b", "a b"),
        ("a b", "a c"),
        ("d d_1", "d_2 d_3"),
        ("d d_1", "d_1 d_2"),
        ("d_9 d_10", "d_10 d_11"),
    ):
        assert restored(before, after) == []


def test_slots_that_are_matched_by_their_number(tmp_path: Path) -> None:
    """Keras' optimizers keep slots in one list: the weights have their own values, and the slots each other's."""

    class Net(keras.Model):
        def __init__(self, *names: str) -> None:
            super().__init__()
            for name in names:
                setattr(self, name, keras.layers.Dense(3, name=name, use_bias=False))
                getattr(self, name).build((1, 3))

    def made(*names: str) -> dict[str, Any]:
        net, optimizer = Net(*names), keras.optimizers.Adagrad(0.1)
        optimizer.build(net.trainable_variables)
        return {"net": net, "optimizer": optimizer}

    path = checkpoints.save(tmp_path / "c", made("query", "key"))
    checkpoints.restore(path, made("query", "key")).assert_consumed()
    account = checkpoints.restore(path, made("key", "query"))
    with pytest.warns(UserWarning, match=r"key_kernel_accumulator\) has the value of .*query_kernel_accumulator"):
        account.assert_consumed()


def test_existing_objects_as_tensorflow_asserts_them(saved: str) -> None:
    class Root(tf.Module):
        pass

    less, more, other = Net(), Net(), Net("renamed")
    del less.l2
    more.more = tf.Variable(0.0)
    passed = []
    for root in (Net(), less, more, other, Root()):
        status, account = tf.train.Checkpoint(root).read(saved).expect_partial(), checkpoints.restore(saved, root)
        for check, error in (
            (status.assert_existing_objects_matched, AssertionError),
            (account.assert_existing_objects_matched, CheckpointError),
        ):
            try:
                check()
                passed.append(True)
            except error:
                passed.append(False)
    assert passed == [True] * 4 + [False] * 4 + [True] * 2
    account = checkpoints.restore(saved, Net(units=3))
    with pytest.raises(CheckpointError, match="2 with a different shape or type"):
        account.assert_existing_objects_matched()


def test_what_is_left_out_does_not_come_later(saved: str) -> None:
    lazy = Lazy()
    checkpoints.restore(saved, {"l1": lazy}, only=["l2", "l1/bias"])
    lazy(tf.ones([1, 3]))
    assert not np.any(lazy.kernel.numpy())


def test_only_something_that_is_not_there(saved: str) -> None:
    with pytest.raises(CheckpointError, match=r"nothing named l3, x\*, so only can't restore it; it has l1/kernel"):
        checkpoints.restore(saved, Net(), only=["l1", "l3", "x*"])


def test_objects_are_restored_under_another_path(saved: str) -> None:
    net = Net("renamed")
    checkpoints.restore(saved, net, rename={"l2": "renamed"}).assert_consumed()
    np.testing.assert_array_equal(net.renamed.kernel, Net(value=10).l2.kernel)
    swapped = Net()
    checkpoints.restore(saved, swapped, rename={"l1/bias": "l2/bias", "l2/bias": swapped.l1.bias}).assert_consumed()
    np.testing.assert_array_equal(swapped.l1.bias, Net(value=10).l2.bias)
    np.testing.assert_array_equal(swapped.l2.bias, Net(value=10).l1.bias)
    later = Lazy()
    account = checkpoints.restore(saved, {"sub": later}, rename={"l1/kernel": "sub/kernel"})
    assert paths(account.waiting) == ["sub/kernel"]
    later(tf.ones([1, 3]))
    np.testing.assert_array_equal(later.kernel, Net(value=10).l1.kernel)


@pytest.mark.parametrize("kind", ["object", "name"])
def test_only_names_what_the_checkpoint_has_whatever_is_renamed(tmp_path: Path, kind: str) -> None:
    """A name that the checkpoint has is meant there, also where another value gets it; others are the program's."""
    stored = {name: tf.Variable([value], name=name) for name, value in [("l1/a", 1.0), ("l1/b", 2.0), ("l2/a", 3.0)]}
    path = checkpoints.save(
        tmp_path / "c",
        {"l1": {"a": stored["l1/a"], "b": stored["l1/b"]}, "l2": {"a": stored["l2/a"]}} if kind == "object" else stored,
        kind=kind,
    )
    swap = {"l1/a": "l2/a", "l2/a": "l1/a"}

    def restored(only: list[str], rename: dict[str, str]) -> tuple[list[float], int]:
        new = {name: tf.Variable([0.0], name=name) for name in ("l1/a", "l1/b", "l2/a", "new/a", "new/b", "new/c")}
        nested: dict[str, Any] = {}
        for name, variable in new.items():
            nested.setdefault(name[:-2], {})[name[-1]] = variable
        account = checkpoints.restore(path, nested if kind == "object" else new, only=only, rename=rename)
        return [float(each[0]) for each in new.values()], len(account.missing)

    assert restored(["l1/a"], swap) == ([0, 0, 1, 0, 0, 0], 0)
    assert restored(["l1"], {"l1": "new"}) == ([0, 0, 0, 1, 2, 0], 1)  # new/c, which the checkpoint should have
    assert restored(["l1/*"], {"l1": "new"}) == ([0, 0, 0, 1, 2, 0], 1)
    assert restored(["l1/b"], {"l1": "new"}) == ([0, 0, 0, 0, 2, 0], 0)
    assert restored(["new/b"], {"l1": "new"}) == ([0, 0, 0, 0, 2, 0], 0)
    assert restored(["l2", "new/b"], {"l1": "new"}) == ([0, 0, 3, 0, 2, 0], 0)


def test_names_are_restored_under_another_name(tmp_path: Path) -> None:
    stored = {"dense/kernel": tf.Variable(tf.ones([3, 2])), "dense/bias": tf.Variable([1.0, 2.0])}
    path = checkpoints.save(tmp_path / "c", stored, kind="name")
    layer = keras.layers.Dense(2, name="other")
    layer.build((None, 3))
    checkpoints.restore(path, layer, rename={"dense": "other"}).assert_consumed()
    np.testing.assert_array_equal(layer.bias, [1, 2])
    again = keras.layers.Dense(2, name="third")
    again.build((None, 3))
    account = checkpoints.restore(path, again, rename={"dense/bias": again.bias})
    assert [each.name for each in account.restored] == ["third/bias"]
    assert [each.name for each in account.extra] == ["dense/kernel"]
    assert [each.name for each in account.missing] == ["third/kernel"]


@pytest.mark.parametrize("kind", ["object", "name"])
def test_all_faults_of_rename_at_once(tmp_path: Path, kind: str) -> None:
    path = checkpoints.save(tmp_path / "c", {"a": tf.Variable(1.0), "b": tf.Variable(2.0)}, kind=kind)
    rename = {"x": "a", "y": "b", "a": tf.Variable(0.0)}
    with pytest.raises(
        CheckpointError, match=r"no x; .*no y; a is renamed to something that is not part of the " r"objects"
    ):
        checkpoints.restore(path, {"a": tf.Variable(0.0), "b": tf.Variable(0.0)}, rename=rename)


@pytest.mark.parametrize("kind", ["object", "name"])
def test_large_variables_are_assigned_in_blocks(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "_BLOCK_BYTES", 400)
    random = np.random.default_rng(0)
    values = {
        "matrix": random.standard_normal((103, 7)).astype(np.float32),
        "ids": random.integers(0, 1000, 333),
        "halves": random.standard_normal((31, 5, 3)).astype(np.float16),
        "small": random.standard_normal((3, 3)),
    }
    path = checkpoints.save(tmp_path / "c", {name: tf.Variable(value) for name, value in values.items()}, kind=kind)
    sizes: list[int] = []
    real = Tensor.blocks

    def blocks(which: Tensor, rows: int) -> Iterator[np.ndarray]:
        sizes.append(0)
        for block in real(which, rows):
            sizes[-1] = max(sizes[-1], block.nbytes)
            yield block

    monkeypatch.setattr(Tensor, "blocks", blocks)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        mirrored = tf.Variable(np.zeros_like(values["matrix"]))
    into = {name: tf.Variable(np.zeros_like(value)) for name, value in values.items()}
    checkpoints.restore(path, {**into, "matrix": mirrored}).assert_consumed()
    for name, value in values.items():
        found = mirrored if name == "matrix" else into[name]
        np.testing.assert_array_equal(found, value)
    for part in mirrored.values:
        np.testing.assert_array_equal(part, values["matrix"])
    assert len(sizes) == 3
    assert max(sizes) <= 400


def test_damage_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoints.save(tmp_path / "c", [tf.Variable(tf.ones([200, 3]), name="v")])
    (data,) = tmp_path.glob("c.data*")
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="TensorFlow can't restore it"):
        checkpoints.restore(path, [tf.Variable(tf.ones([200, 3]), name="v")])
    monkeypatch.setattr(restoring, "_BLOCK_BYTES", 400)
    with pytest.raises(DataError, match="the file is damaged"):
        checkpoints.restore(path, [tf.Variable(tf.ones([200, 3]), name="v")])
    with pytest.raises(DataError, match="there is no such file or folder"):
        checkpoints.restore(tmp_path / "other", Net())


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras, as it saves
def test_weights_of_keras(tmp_path: Path) -> None:
    layer = keras.layers.Dense(2)
    keras.Sequential([keras.Input((3,)), layer]).save_weights(tmp_path / "[1].weights.h5")
    into = {"w": tf.Variable(tf.zeros([3, 2])), "b": tf.Variable(tf.ones([2]))}
    rename = {f"layers/{layer.name.partition('_')[0]}/vars/0": "w", "layers/dense/vars/1": into["b"]}
    account = checkpoints.restore(tmp_path / "[1].weights.h5", into, rename=rename)
    account.assert_consumed()
    assert str(account).startswith(f"{tmp_path}/[1].weights.h5: 2 restored")
    np.testing.assert_array_equal(into["w"], layer.kernel.numpy())
    np.testing.assert_array_equal(into["b"], layer.bias.numpy())


def test_two_models_with_two_optimizers(tmp_path: Path) -> None:
    def made() -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for name in ("generator", "discriminator"):
            model = keras.Sequential([keras.layers.Dense(3, activation="relu"), keras.layers.Dense(1)])
            model.build((None, 2))
            optimizer = keras.optimizers.Adam(0.01)
            optimizer.build(model.trainable_variables)
            parts |= {name: model, f"{name}_optimizer": optimizer}
        return {**parts, "step": tf.Variable(0, dtype=tf.int64)}

    def values(parts: dict[str, Any]) -> list[np.ndarray]:
        holders = [part for name, part in parts.items() if name != "step"]
        return [each.numpy() for part in holders for each in part.variables] + [parts["step"].numpy()]

    first = made()
    for name in ("generator", "discriminator"):
        model = first[name]
        first[f"{name}_optimizer"].apply([tf.ones_like(each) for each in model.trainable_variables])
    first["step"].assign(7)
    path = checkpoints.save(tmp_path / "objects", first)
    second = made()
    checkpoints.restore(path, second).assert_consumed()
    assert all(map(np.array_equal, values(second), values(first)))
    third = made()
    tf.train.Checkpoint(**third).read(str(path)).assert_consumed()
    assert all(map(np.array_equal, values(third), values(first)))

    by_name = checkpoints.save(tmp_path / "names", first, kind="name")
    for each, value in zip(first["generator"].variables, range(99), strict=False):
        each.assign(tf.fill(each.shape, float(value)))
    account = checkpoints.restore(by_name, first)
    account.assert_consumed()
    assert all(map(np.array_equal, values(first), values(third)))


def test_tensorflows_own_optimizer_slots(tmp_path: Path) -> None:
    """Slot variables of TensorFlow 1's optimizers, which have edges of their own kind."""

    def made(value: float) -> tuple[Any, Any]:
        variable = tf.Variable([value, value], name="w")
        optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
        return variable, optimizer

    variable, optimizer = made(1.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable**2)
    optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
    path = checkpoints.save(tmp_path / "c", {"v": variable, "optimizer": optimizer})
    other, fresh = made(0.0)
    account = checkpoints.restore(path, {"v": other, "optimizer": fresh})
    assert account.waiting
    assert not account.extra
    fresh.apply_gradients([(tf.zeros([2]), other)])
    account.assert_consumed()
    np.testing.assert_array_equal(fresh.get_slot(other, "m"), 0.9 * optimizer.get_slot(variable, "m").numpy())


@pytest.mark.parametrize("trained", [False, True])
def test_slots_of_a_variable_of_another_shape(tmp_path: Path, trained: bool) -> None:
    """TensorFlow can't restore this at all: it would create the slots by their values."""

    def made(size: int) -> dict[str, Any]:
        return {"v": tf.Variable(tf.ones([size]), name="w"), "optimizer": tf.compat.v1.train.AdamOptimizer(0.1)}

    def step(parts: dict[str, Any]) -> None:
        parts["optimizer"].apply_gradients([(tf.ones(parts["v"].shape), parts["v"])])

    step(parts := made(3))
    path = checkpoints.save(tmp_path / "c", parts)
    grown = made(4)
    if trained:
        step(grown)
    else:
        with pytest.raises(ValueError, match="not compatible"):
            tf.train.Checkpoint(**made(4)).read(str(path))
    account = checkpoints.restore(path, grown)
    for _ in range(2):
        listed = [each.split(" ")[0] + each[each.index("float32") :] for each in map(str, account.mismatched)]
        kind = "float32 [4], in the checkpoint float32 [3]"
        assert listed == [f"v{kind}", *(f"v/.OPTIMIZER_SLOT/optimizer/{slot}{kind}" for slot in "mv")]
        assert not account.missing
        step(grown)
    assert paths(account.restored) == ["optimizer/beta1_power", "optimizer/beta2_power"]


def test_the_count_of_saves_is_no_matter(tmp_path: Path) -> None:
    net = Net(value=10)
    path = tf.train.Checkpoint(net=net).save(str(tmp_path / "net"))
    checkpoints.restore(path, {"net": Net()}).assert_consumed()
    own = tf.train.Checkpoint(net=Net())
    checkpoints.restore(path, own).assert_consumed()
    assert int(own.save_counter) == 1
    assert own.save(str(tmp_path / "net")).endswith("net-2")


def test_what_is_no_variable_is_restored_too(tmp_path: Path) -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
    data = tf.data.Dataset.range(10)
    iterator = iter(data)
    next(iterator), next(iterator)
    path = checkpoints.save(tmp_path / "c", {"table": table, "data": iterator})
    other = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    fresh = iter(data)
    checkpoints.restore(path, {"table": other, "data": fresh}).assert_consumed()
    assert other.lookup(tf.constant(["b", "c"])).numpy().tolist() == [2, -1]
    assert int(next(fresh)) == 2
    with pytest.raises(CheckpointError, match=r"holds only variables, which these are not: .*table"):
        checkpoints.save(tmp_path / "n", {"table": table}, kind="name")

"""What an account says, and when its asserts fail."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.checkpoints import Value
from embexp.checkpoints.account import Account, Mismatch
from embexp.errors import CheckpointError

ONE = Value("model/dense/kernel", "dense/kernel", (3, 4), "float32")
OTHER = Value("", "step", (), "int64")


@pytest.mark.parametrize("check", ["assert_complete", "assert_consumed"])
def test_nothing_restored_is_never_right(tmp_path: Path, check: str) -> None:
    with pytest.raises(CheckpointError, match="c was not restored as expected: nothing restored"):
        getattr(Account("c"), check)()
    path = checkpoints.save(tmp_path / "c", {"v": tf.Variable(1.0)})
    root = tf.Module()
    root.child = tf.Module()
    tf.train.Checkpoint(root).read(str(path)).assert_existing_objects_matched().expect_partial()
    with pytest.raises(CheckpointError, match="nothing restored"):
        getattr(checkpoints.restore(path, root), check)()


def test_extra_values_are_a_fault_of_one_assert_only() -> None:
    account = Account("c", restored=(ONE,), extra=(OTHER,))
    account.assert_complete()
    with pytest.raises(CheckpointError, match=r"1 restored\n  1 extra in the checkpoint:\n    step int64 \[\]"):
        account.assert_consumed()


@pytest.mark.parametrize("where", ["missing", "waiting", "mismatched"])
def test_what_is_not_restored_is_a_fault_of_both(where: str) -> None:
    listed = (Mismatch(ONE, OTHER),) if where == "mismatched" else (ONE,)
    account = Account("c", restored=(OTHER,), **{where: listed})  # type: ignore[arg-type]
    for check in (account.assert_complete, account.assert_consumed):
        with pytest.raises(CheckpointError, match=r"model/dense/kernel \(dense/kernel\) float32 \[3, 4\]"):
            check()


def test_a_long_account_is_cut_where_it_is_printed_and_whole_in_an_error() -> None:
    account = Account("c", restored=(ONE,), extra=tuple(Value("", f"v{number}") for number in range(30)))
    assert str(account).endswith("    v19\n    … and 10 more")
    with pytest.raises(CheckpointError, match="v29"):
        account.assert_consumed()
    assert (
        str(Account("c", restored=(ONE,), left_out=(OTHER,)))
        == "c: 1 restored\n  1 left out as requested:\n    step int64 []"
    )

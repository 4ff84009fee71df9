"""Global names of a run's variables, for checkpoints that match by name.

| variable | name |
|---|---|
| a table | `embedding/<table>` |
| its slots | that and `/Adagrad`; `/Adam`, `/Adam_1`; `/Ftrl`, `/Ftrl_1`; `/AdagradMomentum`, `/AdagradMomentum_1` |
| a weight of the model | its Keras path, such as `hidden.0/kernel` |
| a variable of the dense optimizer | its Keras path without a number after `adam`: `adam/hidden.0_kernel_momentum` |
| the step | `global_step` |
| anything else | its object path, such as `random/0` |

The slots are named as those of `tf.compat.v1.train.AdagradOptimizer`, `AdamOptimizer` and `FtrlOptimizer`, so that a
program of TensorFlow 1 that trains the table by the same rule finds them too; there is no optimizer for the fourth.
`global_step` is what `tf.compat.v1.train.get_or_create_global_step` creates.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import keras

from embexp.checkpoints import live, locating
from embexp.tensor_bundle.index import read_index
from embexp.tensor_bundle.rekeying import KEY_END

_SLOTS = {
    ("accumulators",): ("Adagrad",),
    ("momenta", "velocities"): ("Adam", "Adam_1"),
    ("accumulators", "linears"): ("Ftrl", "Ftrl_1"),
    ("accumulators", "momenta"): ("AdagradMomentum", "AdagradMomentum_1"),
}
"""By the slots that `TPUEmbedding` gives a table, sorted."""
_TABLES = "embedding/"
_STEP = "step"


def variable_names(checkpoint: Any) -> dict[str, str]:
    """A global name for each key of a run's checkpoint.

    The names are the same eagerly and in a graph, on every strategy. Nothing is read or created.

    Args:
        checkpoint: the run's `tf.train.Checkpoint`, with the part embedding, and model, optimizer, random, step if it
            has them; all variables exist.

    Returns:
        Unique names by key, without the end that all keys of variables have.
    """
    optimizer = getattr(checkpoint, "optimizer", None)
    values = live.graph_of(checkpoint).values
    fixed = names_of_keys(each.path for each in values)
    named = []
    for each in values:
        name = fixed.get(each.path)
        if name is None and isinstance(each.object, keras.Variable):
            name = _without_number(each.object.path, optimizer)
        named.append((each.path, name or live.unescaped(each.path)))
    return live.unique_names(named)


def names_of_keys(keys: Iterable[str]) -> dict[str, str]:
    """Names of tables, their slots and the step, by their keys; other keys of a run are left out.

    Args:
        keys: of a run's checkpoint, without the end that all keys of variables have.
    """
    keys = set(keys)
    slots: dict[str, list[str]] = {}
    for key in sorted(keys):
        table, slot = _table_of(key, keys)
        if table.startswith(_TABLES):
            slots.setdefault(table, []).extend([slot] if slot else [])
    names = {_STEP: "global_step"} if _STEP in keys else {}
    for table, found in slots.items():
        names[table] = live.unescaped(table)
        for slot, name in zip(found, _SLOTS.get(tuple(found), found), strict=True):
            names[f"{table}.S{slot}"] = f"{names[table]}/{name}"
    return names


def names_in(path: Path) -> dict[str, str]:
    """`names_of_keys` of a run's object-based checkpoint.

    Raises:
        DataError: there is none, or its index is damaged.
    """
    return names_of_keys(key.removesuffix(KEY_END) for key in read_index(locating.index_of(path)))


def _table_of(key: str, keys: Collection[str]) -> tuple[str, str]:
    """The key of a table and the name of a slot, or the key itself."""
    table, _, slot = key.rpartition(".S")
    return (table, slot) if table in keys else (key, "")


def _without_number(path: str, optimizer: Any) -> str:
    """The path of a variable of the dense optimizer, whose name Keras numbers by how many the process has made."""
    first, _, rest = path.partition("/")
    return f"{re.sub(r'_[0-9]+$', '', first)}/{rest}" if rest and first == getattr(optimizer, "name", None) else path

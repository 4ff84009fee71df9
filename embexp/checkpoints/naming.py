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
from collections import Counter
from collections.abc import Iterable
from typing import Any

import keras

from embexp.checkpoints import live

_SLOTS = {
    ("accumulators",): ("Adagrad",),
    ("momenta", "velocities"): ("Adam", "Adam_1"),
    ("accumulators", "linears"): ("Ftrl", "Ftrl_1"),
    ("accumulators", "momenta"): ("AdagradMomentum", "AdagradMomentum_1"),
}
"""By the slots that `TPUEmbedding` gives a table, in their order."""
_PARAMETERS = "parameters"


def variable_names(checkpoint: Any) -> dict[str, str]:
    """A global name for each key of a run's checkpoint.

    The names are the same eagerly and in a graph, on every strategy. Nothing is read or created.

    Args:
        checkpoint: the run's `tf.train.Checkpoint`, with the part embedding, and model, optimizer, random, step if it
            has them; all variables exist.

    Returns:
        Unique names by key, without the end that all keys of variables have.
    """
    tables = _table_names(checkpoint.embedding)
    optimizer, step = getattr(checkpoint, "optimizer", None), getattr(checkpoint, "step", None)
    named = []
    for each in live.graph_of(checkpoint).values:
        value = each.object
        if id(value) in tables:
            name = tables[id(value)]
        elif value is step:
            name = "global_step"
        elif isinstance(value, keras.Variable):
            name = _without_number(value.path, optimizer)
        else:
            name = live.unescaped(each.path)
        named.append((each.path, name))
    return unique_names(named)


def unique_names(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Names by object path: the given ones where they are unique, object paths elsewhere.

    Args:
        named: object paths, and names, which may be empty.
    """
    pairs = list(named)
    count = Counter(name for _, name in pairs)
    found = {path: name for path, name in pairs if name and count[name] == 1}
    taken = set(found.values())
    readable = Counter(live.unescaped(path) for path, _ in pairs if path not in found)
    for path, _ in pairs:
        if path in found:
            continue
        name = live.unescaped(path)
        if readable[name] > 1 or name in taken:
            name = path
        while name in taken:
            name += "_"
        found[path] = name
        taken.add(name)
    return found


def _table_names(embedding: Any) -> dict[int, str]:
    names = {}
    for table, parts in embedding._variables.items():
        slots = tuple(slot for slot in parts if slot != _PARAMETERS)
        names[id(parts[_PARAMETERS])] = f"embedding/{table}"
        for slot, name in zip(slots, _SLOTS.get(slots, slots), strict=True):
            names[id(parts[slot])] = f"embedding/{table}/{name}"
    return names


def _without_number(path: str, optimizer: Any) -> str:
    """The path of a variable of the dense optimizer, whose name Keras numbers by how many the process has made."""
    first, _, rest = path.partition("/")
    return f"{re.sub(r'_[0-9]+$', '', first)}/{rest}" if rest and first == getattr(optimizer, "name", None) else path

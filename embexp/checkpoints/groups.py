"""Which part of a model a key of a checkpoint belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from embexp.tensor_bundle.rekeying import KEY_END, OBJECT_GRAPH

TABLES, SLOTS, DENSE, OPTIMIZER, RANDOM, STEP = "tables", "slots", "dense", "optimizer", "random", "step"
GRAPH = "object graph"
_ORDER = (TABLES, SLOTS, DENSE, OPTIMIZER, RANDOM, STEP)
_BY_START = {
    "model": DENSE,
    "optimizer": OPTIMIZER,
    "random": RANDOM,
    "step": STEP,
    "save_counter": STEP,
    "global_step": STEP,
}
_WEIGHTS_OF_OPTIMIZER = "optimizer/_trainable_variables/"
"""A Keras optimizer refers to the model's weights; it is the shortest way to them, so they have such keys."""
_SLOT_OF_KERAS_2 = "/.OPTIMIZER_SLOT/"
_STEPS_OF_KERAS = "/iteration"
_TABLES = "embedding/"
"""Where `TPUEmbedding` is in a checkpoint of embexp, and in TensorFlow's own examples."""


class Group(NamedTuple):
    """The part that a key belongs to.

    Attributes:
        name: of the part.
        table: name of the table, for tables and their slots.
        slot: name of the slot.
    """

    name: str
    table: str | None = None
    slot: str | None = None


def in_order(group: str, key: str) -> tuple[object, ...]:
    """What keys are sorted by: the known groups first, the object graph last; numbers in keys as numbers."""
    place = _ORDER.index(group) if group in _ORDER else len(_ORDER) + (group == GRAPH)
    # Text and numbers alternate, so the same places hold the same types.
    parts = enumerate(re.split(r"([0-9]+)", key))
    # Digits as their number, but not by `int`, which takes none of thousands.
    return place, group, [(len(part.lstrip("0")), part.lstrip("0")) if number % 2 else part for number, part in parts]


def of_objects(keys: Iterable[str]) -> dict[str, Group]:
    """Groups of the keys of an object-based checkpoint.

    `TPUEmbedding` keeps a table as a child of that name, and a slot as a child `table/slot`. In keys, names of edges
    have `.S` for "/" and `..` for "." (`_escape_local_name` in tensorflow/python/checkpoint/trackable_view.py).
    """
    short = {key: key.removesuffix(KEY_END) for key in keys}
    known = set(short.values())
    owners = {key: _owner(name, known) for key, name in short.items()}
    tables = {owner for owner, _ in filter(None, owners.values())}
    found: dict[str, Group] = {}
    for key, name in short.items():
        if (owner := owners[key]) is not None:
            found[key] = Group(SLOTS, _plain(owner[0].rpartition("/")[2]), owner[1])
        elif name in tables or _is_table(name):
            found[key] = Group(TABLES, _plain(name.rpartition("/")[2]))
        elif name == OBJECT_GRAPH:
            found[key] = Group(GRAPH)
        elif _SLOT_OF_KERAS_2 in name:
            found[key] = Group(OPTIMIZER)
        elif name.startswith(_WEIGHTS_OF_OPTIMIZER):
            found[key] = Group(DENSE)
        else:
            found[key] = of_name(name)
    return found


def of_names(keys: Iterable[str]) -> dict[str, Group]:
    """Groups of the keys of a name-based checkpoint.

    An optimizer of TensorFlow 1 calls its slot of a variable `variable/Adam`; one of Keras has `adam/iteration`. embexp
    calls a table `embedding/table`; where there are tables, what remains is the dense part.
    """
    known = set(keys)
    tables = {key for key in known if _is_table(key)}
    optimizers = {key.removesuffix(_STEPS_OF_KERAS) for key in known if key.endswith(_STEPS_OF_KERAS)}
    found: dict[str, Group] = {}
    for key in known:
        start, (variable, _, slot) = key.partition("/")[0], key.rpartition("/")
        if key in tables:
            found[key] = Group(TABLES, key.removeprefix(_TABLES))
        elif variable in tables:
            found[key] = Group(SLOTS, variable.removeprefix(_TABLES), slot)
        elif variable in known or start in optimizers:
            found[key] = Group(OPTIMIZER)
        else:
            found[key] = Group(DENSE) if tables and start not in _BY_START else of_name(key)
    return found


def of_name(key: str) -> Group:
    """Group of a key by how it begins, as far as its first "/"."""
    start = key.partition("/")[0]
    return Group(_BY_START.get(start, start))


def _is_table(key: str) -> bool:
    return key.startswith(_TABLES) and key.count("/") == 1


def _owner(key: str, known: set[str]) -> tuple[str, str] | None:
    """The key of the table that a key is a slot of, and the slot; None: it is no slot."""
    path, _, edge = key.rpartition("/")
    table, _, slot = edge.rpartition(".S")
    owner = f"{path}/{table}" if path else table
    return (owner, _plain(slot)) if table and owner in known else None


def _plain(edge: str) -> str:
    """The name of an edge without escapes."""
    return re.sub(r"\.(.)", lambda found: "/" if found[1] == "S" else found[1], edge)

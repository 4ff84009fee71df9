"""Fields stand behind one record each: the core imports none of them, and asks for nothing by their names."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest

from embexp.specs import fields, tasks
from embexp.specs.fields import Field
from tests.import_graph import MODULES, PACKAGE

NAMED = ("tasks", "data", "models", "losses", "studies", "settings", "methods", "exports")
PATHS = {
    (group, name): path for group in NAMED for each in fields.fields() for name, path in getattr(each, group).items()
}


def asked(module: Path) -> int:
    """How often a module compares something with a name that a field brings."""
    names = {name for group in ("tasks", "data", "models", "losses", "studies") for name in fields.names(group)}
    found = 0
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            compared = [each for side in (node.left, *node.comparators) for each in ast.walk(side)]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        else:
            continue
        found += any(isinstance(each, ast.Constant) and each.value in names for each in compared)
    return found


def test_the_core_asks_for_nothing_by_name() -> None:
    counts = Counter[str]()
    for module in MODULES:
        name = module.relative_to(PACKAGE).as_posix()
        if not name.startswith("fields/") and (count := asked(module)):
            counts[name] = count
    # "text" is a kind of file, too, of which samples are taken.
    assert set(counts) <= {"data/files/samples.py"}, counts


@pytest.mark.parametrize("place", PATHS, ids=lambda place: " ".join(place))
def test_what_a_field_names_is_there(place: tuple[str, str]) -> None:
    group, name = place
    found = fields.imported(PATHS[place])
    assert found is fields.find(group, name)
    if group in ("data", "models", "losses", "studies"):
        assert found.model_fields["kind"].default == name
    if group == "tasks":
        assert (found, tasks.named(name)) == (name, found)


@pytest.mark.parametrize("task", list(tasks.every()), ids=str)
def test_what_a_task_names_is_there(task: tasks.Task) -> None:
    for path in (task.evaluator, task.serving, task.data, task.additions, task.loss, task.reference):
        assert not path or fields.imported(path) is not None
    assert bool(task.loss) == (task.losses == "loss=of_task")
    assert list(task.named_metrics())


@pytest.mark.parametrize("task", list(tasks.every()), ids=str)
def test_there_is_one_object_of_each_task(task: tasks.Task) -> None:
    assert pickle.loads(pickle.dumps(task)) is deepcopy(task) is tasks.named(str(task)) is task


def test_an_unknown_task_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="'sequences' is not a task; the tasks are regression, binary"):
        tasks.named("sequences")


def test_records_of_fields_are_light() -> None:
    """They are read for `--help`, and before a config is composed."""
    code = """
import sys
from embexp.specs import fields

fields.fields()
print(sorted({"pydantic", "numpy", "tensorflow"} & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_no_two_fields_bring_the_same_name() -> None:
    for group in (*NAMED, "commands"):
        names = list(fields.names(group))
        assert len(names) == len(set(names)), group
    assert all(isinstance(each, Field) and each.described for each in fields.fields())

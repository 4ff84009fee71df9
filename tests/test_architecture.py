"""Imports point one way, and the light modules stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import wording
from tests.import_graph import MODULES, PACKAGE, edges, imports_of, room_of

ALLOWED = {
    "__init__": "api errors rows strategies training",
    "__main__": "cli",
    "api": "config errors records reports runs specs sweeps system training",
    "checkpoints": "data errors system tables",
    "cli": "checkpoints config data errors records reports runs specs strategies sweeps system training vectors",
    "config": "data errors records specs system vectors",
    "data": "errors specs system",
    "errors": "",
    "estimator": "errors",
    "fields": "cli data errors reports runs specs system training vectors",
    "initialization": "errors specs system tables vectors",
    "records": "errors specs system",
    "reports": "errors records specs system training",
    "rows": "specs tables",
    "runs": "checkpoints data errors estimator initialization records reports specs strategies system tables"
    " training vectors",
    "specs": "errors",
    "strategies": "errors initialization specs system tables training",
    "sweeps": "config errors records reports runs specs system training",
    "system": "errors",
    "tables": "errors specs system",
    "training": "data errors specs system tables",
    "vectors": "data errors records specs system",
}
"""Which rooms each room may import. An arrow that nobody needs any more goes from here too."""
HYDRA_ALLOWED = {"config", "cli", "sweeps", "__main__"}
TENSORFLOW_FREE = {
    "api",
    "errors",
    "system",
    "specs",
    "records",
    "reports",
    "vectors",
    "config",
    "sweeps",
    "checkpoints/store.py",
    "checkpoints/contents.py",
    "checkpoints/difference.py",
    "checkpoints/keras_weights.py",
    "system/user_code.py",
    "training/freezing/__init__.py",
    "training/freezing/policies.py",
    "training/freezing/watching.py",
    "runs/prepare.py",
    "runs/finished.py",
    "runs/runs_compared.py",
}
"""Rooms, and modules, that are imported before it is known whether anything is trained."""
WITH_TENSORFLOW = {
    "reports/tensorboard.py",
    "system/native.py",
}
"""Modules of these rooms that are imported only where something is trained."""
OF_FEW_RUNS = (
    "embexp.config.zipped",
    "embexp.data.files.arrow_columns",
    "embexp.data.files.arrow_table",
    "embexp.data.replay",
    "embexp.specs.sparse_cores",
    "embexp.training.significance",
    "embexp.vectors.transforms",
)
"""Modules that are imported where a run needs them."""


def test_the_arrows_are_the_allowed_ones() -> None:
    found = {room: set(others) for room, others in edges().items()}
    allowed = {room: set(others.split()) for room, others in ALLOWED.items()}
    assert found == allowed


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_hydra_stays_at_the_edge(module: Path) -> None:
    if room_of(module) in HYDRA_ALLOWED:
        return
    assert not [name for name in imports_of(module) if name.split(".")[0] in ("hydra", "omegaconf")]


@pytest.mark.parametrize(
    "module",
    [
        *(module for module in MODULES if room_of(module) in HYDRA_ALLOWED),
        *(PACKAGE.parent / "hydra_plugins").rglob("*.py"),
    ],
    ids=lambda path: str(path.relative_to(PACKAGE.parent)),
)
def test_only_what_hydra_makes_public_is_used(module: Path) -> None:
    """No module of Hydra's or OmegaConf's whose name begins with an underscore, and no such attribute."""
    imported = [
        parts for parts in (name.split(".") for name in imports_of(module)) if parts[0] in ("hydra", "omegaconf")
    ]
    assert not [name for name in imported if any(part.startswith("_") for part in name)]
    if not imported:
        return
    nodes = [
        node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)
    ]
    private = [node for node in nodes if node.attr.startswith("_") and not node.attr.endswith("__")]
    assert not [ast.unparse(node) for node in private if ast.unparse(node.value) != "self"]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_tensorflow_where_it_would_cost_seconds(module: Path) -> None:
    name = str(module.relative_to(PACKAGE))
    if name in WITH_TENSORFLOW or not TENSORFLOW_FREE & {room_of(module), name}:
        return
    assert not [name for name in imports_of(module) if name.split(".")[0] in ("tensorflow", "keras")]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_attic(module: Path) -> None:
    assert module.stem not in ("utils", "common", "helpers", "misc")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_decided_by_the_wording_of_a_message(module: Path) -> None:
    found = list(wording.decisions(module.read_text(encoding="utf-8")))
    assert bool(found) == (str(module.relative_to(PACKAGE)) in wording.ALLOWED), found


@pytest.mark.parametrize(
    "decision",
    [
        "' not set' in fault.rule",
        "fault.remedy.startswith('write')",
        "str(error) == str(other)",
        "re.search('a', str(error))",
        "'x' in first",
        "_PATTERN.match(text)",
        "f'{error}' != ''",
        "details['msg'] == 'x'",
        "any(word in str(error).lower() for word in words)",
    ],
)
def test_such_decisions_are_found(decision: str) -> None:
    body = f"first, other = str(error), 5\n    text = first.lower()\n    return {decision}"
    source = f"def decide(error: Exception, fault: Fault) -> bool:\n    {body}"
    assert [line for line, _, _ in wording.decisions(source)] == [4]
    assert not list(wording.decisions(source.replace(decision, "fault.code is Code.UNSET or error.errno == 2")))


def test_a_run_is_prepared_without_tensorflow_and_what_few_runs_need() -> None:
    imported = "import sys, embexp.config.composition, embexp.runs.prepare, embexp.fields.columns.metrics"
    script = f"{imported}; print([m for m in {('tensorflow', 'keras', *OF_FEW_RUNS)} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert result.stdout.strip() == "[]"


def test_importing_the_package_is_light() -> None:
    script = "import sys, embexp; print([m for m in ('tensorflow', 'hydra', 'pydantic', 'numpy') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert result.stdout.strip() == "[]"


def test_a_sweep_is_checked_without_numpy() -> None:
    modules = "embexp.config.composition, embexp.sweeps.sweep"
    script = f"import sys, {modules}; print([m for m in ('numpy', 'pyarrow', 'tensorflow') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert result.stdout.strip() == "[]"

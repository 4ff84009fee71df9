"""What all tests share: a quiet TensorFlow, and where real data would be."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CXX"] = "none-in-tests"  # `make` has built the fused operations, or runs go without
with contextlib.suppress(ImportError):
    # It configures Python's loggers when it is imported, which closes the handler of absl, if TensorFlow has been
    # imported before; and that closes the stream that pytest had put in the place of the standard error.
    import submitit  # noqa: F401

import pytest
from hydra._internal import defaults_list
from hypothesis import settings

from embexp.config import composition
from embexp.config.loader import Loader
from embexp.config.named_code import OWN_MODULES, Permission
from embexp.records import manifest
from embexp.specs import fields
from tests import preloaded
from tests.thoroughness import PROFILES, leave_out

PROCESSORS = 4

ROOT = Path(__file__).resolve().parents[1]

for name, profile in PROFILES.items():
    settings.register_profile(name, profile)
settings.load_profile("embexp")  # unless --hypothesis-profile names another


def pytest_configure(config: pytest.Config) -> None:
    """What holds for the whole process: Ctrl-C, and how many logical processors TensorFlow has.

    There are as many as any test needs, set before any test module runs an operation.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # As a shell starts what it runs in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # As nohup starts what it runs.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    distributes = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    if distributes:
        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ[preloaded.COMMANDS] = str(stack.enter_context(preloaded.commands(folder)))
    elif not config.option.collectonly:
        from embexp.system import environment, machine

        # The kernels of a user's run, which forked processes have: TensorFlow itself turns oneDNN on only beyond AVX2.
        # It is asked at once, because it reads the variable when it first needs it.
        told = machine.ONEDNN in os.environ
        environment.load_tensorflow()
        if machine.onednn() and not told:
            del os.environ[machine.ONEDNN]
        from embexp.strategies import mirrored

        mirrored.logical_processors(PROCESSORS)


@pytest.hookimpl(tryfirst=True)  # before -k and -m take cases away
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long go first, so that no process is left alone with one at the end."""
    leave_out(items, whole_files=not any("::" in each for each in config.args))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != "test_docs.py", item.path not in slow))


def pytest_collection_finish() -> None:
    """Garbage is collected less often, and not among what all tests share: a tenth of the time that training takes.

    Forked processes collect it as a user's do.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def new_loader() -> Iterator[Callable[..., Loader]]:
    """One loader for the shipped configs, which keeps what it has composed: they do not change while tests run.

    Returns:
        `composition.loader`, which makes a new one.
    """
    new = composition.loader
    shared: dict[str, Loader] = {}

    def loader(
        config_dir: str | Path | None = None,
        config_name: str = "config",
        config_path: str | None = None,
        *,
        permission: Permission = OWN_MODULES,
        overrides: Sequence[str] = (),
    ) -> Loader:
        plain = config_dir is None and config_path is None and permission == OWN_MODULES
        if not plain or any(override.startswith("fields=") for override in overrides) or fields.configs():
            return new(config_dir, config_name, config_path, permission=permission, overrides=overrides)
        if config_name not in shared:
            shared[config_name] = new(None, config_name)
        return shared[config_name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "loader", loader)
        yield new


@pytest.fixture(scope="session", autouse=True)
def _lighter() -> Iterator[None]:
    """Leaves out what takes time and changes no result.

    The state of the checkout, which a run asks 14 processes of git for, is asked for once. Files are not waited for
    until they are on disk: no test loses power. Hydra makes a map of choices for each file, a quarter of the time of a
    composition, which only an interpolation in a list of defaults reads.
    """
    ask = manifest._repositories
    of_checkout = functools.cache(ask)

    def repositories(code: Any) -> dict[str, Any]:
        return copy.deepcopy(of_checkout(None)) if code is None and Path.cwd() == ROOT else ask(code)

    choices = defaults_list._create_interpolation_map

    def choices_if_read(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
        read = any(not each.is_self() and each.is_interpolation() for each in defaults)
        return choices(overrides, defaults, self_added) if read else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults_list, "_create_interpolation_map", choices_if_read)
        patch.setattr(manifest, "_repositories", repositories)
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def forked() -> Iterator[Path]:
    """A folder with the commands `embexp` and `python` that start with TensorFlow imported: forked, in milliseconds."""
    with preloaded.shared_commands() as folder:
        yield folder


@pytest.fixture
def forked_jobs(forked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process starts has TensorFlow imported, too: jobs of sweeps, and the runs that `verify` repeats."""
    monkeypatch.setattr(sys, "executable", str(preloaded.with_jobs(forked) / "python"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT

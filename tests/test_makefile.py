"""Which Python `make` takes, and what it says where there is none that fits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

MAKE = shutil.which("make") or ""
MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
SHIM = "#!/bin/sh\nexit 127\n"  # of pyenv, for a version that is not chosen

pytestmark = pytest.mark.skipif(not MAKE, reason="make is not installed")


def python(path: Path, version: str) -> None:
    """Something that answers like a Python that fits."""
    script(path, f"#!/bin/sh\necho {version}\n")


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(folder: Path, *words: str, path: Sequence[str] = ("bin",)) -> subprocess.CompletedProcess[str]:
    """`make` in a folder with the Pythons in its folders `path`, and no other."""
    command = [MAKE, "--no-print-directory", "--file", str(MAKEFILE), "--eval", 'chosen: ; @echo "$(PYTHON)"', *words]
    for each in path:
        (folder / each).mkdir(exist_ok=True)
    variables = {"PATH": ":".join(str(folder / each) for each in path)}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_the_first_that_works_is_taken(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "python3.11", SHIM)
    for version in ("3.12", "3.13"):
        python(tmp_path / "bin" / f"python{version}", version)
    assert make(tmp_path, "chosen").stdout == f"{tmp_path}/bin/python3.12\n"
    python(tmp_path / "bin" / "python3.11", "3.11")
    assert make(tmp_path, "chosen").stdout == f"{tmp_path}/bin/python3.11\n"
    assert make(tmp_path, "chosen", "PYTHON=python3.13").stdout == "python3.13\n"
    assert make(tmp_path, "interpreter", "PYTHON=python3.13").returncode == 0


def test_what_pyenv_has_built_comes_last(tmp_path: Path) -> None:
    path = ("shims", "bin")
    python(tmp_path / "shims" / "python3.11", "3.11")
    assert make(tmp_path, "chosen", path=path).stdout == f"{tmp_path}/shims/python3.11\n"
    python(tmp_path / "bin" / "python3.13", "3.13")
    assert make(tmp_path, "chosen", path=path).stdout == f"{tmp_path}/bin/python3.13\n"


def test_there_is_none(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "python3", SHIM)
    found = make(tmp_path, "interpreter")
    assert found.returncode != 0
    assert "there is no working Python 3.11, 3.12 or 3.13" in found.stderr
    asked = make(tmp_path, "interpreter", "PYTHON=python3")
    assert "PYTHON=python3 is no working Python 3.11" in asked.stderr
    assert make(tmp_path, "--dry-run", "clean").returncode == 0


def test_an_environment_of_another_version(tmp_path: Path) -> None:
    python(tmp_path / "bin" / "python3.13", "3.13")
    python(tmp_path / ".venv" / "bin" / "python", "3.11")
    assert make(tmp_path, "interpreter").returncode == 0
    found = make(tmp_path, "interpreter", "PYTHON=python3.13")
    assert found.returncode != 0
    assert ".venv has Python 3.11, not that of PYTHON=python3.13: run make clean first" in found.stderr
    python(tmp_path / ".venv" / "bin" / "python", "3.13")
    assert make(tmp_path, "interpreter", "PYTHON=python3.13").returncode == 0


@pytest.mark.parametrize(("works", "expected"), [(True, ["uv"]), (False, ["uv", "pip"])])
def test_uv_installs_from_the_indexes_of_pip_and_pip_where_it_cannot(
    tmp_path: Path, works: bool, expected: list[str]
) -> None:
    settings = "global.index-url='https://a.example/simple'\n:env:.find-links='/wheels'\n"
    python = tmp_path / ".venv" / "bin" / "python"
    script(
        python,
        f"""#!/bin/sh
case "$*" in
  *"config list") printf "{settings}" ;;
  *--editable*) echo "pip $*" >> {tmp_path}/calls ;;
esac
""",
    )
    script(
        python.with_name("uv"),
        f"""#!/bin/sh
echo "uv $UV_DEFAULT_INDEX $UV_FIND_LINKS $UV_INDEX $*" >> {tmp_path}/calls
exit {0 if works else 2}
""",
    )
    command = [MAKE, "--no-print-directory", "--file", str(MAKEFILE), "--always-make", ".venv/.installed"]
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").touch()
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == expected
    assert calls[0].startswith("uv https://a.example/simple /wheels  pip install ")
    assert all("--constraint constraints.txt --editable .[dev]" in call for call in calls)


@pytest.mark.parametrize("broken", ["", "ruff", "mypy", "python -m tests.size", "python -m pytest --numprocesses"])
def test_check_fails_with_each_of_its_parts(tmp_path: Path, broken: str) -> None:
    """And collects the tests in one process before several do, once per installation."""
    for name in ("pyproject.toml", "constraints.txt", ".venv/.installed"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("python", "ruff", "mypy"):
        told = f'echo "{name} $*" >> {tmp_path}/calls; '
        fails = f'case "{name} $*" in "{broken}"*) exit 1; esac' if broken else ""
        script(tmp_path / ".venv" / "bin" / name, f"#!/bin/sh\n{told}{fails}\nexit 0\n")
    shutil.copy(MAKEFILE, tmp_path)
    for _ in range(2):
        found = subprocess.run([MAKE, "check"], cwd=tmp_path, capture_output=True, text=True)
        assert (found.returncode == 0) is (not broken), found.stderr
    if not broken:
        calls = (tmp_path / "calls").read_text()
        assert (calls.count("mypy"), calls.count("--collect-only"), calls.count("--numprocesses")) == (2, 1, 2)

"""What is secret leaves by no door: records, logs, reports, errors, trackers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from embexp.config import composition
from embexp.config.loader import Loader
from embexp.errors import ConfigError, RunError
from embexp.records import manifest
from embexp.reports import collected, tracking
from embexp.reports.mlflow import Store
from embexp.sweeps import jobs, planning
from embexp.system import environment, printable
from embexp.system.printable import MASKED, masked, masked_override, without_secrets

URL = "postgresql://me:hunter2@host/db"
TOKEN = "ghp_" + "hunter2" * 6


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, f"postgresql://{MASKED}@host/db"),
        ("mysql://me:hun/ter2@host/db", f"mysql://{MASKED}@host/db"),
        ("redis://:p@hunter2@host:1/0", f"redis://{MASKED}@host:1/0"),
        ("https://hunter2@github.com/a", f"https://{MASKED}@github.com/a"),
        ("postgresql://host/db?user=me&password=hunter2", f"postgresql://host/db?user=me&password={MASKED}"),
        ("s3://bucket/key?X-Amz-Signature=hunter2", f"s3://bucket/key?X-Amz-Signature={MASKED}"),
        ("mssql+pyodbc:///?odbc_connect=UID%3Da%3BPWD%3Dhunter2", f"mssql+pyodbc:///?odbc_connect={MASKED}"),
        ("host=db password='hunter2' user=me", f"host=db password={MASKED} user=me"),
        ("{db_password: hunter2, 'secret': 'hunter2'}", f"{{db_password: {MASKED}, 'secret': {MASKED}}}"),
        ("Authorization: Bearer hunter2hunter2", f"Authorization: Bearer {MASKED}"),
        (f"clone {TOKEN} now", f"clone {MASKED} now"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:////data/a@b.db", "sqlite:////data/a@b.db"),
        ("http://localhost:5000/a@b", "http://localhost:5000/a@b"),
        ("'name=${oc.env:MY_SECRET}'", "'name=${oc.env:MY_SECRET}'"),
        ("data.path=/runs/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", None),
    ],
)
def test_a_value_may_hold_a_secret(text: str, shown: str | None) -> None:
    assert masked(text) == (text if shown is None else shown)


def test_a_name_may_say_that_its_value_is_a_secret() -> None:
    secret = ["GH_PAT", "MY_PWD", "PGPASSWORD", "TF_MY_PW", "EMBEXP_PAT", "OMP_PWD", "AWS_SECRET_ACCESS_KEY", "SSHPASS"]
    secret += ["WANDB_API_KEY", "HF_TOKEN", "GITHUBTOKEN", "TF_CONN", "SENTRY_DSN", "apiKey", "TOKEN_OF_MINE"]
    open_ = ["PWD", "OLDPWD", "PATH", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "KMP_AFFINITY", "DATABASE_URL"]
    assert [name for name in [*secret, *open_] if masked("x", name) != "x"] == secret


def test_no_setting_of_embexp_is_a_secret_by_its_name() -> None:
    composed = composition.compose_config(composition.loader(), ["tracking=mlflow"])
    assert without_secrets(composed.container) == composed.container
    words = ["pretrained.tokens_file=a.txt", "pretrained.token_column=t", "pretrained.key=item", "freeze.tokens=[a,b]"]
    assert list(map(masked_override, words)) == words


def _diff(folder: Path) -> str:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    (folder / "a.py").write_text("x = 1\n")
    for words in (["init", "-q"], ["add", "a.py"], ["commit", "-qm", "a"]):
        subprocess.run([*git, *words], check=True)
    (folder / "a.py").write_text(f"x = '{URL}'\nPASSWORD = 'hunter2'\n")
    found = str(manifest.states({"working_folder": folder}))
    assert "+PASSWORD" in found
    return found


def _refused(*overrides: str) -> str:
    compose: Callable[..., object] = planning.plan if "hydra/sweeper=optuna" in overrides else composition.job
    with pytest.raises(ConfigError) as caught:
        compose(composition.loader(), overrides)
    return str(caught.value)


def _of_a_file(name: str) -> Callable[[Path], str]:
    """What is said of a file that reads a variable of the environment."""

    def said(folder: Path) -> str:
        text = f"defaults: [config, {{override /hydra/sweeper: optuna}}, _self_]\nname: ${{oc.env:{name}}}\n"
        (folder / "theirs.yaml").write_text(f"{text}hydra: {{sweeper: {{storage: 'x://h/${{oc.env:{name}}}'}}}}\n")
        loader: Loader = composition.loader(folder, "theirs")
        composed = composition.compose_config(loader, [])
        paths = {fault.path for fault in composed.faults}
        assert {"name", "hydra.sweeper.storage"} <= paths
        return f"{composed.container} {composed.faults}"

    return said


def _printed(folder: Path) -> str:
    with (folder / "run.log").open("w") as log:
        printable.print(f"reading {URL}", file=log)
    return (folder / "run.log").read_text()


DOORS: dict[str, Callable[[Path], object]] = {
    "manifest: environment": lambda _: manifest.environment(),
    "manifest: command": lambda _: list(map(masked_override, [f"tracking.uri={URL}", "+model.args.password=hunter2"])),
    "manifest: diff of a repository": _diff,
    "spec.json, .hydra: a value of an override": lambda _: _refused(f'name="{URL}"'),
    "spec.json, .hydra: a token": lambda _: _refused(f"name={TOKEN}"),
    "spec.json, .hydra: an argument of own code": lambda _: _refused(
        "model=keras", "model.function=mine:tower", "+model.args.db_password=hunter2"
    ),
    "errors: a mapping": lambda _: _refused("+model.args={db_password: hunter2}"),
    "spec.json, .hydra: an argument by the environment": lambda _: _refused("+model.args.api_key=${oc.env:GH_PAT}"),
    ".hydra: a callback": lambda _: _refused("+hydra.callbacks.a={_target_: mine.A, password: hunter2}"),
    ".hydra: a variable of the run": lambda _: _refused("+hydra.job.env_set.EMBEXP_PAT=hunter2"),
    "sweep.sqlite, multirun.yaml: the storage": lambda _: _refused(
        "seed=0,1", "hydra/sweeper=optuna", f'hydra.sweeper.storage="{URL}"'
    ),
    **{
        f"all records: {name} in a file": _of_a_file(name)
        for name in ("GH_PAT", "MY_PWD", "DATABASE_URL", "PGPASSWORD")
    },
    "tracking.json": lambda _: [Store(each, None).without_password for each in (URL, "db://h/x?password=hunter2")],
    "trackers": lambda _: tracking.parameters(without_secrets({"model": {"args": {"password": "hunter2", "u": URL}}})),
    "summary.json: warnings": lambda _: tracking.reason(RuntimeError(f"no answer from {URL}")),
    "failure.json, the ledger: reasons": lambda _: jobs.failure_sentence(RunError(f"no answer from {URL}")),
    "reports": lambda _: collected.settings_of({"tracking": {"uri": URL}}),
    "terminal and run.log": _printed,
}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GH_PAT", "MY_PWD", "PGPASSWORD", "TF_MY_PW", "EMBEXP_PAT", "OMP_PWD", "TF_VAR_region", "CUDA_X"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("DATABASE_URL", URL)
    monkeypatch.setenv("TF_CONN", "host=db password=hunter2")
    monkeypatch.setenv("TPU_NAME", URL)  # known, with a secret
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")


@pytest.mark.parametrize("door", DOORS)
def test_no_secret_leaves(door: str, tmp_path: Path, secrets: None) -> None:
    assert "hunter2" not in str(DOORS[door](tmp_path))


def test_the_environment_is_recorded_by_known_names(secrets: None) -> None:
    found = manifest.environment()
    assert (found["TF_NUM_INTRAOP_THREADS"], found["TPU_NAME"]) == ("2", f"postgresql://{MASKED}@host/db")
    assert not {"TF_MY_PW", "EMBEXP_PAT", "OMP_PWD", "CUDA_X"} & found.keys()
    assert all(map(environment.is_recorded, found))


def test_a_remedy_works(monkeypatch: pytest.MonkeyPatch, secrets: None) -> None:
    """What a storage needs is read where it is used: the record has the name of the variable."""
    monkeypatch.setenv("OPTUNA_STORAGE", URL)
    words = ["hydra/sweeper=optuna", "hydra.sweeper.storage=${oc.env:OPTUNA_STORAGE}"]
    composed = composition.compose_config(composition.loader(), words)
    assert composed.faults == ()
    assert composed.config.hydra.sweeper._get_node("storage")._value() == "${oc.env:OPTUNA_STORAGE}"

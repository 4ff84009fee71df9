"""No command that reads a run imports the code that its spec names, or connects to the addresses in it, unless the user
names them, too."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import open_dict, read_write

import embexp
from embexp.cli import commands
from embexp.config import composition, folders, named_code
from embexp.config.composition import compose_config
from embexp.config.named_code import OWN_MODULES
from embexp.errors import CommandLineError, ConfigError, RunError, UsageError
from embexp.records import inventory
from embexp.reports.record import Status
from embexp.runs import run as single
from embexp.runs import verification
from embexp.specs import tracking
from embexp.specs.run import RunSpec
from embexp.specs.running import Launching
from embexp.sweeps import engines, jobs
from embexp.sweeps import sweep as sweeps
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.planning import Enrolment, PlannedJob
from embexp.system import files

TOWER = """import keras

def tower(activations):
    x = keras.layers.Concatenate()([keras.layers.Flatten()(each) for each in activations.values()])
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(1)(x))
"""
BOMB = "from pathlib import Path\nPath({marker!r}).touch()\n" + TOWER
SMALL = (
    "model=keras",
    "~model.args",
    "data.examples=300",
    "data.users=20",
    "data.items=30",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=3",
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with a module that leaves a mark when it is imported, and runs that name it.

    `run` has ended, `unfinished` has not.
    """
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        (folder / "bomb.py").write_text(BOMB.format(marker=str(folder / "pwned")))
        spec = embexp.compose([*SMALL, "model.function=bomb:tower", f"output.cache={folder / 'cache'}"])
        single.run(spec, files.new_directory(folder / "run"))
        shutil.copytree(folder / "run", folder / "unfinished")
        (folder / "unfinished" / "summary.json").unlink()
        inventory.unseal(folder / "unfinished")
        patch.delitem(sys.modules, "bomb")
        yield folder
        sys.modules.pop("bomb", None)


@pytest.fixture
def unmarked(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, without the mark, and with the attack of a program that is always there."""
    monkeypatch.chdir(project)
    sys.modules.pop("bomb", None)
    (project / "pwned").unlink(missing_ok=True)
    shutil.rmtree(project / "out", ignore_errors=True)
    (project / "out").mkdir()
    return project


def rewritten(run: Path, to: Path, function: str, **args: Any) -> Path:
    """A copy of a run whose spec names another function, with an inventory that fits."""
    shutil.copytree(run, to)
    spec = json.loads((to / "spec.json").read_text())
    spec["model"] = {"kind": "keras", "function": function, "args": args}
    (to / "spec.json").write_text(json.dumps(spec))
    if inventory.read(to) is not None:
        inventory.seal(to)
    return to


REFUSED = {
    "evaluate": ["evaluate", "RUN"],
    "evaluate a file": ["evaluate", "RUN", "--data", "x.csv"],
    "predict": ["predict", "RUN", "--data", "x.csv"],
    "export": ["export", "RUN", "out/model", "--as", "savedmodel"],
    "resume": ["resume", "UNFINISHED"],
    "resume for longer": ["resume", "RUN", "train.steps=5"],
    "verify": ["verify", "RUN"],
    "run --spec": ["run", "--spec", "RUN", "hydra.run.dir=out/again"],
    "vectors of a run that has not ended": ["vectors", "neighbors", "UNFINISHED", "1", "--table", "item"],
}
READ = {
    "vectors neighbors": ["vectors", "neighbors", "RUN", "1", "--table", "item"],
    "vectors convert": ["vectors", "convert", "RUN", "out/item.npy", "--table", "item"],
    "export a table": ["export", "RUN", "out/tables", "--as", "npy"],
    "checkpoint list": ["checkpoint", "list", "RUN/checkpoints/final"],
    "checkpoint diff": ["checkpoint", "diff", "RUN/checkpoints/final", "run/checkpoints/final"],
    "checkpoint graph": ["checkpoint", "graph", "RUN/checkpoints/final"],
    "checkpoint convert": ["checkpoint", "convert", "RUN", "out/named", "--to", "name"],
    "report": ["report", "RUN", "--csv", "out/runs.csv"],
    "diff": ["diff", "RUN", "run"],
    "pretrained=checkpoint": ["plan", "--scan", "pretrained=checkpoint", "pretrained.path=RUN", *SMALL[2:4]],
    "restore": ["plan", "restore.path=RUN"],
}
FUNCTIONS = {"bomb:tower": {}, "subprocess:run": {"executable": "/usr/bin/touch", "env": {}}, "os:system": {}}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("case", REFUSED)
def test_a_command_that_needs_the_code_says_which(
    unmarked: Path, case: str, function: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rewritten(unmarked / "run", tmp_path / "theirs", function, **FUNCTIONS[function])
    unfinished = rewritten(unmarked / "unfinished", tmp_path / "unfinished", function)
    before = sorted(run.rglob("*"))
    words = [each.replace("UNFINISHED", str(unfinished)).replace("RUN", str(run)) for each in REFUSED[case]]
    assert commands.main(words) == 2
    told = capsys.readouterr().err
    assert f"spec.json names code to run: {function} (model.function)" in told
    assert f"to allow it, add --allow-code {function}" in told
    assert not (unmarked / "pwned").exists()
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize("case", READ)
def test_a_command_that_does_not_need_it_reads_the_run_without(
    unmarked: Path, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rewritten(unmarked / "run", tmp_path / "theirs", "bomb:tower")
    shutil.copytree(run, tmp_path / "grown")
    words = [each.replace("RUN", str(run)) for each in READ[case]]
    assert commands.main(words) in (0, 1), capsys.readouterr().err  # 1: diff has found differences
    assert not (unmarked / "pwned").exists()


ATTACKS: dict[str, Callable[[Path], object]] = {
    "evaluate": lambda run: embexp.load_run(run).evaluate(),
    "predict": lambda run: embexp.load_run(run).predict("x.csv"),
    "model": lambda run: embexp.load_run(run).model,
    "export": lambda run: embexp.load_run(run).export("out/model"),
    "resume": lambda run: embexp.resume(run, ["train.steps=5"], quiet=True),
    "verify": lambda run: verification.verify(run, again=lambda rerun, place: None),
}


@pytest.mark.parametrize("case", ATTACKS)
def test_python_refuses_it_too(unmarked: Path, case: str) -> None:
    with pytest.raises(UsageError, match="names code to run: bomb:tower"):
        ATTACKS[case](unmarked / "run")
    assert not (unmarked / "pwned").exists()


def test_what_needs_no_model_needs_no_code(unmarked: Path) -> None:
    run = embexp.load_run(unmarked / "run")
    assert run.table("item").shape == (len(run.vocabulary("item").tokens()), run.spec.tables["item"].dim)
    assert run.metrics()
    assert run.neighbors("item", "1", 3)
    assert not (unmarked / "pwned").exists()


def test_what_is_allowed_is_run(unmarked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = embexp.load_run(unmarked / "run", allow_code=["bomb:tower"])
    assert run.evaluate() == pytest.approx(run.summary["metrics"]["test"])
    assert (unmarked / "pwned").exists()
    (unmarked / "pwned").unlink()
    sys.modules.pop("bomb", None)
    assert commands.main(["evaluate", "run", "--allow-code", "bomb:tower"]) == 0
    assert (unmarked / "pwned").exists()
    with pytest.raises(UsageError, match=r"--allow-code os:system: .* names only bomb:tower"):
        embexp.load_run(unmarked / "run", allow_code=["bomb:tower", "os:system"])


SERVER = "http://tracking.invalid:5000"
ADDRESSES: dict[str, tuple[dict[str, Any], str, tuple[str, str]]] = {
    "a server of MLflow": (
        {"tracking": {"kind": "mlflow", "uri": SERVER}},
        "tracking.uri",
        ("MLFLOW_TRACKING_URI", SERVER),
    ),
    "one that looks like this machine": (
        {"tracking": {"kind": "mlflow", "uri": "http://localhost@tracking.invalid"}},
        "tracking.uri",
        ("MLFLOW_TRACKING_URI", "http://localhost@tracking.invalid"),
    ),
    "a database": (
        {"tracking": {"kind": "mlflow", "uri": "mysql://localhost/db?host=tracking.invalid"}},
        "tracking.uri",
        ("MLFLOW_TRACKING_URI", "mysql://localhost/db?host=tracking.invalid"),
    ),
    "Weights & Biases": ({"tracking": {"kind": "wandb", "mode": "online"}}, "tracking.mode", ("WANDB_MODE", "online")),
    "a TPU": (
        {"strategy": {"kind": "tpu", "address": "grpc://tpu.invalid:8470"}},
        "strategy.address",
        ("TPU_NAME", "grpc://tpu.invalid:8470"),
    ),
}  # fmt: skip


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a process would look up or connect to."""
    asked: list[Any] = []
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "TPU_NAME", "OPTUNA_STORAGE"):
        monkeypatch.delenv(name, raising=False)

    def refuse(*address: Any, **rest: Any) -> Any:
        asked.append(address)
        raise OSError("no network")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    return asked


@pytest.mark.parametrize("command", ["resume", "run --spec", "verify"])
@pytest.mark.parametrize("case", ADDRESSES)
def test_an_address_in_a_record_is_named_by_the_user_too(
    unmarked: Path,
    case: str,
    command: str,
    no_network: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes, path, (variable, word) = ADDRESSES[case]
    run = unmarked / "out" / "theirs"
    shutil.copytree(unmarked / ("unfinished" if command == "resume" else "run"), run)
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps(spec | changes))
    inventory.unseal(run)
    words = [*command.split(), str(run), "--allow-code", "bomb:tower"]
    connects = path == "strategy.address" or command != "verify"  # which tracks nothing
    if connects:
        assert commands.main(words) == 2
        told = capsys.readouterr().err
        assert f"  {path} = " in told
        assert f"set in {run / 'spec.json'}" in told
        assert variable in told
        assert not (unmarked / "pwned").exists()
        for in_python in {"resume": [embexp.resume], "verify": [embexp.verify]}.get(command, []):
            with pytest.raises(ConfigError, match=re.escape(path)):
                in_python(run, allow_code=["bomb:tower"])
    assert no_network == []
    monkeypatch.setenv(variable, word)
    assert list(tracking.address_faults(RunSpec.model_validate(spec | changes))) == []


@pytest.mark.parametrize(
    "uri", ["sqlite:///mlflow.db", "mlruns", "http://localhost:5000", "http://127.0.0.1:5000/a", "https://[::1]:5000"]
)
def test_this_machine_needs_no_word(uri: str, no_network: list[Any]) -> None:
    assert not tracking.is_elsewhere(uri)


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1.evil.invalid", "http://localhost\\@evil.invalid/", "http://[::1]@evil.invalid"]
)
def test_other_addresses_do(uri: str, no_network: list[Any]) -> None:
    assert tracking.is_elsewhere(uri)


def test_a_note_of_the_tracker_leads_to_no_other_machine(tmp_path: Path, no_network: list[Any]) -> None:
    from embexp.reports.mlflow import MLflowRun
    from embexp.reports.tracking import TrackedRun
    from embexp.specs.tracking import MLflow

    (tmp_path / "tracking.json").write_text(json.dumps({"mlflow": {"uri": SERVER, "run": "x", "experiment": "0"}}))
    with pytest.raises(ConnectionError, match=r"tracking\.json names http://tracking\.invalid:5000"):
        MLflowRun(MLflow()).start(TrackedRun("a", tmp_path, "b", {}, ""))
    assert no_network == []


def test_a_recorded_search_connects_to_no_other_machine(
    tmp_path: Path, no_network: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    storage = "mysql://evil.invalid/db"
    overrides = ["hydra/sweeper=optuna", f"hydra.sweeper.storage='{storage}'", "optimizer=sgd,adam"]
    noted = {"overrides": overrides, "config_dir": None, "config_name": "config", "config_path": None}
    (tmp_path / "sweep").mkdir()
    with Ledger(tmp_path / "sweep", create=True) as ledger:
        ledger.add([], {"command": {**noted, "folder": str(tmp_path), "search": True}})
    with pytest.raises(ConfigError, match=r"(?s)hydra\.sweeper\.storage = 'mysql://evil\.invalid/db'.*OPTUNA_STORAGE"):
        sweeps.resume(tmp_path / "sweep")
    assert no_network == []


def test_a_recorded_folder_of_configs_imports_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "evil_package"
    (package / "conf").mkdir(parents=True)
    (package / "__init__.py").write_text(BOMB.format(marker=str(tmp_path / "pwned")))
    monkeypatch.syspath_prepend(tmp_path)
    assert folders.find(config_path="pkg://evil_package.conf").shipped == package / "conf"
    assert not (tmp_path / "pwned").exists()


OWN = {
    "of Python's library": ("subprocess:run", "module 'subprocess' belongs to Python's standard library"),
    "of an installed package": ("keras:Model", "module 'keras' is installed"),
    "only imported by an own module": (
        "shell:run",
        "shell imports it, and module 'subprocess' belongs to Python's standard library",
    ),
    "hidden by a library": ("random:tower", "rename your random.py, which it hides"),
}


@pytest.mark.parametrize("case", OWN)
def test_a_config_names_code_of_the_user_s_own_modules(
    unmarked: Path, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shell.py").write_text("from subprocess import run\n")
    Path("random.py").write_text(TOWER)
    function, told = OWN[case]
    words = [*SMALL, f"model.function={function}"]
    for command in (["run"], ["plan"], ["run", "-m", "seed=1,2"], ["plan", "-m", "seed=1,2"]):
        assert commands.main([*command, *words]) == 2
        found = capsys.readouterr().err
        assert told in found
        assert f"allow it: --allow-code {function}" in found
    assert list(Path().iterdir()) == [Path("random.py"), Path("shell.py")] or not Path("outputs").exists()
    with pytest.raises(ConfigError, match="only from your own modules"):
        embexp.compose(words)
    if case == "of an installed package":
        spec = embexp.compose(words, allow_code=[function])
        assert commands.main(["plan", *words, "--allow-code", function]) == 0
        with pytest.raises(ConfigError, match="only from your own modules"):
            embexp.run(spec)


@pytest.fixture
def sweep(unmarked: Path, tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder of a sweep that has a job left to do."""

    def make(engine: dict[str, Any] | None = None, **job: Any) -> Path:
        spec = (unmarked / "run" / "spec.json").read_text()
        command = {"folder": str(unmarked), "search": False, "overrides": []}
        notes = {"command": command, "launching": Launching().model_dump(mode="json"), "engine": engine}
        (tmp_path / "sweep").mkdir()
        with Ledger(tmp_path / "sweep", create=True) as ledger:
            ledger.add([LedgerJob(0, ("seed=0",), {"seed": "0"}, spec, "one", **{"directory": "0", **job})], notes)
        return tmp_path / "sweep"

    return make


def test_a_sweep_is_resumed_with_the_code_that_is_allowed(
    unmarked: Path, sweep: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = sweep()
    assert commands.main(["resume", str(directory)]) == 2
    told = capsys.readouterr().err
    assert f"of a sweep with the working folder {unmarked}, names code to run: bomb:tower" in told
    with pytest.raises(UsageError, match="--allow-code bomb:tower"):
        embexp.resume(directory, quiet=True)
    assert not (unmarked / "pwned").exists()
    marks = [sys.executable, "-c", "import sys, pathlib; pathlib.Path(sys.argv[1], 'ran').touch()"]
    sweeps.resume(directory, allow_code=["bomb:tower"], command=lambda sweep, number: [*marks, str(sweep)])
    assert (directory / "ran").exists()


def test_what_only_jobs_that_are_done_name_may_be_allowed_too(unmarked: Path, sweep: Callable[..., Path]) -> None:
    directory = sweep(state=Status.COMPLETED)
    with pytest.raises(UsageError, match="--allow-code bomb:tower"):  # its results are missing, so it would run again
        sweeps.resume(directory)
    assert not (unmarked / "pwned").exists()
    (directory / "0").mkdir()
    (directory / "0" / "summary.json").write_text('{"status": "completed"}')
    assert sweeps.resume(directory, allow_code=["bomb:tower"])
    with pytest.raises(UsageError, match="--allow-code os:system"):
        sweeps.resume(directory, allow_code=["os:system"])
    assert not (unmarked / "pwned").exists()


SUBMITIT = "hydra_plugins.hydra_submitit_launcher.submitit_launcher"
FOLDER = "${hydra.sweep.dir}/.submitit/%j"


@pytest.mark.parametrize(
    "launcher",
    [
        {"_target_": "bomb.Launcher"},
        {"_target_": f"{SUBMITIT}.SlurmLauncher", "submitit_folder": FOLDER, "setup": ["touch pwned"]},
        {"_target_": f"{SUBMITIT}.SlurmLauncher", "submitit_folder": FOLDER, "comment": "x'\ntouch pwned #"},
        {"_target_": f"{SUBMITIT}.SlurmLauncher", "submitit_folder": "/elsewhere/%j"},
        {"_target_": f"{SUBMITIT}.LocalLauncher", "submitit_folder": f"{FOLDER}/../../../elsewhere"},
    ],
    ids=["of another module", "shell commands", "a second line", "another folder", "a folder above"],
)
def test_a_launcher_that_a_sweep_names_is_code_too(
    unmarked: Path, sweep: Callable[..., Path], launcher: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    directory = sweep({"name": "any", "hydra": {"launcher": launcher}, "folder": str(unmarked)})
    allowed = ["--allow-code", "bomb:tower"]
    assert commands.main(["resume", str(directory), *allowed]) == 2
    module, _, name = launcher["_target_"].rpartition(".")
    assert f"names code to run: {module}:{name} (hydra.launcher)" in capsys.readouterr().err
    assert not (unmarked / "pwned").exists()


def test_a_recorded_sweep_brings_no_loggers_and_no_variables() -> None:
    config = compose_config(composition.loader(), ["hydra/launcher=basic"]).config
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.job.env_set = {"LD_PRELOAD": "bomb.so"}
        config.hydra.job_logging = {"version": 1, "root": {}, "handlers": {"bomb": {"()": "bomb.tower"}}}
    job = engines.JobNumbers().load_sweep_config(config, ["job=3"])
    assert (job.job, job.hydra.job.env_set, job.hydra.job_logging) == (3, {}, {"version": 1, "root": None})


@pytest.mark.parametrize("name", ["basic", "submitit_local", "submitit_slurm"])
def test_a_known_launcher_needs_no_permission(
    unmarked: Path, sweep: Callable[..., Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    engine = engines.engine(compose_config(composition.loader(), [f"hydra/launcher={name}"]).config, OWN_MODULES)
    directory = sweep(engine.as_json() | {"command": ["touch", str(unmarked / "pwned")]})
    launched: list[str] = []

    def launch(self: object, job_overrides: object, initial_job_idx: int) -> list[object]:
        launched.append(type(self).__name__)
        return []

    for target in named_code.plugins():
        if target == engine.hydra["launcher"]["_target_"]:
            monkeypatch.setattr(named_code.plugins()[target], "launch", launch)
    assert not sweeps.resume(directory, allow_code=["bomb:tower"])
    assert launched == [engine.hydra["launcher"]["_target_"].rpartition(".")[2]]
    assert not (unmarked / "pwned").exists()


@pytest.mark.parametrize(
    "job", [{"directory": "../elsewhere"}, {"directory": "/elsewhere"}, {"hydra": {"../../.profile": "touch pwned"}}]
)
def test_a_forged_ledger_writes_nothing_outside(
    unmarked: Path, sweep: Callable[..., Path], job: dict[str, Any]
) -> None:
    directory = sweep(**job)
    with (
        Ledger(directory) as ledger,
        pytest.raises(RunError, match=" is damaged: job 0"),
    ):
        jobs.made_directory(directory, ledger.job(0))
    assert {each.name for each in directory.parent.iterdir()} == {"sweep"}


def test_another_job_than_the_one_that_is_asked_for_is_noticed(unmarked: Path, tmp_path: Path) -> None:
    """A sweep goes on in a folder from elsewhere, whose job has the identity of one that names no code."""
    asked = embexp.compose([])
    planned = PlannedJob(0, (), asked, None)
    forged = (unmarked / "run" / "spec.json").read_text()
    (tmp_path / "sweep").mkdir()
    with Ledger(tmp_path / "sweep", create=True) as ledger:
        ledger.add([LedgerJob(0, (), {}, forged, planned.identity, directory="0")])
        with pytest.raises(CommandLineError, match="job 0 names other code than the requested sweep"):
            Enrolment(ledger, at_once=1).find([planned])

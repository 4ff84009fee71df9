"""What the files of a config may set of the process, and what only the user's command line may."""

from __future__ import annotations

import copy
import logging
import logging.config
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from embexp.config import composition, hydra_job, named_code
from embexp.config.composition import compose_config
from embexp.config.named_code import OWN_MODULES, Permission
from embexp.errors import ConfigError
from embexp.sweeps import engines

HARMLESS = ("OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "MKL_DYNAMIC", "CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL")
DANGEROUS = (
    *(
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH",
        "PATH",
        "PYTHONPATH",
        "LD_PRELOAD",
        "GIT_CONFIG_GLOBAL",
        "OMP_TOOL_LIBRARIES",
    ),
    *("XLA_FLAGS", "TF_XLA_FLAGS", "HDF5_PLUGIN_PATH", "MPLCONFIGDIR", "KERAS_HOME", "TF_USE_LEGACY_KERAS"),
    *("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR", "CUDA_HOME", "CUDA_CACHE_PATH", "KMP_REGISTER_LIB_FILE"),
    *("http_proxy", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "MLFLOW_TRACKING_URI", "WANDB_BASE_URL", "TPU_NAME"),
    *(
        "EMBEXP_DATA",
        "EMBEXP_PARENT",
        "EMBEXP_ISOLATED_BY",
        "GCE_METADATA_HOST",
        "TF_CONFIG",
        "MY_MODEL",
        "omp_num_threads",
    ),
)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a folder of configs from elsewhere, and a module that leaves a mark when it is called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    mark = f"from pathlib import Path\ndef mark(*a, **k):\n    Path({str(tmp_path / 'pwned')!r}).touch()\n"
    (tmp_path / "trap_of_a_test.py").write_text(f"{mark}    return print\n")
    (tmp_path / "theirs").mkdir()
    yield tmp_path / "theirs" / "theirs.yaml"
    sys.modules.pop("trap_of_a_test", None)


def written(file: Path, hydra: Any) -> None:
    file.write_text(yaml.safe_dump({"defaults": ["config", "_self_"], "hydra": hydra}, sort_keys=False))


def set_in(config: DictConfig, path: str, value: Any) -> None:
    with read_write(config.hydra), open_dict(config.hydra):
        OmegaConf.update(config, path, value, merge=False)


def loader() -> Any:
    return composition.loader("theirs", "theirs")


def test_files_set_only_listed_variables_and_the_command_line_any(theirs: Path) -> None:
    written(theirs, {"job": {"env_set": dict.fromkeys((*HARMLESS, "EMBEXP_WIDTH", *DANGEROUS), "1")}})
    faults = {each.path: each for each in compose_config(loader(), ["hydra.job.env_set.HOME=/mine"]).faults}
    assert faults.keys() == {f"hydra.job.env_set.{each}" for each in DANGEROUS if each != "HOME"}
    fault = faults["hydra.job.env_set.PATH"]
    assert "on the command line: hydra.job.env_set.PATH=VALUE" in fault.remedy
    assert re.fullmatch(r"theirs/theirs\.yaml:\d+", fault.source)


def test_a_mapping_on_the_command_line_does_not_vouch_for_that_of_a_file(theirs: Path) -> None:
    written(theirs, {"job": {"env_set": {"HOME": "/evil"}}})
    given = compose_config(loader(), ["+hydra.job={env_set: {TMPDIR: /mine}}"])
    assert [each.path for each in given.faults] == ["hydra.job.env_set.HOME"]
    with pytest.raises(ConfigError, match=r"env_set\.HOME"):
        hydra_job.settings(given.config, OWN_MODULES)


def test_what_a_record_calls_the_command_line_is_not_the_user_s(theirs: Path) -> None:
    composed = compose_config(composition.loader(), ["+hydra.job.env_set.HOME=/mine"])
    assert hydra_job.settings(composed.config, OWN_MODULES).variables == {"HOME": "/mine"}
    with pytest.raises(ConfigError, match=r"env_set\.HOME"):
        hydra_job.settings(composed.config, Permission(own=False))


def test_no_variable_that_embexp_reads_is_harmless(root: Path) -> None:
    texts = [each.read_text() for each in (root / "embexp").rglob("*.py") if each.name != "allowlist.py"]
    read = {name for text in texts for name in re.findall(r"[\"'](EMBEXP_[A-Z_]+)[\"']", text)}
    assert "EMBEXP_DATA" in read
    assert not any(map(named_code.is_harmless, read))


def test_the_engine_of_a_ledger_sets_no_variable_and_no_loggers(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Launcher:
        def launch(self, jobs: Any, initial_job_idx: int) -> None:
            pass

    def made(config: Any, **rest: Any) -> Launcher:
        seen.append(OmegaConf.to_container(config.hydra))
        return Launcher()

    monkeypatch.setattr(engines.Plugins.instance(), "instantiate_launcher", made)
    hydra: Any = OmegaConf.to_container(compose_config(composition.loader(), ["hydra/launcher=basic"]).config.hydra)
    hydra["job"]["env_set"] = {"HOME": "/evil"}
    hydra["job_logging"] = logs({"class": "logging.StreamHandler", "stream": "ext://trap_of_a_test.mark"})
    allowed = Permission(frozenset({"hydra._internal.core_plugins.basic_launcher:BasicLauncher"}), own=False)
    engines.Engine("basic", hydra, str(theirs.parent), permission=allowed).launch(theirs.parent, [0], "first")
    [node] = seen
    assert node["job"]["env_set"] == {}
    assert node["job_logging"]["root"] is None
    hydra["hydra_logging"] = logs({"()": "trap_of_a_test.mark"})
    with pytest.raises(ConfigError, match=r"hydra\.hydra_logging\.handlers\.a\.\(\)"):
        engines.Engine("basic", hydra, str(theirs.parent), permission=allowed).launch(theirs.parent, [0], "first")
    assert len(seen) == 1


def logs(handler: Any = None, **rest: Any) -> Any:
    return {"version": 1, "handlers": {} if handler is None else {"a": handler}, "root": {"handlers": []}, **rest}


MARK = "trap_of_a_test.mark"
CALLS = {
    "a factory": (logs({"()": MARK}), "handlers.a.()"),
    "a class": (logs({"class": MARK}), "handlers.a.class"),
    "a factory of formatters": (logs(formatters={"a": {"()": MARK}}), "formatters.a.()"),
    "a class of formatters": (logs(formatters={"a": {"class": MARK}}), "formatters.a.class"),
    "a factory of filters": (logs(filters={"a": {"()": MARK}}), "filters.a.()"),
    "a queue": (logs({"class": "logging.handlers.QueueHandler", "queue": MARK}), "handlers.a.queue"),
    "a queue's factory": (
        logs({"class": "logging.handlers.QueueHandler", "queue": {"()": MARK}}),
        "handlers.a.queue.()",
    ),
    "a listener": (
        logs({"class": "logging.handlers.QueueHandler", "queue": "queue.Queue", "listener": MARK}),
        "handlers.a.listener",
    ),
    "a listener's factory": (
        logs({"class": "logging.handlers.QueueHandler", "queue": "queue.Queue", "listener": {"()": MARK}}),
        "handlers.a.listener.()",
    ),
    "a stream": (logs({"class": "logging.StreamHandler", "stream": f"ext://{MARK}"}), "handlers.a.stream"),
    "another part": (logs({"class": "logging.StreamHandler", "stream": "cfg://version"}), "handlers.a.stream"),
    "in a list": (logs({"class": "logging.NullHandler", "filters": ["cfg://version"]}), "handlers.a.filters.0"),
    "an attribute": (logs({"class": "logging.NullHandler", ".": {"emit": "ext://os.abort"}}), "handlers.a.."),
    "an argument": (logs({"class": "rich.logging.RichHandler", "console": f"ext://{MARK}"}), "handlers.a.console"),
    "a theme, which is imported": (
        logs({"class": "rich.logging.RichHandler", "tracebacks_theme": "x"}),
        "handlers.a.tracebacks_theme",
    ),
    "a network": (logs({"class": "logging.handlers.SocketHandler", "host": "x"}), "handlers.a.class"),
    "a mail": (logs({"class": "logging.handlers.SMTPHandler", "mailhost": "x"}), "handlers.a.class"),
    "a file elsewhere": (logs({"class": "logging.FileHandler", "filename": "conftest.py"}), "handlers.a.filename"),
    "a file above": (
        logs({"()": "logging.FileHandler", "filename": "${hydra.runtime.output_dir}/../.bashrc"}),
        "handlers.a.filename",
    ),
    "a file that is opened": (
        logs({"class": "logging.FileHandler", "filename": "${hydra.runtime.output_dir}/x.desktop"}),
        "handlers.a.filename",
    ),
    "an attribute of a value": (
        logs(formatters={"a": {"style": "{", "format": "{args[0].__class__}"}}),
        "formatters.a.format",
    ),
    "a format without the message": (logs(formatters={"a": {"format": "[Desktop Entry]"}}), "formatters.a.format"),
    "an attribute in a width": (
        logs(formatters={"a": {"style": "{", "format": "{msg:{args[0]}}"}}),
        "formatters.a.format",
    ),
}
SINCE_3_12 = ("a queue", "a queue's factory", "a listener", "a listener's factory")


@pytest.fixture(scope="module")
def composed() -> Any:
    return compose_config(composition.loader(), []).config


@pytest.mark.parametrize("kind", ["job_logging", "hydra_logging"])
@pytest.mark.parametrize("case", CALLS)
def test_loggers_of_files_call_nothing(case: str, kind: str, composed: Any, theirs: Path) -> None:
    node, path = CALLS[case]
    config = copy.deepcopy(composed)
    set_in(config, f"hydra.{kind}", copy.deepcopy(node))
    strict = Permission(own=False)
    assert f"hydra.{kind}.{path}" in [each.path for each in named_code.faults(config, strict)]
    set_in(config, "hydra.runtime.output_dir", str(theirs.parent))
    with pytest.raises(ConfigError, match=re.escape(f"hydra.{kind}.{path}")):
        named_code.check(config, kind, strict)


@pytest.mark.parametrize("case", [each for each in CALLS if MARK in str(CALLS[each][0])])
def test_python_itself_would_call_what_is_refused(case: str, theirs: Path) -> None:
    if case in SINCE_3_12 and sys.version_info < (3, 12):
        pytest.skip("Python 3.12 introduces it")
    before = logging.getLogger().handlers[:]
    try:
        logging.config.dictConfig(copy.deepcopy(CALLS[case][0]))
    except (ValueError, TypeError, AttributeError):  # what is called makes no handler
        pass
    finally:
        logging.getLogger().handlers[:] = before
    assert (theirs.parents[1] / "pwned").exists() or "trap_of_a_test" in sys.modules


def test_loggers_that_write_are_taken_from_a_file(theirs: Path) -> None:
    inside = "${hydra.runtime.output_dir}/my.log"
    node = {
        "version": 1,
        "formatters": {
            "plain": {"format": "%(message)s", "datefmt": "%H"},
            "colors": {"()": "colorlog.ColoredFormatter", "format": "%(message)s", "log_colors": {"INFO": "red"}},
        },
        "filters": {"mine": {"name": "mine"}},
        "handlers": {
            "out": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr", "formatter": "colors"},
            "file": {"class": "logging.handlers.RotatingFileHandler", "filename": inside, "filters": ["mine"]},
            "rich": {"class": "rich.logging.RichHandler", "show_path": False},
            "later": {"class": "logging.handlers.MemoryHandler", "capacity": 9, "target": "out"},
        },
        "loggers": {"mine": {"level": "DEBUG", "handlers": ["file"]}},
        "root": {"level": "INFO", "handlers": ["out", "later", "rich"]},
    }  # fmt: skip
    written(theirs, {"job_logging": node})
    composed = compose_config(loader(), [])
    assert composed.faults == ()
    set_in(composed.config, "hydra.runtime.output_dir", str(theirs.parent))
    job = hydra_job.settings(composed.config, OWN_MODULES)
    with hydra_job.applied(job, theirs.parent):
        logging.getLogger("mine").warning("a line")
    assert "a line" in (theirs.parent / "my.log").read_text()


@pytest.mark.parametrize("choice", ["default", "none", "disabled", "stdout"])
def test_the_loggers_of_hydra_are_taken(choice: str) -> None:
    words = [f"hydra/job_logging={choice}", *([] if choice == "stdout" else [f"hydra/hydra_logging={choice}"])]
    assert compose_config(composition.loader(), words).faults == ()


def test_the_command_line_may_name_any_handler_of_python_and_any_file(theirs: Path) -> None:
    place = "hydra.job_logging.handlers.a"
    words = [f"+{place}.class=logging.FileHandler", f"+{place}.filename={theirs.parent / 'x.log'}"]
    other = ["+hydra.job_logging.handlers.b={class: logging.handlers.SocketHandler, host: localhost, port: 1}"]
    assert compose_config(composition.loader(), [*words, *other]).faults == ()
    called = ["+hydra.job_logging.handlers.b={class: logging.handlers.QueueHandler, queue: os.abort}"]
    [fault] = compose_config(composition.loader(), called).faults
    assert (fault.path, "os.abort" in fault.value) == ("hydra.job_logging.handlers.b.queue", True)


def test_a_file_puts_no_secret_into_a_record_and_the_command_line_may(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "PLAIN"):
        monkeypatch.setenv(name, "hunter2")
    secret = "${oc.env:AWS_SECRET_ACCESS_KEY}"
    indirect = "${${part}.env:${which}}"  # neither name is written out
    content = {"name": secret, "output": {"cache": indirect}, "hydra": {"run": {"dir": f"/tmp/{secret}"}}}
    head = {"defaults": ["config", "_self_"], "part": "oc", "which": "AWS_SECRET_ACCESS_KEY"}
    theirs.write_text(yaml.safe_dump({**head, **content}))
    composed = compose_config(loader(), [])
    found = {each.path: each for each in composed.faults}
    assert {"name", "output.cache", "hydra.run.dir"} <= found.keys()
    assert "hunter2" not in str(composed.container)
    assert found["name"].remedy == f"if you want that, set it on the command line: 'name={secret}'"
    assert found["name"].source == "theirs/theirs.yaml:7"
    given = compose_config(composition.loader(), [f"name={secret}", "output.cache=${oc.env:PLAIN}"])
    assert given.faults == ()
    assert (given.container["name"], Path(given.container["output"]["cache"]).name) == ("hunter2", "hunter2")
    assert OmegaConf.create({"x": secret}).x == "hunter2"  # as before for everybody else


def test_a_file_hands_no_command_to_the_launcher_of_a_cluster(theirs: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    slurm = pytest.importorskip("submitit.slurm.slurm")
    evil = {"setup": ["touch pwned"], "partition": "a\ntouch pwned\n", "account": "$(touch pwned)"}
    plain = {"cpus_per_task": 2, "qos": "high"}
    script = slurm._make_sbatch_string(command="true", folder="logs", setup=evil["setup"])
    assert "touch pwned" in script.splitlines()  # it would be run
    head = {"defaults": ["config", "_self_", {"override hydra/launcher": "submitit_slurm"}]}
    theirs.write_text(
        yaml.safe_dump({**head, "hydra": {"launcher": evil | plain, "job": {"name": "a\ntouch pwned\n"}}})
    )
    paths = {f"hydra.launcher.{each}" for each in ("setup.0", "partition", "account", "name")}
    found = {each.path: each for each in compose_config(loader(), []).faults}
    assert found.keys() == paths
    function = "hydra_plugins.hydra_submitit_launcher.submitit_launcher:SlurmLauncher"
    assert f"--allow-code {function}" in found["hydra.launcher.setup.0"].remedy
    allowed = composition.loader("theirs", "theirs", permission=Permission(frozenset({function})))
    assert compose_config(allowed, []).faults == ()
    words = ["hydra/launcher=submitit_slurm", "hydra.launcher.setup=['module load x']", "hydra.launcher.partition=gpu"]
    assert compose_config(composition.loader(), words).faults == ()
    for folder, several in {"${hydra.sweep.dir}/jobs/%j": 0, "/elsewhere": 1, "${hydra.sweep.dir}/../up": 1}.items():
        theirs.write_text(yaml.safe_dump({**head, "hydra": {"launcher": {"submitit_folder": folder}}}))
        assert len(compose_config(loader(), []).faults) == several

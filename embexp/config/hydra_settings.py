"""Every setting of the node `hydra`: what embexp does with it, or why it is refused. Needs no Hydra."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """When a setting has an effect."""

    ALWAYS = "always"
    RUN = "single runs"
    SWEEP = "sweeps"
    NEVER = "never"


@dataclass(frozen=True)
class Setting:
    """A key of the node `hydra`, with everything below it.

    Attributes:
        path: dotted; the longest path that fits a key is the one that counts.
        use: when it has an effect; NEVER: it is refused.
        values: its type and allowed values, in words; of a refused one "".
        text: its effect as a sentence; of a refused one the reason, without a full stop.
        remedy: of a refused one, what to do instead.
    """

    path: str
    use: Use
    values: str
    text: str
    remedy: str = ""

    @property
    def is_node(self) -> bool:
        """Whether it has keys below it."""
        return self.path in _NODES


_NODES = frozenset(
    f"hydra.{each}"
    for each in ("job_logging", "hydra_logging", "callbacks", "job.env_set", "job.config.override_dirname")
) | {"hydra.launcher", "hydra.sweeper"}
_RECORDED = "embexp sets it, and records it in .hydra/hydra.yaml"
_OWN_HELP = ("embexp has its own help", "leave it out; see `embexp run --help`")
SETTINGS = (
    Setting("hydra.run.dir", Use.RUN, "text", "The directory of a single run."),
    Setting("hydra.sweep.dir", Use.SWEEP, "text", "The directory of a sweep."),
    Setting("hydra.sweep.subdir", Use.SWEEP, "text", "The directory of each job, inside the sweep's directory."),
    Setting(
        "hydra.mode",
        Use.ALWAYS,
        "RUN, MULTIRUN or null",
        "`MULTIRUN` starts a sweep, as -m does; `RUN` starts a single run.",
    ),
    Setting(
        "hydra.output_subdir",
        Use.ALWAYS,
        "text or null",
        "The folder for Hydra's files in the run's directory; null: none.",
    ),
    Setting(
        "hydra.verbose",
        Use.ALWAYS,
        "true, false, text or a list",
        "`true`, or the names of loggers that log at level DEBUG. In a sweep, for its own process.",
    ),
    Setting(
        "hydra.job_logging",
        Use.RUN,
        "a mapping",
        "Configuration of Python's loggers in a run, such as your model's; `none`: unchanged.",
    ),
    Setting(
        "hydra.hydra_logging", Use.SWEEP, "a mapping", "Configuration of Python's loggers in the process of the sweep."
    ),
    Setting(
        "hydra.callbacks",
        Use.ALWAYS,
        "a mapping by name",
        "Your own callbacks: classes that extend `hydra.experimental.callback.Callback`.",
    ),
    Setting("hydra.job.name", Use.ALWAYS, "text", "The value of `${hydra.job.name}`."),
    Setting(
        "hydra.job.chdir",
        Use.RUN,
        "true, false or null",
        "`true` makes the directory of the run its working directory.",
    ),
    Setting(
        "hydra.job.env_set", Use.RUN, "a mapping", "Environment variables of the run, set before TensorFlow is loaded."
    ),
    Setting(
        "hydra.job.env_copy",
        Use.ALWAYS,
        "a list",
        "Nothing needs to be copied, because a run has all environment variables of the command.",
    ),
    Setting(
        "hydra.job.config.override_dirname", Use.ALWAYS, "a mapping", "The form of `${hydra.job.override_dirname}`."
    ),
    Setting("hydra.launcher", Use.SWEEP, "a mapping", "Settings of the launcher, which runs the jobs."),
    Setting("hydra.sweeper", Use.SWEEP, "a mapping", "Settings of the sweeper, which chooses the jobs."),
    Setting(
        "hydra.searchpath",
        Use.NEVER,
        "",
        "configs come from embexp's folder and your own",
        "name your folder with --config-dir",
    ),
    Setting("hydra.help", Use.NEVER, "", *_OWN_HELP),
    Setting("hydra.hydra_help", Use.NEVER, "", *_OWN_HELP),
    Setting("hydra.job.id", Use.NEVER, "", _RECORDED, "leave it out"),
    Setting("hydra.job.num", Use.NEVER, "", _RECORDED, "leave it out"),
    Setting("hydra.job.override_dirname", Use.NEVER, "", _RECORDED, "set hydra.job.config.override_dirname.…"),
    Setting("hydra.job.config_name", Use.NEVER, "", _RECORDED, "choose the config with --config-name"),
    Setting("hydra.overrides", Use.NEVER, "", _RECORDED, "leave it out"),
    Setting("hydra.runtime", Use.NEVER, "", _RECORDED, "leave it out"),
)
"""All of them. A test compares this with the keys that Hydra has."""


def setting_at(path: str) -> Setting | None:
    """The setting that a key belongs to, such as that of `hydra.job.env_set` for `hydra.job.env_set.A`.

    Args:
        path: dotted, or a group such as `hydra/job_logging`.
    """
    dotted = path.replace("/", ".")
    fitting = [each for each in SETTINGS if dotted == each.path or dotted.startswith(f"{each.path}.")]
    return max(fitting, key=lambda each: len(each.path), default=None)

"""`run_id`: the same for two runs that must give the same bits on one machine, with the same versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from embexp.specs import tasks
from embexp.specs.run import RunSpec
from embexp.specs.strategies import Strategy
from embexp.specs.transforms import as_project
from embexp.system import digests, machine

_NONE: Mapping[str, str] = MappingProxyType({})
DECIDES_NOTHING = ("output", "checkpoint", "tracking", "name", "sweep", "seeds")
"""Settings at the top of a spec that change no result."""
_OF_A_MACHINE = (
    *("address", "zone", "project", "timeout_seconds", "initialization_seconds"),
    *("intra_op_threads", "inter_op_threads", "pieces", "onednn", "reproducible"),
    *("addresses", "start_seconds", "silence_seconds", "restarts"),
)
"""Settings of a strategy that change no result: how a TPU or workers are found, and numbers of threads.

Pieces and kernels do change last bits, as sums of float32 depend on their order. But it is those really used that
count.
"""


_LATER = {
    "clipnorm": None,
    "weight_decay_per": "touch",
    "weight_decay_scale": 1.0,
    "dtype": "float32",
    "slot_dtype": "float32",
    "stochastic_rounding": True,
}
"""Settings of tables and optimizers that came later, with the value that is what was done before: it changes no id."""


@dataclass(frozen=True)
class Identity:
    """What decides the bits of a run, but for the machine and the versions of packages.

    Attributes:
        content: digest of the spec and of the content of all files, see `content_id`.
        code: digest of the user's own code; None: the run uses none.
        threads: TensorFlow's numbers of threads, `intra_op` and `inter_op`, which change no bit.
        pieces: into how many operations are cut, see `machine.pieces`.
        onednn: whether TensorFlow uses oneDNN.
        flags: environment variables that change kernels, those that are set.
        files: digests of data, pretrained files and a restored checkpoint, by config path; of files that freeze
            policies name, by path.
    """

    content: str
    code: str | None
    threads: Mapping[str, int]
    pieces: int
    onednn: bool
    flags: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def run_id(self) -> str:
        """Digest of all of it."""
        parts = [self.content, self.code, self.pieces, self.onednn, dict(self.flags)]
        return digests.of_json(parts)

    @property
    def continued(self) -> str:
        """Digest of what may not change when a run is resumed, as it may be on another machine."""
        return self.content if self.code is None else digests.of_json([self.content, self.code])


def decides_nothing(setting: str) -> bool:
    """Whether a setting or a choice, such as `output.plots` or `strategy.intra_op_threads`, changes no result."""
    group, _, package = setting.partition("@")
    top, _, rest = (package or group).partition(".")
    return (
        top in DECIDES_NOTHING
        or top.partition("/")[0] == "hydra"
        or (top == "strategy" and rest in _OF_A_MACHINE)
        or setting.endswith("freeze.random")
    )


def identity(strategy: Strategy, content: str, code: str | None, files: Mapping[str, str]) -> Identity:
    """The identity of a run that this process will do.

    Args:
        content: see `content_id`.
        code: digest of the user's own code; None: the run uses none.
        files: digests of all files that the run reads, by config path, or by path where freeze policies name them.
    """
    threads = machine.kernel_threads(strategy.intra_op_threads, strategy.inter_op_threads)
    pieces, onednn = machine.pieces(strategy.wanted_pieces), machine.onednn(strategy.kernels["onednn"])
    return Identity(content, code, threads, pieces, onednn, machine.kernel_flags(portable=strategy.portable), files)


def content_id(
    spec: RunSpec,
    data_digest: str,
    pretrained_digests: Mapping[str, str] = _NONE,
    freeze_digests: Mapping[str, str] = _NONE,
    restored_digest: str | None = None,
) -> str:
    """Digest of a spec, with paths replaced by digests of their content, without settings that change no result.

    Args:
        data_digest: of the data's content.
        pretrained_digests: of the content of pretrained files, by the config path of their setting, such as
            `tables.item.pretrained`; a file that no table takes rows from has none. Of what the run takes over from its
            parent under `parent`.
        freeze_digests: of the content of files that freeze policies and vocabularies name, by path.
        restored_digest: of the checkpoint that variables are restored from.
    """
    without: dict[str, Any] = {**dict.fromkeys(DECIDES_NOTHING, True), "strategy": set(_OF_A_MACHINE)}
    content: dict[str, Any] = spec.model_dump(mode="json", exclude=without)
    if isinstance(numeric := content["data"].get("dense_features"), dict):
        content["data"]["dense_features"] = list(numeric.items())  # the model gets the columns in this order
    for name in tasks.settings_of_others(spec.task):
        content.pop(name, None)
    content["restore"]["path"] = restored_digest
    if "parent" in content:
        content["parent"]["path"] = pretrained_digests.get("parent")
    content["data"].pop("fetch", None)  # how the files came here
    if "path" in content["data"]:
        content["data"]["path"] = data_digest
    sources = {"pretrained": content["pretrained"]}
    sources |= {f"tables.{name}.pretrained": table["pretrained"] for name, table in content["tables"].items()}
    for place, setting in sources.items():
        if setting is not None and "path" in setting:
            setting["path"] = pretrained_digests.get(place)
            for of_the_digest in ("tokens_file", "missing_neighbours"):
                setting.pop(of_the_digest, None)
            for other in setting.get("others", ()):  # with the digest of the first
                other |= {"path": None, "tokens_file": None}
            steps = setting.pop("transform", [])
            if (known := as_project(steps)) is not None:  # as ids had it before there were transforms
                setting |= {} if setting["kind"] == "checkpoint" else {"project": known}
            else:
                setting["transform"] = [
                    {key: value for key, value in step.items() if value is not False} for step in steps
                ]
    tables = content["tables"].values()
    for vocabulary in (table["vocabulary"] for table in tables):
        if "path" in vocabulary:
            vocabulary["path"] = freeze_digests.get(vocabulary["path"])
    for settings in (content["optimizer"], *tables, *(table["optimizer"] for table in tables)):
        for name, value in _LATER.items():
            if settings is not None and name in settings and settings[name] == value:
                del settings[name]
    for freeze in (content["freeze"], *(table["freeze"] for table in content["tables"].values())):
        _replace_files(freeze, freeze_digests)
        if freeze is not None:
            freeze.pop("random", None)  # whether a run may be started says nothing of its bits
    return digests.of_json(content)


def _replace_files(freeze: Any, digest_of: Mapping[str, str]) -> None:
    """Puts digests in the place of paths, in a policy and in the rules of a schedule."""
    if isinstance(freeze, list):
        for each in freeze:
            _replace_files(each, digest_of)
    elif isinstance(freeze, dict):
        for key, value in freeze.items():
            if key in ("tokens_file", "mask_file") and value is not None:
                freeze[key] = digest_of.get(value)
            else:
                _replace_files(value, digest_of)

"""`run_id`: the same for two runs that must give the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from embexp.specs.run import RunSpec
from embexp.system import digests

_NONE: Mapping[str, str] = MappingProxyType({})
_NO_PART: dict[str, Any] = {
    "output": True,
    "checkpoint": True,
    "name": True,
    "sweep": True,
    "seeds": True,
    # How a TPU is found changes nothing of what it computes. Numbers of threads do: products of large matrices are
    # divided among them, and sums of float32 depend on their order.
    "strategy": {"address", "zone", "project", "timeout_seconds", "initialization_seconds"},
}


def run_id(
    spec: RunSpec,
    data_digest: str,
    pretrained_digests: Mapping[str, str] = _NONE,
    freeze_digests: Mapping[str, str] = _NONE,
    restored_digest: str | None = None,
) -> str:
    """Digest of the spec, with paths replaced by digests of their content, without settings that change no result.

    Args:
        spec: of the run.
        data_digest: of the data's content.
        pretrained_digests: of the content of pretrained files, by the config path of their setting, such as
            `tables.item.pretrained`; a file that no table takes rows from has none.
        freeze_digests: of the content of files that freeze policies name, by path.
        restored_digest: of the checkpoint that variables are restored from.
    """
    content: dict[str, Any] = spec.model_dump(mode="json", exclude=_NO_PART)
    # Settings that came later: without them, ids stay what they were.
    if content["data"].get("new_entities") is None:
        content["data"].pop("new_entities", None)
    if content["study"]["kind"] == "none":
        del content["study"]
    if content["restore"]["path"] is None:
        del content["restore"]
    else:
        content["restore"]["path"] = restored_digest
    if "path" in content["data"]:
        content["data"]["path"] = data_digest
    settings = {"pretrained": content["pretrained"]}
    settings |= {f"tables.{name}.pretrained": table["pretrained"] for name, table in content["tables"].items()}
    for place, setting in settings.items():
        if setting is not None and "path" in setting:
            setting["path"] = pretrained_digests.get(place)
            setting.pop("tokens_file", None)  # which the digest is of too
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

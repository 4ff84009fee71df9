"""`run_id`: the same for two runs that must give the same bits."""

from __future__ import annotations

from typing import Any

from embexp import digests
from embexp.specs.run import RunSpec


def run_id(spec: RunSpec, data_digest: str) -> str:
    """Digest of the spec, with the data's path replaced by a digest of what it holds, and without output settings."""
    content: dict[str, Any] = spec.model_dump(mode="json", exclude={"output", "name"})
    if "path" in content["data"]:
        content["data"]["path"] = data_digest
    return digests.of_json(content)

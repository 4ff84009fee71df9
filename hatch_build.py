"""Has a wheel carry fused operations, and pin the TensorFlow that they are built against: `make wheel`."""

from __future__ import annotations

import sysconfig
from importlib import metadata
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

from embexp.system import native


class PlatformWheel(BuildHookInterface):
    """Enabled by HATCH_BUILD_HOOK_ENABLE_CUSTOM=true only: other wheels fit every platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds what is missing; raises OSError if there is no compiler."""
        built = native.build(self.app.display_info)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["dependencies"] = [f"tensorflow=={metadata.version('tensorflow')}"]
        build_data["force_include"] |= {
            str(file): f"embexp/{native.BUILT.relative_to(native.SOURCES.parents[1])}/{file.name}" for file in built
        }

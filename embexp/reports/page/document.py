"""One HTML file: data, styles, scripts and the libraries, nothing beside it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import time
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from embexp.reports.page import content
from embexp.reports.record import Record
from embexp.system import files, printable

_ASSETS = resources.files("embexp.reports.page") / "assets"
_SCRIPTS = (
    "format",
    "state",
    "colours",
    "plots",
    "details",
    "table",
    "curves",
    "parameters",
    "costs",
    "compare",
    "maps",
    "main",
)
_CHARTS, _NEIGHBOURS = "vendor/echarts.min.js", "vendor/umap-js.min.js"
_UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def write_page(
    records: Sequence[Record], path: Path, *, maps: Sequence[Mapping[str, Any]] = (), title: str | None = None
) -> None:
    """Writes the page of a report, whole or not at all.

    Metrics and curves are read from the directories of the records, without TensorFlow. Of what can't be
    read, the page has nothing.

    Args:
        records: the runs, in the order of the report; see `embexp.reports.collected.collect`.
        maps: of tables of some of the runs; see `embexp.runs.table_maps`.
        title: None: the name of the directory that the runs share.
    """
    data = content.of_runs(records, maps=maps)
    files.write_text(path, document(data, title=_title(records) if title is None else title))


def document(data: Mapping[str, Any], *, title: str) -> str:
    """The page as text.

    Args:
        data: what the scripts read: see `content.of_runs`.
    """
    own = "\n".join(_asset(f"js/{name}.js") for name in _SCRIPTS)
    libraries = [_asset(_CHARTS), *([_asset(_NEIGHBOURS)] if data["maps"] else [])]
    scripts = [*libraries, f'"use strict";\n(() => {{\n{own}}})();\n']
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    # Only these scripts run, whatever text finds its way into the page, and nothing is loaded or sent.
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    places = {
        "policy": policy,
        "title": html.escape(printable.visible(title.encode("utf-8", "replace").decode("utf-8"))),
        "style": _asset("page.css"),
        "version": html.escape(metadata.version("embexp")),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "data": as_json(data),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return _PLACE.sub(lambda found: places[found[1]], _asset("page.html"))


def as_json(data: Any) -> str:
    """JSON that is safe inside an HTML `script` element: without `<`, so nothing ends or opens an element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def _title(records: Sequence[Record]) -> str:
    """The name of the directory in which the runs are, or that of a single run."""
    places = [record.directory.absolute() for record in records if record.directory is not None]
    if len(places) == 1:
        return places[0].name
    parents = {place.parent for place in places}
    return parents.pop().name if len(parents) == 1 else f"{len(records)} runs"


def _asset(name: str) -> str:
    """A file beside this module; a browser reads every line end as a line feed, and hashes are of what it reads."""
    return _ASSETS.joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")

"""The terminals that are drawn in `docs/pictures`: what they show, compared with what a command prints."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

DOCS = Path(__file__).resolve().parents[1] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
_ANSI = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")
_SOMETIMES = ("warning:", "fused operations:", "logistic regression: fitted to")  # they depend on data and machine
_NUMBER = re.compile(r"[0-9a-f]{64}|\d[\d,.:]*")


def drawing() -> ModuleType:
    """The module `docs/pictures.py`."""
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(path: Path) -> list[str]:
    """The lines that a drawn terminal shows."""
    shown: dict[float, dict[float, str]] = {}
    for text in ElementTree.parse(path).iter(f"{SVG}text"):
        shown.setdefault(float(text.attrib["y"]), {})[float(text.attrib["x"])] = text.text or ""
    return [
        "".join(parts[x] for x in sorted(parts)).replace("\xa0", " ").rstrip() for _, parts in sorted(shown.items())
    ]


def environment(picture: str) -> dict[str, str]:
    """The variables of a terminal as wide as a picture's, in which a command prints what is drawn."""
    module = drawing()
    return {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(module.WIDER.get(picture, module.WIDTH))}


def not_printed(picture: str, command: str, printed: str, names: Mapping[str, str]) -> list[str]:
    """The lines of a picture that a command did not print, whatever the numbers, the blanks and where lines break.

    Args:
        picture: name of the file, without `.svg`.
        command: as it stands on the page; its lines begin the picture.
        printed: all that the command printed, with colours (ANSI).
        names: what the picture shows in the place of texts, such as paths, that were printed.
    """
    there = re.sub(r"\s+", "", _ANSI.sub("", printed))
    for text, shown in names.items():
        there = there.replace(text, shown)
    there = _masked(there)
    shown = lines(DOCS / "pictures" / f"{picture}.svg")[len(command.strip().splitlines()) :]
    return [line for line in shown if not line.startswith(_SOMETIMES) and _masked(line) not in there]


def _masked(text: str) -> str:
    numbers = _NUMBER.sub("0", re.sub(r"\s+", "", text))
    return re.sub(r"━+", "━", re.sub(r"0[kM](?=examples/s)", "0", numbers))

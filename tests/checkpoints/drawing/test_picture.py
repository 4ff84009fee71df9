"""The files that are written."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image

from embexp.checkpoints import object_graph, picture
from embexp.checkpoints.object_graph import ObjectGraph, spanning_tree, walk
from embexp.system import files
from tests import object_graphs
from tests.thoroughness import examples

SMALL = object_graphs.graph({"net": 1, "again": 2}, {"kernel": 2}, object_graphs.Variable())
NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> list[tuple[str, str]]:
    """All texts of an SVG, and how they are styled."""
    found = ET.parse(path).getroot().iter(f"{NAMESPACE}text")
    return [("".join(each.itertext()), each.get("style", "")) for each in found]


def drawn(graph: ObjectGraph, path: Path) -> Path:
    with files.atomic_write(path) as file:
        kind = path.suffix.removeprefix(".").lower()
        picture.write(spanning_tree(graph, everything=False), file, kind, title="A <title> & $more$", note="a note")
    return path


@settings(examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=object_graphs.graphs())
def test_an_svg_has_all_texts(graph: ObjectGraph, tmp_path: Path) -> None:
    found = [text for text, _ in texts(drawn(graph, tmp_path / "graph.svg"))]
    assert found[:2] == ["A <title> & $more$", "a note"]
    for branch in walk(spanning_tree(graph, everything=False)):
        # Blanks at the ends carry no ink.
        assert branch.edge.strip() in [text.strip() for text in found] or not branch.edge.strip()
        assert branch.label.strip() in [text.strip() for text in found] or not branch.label.strip()


@pytest.mark.parametrize("gan", [object_graphs.keras_gan, object_graphs.tensorflow_gan])
def test_colours(gan: Callable[[Path], Path], tmp_path: Path) -> None:
    """The legend, and texts of objects whose role is known."""
    found = dict(texts(drawn(object_graph.read(gan(tmp_path / "gan")), tmp_path / "gan.svg")))

    def colour(text: str) -> str:
        return found[text].partition("fill: ")[2].partition(";")[0] or "#000000"

    names = (
        ("sequential_1/dense_3", "adam", "adam/sequential_dense_bias_velocity [8] float32")
        if gan is object_graphs.keras_gan
        else (
            "discriminator/layer1",
            "Adam",
            "Adam/generator/layer1/bias/v [6] float32 → generator/layers/1/bias",
        )
    )
    layer, optimizer, slot = (next(text for text in found if _like(text, name)) for name in names)
    variable = next(text for text in found if text.endswith("bias [8] float32"))
    black, blue, red, orange = (colour(text) for text in (layer, variable, optimizer, slot))
    assert [colour(text) for text in ("object or layer", "variable", "optimizer", "slot variable")] == [
        black,
        blue,
        red,
        orange,
    ]
    assert black == "#000000"
    for shade, strongest in ((blue, 2), (red, 0)):
        assert np.argmax([int(shade[at : at + 2], 16) for at in (1, 3, 5)]) == strongest
    amounts = [int(orange[at : at + 2], 16) for at in (1, 3, 5)]
    assert amounts == sorted(amounts, reverse=True)
    assert amounts[1] > 0x50


def _like(text: str, name: str) -> bool:
    """Whether these are equal but for the numbers that Keras appends, which count all objects of the process."""
    letters = ["".join(each for each in word if not each.isdigit() and each != "_") for word in (text, name)]
    return letters[0] == letters[1]


def test_the_same_graph_has_the_same_bytes(tmp_path: Path) -> None:
    graph = SMALL
    for ending in picture.FORMATS:
        first, second = (drawn(graph, tmp_path / f"{number}{ending}").read_bytes() for number in (1, 2))
        assert first == second


def test_a_png_and_a_pdf(tmp_path: Path) -> None:
    graph = SMALL
    with Image.open(drawn(graph, tmp_path / "gan.png")) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert (pixels[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
    assert drawn(graph, tmp_path / "gan.PDF").read_bytes().startswith(b"%PDF-")


def test_the_background_is_light_in_a_dark_viewer_too(tmp_path: Path) -> None:
    graph = SMALL
    root = ET.parse(drawn(graph, tmp_path / "gan.svg")).getroot()
    first = next(root.iter(f"{NAMESPACE}path"))
    assert "fill: #ffffff" in first.get("style", "")
    corners = [float(number) for number in first.get("d", "").replace("z", "").split() if number not in "ML"]
    assert [0, 0, *corners[:0]] == [min(corners[::2]), min(corners[1::2])]
    assert root.get("viewBox") == f"0 0 {max(corners[::2]):g} {max(corners[1::2]):g}"


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    def fail(*_: object, **__: object) -> None:
        raise OSError("no room")

    graph = SMALL
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="no room"):
        drawn(graph, tmp_path / "gan.svg")
    assert sorted(tmp_path.iterdir()) == before

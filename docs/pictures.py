"""Makes the pictures of the docs, by following pages as they stand: `make pictures`.

All blocks of `docs/tutorial.md` are run in one folder, at full size, and those of `docs/choosing.md` and
`docs/gallery.md` in others. A block of `sh` with a picture `pictures/NAME.svg` below it is one command, whose output in
the terminal becomes that picture. `PLOTS`, `PAGES`, `CURVES`, `GALLERY` and `SECTIONS` say where the other pictures
come from. The seconds of each block are printed, as the tutorial states them. `python docs/pictures.py gallery` makes
the pictures of one page.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageChops
from rich.console import Console
from rich.text import Text

from tests.outputs import blocks, data_of

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"
WIDTH = 92  # columns of the terminal
WIDER = {"run": 106, "frozen": 106, "new": 134}
PLOTS = {"overview.png": "outputs/first/plots/overview.png"}  # plots that a run wrote
PAGES = {  # pages in a browser, and the size of its window
    "compare.png": ("outputs/both.html", (960, 840)),
    "report.png": ("outputs/optimizers/report.html", (960, 1370)),
}
CURVES = {  # of sweeps: the folder, the setting along the axis, that of the curves, and what the axis stands for
    "dims.png": ("outputs/dims", "tables.user.dim", "data.examples", "dim of the tables"),
    "rates.png": ("outputs/rates", "optimizer.learning_rate", "optimizer", "learning rate of the tables"),
}
GALLERY = {"drift.png": "outputs/frozen/plots/drift.png", "daily.png": "outputs/daily/daily.png"}
SECTIONS = {  # of report pages: the page, the section's id, and a window in which it fits: what is blank is cut off
    "curves.png": ("outputs/sweep/report.html", "curves", (960, 900)),
    "parameter.png": ("outputs/sweep/report.html", "parameters", (960, 900)),
    "parallel.png": ("outputs/sweep/report.html", "parallel", (960, 900)),
    "differences.png": ("outputs/differences.html", "paired", (1200, 1600)),
    "search.png": ("outputs/search/report.html", "history", (960, 1600)),
    "rows.png": ("outputs/frozen.html", "rows", (960, 900)),
    "map.png": ("outputs/plays.html", "maps", (960, 1200)),
}
WORST = 0.75  # log loss at which curves leave the picture; that of a constant is 0.69 at most
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_CURSOR = re.compile(r"\x1b\[\?25[lh]")
# As rich draws a terminal, but with the fonts of the reader's system: nothing is loaded from the network.
_SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def terminal(command: str, output: str, columns: int, target: Path) -> None:
    """Draws what a terminal shows of a command.

    Args:
        command: as it stands on the page.
        output: what it printed, with its colours (ANSI).
        columns: width of the terminal.
        target: the SVG file.
    """
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command.strip()}", style="bold"))
    console.print(Text.from_ansi(_CURSOR.sub("", output).rstrip()))
    svg = console.export_svg(title="", code_format=_SVG, unique_id=target.stem)
    target.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.M), encoding="utf-8")


def smaller(source: Path, target: Path, width: int = 1200) -> None:
    """Writes a PNG with at most 256 colours and a width in pixels."""
    with Image.open(source) as opened:
        image = opened.convert("RGB")
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    colours = image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    colours.save(target, optimize=True)


def page(browser: str, address: str, size: tuple[int, int], target: Path) -> None:
    """Takes a picture of a page in a window of a size in pixels."""
    with tempfile.TemporaryDirectory() as profile:
        shot = Path(profile) / "shot.png"
        settings = [f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", f"--screenshot={shot}"]
        fixed = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--virtual-time-budget=5000",
        ]
        offline = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        subprocess.run([browser, *fixed, *offline, *settings, address], check=True, capture_output=True)
        smaller(shot, target)


def section(browser: str, report: Path, name: str, size: tuple[int, int], target: Path) -> None:
    """Takes a picture of one section of a report's page, without the blank space below and around it."""
    style = (
        f"<style>main > section:not(#{name}), header, footer, .skip {{ display: none !important }} "
        "main { margin: 0 !important; padding: 8px !important } "
        "main > section { border: 0 !important; margin: 0 !important; padding: 0 !important }</style>"
    )
    alone = report.with_suffix(f".{name}.html")
    text = _POLICY.sub("", report.read_text(encoding="utf-8"), count=1)
    alone.write_text(text.replace("</head>", f"{style}</head>", 1), encoding="utf-8")
    page(browser, alone.as_uri(), size, target)
    with Image.open(target) as opened:
        image = opened.convert("RGB")
    blank = Image.new("RGB", image.size, image.getpixel((image.width - 1, image.height - 1)))
    box = ImageChops.difference(image, blank).getbbox()
    if box is None:
        raise SystemExit(f"{report} has nothing in the section {name}")
    image.crop((0, 0, image.width, min(image.height, box[3] + 10))).save(target)
    smaller(target, target)


def curves(table: Path, along: str, by: str, label: str, target: Path) -> None:
    """Draws the validation log loss of a sweep against a setting, in powers, with a curve for each value of another."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for value in dict.fromkeys(row[by] for row in rows):
        points = sorted(
            (float(row[along]), float(row["validation log_loss"] or "nan")) for row in rows if row[by] == value
        )
        name = f"{int(value):,} clicks" if value.isdecimal() else value
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    ticks = sorted({float(row[along]) for row in rows})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    seen = [loss for row in rows if (loss := float(row["validation log_loss"] or "nan")) <= WORST]
    axes.set_ylim(min(seen) - 0.02, max(seen) + 0.02)
    axes.set(xlabel=label, ylabel="log loss, validation")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(target.with_suffix(".large.png"), dpi=200)
    plt.close(figure)
    smaller(target.with_suffix(".large.png"), target)
    target.with_suffix(".large.png").unlink()


def follow(name: str, folder: Path, drawn: Path) -> None:
    """Runs the blocks of a page in a folder, after those that make the data of other pages, and draws the terminals.

    Raises:
        SystemExit: if a block ends with another status than the page says.
    """
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # what TensorFlow says about drivers of this machine
    fixed = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "XDG_CACHE_HOME": str(folder / "cache"), **quiet}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    folder.mkdir(exist_ok=True)
    for block in [*data_of(DOCS / name), *blocks((DOCS / name).read_text(encoding="utf-8"))]:
        if block.written(folder) or not block.runs:
            continue
        language, text, picture = block.language, block.text, block.drawn
        columns = WIDER.get(picture, WIDTH)
        begin = time.perf_counter()
        result = subprocess.run(
            ["bash", "-euc", text] if language == "sh" else [sys.executable, "-c", text],
            cwd=folder,
            env={**os.environ, **fixed, "COLUMNS": str(columns), "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(f"{time.perf_counter() - begin:5.1f} s  {text.splitlines()[0]}", flush=True)
        if result.returncode != int(block.options.get("status", "0")):
            raise SystemExit(f"status {result.returncode}\n{text}\n{result.stdout}")
        if picture:
            shown = result.stdout.replace(str(folder), "~/films")
            terminal(text, shown, columns, drawn / f"{picture}.svg")


def main(pages: Sequence[str]) -> None:
    """Makes the pictures of pages, all by default."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("the pictures of pages need chromium or google-chrome in the PATH")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as made:
        drawn = Path(made)  # the repository stays as it is meanwhile: runs record it
        for each in pages or ("tutorial", "choosing", "gallery"):
            folder = Path(name) / each
            follow(f"{each}.md", folder, drawn)
            match each:
                case "tutorial":
                    for picture, source in PLOTS.items():
                        smaller(folder / source, drawn / picture)
                    for picture, (source, size) in PAGES.items():
                        page(browser, f"{folder.as_uri()}/{source}", size, drawn / picture)
                case "choosing":
                    for picture, (source, *axes) in CURVES.items():
                        curves(folder / source / "sweep.csv", *axes, drawn / picture)
                case _:
                    for picture, source in GALLERY.items():
                        smaller(folder / source, drawn / picture)
                    for picture, (source, section_id, size) in SECTIONS.items():
                        section(browser, folder / source, section_id, size, drawn / picture)
        for path in drawn.iterdir():
            shutil.copy(path, PICTURES)


if __name__ == "__main__":
    main(sys.argv[1:])

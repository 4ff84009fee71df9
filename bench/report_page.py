"""The HTML page of a sweep of 200 runs: time to write it, size, and time until it is usable in headless Chromium.

    python -m bench.report_page [--quick] [--repetitions N] [--json FILE]

The runs are generated: each has 100 evaluations and 150 logged losses, and there are maps of eight tables with 2,000
rows. The page is opened from its file, each time in the same browser. Times come from the browser's own clock, and
start with the navigation.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from bench import harness
from embexp.reports.collected import collect
from embexp.reports.page import document, of_runs
from tests.reports import swept_runs
from tests.reports.test_page_in_browser import FLAGS

_TABLES = 8
_LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
_MOST_BYTES, _MOST_SECONDS = 6_000_000, 2.0


def main(argv: list[str]) -> int:
    """Prints the figures; returns 1 if the page is larger than 6 MB or takes 2 s or more to open."""
    again = "how often the page is opened (7)"
    options = harness.parser("report_page", __doc__, quick="20 runs, opened twice", repetitions=again).parse_args(argv)
    runs, times = (20, 2) if options.quick else (200, max(2, options.repetitions or 7))
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and driver):
        print("needs chromium and chromedriver")
        return 0
    described = harness.describe()
    print(json.dumps(described, indent=2))
    with tempfile.TemporaryDirectory() as folder:
        sweep = swept_runs.sweep(Path(folder) / "sweep", jobs=runs, evaluations=100)
        started = time.perf_counter()
        maps = [swept_runs.a_map(number, rows=2000) for number in range(_TABLES)]
        page = document(of_runs(collect([sweep]), maps=maps), title="a sweep")
        written = time.perf_counter() - started
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        size = path.stat().st_size
        seconds = opening_times(path, browser, driver, Path(folder) / "profile", times)
    print(f"{runs} runs: page made in {written:.2f} s, {size / 1e6:.2f} MB (at most {_MOST_BYTES / 1e6:g})")
    later = statistics.median(seconds[1:])
    print(f"loaded after {seconds[0]:.2f} s in a new browser, {later:.2f} s afterwards (below {_MOST_SECONDS:g})")
    harness.save(options, described, runs=runs, seconds_to_make=written, bytes=size, seconds=seconds)
    return int(size > _MOST_BYTES or max(seconds) >= _MOST_SECONDS)


def opening_times(page: Path, browser: str, driver: str, profile: Path, times: int) -> list[float]:
    """Seconds from the start of the navigation until all scripts have run, so that table and controls work."""
    options = Options()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    opened = webdriver.Chrome(options=options, service=Service(driver))
    found = []
    try:
        for _ in range(times):
            opened.get("about:blank")
            opened.get(page.as_uri())
            WebDriverWait(opened, 30).until(lambda each: each.execute_script(_LOADED))
            found.append(float(opened.execute_script(_LOADED)) / 1000)
    finally:
        opened.quit()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The page of a report in headless Chromium, opened from a file. Skipped where Chromium or its driver is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from embexp.reports.collected import collect
from embexp.reports.page import document, of_runs
from embexp.system import files
from tests.reports import swept_runs, test_comparison
from tests.reports.made_runs import ledger, run, spec

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
)  # fmt: skip
HOSTILE = "</script><script>window.hacked=1</script><!--<img src=x onerror=window.hacked=2>\u2028{{data}}"
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.set_window_size(1280, 900)
        yield driver
    finally:
        driver.quit()


def written(folder: Path, sweep: Path, *, title: str = "a sweep", **more: Any) -> Path:
    """A page of a sweep with a map; `more` changes what the scripts read."""
    found = of_runs(collect([sweep]), maps=[swept_runs.a_map(0)])
    path = folder / "report.html"
    files.write_text(path, document({**found, **more}, title=title))
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    sweep = swept_runs.sweep(folder / "sweep", jobs=24, seeds=2, evaluations=10, failed=2, skipped=1)
    swept_runs.write_json(sweep / "search.json", swept_runs.a_search(sweep))
    return written(folder, sweep)


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> Iterator[webdriver.Chrome]:
    """The page, freshly opened; at the end, nothing has come over the network and nothing is on the console."""
    yield fresh(browser, page)
    check_quiet(browser, page)


def fresh(browser: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())
    WebDriverWait(browser, 20).until(lambda each: each.execute_script("return document.documentElement.dataset.ready"))
    return browser


def check_quiet(browser: webdriver.Chrome, page: Path) -> None:
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("data:", "chrome:"))] == [page.as_uri()]


def column(browser: webdriver.Chrome, key: str) -> list[str]:
    """The texts of a column of the table of runs."""
    script = """
        const heads = [...document.querySelectorAll("#runs-table thead th")];
        const place = heads.findIndex((head) => head.querySelector(`[data-key="${arguments[0]}"]`));
        const rows = [...document.querySelectorAll("#runs-table tbody tr[data-run]")];
        return rows.map((row) => row.children[place].textContent);
    """
    texts: list[str] = browser.execute_script(script, key)
    return texts


def press_head(browser: webdriver.Chrome, key: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f'#runs-table [data-key="{key}"]').click()


def type_filter(browser: webdriver.Chrome, words: str) -> list[str]:
    """The labels of the runs that pass."""
    field = browser.find_element(By.ID, "filter")
    field.clear()
    field.send_keys(words)
    return [name for name in column(browser, "number") if name]


def test_the_table_sorts_by_its_heads(opened: webdriver.Chrome, page: Path) -> None:
    key = "metric:validation rmse"
    press_head(opened, key)
    values = [float(text.removeprefix("best")) for text in column(opened, key) if text]
    assert len(values) == 24
    assert values == sorted(values)
    # The order comes from the runs' own files.
    known = sorted(record.metrics["validation rmse"] for record in collect([page.parent / "sweep"]) if record.metrics)
    assert values == [round(value, 4) for value in known]
    head = opened.find_element(By.CSS_SELECTOR, '#runs-table th:has([data-key="metric:validation rmse"])')
    assert head.get_attribute("aria-sort") == "ascending"
    press_head(opened, key)
    assert [float(text.removeprefix("best")) for text in column(opened, key) if text] == values[::-1]
    assert column(opened, key)[-3:] == ["", "", ""]  # what has no value stays behind


def test_the_best_by_validation_is_marked(opened: webdriver.Chrome, page: Path) -> None:
    records = [record for record in collect([page.parent / "sweep"]) if record.validation is not None]
    best = min(records, key=lambda record: record.validation or 0.0)
    row = opened.find_element(By.CSS_SELECTOR, "#runs-table tr.is-best")
    assert row.find_element(By.CSS_SELECTOR, "th").text == f"#{best.name}"
    assert opened.find_elements(By.CSS_SELECTOR, "#runs-table .best")[0].text == "best"


def test_filters_by_text_comparison_and_status(opened: webdriver.Chrome, page: Path) -> None:
    records = collect([page.parent / "sweep"])
    wanted = [f"#{each.name}" for each in records if each.value("init") == "scaffold"]
    assert type_filter(opened, "init=scaffold") == wanted
    limit = sorted(each.validation for each in records if each.validation is not None)[5]
    better = [f"#{each.name}" for each in records if (each.validation or 9.0) < limit]
    assert len(type_filter(opened, f"rmse<{limit}")) == len(better) == 5
    assert type_filter(opened, "no such file") == ["#24", "#25"]
    assert "2 of 27 runs" in opened.find_element(By.ID, "tally").text
    assert type_filter(opened, "nothing has this") == []
    type_filter(opened, " ")
    opened.find_element(By.CSS_SELECTOR, '.chip[data-status="completed"]').click()
    assert [each for each in column(opened, "status") if "failed" in each] == [
        f"✕ failed{swept_runs.REASON}", f"✕ failed{swept_runs.REASON}"
    ]  # fmt: skip
    assert len(column(opened, "status")) == 3


def test_a_run_opens_with_its_details_and_closes_by_the_keyboard(opened: webdriver.Chrome) -> None:
    link = opened.find_element(By.CSS_SELECTOR, '#runs-table tr[data-run="0"] button.link')
    link.send_keys(Keys.ENTER)
    dialog = opened.find_element(By.ID, "run-dialog")
    assert dialog.is_displayed()
    words = dialog.text
    for expected in ("#0", "2,000 steps", "peak memory added", "all bits kept", "embexp verify", "--spec", "rmse"):
        assert expected in words
    dialog.find_element(By.TAG_NAME, "summary").click()
    assert "train.early_stopping.patience" in dialog.text
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()


def test_two_runs_are_compared(opened: webdriver.Chrome, page: Path) -> None:
    first, second = [Select(each) for each in opened.find_elements(By.CSS_SELECTOR, "#compare select")]
    first.select_by_value("0")
    second.select_by_value("2")
    rows = opened.execute_script(
        "return [...document.querySelectorAll('#diff .diff tbody tr')].map("
        "(row) => [...row.children].map((cell) => cell.textContent))"
    )
    specs = [json.loads((page.parent / "sweep" / str(job) / "spec.json").read_text()) for job in (0, 2)]
    rates = [str(each["optimizer"]["learning_rate"]) for each in specs]
    assert ["optimizer.learning_rate", *rates] in rows
    assert [row for row in rows if row[1] == row[2]] == []
    first.select_by_value("2")
    assert "the same settings" in opened.find_element(By.CSS_SELECTOR, "#compare .tally").text


def test_switched_off_runs_leave_the_plots(opened: webdriver.Chrome) -> None:
    before = series(opened, "curves")
    assert sum(each == "custom" for each in before) == 12  # a band for each setting, which has two seeds
    drawn = opened.execute_script(
        "const boxes = [...document.querySelectorAll('#curves [_echarts_instance_]')];"
        "return boxes.map((box) => echarts.getInstanceByDom(box).getZr().storage.getDisplayList(true)"
        ".filter((each) => each.type === 'polygon').length)"
    )
    assert drawn == [12, 12]
    for number in (0, 1):
        press(opened, f'#runs-table tr[data-run="{number}"] input')
    assert len(series(opened, "curves")) == len(before) - 2
    press(opened, "#curves .segmented button")
    assert series(opened, "curves") == ["line"] * 22


def test_a_selection_in_parallel_coordinates_becomes_a_filter(opened: webdriver.Chrome) -> None:
    show(opened, "parallel")
    axes = opened.execute_script(
        "const chart = echarts.getInstanceByDom(document.querySelector('#parallel .chart'));"
        "const names = chart.getOption().parallelAxis.map((axis) => axis.data);"
        "chart.dispatchAction({type: 'axisAreaSelect', parallelAxisIndex: 1, intervals: [[-0.5, 0.5]]});"
        "return names"
    )
    tally = opened.find_element(By.CSS_SELECTOR, "#parallel .tally")
    WebDriverWait(opened, 10).until(lambda _: "runs selected" in tally.text)
    press(opened, "#parallel .controls button")
    shown = opened.execute_script(
        "const place = [...document.querySelectorAll('#runs-table thead th')]"
        ".findIndex((head) => head.textContent.startsWith('optimizer'));"
        "return [...document.querySelectorAll('#runs-table tbody tr')].map((row) => row.children[place].textContent)"
    )
    assert set(shown) == {axes[1][0]}
    press(opened, "#only")
    assert len(column(opened, "status")) == 27


def test_where_a_search_went(browser: webdriver.Chrome, tmp_path: Path) -> None:
    sweep = swept_runs.sweep(tmp_path / "sweep", jobs=12, seeds=1, evaluations=4)
    content = swept_runs.a_search(sweep)
    swept_runs.write_json(sweep / "search.json", content)
    page = tmp_path / "report.html"
    files.write_text(page, document(of_runs(collect([sweep])[::-1]), title="a search"))  # runs may be in any order
    fresh(browser, page)
    show(browser, "history")

    def drawn(chart: int) -> Any:
        script = (
            "const box = document.querySelectorAll('#history .chart')[arguments[0]]; box.scrollIntoView();"
            "const chart = echarts.getInstanceByDom(box); return chart && chart.getOption().series[0].data"
        )
        return WebDriverWait(browser, 20).until(lambda each: each.execute_script(script, chart))

    mae = [trial["values"][0] for trial in content["trials"]]
    assert drawn(0) == [[job, min(mae[: job + 1])] for job in range(12)]
    press(browser, "#history .segmented button:last-child")
    assert drawn(0) == [[job + 1, min(mae[: job + 1])] for job in range(12)]  # in minutes
    assert drawn(1) == [0.3, 0.7]
    text = browser.find_element(By.ID, "history").text
    assert "Left out because fewer than 10 trials with results have them: optimizer.learning_rate." in text
    slices = [[point["value"] for point in drawn(chart)] for chart in (2, 3, 4)]
    for (key, number), found in zip(
        (("optimizer", str), ("tables.item.dim", int), ("optimizer.learning_rate", float)), slices, strict=True
    ):
        having = [trial for trial in content["trials"] if key in trial["params"]]
        assert found == [[number(trial["params"][key]), trial["values"][0]] for trial in having]
    check_quiet(browser, page)


@pytest.mark.parametrize("section", ["curves", "parameters", "parallel", "history", "costs", "rows", "vectors", "maps"])
def test_every_section_draws(opened: webdriver.Chrome, section: str) -> None:
    assert series(opened, section)
    painted = """
        const canvas = document.querySelector(`#${arguments[0]} canvas`);
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(pixels.buffer)).size;
    """
    assert opened.execute_script(painted, section) > 20


def test_a_neighbour_map_is_computed_on_demand(opened: webdriver.Chrome) -> None:
    pca = points(opened, "maps")
    press(opened, "#umap")
    WebDriverWait(opened, 60).until(lambda _: "UMAP of the first" in opened.find_element(By.ID, "maps").text)
    found = points(opened, "maps")
    assert found.keys() == pca.keys()
    assert found != pca


def test_a_press_on_the_map_lists_the_nearest_rows(opened: webdriver.Chrome) -> None:
    opened.execute_script("document.getElementById('maps').scrollIntoView()")
    WebDriverWait(opened, 20).until(lambda _: points(opened, "maps"))
    press_row = """
        const box = document.querySelector("#maps .chart");
        echarts.getInstanceByDom(box).trigger("click", { data: { row: arguments[0] } });
        return [...document.querySelectorAll(".nearest > div")].map((line) => line.textContent);
    """
    assert opened.execute_script(press_row, 4) == ["token 50.900", "token 60.250"]
    assert opened.execute_script(press_row, 5) == ["token 50.900", "token 60.250"]  # it has no list of its own


def test_light_and_dark(opened: webdriver.Chrome) -> None:
    def ground() -> str:
        return str(opened.find_element(By.TAG_NAME, "body").value_of_css_property("background-color"))

    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    dark = ground()
    opened.find_element(By.ID, "theme").click()
    light = ground()
    assert (light, dark) == ("rgba(255, 255, 255, 1)", "rgba(21, 24, 28, 1)")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_needs_no_sideways_scrolling(browser: webdriver.Chrome, page: Path) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        fresh(browser, page)
        for section in ("curves", "parameters", "parallel", "history", "costs", "rows", "compare", "maps"):
            show(browser, section)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, section
        browser.find_element(By.CSS_SELECTOR, '#runs-table tr[data-run="0"] button.link').send_keys(Keys.ENTER)
        assert browser.execute_script("return document.getElementById('run-dialog').scrollWidth") <= 390
        check_quiet(browser, page)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def a_hostile_search() -> dict[str, Any]:
    """A search with such text everywhere, and keys that objects have."""
    names = (HOSTILE, "__proto__", "constructor")
    parameters = [{"name": name, "key": name, "log": False, "choices": [HOSTILE], "when": []} for name in names]
    trial = {"job": 0, "state": HOSTILE, "params": [[name, HOSTILE] for name in names], "values": [1.0], "seconds": 1}
    shares = [[name, 0.5] for name in names]
    more = {"evaluator": HOSTILE, "fewest": 10, "importance": [shares], "without": [HOSTILE], "seeds": 1, "higher": []}
    return {"by": HOSTILE, "metrics": [HOSTILE], "parameters": parameters, "trials": [trial], **more}


def test_text_of_configs_data_and_logs_stays_text(
    browser: webdriver.Chrome, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sweep = tmp_path / "sweep"
    for seed in (0, 1):
        settings = {"note": f"{HOSTILE}{seed}", "__proto__": {"polluted": f"yes {seed}"}, f"key {HOSTILE}": seed}
        swept_runs.run(
            sweep / f"run {seed}{HOSTILE}".replace("/", "∕"), method=("assign", "scaffold")[seed], optimizer="adam",
            rate=0.1, dim=8, seed=seed, evaluations=5, settings=settings, warnings=(HOSTILE,),
        )  # fmt: skip
    hostile_map = swept_runs.a_map(0, token=HOSTILE)
    page = written(tmp_path, sweep, title=HOSTILE, maps=[hostile_map], search=a_hostile_search())
    fresh(browser, page)
    assert browser.title == HOSTILE.replace("\u2028", "\u2028")
    for section in ("curves", "parameters", "costs", "rows", "compare", "maps"):
        show(browser, section)
    for section in ("curves", "parameters", "maps"):  # tooltips
        hover_over(browser, section)
    browser.find_element(By.CSS_SELECTOR, '#maps input[type="search"]').send_keys("token</script>")
    press(browser, '#runs-table tr[data-run="0"] button.link')
    dialog = browser.find_element(By.ID, "run-dialog")
    browser.find_element(By.CSS_SELECTOR, "#run-dialog summary").click()
    assert HOSTILE.split("\u2028")[0] in dialog.text
    assert browser.execute_script("return [window.hacked, {}.polluted, document.images.length]") == [None, None, 0]
    check_quiet(browser, page)


def test_an_injected_script_would_not_run(browser: webdriver.Chrome, page: Path) -> None:
    """What escaping should ever miss, the page's own policy stops: the browser says so on its console."""
    fresh(browser, page)
    browser.execute_script(
        "document.body.append(document.createRange().createContextualFragment('<script>window.hacked=1</script>'))"
    )
    assert browser.execute_script("return window.hacked") is None
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]


def press(browser: webdriver.Chrome, selector: str) -> None:
    """Clicks an element in the middle of the window, where nothing covers it."""
    element = browser.find_element(By.CSS_SELECTOR, selector)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def show(browser: webdriver.Chrome, section: str) -> None:
    """Scrolls to a section, and to each of its charts until they are drawn."""
    browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", section)
    stale = (
        "const box = document.querySelector(`#${arguments[0]} .chart[data-stale]`);"
        "box?.scrollIntoView({block: 'center'}); return box === null"
    )
    WebDriverWait(browser, 20).until(lambda each: each.execute_script(stale, section))


def series(browser: webdriver.Chrome, section: str) -> list[str]:
    """The kinds of series in the last chart of a section, once it is drawn."""
    show(browser, section)
    kinds: list[str] = browser.execute_script(
        "const all = document.querySelectorAll(`#${arguments[0]} .chart`);"
        "return echarts.getInstanceByDom(all[all.length - 1]).getOption().series.map((each) => each.type)",
        section,
    )
    return kinds


def points(browser: webdriver.Chrome, section: str) -> dict[str, list[float]]:
    """The points of a map by row."""
    show(browser, section)
    found: dict[str, list[float]] = browser.execute_script(
        "const chart = echarts.getInstanceByDom(document.querySelector(`#${arguments[0]} .chart`));"
        "return Object.fromEntries(chart.getOption().series[0].data.map((each) => [each.row, each.value]))",
        section,
    )
    return found


def hover_over(browser: webdriver.Chrome, section: str) -> None:
    """Moves the pointer over a grid of places of a chart, so that its tooltips show."""
    browser.execute_script(
        """
        const canvas = document.querySelector(`#${arguments[0]} canvas`);
        const box = canvas.getBoundingClientRect();
        for (let x = 0.1; x < 1; x += 0.05) {
          for (let y = 0.1; y < 1; y += 0.05) {
            const at = { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true };
            canvas.dispatchEvent(new MouseEvent("mousemove", at));
          }
        }
        """,
        section,
    )


def test_the_legend_has_no_settings_that_were_skipped(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """One setting ran, another was skipped, a third has not begun; all are in the table, as its rows say why."""
    jobs = [
        {"state": "completed", "directory": f"{place}", "overrides": [f"init={init}"]}
        for place, init in enumerate("ab")
    ]
    jobs += [
        {"state": "skipped", "overrides": ["init=c"], "spec": spec(init__kind="c"), "reason": "it can't be"},
        {"state": "planned", "overrides": ["init=d"], "spec": spec(init__kind="d")},
    ]
    ledger(tmp_path, jobs)
    for place, init in enumerate("ab"):
        line = {"event": "log", "step": 10, "loss": 0.5, "timing": {"seconds": 1.0}}
        path = run(tmp_path / f"{place}", spec(init__kind=init), overrides=[f"init={init}"], validation={"rmse": 1.0})
        (path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    page = tmp_path / "report.html"
    files.write_text(page, document(of_runs(collect([tmp_path])), title="a sweep"))
    opened = fresh(browser, page)
    assert column(opened, "setting:init") == ["a", "b", "c", "d"]
    entries = opened.find_elements(By.CSS_SELECTOR, "#curves .legend .entry")
    assert [entry.text for entry in entries] == ["init=a", "init=b"]
    check_quiet(opened, page)


def test_differences_of_a_comparison(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """A picture for each difference, with words, and the rows that differ; without a comparison, no section."""
    sweep = swept_runs.sweep(tmp_path / "sweep", jobs=2, seeds=1, evaluations=2)
    page = written(tmp_path, sweep, comparison=test_comparison.example().for_page())
    opened = fresh(browser, page)
    pictures = opened.find_elements(By.CSS_SELECTOR, "#paired svg")
    words = [each.get_attribute("aria-label") for each in pictures]
    assert words[0] == "difference 0.0062, interval 0.001 to 0.0114: better"
    assert [each.split(",")[0] for each in words if each] == [
        *("difference 0.0062", "difference 0", "difference 0.25"),
        "difference 0.0062",
    ]
    assert "<u1>" in opened.find_element(By.ID, "paired").text
    low, high = (float(pictures[0].find_element(By.CSS_SELECTOR, ".range").get_attribute(x) or 0) for x in ("x1", "x2"))
    assert 90 < low < high < 180
    check_quiet(browser, page)
    assert not fresh(browser, written(tmp_path, sweep)).find_elements(By.ID, "paired")

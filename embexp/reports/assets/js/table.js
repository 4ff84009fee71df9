/* The table of runs: sorted by its heads, filtered by words and status, with a switch for each run. */

const STATUS_SIGNS = { completed: "✓", stopped_early: "✓", running: "…", queued: "⋯", planned: "·", interrupted: "‖", cancelled: "⊘", pruned: "✂", failed: "✕", skipped: "–" };

function statusMark(status) {
  return el("span", { class: `status status-${status}` }, el("span", { "aria-hidden": "true" }, STATUS_SIGNS[status] ?? "?"), ` ${status.replaceAll("_", " ")}`);
}

const TIMES = new Set(["figure:seconds", "figure:trainSeconds"]);
const NARROW = matchMedia("(max-width: 720px)");

function setUpTable() {
  const body = el("tbody");
  let allMetrics = false;
  let expanded = false;
  const FIRST = 60;
  const head = el("thead");
  const table = el("table", { class: "runs", id: "runs-table" }, el("caption", { class: "hidden" }, "Runs, with the settings that vary and their metrics"), head, body);
  const tally = el("p", { class: "tally", role: "status", id: "tally" });
  const more = el("button", { type: "button", class: "quiet more", id: "more-runs", click: () => ((expanded = true), draw()) });

  function columns() {
    const main = (PRIMARY?.all ?? []).flatMap((name) => [`validation ${name}`, `test ${name}`]);
    const wanted = (each) => {
      if (each.key.startsWith("setting:")) return true;
      if (each.key.startsWith("metric:")) return allMetrics || main.includes(each.key.slice("metric:".length));
      return TIMES.has(each.key);
    };
    const found = QUANTITIES.filter(wanted);
    // On a phone, metrics come first: settings are a swipe away.
    const rank = (each) => (each.key.startsWith("metric:") ? 0 : 1);
    return NARROW.matches ? found.sort((a, b) => rank(a) - rank(b)) : found;
  }

  function headCell(key, label, title, classes = "") {
    const sorted = state.sort.key === key;
    const sort = () => {
      const lowerFirst = !(key.startsWith("metric:") && isBetterHigh(key));
      state.sort = { key, descending: sorted ? !state.sort.descending : !lowerFirst };
      changed("runs");
      head.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
    };
    const order = sorted ? (state.sort.descending ? "descending" : "ascending") : "none";
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (state.sort.descending ? "▼" : "▲") : "");
    return el("th", { scope: "col", "aria-sort": order, class: classes }, el("button", { type: "button", "data-key": key, title, click: sort }, label, arrow));
  }

  function draw() {
    const shownColumns = columns();
    const runs = filtered();
    const formats = shownColumns.map((each) => (each.key.startsWith("setting:") ? shown : TIMES.has(each.key) ? (value) => value.toFixed(1) : aligned(each.values)));
    const everyOff = runs.length > 0 && runs.every((run) => state.off.has(run.id));
    const all = el("input", { type: "checkbox", "aria-label": "Show all of these runs in the plots", checked: !everyOff, change: () => switchAll(runs, all.checked) });
    head.replaceChildren(
      el(
        "tr",
        {},
        el("th", { scope: "col", class: "switch" }, all),
        headCell("number", "run", "the order in which the runs were given", "name"),
        ...shownColumns.map((each) => headCell(each.key, each.label, each.title, each.numeric ? "number" : "")),
        headCell("status", "status", "how the run ended"),
      ),
    );
    const colours = runColouring();
    const limit = expanded ? runs.length : FIRST;
    body.replaceChildren(...runs.slice(0, limit).map((run) => row(run, shownColumns, formats, colours)));
    if (runs.length === 0) body.append(el("tr", {}, el("td", { colspan: shownColumns.length + 3, class: "empty" }, "No run matches the filters.")));
    more.hidden = runs.length <= limit;
    more.textContent = `Show all ${runs.length} runs`;
    const off = runs.filter((run) => state.off.has(run.id)).length;
    tally.replaceChildren(
      `${runs.length === RUNS.length ? RUNS.length : `${runs.length} of ${RUNS.length}`} ${RUNS.length === 1 ? "run" : "runs"}`,
      off > 0 ? ` · ${off} switched off in the plots` : "",
    );
  }

  function row(run, shownColumns, formats, colours) {
    const toggle = el("input", { type: "checkbox", checked: !state.off.has(run.id), "aria-label": `Show ${run.label} in the plots` });
    toggle.addEventListener("change", () => {
      if (toggle.checked) state.off.delete(run.id);
      else state.off.add(run.id);
      changed("runs");
      body.querySelector(`[data-run="${run.id}"] input`)?.focus();
    });
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = run.curves.size > 0 && !state.off.has(run.id) ? colours.run(run) : "transparent";
    const name = el("button", { type: "button", class: "link", click: () => openRun(run) }, run.label);
    const cells = shownColumns.map((each, place) => {
      const value = each.get(run);
      const isBest = BESTS.has(run) && PRIMARY && each.key === `metric:${PRIMARY.validation}`;
      const text = value === null ? "" : formats[place](value);
      const mark = isBest ? el("span", { class: "best", title: "the best by validation" }, "best") : null;
      return el("td", { class: each.numeric ? "number" : "text", title: text.length > 24 ? text : null }, mark, text);
    });
    const reason = run.reason ? el("div", { class: "reason" }, run.reason) : null;
    const node = el(
      "tr",
      { "data-run": run.id, class: BESTS.has(run) ? "is-best" : "" },
      el("td", { class: "switch" }, toggle, swatch),
      el("th", { scope: "row", class: "name" }, name),
      cells,
      el("td", { class: "status-cell" }, statusMark(run.status), reason),
    );
    node.addEventListener("click", (event) => {
      const control = event.target.closest("button, input, a");
      if (!control && String(getSelection()) === "") openRun(run);
    });
    return node;
  }

  function switchAll(runs, shownNow) {
    for (const run of runs) {
      if (shownNow) state.off.delete(run.id);
      else state.off.add(run.id);
    }
    changed("runs");
  }

  const search = el("input", {
    type: "search",
    id: "filter",
    placeholder: "Filter: text, or init=assign, rmse<0.9",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": "Filter runs",
    input: () => ((state.words = search.value), changed("runs")),
  });
  const counts = new Map();
  for (const run of RUNS) counts.set(run.status, (counts.get(run.status) ?? 0) + 1);
  const chips = [...counts].map(([status, number]) => {
    const chip = el("button", { type: "button", class: "chip", "data-status": status, "aria-pressed": "true" }, statusMark(status), ` ${number}`);
    chip.addEventListener("click", () => {
      const statuses = new Set(state.statuses ?? counts.keys());
      if (statuses.has(status)) statuses.delete(status);
      else statuses.add(status);
      state.statuses = statuses.size === counts.size ? null : statuses;
      chip.setAttribute("aria-pressed", String(statuses.has(status)));
      changed("runs");
    });
    return chip;
  });
  const only = el("button", { type: "button", class: "chip", hidden: true, id: "only", click: () => ((state.only = null), changed("runs")) });
  on("runs", () => {
    only.hidden = state.only === null;
    only.textContent = `selection of ${state.only?.size ?? 0} runs ✕`;
  });
  const extra = DATA.metrics.length > 2 ? checkbox("all metrics", false, (value) => ((allMetrics = value), draw())) : null;
  document
    .getElementById("runs")
    .append(el("div", { class: "controls" }, RUNS.length > 1 ? search : null, el("div", { class: "chips", role: "group", "aria-label": "Statuses" }, counts.size > 1 ? chips : [], only), colourField(), extra), tally, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of runs" }, table), more);
  addEventListener("beforeprint", () => ((expanded = true), draw()));
  on("runs", draw);
  on("colour", draw);
  on("theme", draw);
  NARROW.addEventListener("change", draw);
  draw();
}

/** Whether more of a metric is better: as the primary one if it is that, else by the names that grow. */
function isBetterHigh(key) {
  return DATA.higher.includes(key.slice("metric:".length).split(" ").pop());
}

function colourField() {
  if (COLOURINGS.length < 2) return null;
  const options = COLOURINGS.map((each) => [each.key, each.label]);
  return select("colour by", options, state.colour, (value) => ((state.colour = value), changed("colour")));
}

/* What vectors are worth by tests: similarity, analogies, categories; each run or, of several seeds, their mean and range. */

const TESTS = [
  ["similarity", "similarity", "Spearman correlation with human scores", "Spearman", "Pearson", "pairs"],
  ["analogies", "analogies", "right answers by 3CosAdd", "3CosAdd", "3CosMul", "questions"],
  ["categories", "categories", "purity of clusters", "purity", "by chance", "words"],
];
const MOST_SETTINGS = 12;

function setUpVectors() {
  const section = document.getElementById("vectors");
  const tables = [...new Set(RUNS.flatMap((run) => run.vectors.map(([, table]) => table)))];
  if (tables.length === 0) return void section.remove();
  const chosen = { table: tables[0] };
  const charts = [];
  const note = el("p", { class: "muted small" });
  const figures = el("div");
  const keys = el("div");
  const halves = el("div", { class: "halves" });
  const draw = () => {
    const found = TESTS.flatMap(([kind, , , ...names]) => settingsOf(kind, chosen.table).flatMap(({ label, marks }) => marks.map((mark) => rowOf(mark, label, names))));
    figures.replaceChildren(el("details", {}, el("summary", {}, "All figures"), grid([["test", "text"], ["setting", "text"], ["covered", "number"], ["figure", "text"], ["value", "number"], ["from", "number"], ["to", "number"], ["also", "text"]], found)));
    note.textContent = noteOf(TESTS.flatMap(([kind]) => settingsOf(kind, chosen.table)));
  };
  const choose = (value) => {
    chosen.table = value;
    charts.forEach((chart) => chart.draw());
    draw();
  };
  section.append(tables.length > 1 ? el("div", { class: "controls" }, select("table", tables.map((name) => [name, name]), chosen.table, choose)) : "", keys, halves, note, figures);
  for (const [kind, title, label] of TESTS) {
    if (!RUNS.some((run) => run.vectors.some(([each]) => each === kind))) continue;
    const cell = el("div", { class: "cell" }, el("h3", {}, title));
    halves.append(cell);
    charts.push(makeChart(cell, `${title}: ${label}`, () => testsOption(kind, label, chosen.table), { height: () => testsHeight(kind, chosen.table) }));
  }
  const redrawKeys = () => keys.replaceChildren(legend(runColouring()));
  ["runs", "colour", "theme"].forEach((kind) => on(kind, redrawKeys));
  on("runs", draw);
  redrawKeys();
  draw();
}

/** The settings whose runs have tests of a kind, each with a mark per test: mean, ends, and the figures of its runs. */
function settingsOf(kind, table) {
  const has = (run) => run.vectors.some(([each, name]) => each === kind && name === table);
  return [...byGroup(plotted().filter(has)).values()].slice(0, MOST_SETTINGS).map((runs) => {
    const found = new Map();
    for (const run of runs) for (const [each, name, test, numbers] of run.vectors) if (each === kind && name === table && numbers.value !== null) found.set(test, [...(found.get(test) ?? []), numbers]);
    const marks = [...found].map(([test, each]) => ({ test, seeds: each.length, ...markOf(each), covered: each[0].covered, of: each[0].of, other: meanOf(each.map((one) => one.other)) }));
    return { runs, label: DATA.groups[runs[0].group] || runs[0].label, marks };
  });
}

function meanOf(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

function markOf(each) {
  const values = each.map((one) => one.value);
  if (each.length === 1) return { value: values[0], low: each[0].low, high: each[0].high };
  return { value: meanOf(values), low: Math.min(...values), high: Math.max(...values) };
}

function noteOf(settings) {
  const several = settings.some(({ marks }) => marks.some(({ seeds }) => seeds > 1));
  const single = settings.some(({ marks }) => marks.some(({ seeds }) => seeds === 1));
  return [
    single ? "Lines of a single run are 95% intervals; for categories, they are the range of ten clusterings." : "",
    several ? "With several seeds, points are means and lines are ranges." : "",
    "Compare results only if they cover the same words.",
  ].filter(Boolean).join(" ");
}

function rowOf(mark, label, [name, other, many]) {
  const text = (value) => (value === null || value === undefined ? "" : value.toFixed(4));
  return [mark.test, label, `${count(mark.covered)} of ${count(mark.of)} ${many}`, name, text(mark.value), text(mark.low), text(mark.high), mark.other === null ? "" : `${other} ${text(mark.other)}`];
}

function testsHeight(kind, table) {
  const settings = settingsOf(kind, table);
  const tests = new Set(settings.flatMap(({ marks }) => marks.map(({ test }) => test)));
  return 62 + tests.size * (20 + 11 * settings.length);
}

function testsOption(kind, label, table) {
  const settings = settingsOf(kind, table);
  const tests = [...new Set(settings.flatMap(({ marks }) => marks.map(({ test }) => test)))];
  if (tests.length === 0) return "No run in the plots has these figures for this table.";
  const colours = runColouring();
  const [name, other, many] = TESTS.find(([each]) => each === kind).slice(3);
  const series = settings.map(({ runs, label: setting, marks }, place) => ({
    type: "custom",
    name: setting,
    z: runs.includes(BEST) ? 5 : 3,
    encode: { x: [0, 1, 2], y: 3 },
    data: marks.map((mark) => ({ value: [mark.value, mark.low ?? mark.value, mark.high ?? mark.value, tests.indexOf(mark.test)], mark, setting })),
    renderItem: (_, api) => {
      const [x, middle] = api.coord([api.value(0), api.value(3)]);
      const y = middle + 11 * (place - (settings.length - 1) / 2);
      const colour = colours.run(runs[0]);
      const ends = [1, 2].map((end) => api.coord([api.value(end), api.value(3)])[0]);
      const bar = { type: "line", shape: { x1: ends[0], y1: y, x2: ends[1], y2: y }, style: { stroke: colour, lineWidth: 2, opacity: 0.6 } };
      return { type: "group", children: [bar, { type: "circle", shape: { cx: x, cy: y, r: 4 }, style: { fill: colour } }] };
    },
  }));
  return {
    grid: { left: 14 + widest(tests, 170), right: 24, top: 6, bottom: 44 },
    xAxis: { type: "value", ...axis(label), scale: false },
    yAxis: { type: "category", inverse: true, data: tests, ...axis(""), splitLine: { show: false }, axisLabel: { color: themed("text"), fontSize: 12, width: 172, overflow: "truncate" } },
    tooltip: tooltip(({ data: { mark, setting } }) => {
      const interval = mark.low === null || mark.low === undefined ? [] : [[mark.seeds > 1 ? `range of ${mark.seeds} seeds` : kind === "categories" ? "ten clusterings" : "95% interval", `${mark.low.toFixed(4)} to ${mark.high.toFixed(4)}`]];
      const also = mark.other === null ? [] : [[other, mark.other.toFixed(4)]];
      return tipOf(mark.test, [[name, mark.value.toFixed(4)], ...interval, ...also, ["covered", `${count(mark.covered)} of ${count(mark.of)} ${many}`]], settings.length > 1 ? setting : null);
    }),
    series,
  };
}

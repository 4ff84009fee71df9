/* What the initialization cost, by init method; and what became of the rows of a table: frozen, moved, never moved. */

function setUpCosts() {
  const section = document.getElementById("costs");
  const known = RUNS.filter((run) => run.init && run.init.seconds !== null);
  if (methodsOf(known).size < 2) return void section.remove();
  const table = el("div");
  const halves = el("div", { class: "halves" });
  section.append(halves, table);
  const cells = [["seconds", "seconds until the tables were filled", (run) => run.init.seconds], ["peak memory added, MB", "memory that a run added until the end of its first step", (run) => (run.init.peak === null ? null : run.init.peak / 1e6)]];
  for (const [title, label, get] of cells) {
    if (known.every((run) => get(run) === null)) continue;
    const cell = el("div", { class: "cell" }, el("h3", { title: label }, title));
    halves.append(cell);
    makeChart(cell, `Cost of initialization by method: ${label}`, () => costOption(title, get), { height: 90 + 44 * methodsOf(known).size });
  }
  const draw = () => {
    const rows = [...methodsOf(plotted())].map(([method, runs]) => [
      method, count(runs.length), spread(runs.map((run) => run.init.seconds), (value) => value.toPrecision(3)), spread(runs.map((run) => run.init.peak), bytes), spread(runs.map((run) => run.init.graph), bytes), spread(runs.map((run) => run.init.graphAll), bytes),
    ]);
    table.replaceChildren(grid([["method", "text"], ["runs", "number"], ["seconds", "number"], ["peak memory added", "number"], ["GraphDef of the tables", "number"], ["GraphDef in total", "number"]], rows), el("p", { class: "muted small" }, "Median, with the smallest and the largest value."));
  };
  on("runs", draw);
  draw();
}

function methodsOf(runs) {
  const methods = new Map();
  for (const run of runs) if (run.init) methods.set(run.init.method, [...(methods.get(run.init.method) ?? []), run]);
  return methods;
}

function spread(values, write) {
  const numbers = values.filter((value) => value !== null && value !== undefined);
  if (numbers.length === 0) return "";
  const [low, middle, high] = [Math.min(...numbers), median(numbers), Math.max(...numbers)];
  return low === high ? write(middle) : `${write(middle)}  (${write(low)} to ${write(high)})`;
}

function costOption(title, get) {
  const methods = [...methodsOf(plotted())].reverse();
  if (methods.length === 0) return "No run in the plots has these figures.";
  const colours = runColouring();
  const points = methods.flatMap(([method, runs]) => runs.filter((run) => get(run) !== null).map((run) => ({ value: [get(run), method], id: run.id, itemStyle: { color: colours.run(run) } })));
  const bars = methods.map(([, runs]) => median(runs.map(get).filter((value) => value !== null)));
  return {
    grid: { left: 12 + widest(methods.map(([method]) => method), 150), right: 24, top: 8, bottom: 30 },
    xAxis: { type: "value", ...axis(""), scale: false, min: 0 },
    yAxis: { type: "category", data: methods.map(([method]) => method), ...axis(""), splitLine: { show: false }, axisLabel: { color: themed("text"), fontSize: 12, width: 150, overflow: "truncate" } },
    tooltip: tooltip(({ data, value, name }) => (runOf(data) ? tipOf(runOf(data).label, [[title, plain(Number(get(runOf(data)).toPrecision(4)))]], described(runOf(data))) : tipOf(name, [[`median ${title}`, plain(Number(value.toPrecision(4)))]], null))),
    series: [
      { type: "bar", data: bars, barWidth: 18, itemStyle: { color: themed("bar") }, z: 1 },
      { type: "scatter", data: points, symbolSize: 6, itemStyle: { opacity: 0.8 }, z: 3 },
    ],
  };
}

/* ------------------------------------------------------------------ rows */

const FATES = [
  ["frozen", "frozen", (table) => table.frozen],
  ["moved", "moved", (table) => table.moved],
  ["noGradient", "looked up, gradient 0", (table) => table.noGradient],
  ["idle", "learning rate 0", (table) => table.idle],
  ["neverMet", "never looked up", (table) => table.neverMet],
];
const MOST_BARS = 24;

function setUpRows() {
  const section = document.getElementById("rows");
  const sizes = new Map();
  for (const run of RUNS) for (const table of run.tables) if (table.moved !== null) sizes.set(table.name, Math.max(sizes.get(table.name) ?? 0, table.rows));
  if (sizes.size === 0) return void section.remove();
  const names = [...sizes.keys()];
  const chosen = { table: names[0] };
  const holder = el("div", { class: "cell" });
  const note = el("p", { class: "muted small" });
  const controls = names.length > 1 ? el("div", { class: "controls" }, select("table", names.map((name) => [name, name]), chosen.table, (value) => ((chosen.table = value), chart.draw()))) : null;
  if (controls) section.append(controls);
  section.append(holder, note);
  const chart = makeChart(holder, "Rows of a table: frozen, moved and never moved", (_, box) => rowsOption(box, chosen.table, note), { height: (width) => rowsHeight(width, chosen.table) });
}

function barsOf(name) {
  const found = [];
  for (const members of byGroup(plotted().filter((run) => run.tables.some((table) => table.name === name && table.moved !== null))).values()) {
    found.push({ label: [members[0].label, members.length > 1 ? `×${members.length}` : null, DATA.groups[members[0].group]].filter(Boolean).join("  "), short: members.length > 1 ? `${members[0].label} ×${members.length}` : members[0].label, runs: members, tables: members.map((run) => run.tables.find((table) => table.name === name)) });
  }
  return found;
}

function rowsHeight(width, name) {
  return 96 + 30 * Math.max(1, Math.min(MOST_BARS, barsOf(name).length)) + (width < 640 ? 30 : 0);
}

function rowsOption(box, name, note) {
  const all = barsOf(name);
  const bars = all.slice(0, MOST_BARS).reverse();
  if (bars.length === 0) return "No run in the plots has this table.";
  const narrow = box.clientWidth < 640;
  const means = all.some((bar) => bar.runs.length > 1) ? " Bars of several runs are means over seeds." : "";
  note.textContent = `${all.length > MOST_BARS ? `The first ${MOST_BARS} of ${all.length} settings, in` : "In"} the order of the table of runs.${means}`;
  const colours = palette();
  const fills = { frozen: colours[0], moved: colours[2], noGradient: colours[4], idle: colours[3], neverMet: themed("faint") };
  const mean = (bar, get) => bar.tables.reduce((sum, table) => sum + (get(table) ?? 0), 0) / bar.tables.length;
  const series = FATES.filter(([, , get]) => bars.some((bar) => mean(bar, get) > 0)).map(([key, label, get]) => ({ type: "bar", stack: "rows", name: label, barWidth: 16, itemStyle: { color: fills[key], borderColor: themed("ground"), borderWidth: 0.5 }, data: bars.map((bar) => mean(bar, get)) }));
  const labels = bars.map((bar) => (narrow ? bar.short : bar.label));
  const room = widest(labels, narrow ? 110 : 420);
  return {
    grid: { left: 12 + room, right: 30, top: narrow ? 58 : 34, bottom: 42 },
    legend: { top: 0, left: 0, icon: "roundRect", itemWidth: 12, itemHeight: 12, textStyle: { color: themed("text"), fontSize: 12 } },
    xAxis: { type: "value", ...axis("rows"), scale: false },
    yAxis: { type: "category", data: labels, ...axis(""), splitLine: { show: false }, axisLabel: { color: themed("text"), fontSize: 12, hideOverlap: false, width: room + 2, overflow: "truncate" } },
    tooltip: tooltip(({ dataIndex }) => {
      const bar = bars[dataIndex];
      const rows = bar.tables[0].rows;
      return tipOf(bar.label || bar.runs[0].label, FATES.filter(([, , get]) => mean(bar, get) > 0).map(([, label, get]) => [label, `${count(mean(bar, get))} (${((100 * mean(bar, get)) / rows).toPrecision(3)}%)`]), `${count(rows)} rows of ${name}`);
    }),
    series,
  };
}

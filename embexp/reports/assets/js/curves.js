/* Learning curves: the training loss and a validation metric over the steps, each run or mean and band over seeds. */

const SMOOTHING = [["0", "none"], ["0.6", "light"], ["0.9", "strong"]];

function setUpCurves() {
  const section = document.getElementById("curves");
  const names = [...new Set(RUNS.flatMap((run) => [...run.curves.keys()]))].filter((name) => name !== "train loss");
  const hasLoss = RUNS.some((run) => run.curves.has("train loss"));
  if (names.length === 0 && !hasLoss) return void section.remove();
  const repeated = DATA.groups.length < RUNS.filter((run) => run.curves.size > 0).length && seedsVary();
  const chosen = { metric: names.includes(PRIMARY?.validation) ? PRIMARY.validation : names[0], seeds: repeated ? "range" : "each", log: false, smoothing: "0" };
  chosen.log = isSpread(chosen.metric);
  const redraw = () => charts.forEach((chart) => chart.draw());
  const keys = el("div");
  const controls = el(
    "div",
    { class: "controls" },
    names.length > 1 ? select("metric", names.map((name) => [name, name]), chosen.metric, (value) => ((chosen.metric = value), retitle(), redraw())) : null,
    repeated
      ? segmented("Seeds", [["each", "each run"], ["range", "mean and range"], ["std", "mean ± std"]], chosen.seeds, (value) => ((chosen.seeds = value), redraw()))
      : null,
    select("smoothing of the loss", SMOOTHING, chosen.smoothing, (value) => ((chosen.smoothing = value), redraw())),
    checkbox("log y", chosen.log, (value) => ((chosen.log = value), redraw())),
  );
  const halves = el("div", { class: "halves" });
  section.append(controls, keys, halves);
  const charts = [];
  const titles = [];
  for (const which of [hasLoss && "loss", names.length > 0 && "metric"].filter(Boolean)) {
    const title = el("h3");
    const cell = el("div", { class: "cell" }, title);
    halves.append(cell);
    titles.push([title, which]);
    const name = () => (which === "loss" ? "train loss" : chosen.metric);
    const smoothing = () => (which === "loss" ? Number(chosen.smoothing) : 0);
    const chart = makeChart(cell, `Learning curves: ${name()}`, (drawn, box) => curvesOption(drawn, box, name(), chosen, smoothing()), { height: 340 });
    charts.push(chart);
  }
  const retitle = () => titles.forEach(([title, which]) => (title.textContent = which === "loss" ? "training loss" : chosen.metric));
  const redrawKeys = () => keys.replaceChildren(legend(runColouring()));
  ["runs", "colour", "theme"].forEach((kind) => on(kind, redrawKeys));
  retitle();
  redrawKeys();
}

/** Whether the last values of a curve are so far apart that a linear axis would show one run and hide the others. */
function isSpread(name) {
  const last = RUNS.map((run) => run.curves.get(name)?.values.findLast(Number.isFinite)).filter(Number.isFinite).sort((a, b) => a - b);
  return last.length > 1 && isLog({ numeric: true, values: last });
}

function seedsVary() {
  const sizes = new Map();
  for (const run of RUNS) if (run.curves.size > 0) sizes.set(run.group, (sizes.get(run.group) ?? 0) + 1);
  return [...sizes.values()].some((size) => size > 1);
}

function curvesOption(chart, box, name, chosen, smoothing) {
  const runs = plotted().filter((run) => run.curves.has(name));
  if (runs.length === 0) return "No run in the plots has this curve.";
  const colours = runColouring();
  const grouped = chosen.seeds === "each" ? runs.map((run) => [run]) : [...byGroup(runs).values()];
  const lines = grouped.map((members) => lineOf(members, name, chosen, smoothing, colours));
  const many = lines.length > 24;
  const series = lines.flatMap((line) => {
    const width = line.best ? 2.6 : many ? 1 : 1.8;
    const opacity = line.best || !many ? 1 : 0.62;
    const drawn = { type: "line", name: line.label, data: line.points, showSymbol: line.points.length === 1, symbolSize: 6, connectNulls: false, silent: true, z: line.best ? 5 : 3, lineStyle: { color: line.colour, width, opacity }, itemStyle: { color: line.colour } };
    return line.band ? [bandSeries(line), drawn] : [drawn];
  });
  nearestTips(chart, box, lines, name);
  return {
    grid: { left: 58, right: 16, top: 26, bottom: 44 },
    xAxis: { type: "value", ...axis("step"), min: 0, scale: false },
    yAxis: { type: chosen.log ? "log" : "value", ...axis(""), ...extentOf(lines, chosen.log) },
    toolbox: { right: 8, top: -6, itemSize: 13, iconStyle: { borderColor: themed("muted") }, feature: { dataZoom: { filterMode: "none", title: { zoom: "zoom into a box", back: "zoom back" } }, restore: { title: "whole" }, saveAsImage: { title: "save as PNG", backgroundColor: themed("ground") } } },
    series,
  };
}

function byGroup(runs) {
  const groups = new Map();
  for (const run of runs) groups.set(run.group, [...(groups.get(run.group) ?? []), run]);
  return groups;
}

/** The line of a run; of several that differ in the seed only, their mean at each step that all have, and its band. */
function lineOf(members, name, chosen, smoothing, colours) {
  const curves = members.map((run) => ({ ...run.curves.get(name), values: smoothed(run.curves.get(name).values, smoothing) }));
  const colour = colours.run(members[0]);
  const best = members.includes(BEST);
  if (members.length === 1) {
    const { steps, values } = curves[0];
    return { runs: members, colour, best, label: members[0].label, points: steps.map((step, place) => [step, values[place]]) };
  }
  const counts = new Map();
  curves.forEach(({ steps, values }) => steps.forEach((step, place) => Number.isFinite(values[place]) && counts.set(step, [...(counts.get(step) ?? []), values[place]])));
  // Runs that stopped early end sooner: where fewer than all go on, the mean would jump.
  const steps = [...counts.keys()].filter((step) => counts.get(step).length === members.length).sort((a, b) => a - b);
  const means = steps.map((step) => counts.get(step).reduce((sum, value) => sum + value, 0) / members.length);
  const band = steps.map((step, place) => {
    const values = counts.get(step);
    if (chosen.seeds === "range") return [step, Math.min(...values), Math.max(...values)];
    const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - means[place]) ** 2, 0) / (values.length - 1));
    return [step, means[place] - deviation, means[place] + deviation];
  });
  return { runs: members, colour, best, label: `${DATA.groups[members[0].group]} (${members.length} seeds)`, points: steps.map((step, place) => [step, means[place]]), band };
}

/** Exponential smoothing without the bias of its beginning. */
function smoothed(values, weight) {
  if (weight === 0) return values;
  let mean = 0;
  let steps = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    mean = weight * mean + (1 - weight) * value;
    steps += 1;
    return mean / (1 - weight ** steps);
  });
}

function bandSeries(line) {
  return {
    type: "custom",
    name: line.label,
    silent: true,
    z: 2,
    data: line.points.slice(0, 1), // one item that the axes show: ECharts draws no other
    clip: true,
    renderItem: (params, api) => {
      const upper = line.band.map(([step, , high]) => api.coord([step, high]));
      const lower = line.band.map(([step, low]) => api.coord([step, low])).reverse();
      const points = [...upper, ...lower].filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
      return { type: "polygon", shape: { points }, style: { fill: line.colour, opacity: 0.18 } };
    },
  };
}

/** The ends of the y axis: all values, but outliers of the first steps do not flatten the rest of the curves. */
function extentOf(lines, log) {
  const values = lines.flatMap((line) => [...line.points.map(([, value]) => value), ...(line.band ?? []).flatMap(([, low, high]) => [low, high])]).filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (values.length === 0) return {};
  values.sort((a, b) => a - b);
  const [low, high] = [values[0], values[values.length - 1]];
  const usual = values[Math.floor(0.98 * (values.length - 1))];
  const top = !log && high - usual > 1.5 * (usual - low) ? usual : high;
  // The ends are no round numbers, so they get no labels where there are others.
  const labels = { ...axis("").axisLabel, showMinLabel: log && high / low < 100, showMaxLabel: log && high / low < 100 };
  if (log) return { min: low, max: high, axisLabel: labels };
  const room = 0.04 * (top - low || Math.abs(top) || 1);
  return { min: low - room, max: top + room, axisLabel: labels };
}

/** Shows the values of the line nearest to the pointer, and opens its run at a click. */
function nearestTips(chart, box, lines, name) {
  const tip = box.tip ?? el("div", { class: "floating-tip", hidden: true, "aria-hidden": "true" });
  box.tip = tip;
  box.append(tip);
  const marker = { el: null };
  const nearest = (event) => {
    const at = [event.offsetX, event.offsetY];
    if (!chart.containPixel("grid", at)) return null;
    const [step] = chart.convertFromPixel("grid", at);
    let found = null;
    for (const line of lines) {
      const place = nearestStep(line.points, step);
      if (place < 0 || !Number.isFinite(line.points[place][1])) continue;
      const [x, y] = chart.convertToPixel("grid", line.points[place]);
      const distance = Math.hypot((x - at[0]) * 0.5, y - at[1]);
      if (!found || distance < found.distance) found = { line, point: line.points[place], x, y, distance, place };
    }
    return found && found.distance < 60 ? found : null;
  };
  const hide = () => {
    tip.hidden = true;
    if (marker.el) chart.getZr().remove(marker.el);
    marker.el = null;
  };
  const zr = chart.getZr();
  zr.off("mousemove");
  zr.off("globalout");
  zr.off("click");
  zr.on("mousemove", (event) => {
    const found = nearest(event);
    hide();
    if (!found) return;
    const { line, point, x, y, place } = found;
    marker.el = new echarts.graphic.Circle({ shape: { cx: x, cy: y, r: 5 }, style: { fill: line.colour, stroke: themed("ground"), lineWidth: 2 }, silent: true, z: 50 });
    zr.add(marker.el);
    const band = line.band ? [["range", `${plain(line.band[place][1])} to ${plain(line.band[place][2])}`]] : [];
    tip.replaceChildren(tipOf(line.label, [["step", count(point[0])], [name, plain(point[1])], ...band], line.band ? null : described(line.runs[0])));
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(x + 14, box.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, y > box.clientHeight / 2 ? y - tip.offsetHeight - 10 : y + 14)}px`;
  });
  zr.on("globalout", hide);
  zr.on("click", (event) => {
    const found = nearest(event);
    if (found) openRun(found.line.runs.includes(BEST) ? BEST : found.line.runs[0]);
  });
}

function nearestStep(points, step) {
  let [low, high] = [0, points.length - 1];
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < step) low = middle;
    else high = middle;
  }
  return step - points[low][0] < points[high][0] - step ? low : high;
}

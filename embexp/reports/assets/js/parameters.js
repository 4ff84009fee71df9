/* Metric against a parameter, and parallel coordinates. */

function setUpParameters() {
  const section = document.getElementById("parameters");
  const numeric = QUANTITIES.filter((each) => each.numeric);
  const varied = QUANTITIES.filter((each) => each.values.length > 1);
  if (numeric.length === 0 || RANKED.length < 2 || varied.length === 0) return void section.remove();
  const primary = PRIMARY && `metric:${PRIMARY.validation}`;
  const settings = varied.filter((each) => each.key.startsWith("setting:"));
  const first = settings.find((each) => each.label !== "seed") ?? settings[0] ?? varied[0];
  const chosen = { x: first.key, y: numeric.some((each) => each.key === primary) ? primary : numeric[0].key, logX: isLog(first), logY: false };
  chosen.logY = isLog(quantityOf(chosen.y));
  const logX = checkbox("log x", chosen.logX, (value) => ((chosen.logX = value), chart.draw()));
  const logY = checkbox("log y", chosen.logY, (value) => ((chosen.logY = value), chart.draw()));
  const controls = el(
    "div",
    { class: "controls" },
    select("y", numeric.map((each) => [each.key, each.label]), chosen.y, (value) => {
      chosen.y = value;
      chosen.logY = isLog(quantityOf(value));
      logY.firstChild.checked = chosen.logY;
      chart.draw();
    }),
    select("against x", varied.map((each) => [each.key, each.label]), chosen.x, (value) => {
      chosen.x = value;
      chosen.logX = isLog(quantityOf(value));
      logX.firstChild.checked = chosen.logX;
      chart.draw();
    }),
    logX,
    logY,
  );
  const holder = el("div", { class: "cell" });
  section.append(controls, holder);
  const chart = makeChart(holder, "Metric against a parameter", (drawn, box) => scatterOption(drawn, box, chosen), { height: 380 });
}

function scatterOption(chart, box, chosen) {
  const [x, y] = [quantityOf(chosen.x), quantityOf(chosen.y)];
  const points = plotted().filter((run) => x.get(run) !== null && y.get(run) !== null);
  if (points.length === 0) return "No run in the plots has both values.";
  const colours = runColouring();
  const category = !x.numeric;
  const names = category ? x.values.map((value) => shown(value)) : null;
  const symbols = { data: points.map((run) => ({ value: [category ? shown(x.get(run)) : x.get(run), y.get(run)], id: run.id, itemStyle: { color: colours.run(run) } })) };
  const tight = category && (box.clientWidth - 90) / names.length < widest(names, 200) + 10;
  const logs = [chosen.logX && !category && x.values[0] > 0, chosen.logY && y.values[0] > 0];
  const series = [{ type: "scatter", symbolSize: (_, params) => (runOf(params.data) === BEST ? 14 : 9), itemStyle: { opacity: 0.85, borderColor: themed("ground"), borderWidth: 1 }, ...symbols }];
  if (category) series.push(meansOf(points, x, y));
  chart.off("click");
  chart.on("click", (event) => runOf(event.data) && openRun(runOf(event.data)));
  return {
    grid: { left: 80, right: 20, top: 16, bottom: tight ? 90 : 50 },
    xAxis: category
      ? {
          type: "category", data: names, ...axis(x.label, { nameGap: tight ? 70 : 30 }), splitLine: { show: false }, jitter: 26, jitterOverlap: false,
          axisLabel: { ...axis("").axisLabel, rotate: tight ? 30 : 0, hideOverlap: names.length > 24 },
        }
      : { type: logs[0] ? "log" : "value", ...axis(x.label) },
    yAxis: { type: logs[1] ? "log" : "value", ...axis(y.label, { nameGap: 62 }) },
    tooltip: tooltip(({ data, value }) =>
      runOf(data)
        ? tipOf(runOf(data).label, [[x.label, shown(x.get(runOf(data)))], [y.label, plain(y.get(runOf(data)))]], described(runOf(data)))
        : tipOf("mean", [[x.label, value[0]], [y.label, plain(value[1])]], null),
    ),
    series,
  };
}

/** A short line at the mean of each category; jitter would move a symbol. */
function meansOf(points, x, y) {
  const groups = new Map();
  for (const run of points) groups.set(shown(x.get(run)), [...(groups.get(shown(x.get(run))) ?? []), y.get(run)]);
  const data = [...groups].filter(([, values]) => values.length > 1).map(([name, values]) => [name, values.reduce((sum, value) => sum + value, 0) / values.length]);
  const renderItem = (_, api) => {
    const [middle, height] = api.coord([api.value(0), api.value(1)]);
    return { type: "rect", shape: { x: middle - 23, y: height - 1, width: 46, height: 2 }, style: { fill: themed("muted") } };
  };
  return { type: "custom", data, renderItem, encode: { x: 0, y: 1 }, z: 1 };
}

/* ------------------------------------------------------------------ parallel coordinates */

const MOST_AXES = 9;

function setUpParallel() {
  const section = document.getElementById("parallel");
  const settings = QUANTITIES.filter((each) => each.key.startsWith("setting:") && each.key !== "setting:seed" && each.values.length > 1).slice(0, MOST_AXES - 1);
  const goals = QUANTITIES.filter((each) => PRIMARY && each.key === `metric:${PRIMARY.validation}`);
  if (settings.length < 2 || goals.length === 0 || RANKED.length < 3) return void section.remove();
  const axes = [...settings, ...goals];
  const message = el("p", { class: "tally", role: "status" }, "Drag along an axis to select runs.");
  const keep = el("button", { type: "button", class: "quiet", hidden: true }, "show only these runs");
  const holder = el("div", { class: "cell" });
  section.append(el("div", { class: "controls" }, message, keep), holder);
  let selected = [];
  keep.addEventListener("click", () => {
    state.only = new Set(selected.map((run) => run.id));
    changed("runs");
  });
  makeChart(
    holder,
    "Parallel coordinates of settings and metric",
    (chart, box) => {
      const runs = plotted().filter((run) => goal(run) !== null);
      if (runs.length === 0) return "No run in the plots has the metric.";
      const upright = box.clientWidth < 640;
      keep.hidden = true;
      message.textContent = "Drag along an axis to select runs.";
      chart.off("axisareaselected");
      chart.on("axisareaselected", () => {
        const places = chart.getModel().getSeries()[0].getRawIndicesByActiveState("active");
        selected = places.map((place) => runs[place]);
        const ranked = RANKED.filter((run) => selected.includes(run));
        const best = new Set(ranked.map((run) => run.data)).size === 1 ? ranked[0] : null; // of several data, none is
        const some = selected.length > 0 && selected.length < runs.length;
        keep.hidden = !some;
        message.textContent = some ? `${selected.length} of ${runs.length} runs selected; the best is ${best?.label ?? "none"}.` : "Drag along an axis to select runs.";
      });
      return parallelOption(runs, axes, upright);
    },
    { height: (width) => (width < 640 ? 140 + 62 * axes.length : 360) },
  );
}

function parallelOption(runs, axes, upright) {
  const colours = runColouring();
  const coordinates = axes.map((by, dim) => {
    const text = { name: cut(by.label, upright ? 30 : 22), nameTextStyle: { color: themed("text"), fontSize: 12, textBorderColor: themed("ground"), textBorderWidth: 4 } };
    const style = { axisLine: { lineStyle: { color: themed("line") } }, axisTick: { show: false }, axisLabel: { color: themed("muted"), fontSize: 11, textBorderColor: themed("ground"), textBorderWidth: 3, hideOverlap: true, formatter: (value) => (typeof value === "number" ? tick(value) : cut(String(value), 14)) }, areaSelectStyle: { width: 18, color: themed("accent"), opacity: 0.25, borderColor: themed("accent") } };
    const inverse = dim === axes.length - 1 && !upright && PRIMARY.direction === "lower";
    if (!by.numeric || by.values.length <= 4) return { dim, ...text, ...style, type: "category", data: [...by.values.map((value) => shown(value)), ...(runs.some((run) => by.get(run) === null) ? ["none"] : [])] };
    return { dim, ...text, ...style, type: isLog(by) ? "log" : "value", scale: true, inverse, nameLocation: inverse ? "start" : upright ? "middle" : "end", min: by.values[0], max: by.values[by.values.length - 1] };
  });
  const categories = coordinates.map((each) => each.type === "category");
  const data = runs.map((run) => ({
    value: axes.map((by, dim) => (categories[dim] ? shown(by.get(run)) : by.get(run) ?? "-")),
    lineStyle: { color: colours.run(run), width: run === BEST ? 3 : 1.4, opacity: run === BEST ? 1 : runs.length > 60 ? 0.45 : 0.7 },
  }));
  return {
    parallelAxis: coordinates,
    parallel: upright ? { layout: "vertical", left: 24, right: 24, top: 40, bottom: 24, parallelAxisDefault: { nameLocation: "middle", nameGap: -22, nameMoveOverlap: false } } : { left: 50, right: 70, top: 40, bottom: 26, parallelAxisDefault: { nameLocation: "end", nameGap: 14 } },
    series: [{ type: "parallel", smooth: 0.06, inactiveOpacity: 0.04, activeOpacity: 0.9, data }],
  };
}

/* Where a search went: the best so far over trials and time, what its parameters matter, and its objective against each. */

/** Trials by job, with maps instead of objects: keys are the user's. */
const TRIALS = (DATA.search?.trials ?? []).map((trial) => ({ ...trial, params: new Map(trial.params) }));

function setUpSearch() {
  const section = document.getElementById("history");
  if (!DATA.search || RUNS.every((run) => goal(run) === null)) return void section.remove();
  const history = el("div", { class: "cell" });
  section.append(history);
  setUpHistory(history);
  if (!DATA.search.parameters?.length) return;
  const chosen = { objective: 0 };
  const objectives = DATA.search.metrics.map((name, place) => [String(place), name]);
  const charts = [];
  if (objectives.length > 1) section.append(el("div", { class: "controls spaced" }, select("objective", objectives, "0", (value) => ((chosen.objective = Number(value)), charts.forEach((chart) => chart.draw())))));
  charts.push(...setUpImportance(section, chosen), ...setUpSlices(section, chosen));
}

/* ------------------------------------------------------------------ the best so far */

function setUpHistory(parent) {
  const metrics = QUANTITIES.filter((each) => each.key.startsWith("metric:") && each.numeric);
  let by = metrics.find((each) => DATA.search.metrics.includes(each.label)) ?? quantityOf(`metric:${PRIMARY.validation}`);
  const seconds = new Map(TRIALS.map((trial) => [trial.job, trial.seconds]));
  const axes = [["trial", "trials"]];
  if (TRIALS.some((trial) => trial.seconds !== null)) axes.push(["time", "time"]);
  let over = "trial";
  const unit = timeUnit(Math.max(0, ...seconds.values()));
  const place = (run) => {
    if (over === "trial") return run.number ?? run.id;
    const found = seconds.get(Math.floor((run.number ?? run.id) / (DATA.search.seeds ?? 1)));
    return found === undefined || found === null ? null : found / unit.seconds;
  };
  const controls = el("div", { class: "controls" }, select("metric", metrics.map((each) => [each.key, each.label]), by.key, (value) => ((by = quantityOf(value)), drawn.draw())));
  if (axes.length > 1) controls.append(segmented("over trials or time", axes, over, (value) => ((over = value), drawn.draw())));
  parent.append(el("h3", {}, `Trials of ${DATA.search.by}, and the best so far`), controls);
  const drawn = makeChart(parent, "History of the search: a metric of each trial, and the best so far", (chart) => {
    const trials = RUNS.filter((run) => by.get(run) !== null && place(run) !== null).sort((a, b) => place(a) - place(b) || (a.number ?? a.id) - (b.number ?? b.id));
    const better = (value, than) => (isBetterHigh(by.key) ? value > than : value < than);
    const visible = new Set(plotted());
    const colours = runColouring();
    let best = null;
    const course = trials.map((run) => {
      if (COMPLETED.has(run.status) && (best === null || better(by.get(run), best))) best = by.get(run);
      return [place(run), best];
    });
    const points = trials.filter((run) => visible.has(run)).map((run) => ({ value: [place(run), by.get(run)], id: run.id, itemStyle: { color: COMPLETED.has(run.status) ? colours.run(run) : "transparent", borderColor: COMPLETED.has(run.status) ? themed("ground") : themed("muted"), borderWidth: 1 } }));
    chart.off("click");
    chart.on("click", (event) => runOf(event.data) && openRun(runOf(event.data)));
    return {
      grid: { left: 80, right: 20, top: 16, bottom: 46 },
      xAxis: { type: "value", ...axis(over === "trial" ? "trial" : `${unit.name} in which trials ran`), ...(over === "trial" ? { minInterval: 1 } : { min: 0 }) },
      yAxis: { type: "value", ...axis(by.label, { nameGap: 62 }) },
      tooltip: tooltip(({ data }) => (runOf(data) ? tipOf(runOf(data).label, [[by.label, plain(by.get(runOf(data)))], ["status", runOf(data).status]], described(runOf(data))) : "")),
      series: [
        { type: "line", step: "end", data: course, showSymbol: false, silent: true, lineStyle: { color: themed("accent"), width: 2 }, z: 1 },
        { type: "scatter", symbolSize: (_, params) => (runOf(params.data) === BEST ? 14 : 9), data: points, z: 3 },
      ],
    };
  }, { height: 320 });
}

function timeUnit(seconds) {
  if (seconds >= 7200) return { seconds: 3600, name: "hours" };
  return seconds >= 300 ? { seconds: 60, name: "minutes" } : { seconds: 1, name: "seconds" };
}

/* ------------------------------------------------------------------ importance of parameters */

function setUpImportance(section, chosen) {
  const { importance, without, evaluator, fewest } = DATA.search;
  const cell = el("div", { class: "cell spaced" }, el("h3", {}, "Importance of parameters"));
  section.append(cell);
  if (importance.length === 0) {
    cell.append(el("p", { class: "empty" }, `Importances need at least two parameters that occur in ${fewest} trials with results.`));
    return [];
  }
  const most = Math.max(...importance.map((each) => each.length));
  const chart = makeChart(cell, "Importance of the parameters of the search", () => {
    const found = [...importance[chosen.objective]].sort((a, b) => a[1] - b[1]);
    const names = found.map(([name]) => name);
    return {
      grid: { left: 16 + widest(names, 260), right: 60, top: 8, bottom: 30 },
      xAxis: { type: "value", ...axis(""), scale: false, min: 0, max: 1 },
      yAxis: { type: "category", data: names, ...axis(""), splitLine: { show: false }, axisLabel: { color: themed("text"), fontSize: 12, width: 260, overflow: "truncate" } },
      tooltip: tooltip(({ name, value }) => tipOf(name, [["importance", plain(value)]], null)),
      series: [{ type: "bar", data: found.map(([, value]) => value), barWidth: 18, itemStyle: { color: themed("accent") }, label: { show: true, position: "right", color: themed("text"), formatter: ({ value }) => value.toFixed(2) } }],
    };
  }, { height: 60 + 30 * most });
  const words = `Computed by Optuna's ${evaluator}: how much each parameter distinguishes the best trials from all trials. A parameter with conditions counts only in trials that have it.`;
  cell.append(el("p", { class: "muted small" }, without.length ? `${words} Left out because fewer than ${fewest} trials with results have them: ${without.join(", ")}.` : words));
  return [chart];
}

/* ------------------------------------------------------------------ slices */

function setUpSlices(section, chosen) {
  const cell = el("div", { class: "slices" });
  section.append(el("h3", { class: "spaced" }, "Objective against each parameter"), cell);
  return DATA.search.parameters.map((parameter) => {
    const part = el("div", { class: "cell" });
    cell.append(part);
    return makeChart(part, `Objective against ${parameter.name}`, (chart) => sliceOption(chart, parameter, chosen.objective), { height: 230 });
  });
}

function sliceOption(chart, parameter, objective) {
  const holds = (trial) => parameter.when.every(([key, texts]) => texts.includes(trial.params.get(key)));
  const trials = TRIALS.filter((trial) => trial.params.has(parameter.key) && holds(trial) && typeof trial.values[objective] === "number");
  if (trials.length === 0) return `${parameter.name}: no trial with a result has it.`;
  const category = parameter.choices !== null;
  const seeds = DATA.search.seeds ?? 1;
  const visible = new Set(plotted());
  const colours = runColouring();
  const points = trials.map((trial) => {
    const run = RUNS.find((each) => each.number === trial.job * seeds);
    const text = trial.params.get(parameter.key);
    return { trial, run, value: [category ? text : Number(text), trial.values[objective]] };
  });
  const data = points
    .filter(({ run }) => run === undefined || visible.has(run))
    .map(({ trial, run, value }) => ({ value, id: run?.id, job: trial.job, itemStyle: { color: run ? colours.run(run) : themed("accent") } }));
  chart.off("click");
  chart.on("click", (event) => runOf(event.data) && openRun(runOf(event.data)));
  return {
    grid: { left: 66, right: 12, top: 10, bottom: 46 },
    xAxis: category
      ? { type: "category", data: parameter.choices, ...axis(cut(parameter.name, 48)), splitLine: { show: false } }
      : { type: parameter.log ? "log" : "value", ...axis(cut(parameter.name, 48)) },
    yAxis: { type: "value", ...axis("") },
    tooltip: tooltip(({ data: point, value }) => tipOf(runOf(point)?.label ?? `trial ${point.job}`, [[parameter.key, String(value[0])], [DATA.search.metrics[objective], plain(value[1])]], null)),
    series: [{ type: "scatter", symbolSize: 8, itemStyle: { opacity: 0.85, borderColor: themed("ground"), borderWidth: 1 }, data }],
  };
}

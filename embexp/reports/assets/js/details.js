/* One run in a dialog: settings, metrics, cost, rows, warnings, and the commands that repeat it. */

function openRun(run) {
  const dialog = document.getElementById("run-dialog");
  const close = el("button", { type: "button", class: "quiet close", "aria-label": "Close", click: () => dialog.close() }, "✕");
  const best = BESTS.has(run) ? el("span", { class: "best" }, "best by validation") : null;
  dialog.replaceChildren(
    el("header", {}, el("div", {}, el("h2", { id: "run-title" }, run.label, " ", best), el("p", { class: "muted" }, described(run))), close),
    el("div", { class: "dialog-body" }, runParts(run)),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  close.focus();
}

function setUpDialog() {
  const dialog = document.getElementById("run-dialog");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

function runParts(run) {
  return [
    el("p", { class: "facts" }, statusMark(run.status), ...runFacts(run).map((text) => el("span", {}, text))),
    run.reason ? el("p", { class: "notice" }, run.reason) : null,
    run.warnings.length ? part("Warnings", el("ul", { class: "warnings" }, run.warnings.map((text) => el("li", {}, text)))) : null,
    run.metrics.size ? part("Metrics", metricsTable(run)) : null,
    run.classes ? part(`Classes of the ${run.classes.split} split`, confusionTable(run.classes)) : null,
    run.init ? part("Initialization", initTable(run)) : null,
    run.tables.length ? part("Rows", rowsTable(run)) : null,
    run.commands.length ? part("Commands", el("div", {}, run.commands.map(([purpose, command]) => commandLine(purpose, command)))) : null,
    settingsPart(run),
  ];
}

function part(title, ...content) {
  return el("section", { class: "part" }, el("h3", {}, title), ...content);
}

function runFacts(run) {
  const steps = run.steps === null ? null : `${count(run.steps)} steps`;
  const best = run.bestStep === null || run.bestStep === undefined ? null : `best at step ${count(run.bestStep)}`;
  const speed = run.speed ? `${count(run.speed)} examples/s` : null;
  const seconds = (value, what) => (value === null ? null : `${plain(Number(value.toFixed(1)))} s ${what}`);
  const times = [seconds(run.seconds, "in total"), seconds(run.trainSeconds, "of training")];
  return [steps, best, ...times, speed, run.strategy, run.runId ? `run_id ${run.runId.slice(0, 12)}` : null].filter(Boolean);
}

function grid(heads, rows, { classes = "grid" } = {}) {
  const cell = (value, place) => el(place === 0 ? "th" : "td", { scope: place === 0 ? "row" : null, class: heads[place][1] }, value);
  return el(
    "div",
    { class: "scroll" },
    el("table", { class: classes }, el("thead", {}, el("tr", {}, heads.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell))))),
  );
}

function metricsTable(run) {
  const splits = [...new Set([...run.metrics.keys()].map((name) => name.split(" ")[0]))];
  const names = [...new Set([...run.metrics.keys()].map((name) => name.split(" ").slice(1).join(" ")))];
  const number = (split, name) => {
    const key = `${split} ${name}`;
    if (!run.metrics.has(key)) return "";
    const value = run.metrics.get(key);
    return value === null ? "NaN" : aligned([value])(value);
  };
  return grid([["metric", "text"], ...splits.map((split) => [split, "number"])], names.map((name) => [name, ...splits.map((split) => number(split, name))]));
}

function confusionTable({ names, confusion }) {
  const heads = [["label", "text"], ...names.map((name) => [`predicted: ${name}`, "number"])];
  return grid(heads, confusion.map((counts, place) => [names[place], ...counts.map((value) => plain(value))]));
}

function initTable(run) {
  const { init } = run;
  const facts = [
    ["method", init.method],
    ["seconds", init.seconds === null ? "" : plain(Number(init.seconds.toPrecision(3)))],
    ["peak memory added", bytes(init.peak)],
    ["GraphDef of the tables", bytes(init.graph)],
    ["GraphDef in total", bytes(init.graphAll)],
  ];
  return el("dl", { class: "pairs" }, facts.filter(([, text]) => text).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

function rowsTable(run) {
  const heads = [["table", "text"], ...["rows", "dim", "pretrained", "frozen", "looked up", "moved", "never moved", "bytes"].map((text) => [text, "number"]), ["init", "text"], ["storage", "text"], ["digest", "text"]];
  const rows = run.tables.map((table) => [
    table.name, count(table.rows), count(table.dim), count(table.pretrained), frozenCell(table), count(table.touched), count(table.moved), count(table.unmoved), bytes(table.bytes),
    table.method ?? "", table.storage ?? "", table.digest ? el("code", { title: table.digest }, table.digest.slice(0, 10)) : "",
  ]);
  return grid(heads, rows);
}

function frozenCell(table) {
  if (!table.frozen) return count(table.frozen);
  const intact = table.frozenChanged === 0;
  return [count(table.frozen), el("div", { class: intact ? "good" : "bad" }, intact ? "all bits kept" : `${count(table.frozenChanged)} changed`)];
}

function commandLine(purpose, command) {
  const copy = el("button", { type: "button", class: "quiet" }, "copy");
  const code = el("code", { tabindex: "0" }, command);
  copy.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = "copied";
    } catch {
      copy.textContent = "selected";
    }
    setTimeout(() => (copy.textContent = "copy"), 1500);
  });
  return el("div", { class: "command" }, el("span", { class: "muted" }, purpose), code, copy);
}

function settingsPart(run) {
  if (run.settings.size === 0) return null;
  const varied = [...run.values].filter(([, value]) => value !== null);
  const pairs = (entries) => el("dl", { class: "pairs settings" }, entries.map(([key, value]) => [el("dt", {}, key), el("dd", {}, shown(value))]));
  const all = [...run.settings].sort(([a], [b]) => a.localeCompare(b));
  return part("Settings", varied.length ? pairs(varied) : null, el("details", {}, el("summary", {}, `All ${all.length} settings`), pairs(all)));
}

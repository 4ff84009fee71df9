/* What two runs differ in: settings, and metrics. */

function setUpCompare() {
  const section = document.getElementById("compare");
  const known = RUNS.filter((run) => run.settings.size > 0);
  if (known.length < 2) return void section.remove();
  const first = BEST ?? known[0];
  const ranked = RANKED.filter((run) => run !== first);
  const second = ranked.find((run) => run.group !== first.group) ?? ranked[0] ?? known.find((run) => run !== first);
  const chosen = { a: first, b: second, all: false };
  const options = known.map((run) => [String(run.id), cut([run.label, described(run)].filter(Boolean).join(" · "), 70)]);
  const result = el("div", { id: "diff" });
  const pick = (side) => (value) => {
    chosen[side] = RUNS[Number(value)];
    draw();
  };
  section.append(
    el("div", { class: "controls wide" }, select("run A", options, String(first.id), pick("a")), select("run B", options, String(second.id), pick("b")), checkbox("all settings", false, (value) => ((chosen.all = value), draw()))),
    result,
  );

  function draw() {
    const { a, b } = chosen;
    const keys = [...new Set([...a.settings.keys(), ...b.settings.keys()])].sort();
    const text = (run, key) => (run.settings.has(key) ? shown(run.settings.get(key)) : "");
    const differs = (key) => a.settings.has(key) !== b.settings.has(key) || JSON.stringify(a.settings.get(key)) !== JSON.stringify(b.settings.get(key));
    const different = keys.filter(differs);
    const listed = chosen.all ? keys : different;
    const row = (key) => el("tr", { class: differs(key) ? "differs" : "" }, el("th", { scope: "row" }, key), [a, b].map((run) => el("td", { class: run.settings.has(key) ? "" : "absent" }, run.settings.has(key) ? text(run, key) : "not set")));
    const heads = el("thead", {}, el("tr", {}, ["setting", `A · ${a.label}`, `B · ${b.label}`].map((each) => el("th", { scope: "col" }, each))));
    const summary = different.length === 0 ? "These runs have the same settings." : `${different.length} of ${keys.length} settings differ.`;
    result.replaceChildren(
      el("p", { class: "tally", role: "status" }, summary),
      listed.length ? el("div", { class: "scroll" }, el("table", { class: "diff" }, heads, el("tbody", {}, listed.map(row)))) : "",
      metricDifferences(a, b),
    );
  }
  draw();
}

function metricDifferences(a, b) {
  const names = DATA.metrics.filter((name) => a.metrics.has(name) && b.metrics.has(name));
  if (names.length === 0) return "";
  const rows = names.map((name) => {
    const [x, y] = [a.metrics.get(name), b.metrics.get(name)];
    const write = aligned([x, y].filter((value) => value !== null));
    const both = x !== null && y !== null;
    return [name, x === null ? "NaN" : write(x), y === null ? "NaN" : write(y), both ? `${y - x > 0 ? "+" : ""}${write(y - x).replace("-", "−")}` : ""];
  });
  return grid([["metric", "text"], ["A", "number"], ["B", "number"], ["B − A", "number"]], rows, { classes: "grid spaced" });
}

/* What the page knows: the runs, and which of them are shown. Nothing here draws. */

const DATA = JSON.parse(document.getElementById("data").textContent);

/** A run, with maps instead of objects: a key from a config may be any text, such as `__proto__`. */
const RUNS = DATA.runs.map((stored, id) => ({
  ...stored,
  id,
  values: new Map(DATA.columns.map((key, place) => [key, stored.values[place]])),
  settings: new Map(stored.settings === null ? [] : [...DATA.common, ...stored.settings]),
  metrics: new Map(stored.metrics),
  curves: new Map(stored.curves.map(([name, steps, values]) => [name, { steps: DATA.steps[steps], values }])),
}));

/** The run of a point of a chart, which has its id: charts may copy what they are given, and maps do not survive that. */
const runOf = (point) => RUNS[point?.id] ?? null;

const COMPLETED = new Set(["completed", "stopped_early"]);

const state = {
  sort: { key: null, descending: false },
  words: "",
  statuses: null, // a Set of those that are shown; null: all
  off: new Set(), // ids that are switched off in the plots
  colour: null, // key of what gives runs their colour
  only: null, // a Set of ids, of a selection in parallel coordinates; null: all
};

const listeners = new Map();

/** Calls `listener` whenever something of that kind changes: `runs` (filters, switches, order), `colour`, `theme`. */
function on(kind, listener) {
  if (!listeners.has(kind)) listeners.set(kind, []);
  listeners.get(kind).push(listener);
}

function changed(...kinds) {
  const called = new Set(kinds.flatMap((kind) => listeners.get(kind) ?? []));
  called.forEach((listener) => listener());
}

/** What a run can be sorted, coloured and plotted by: settings that vary, metrics, figures. */
const QUANTITIES = [
  ...DATA.columns.map((key) => quantity(`setting:${key}`, shortened(key), key, (run) => run.values.get(key))),
  ...DATA.metrics.map((name) => quantity(`metric:${name}`, name, `metric ${name}`, (run) => run.metrics.get(name))),
  quantity("figure:seconds", "seconds", "seconds from the start of the job to its end", (run) => run.seconds),
  quantity("figure:trainSeconds", "train_seconds", "seconds of the training, with its evaluations", (run) => run.trainSeconds),
  quantity("figure:speed", "examples per second", "training examples per second", (run) => run.speed),
  quantity("figure:init", "init seconds", "seconds of the initialization", (run) => run.init?.seconds),
  quantity("figure:memory", "init peak MB", "memory that the run added until its first step, in MB", (run) =>
    run.init?.peak == null ? null : run.init.peak / 1e6),
].filter((each) => each.values.length > 0);

function quantity(key, label, title, get) {
  const value = (run) => {
    const found = get(run);
    return found === undefined || (typeof found === "number" && !Number.isFinite(found)) ? null : found;
  };
  const values = [...new Set(RUNS.map(value).filter((each) => each !== null))];
  const numeric = values.length > 0 && values.every((each) => typeof each === "number");
  if (numeric) values.sort((a, b) => a - b);
  return { key, label, title, get: value, values, numeric };
}

function quantityOf(key) {
  return QUANTITIES.find((each) => each.key === key) ?? null;
}

/** Whether a numeric quantity is best on a log axis: it is positive, and its largest value is many times the smallest. */
function isLog({ numeric, values }) {
  return numeric && values[0] > 0 && values[values.length - 1] / values[0] >= 30;
}

/** The shortest end of a dotted key that no other column has; `init.kind` is `init`. */
function shortened(key) {
  const plain = (each) => (each.endsWith(".kind") ? each.slice(0, -5) : each).split(".");
  const parts = plain(key);
  const others = DATA.columns.filter((each) => each !== key).map((each) => plain(each));
  for (let length = 1; length < parts.length; length += 1) {
    const end = parts.slice(-length).join(".");
    if (!others.some((other) => other.slice(-length).join(".") === end)) return end;
  }
  return parts.join(".");
}

const PRIMARY = DATA.primary; // {name, direction, validation, test, all}, or null without any metric
const bestFirst = (a, b) => (PRIMARY.direction === "higher" ? b - a : a - b);

function goal(run) {
  const value = PRIMARY ? run.metrics.get(PRIMARY.validation) : undefined;
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

const RANKED = RUNS.filter((run) => goal(run) !== null).sort((a, b) => bestFirst(goal(a), goal(b)));
/** The best by validation on each data; none of a single run, of runs that are judged by different metrics, and of runs that are alone on their data. */
const BESTS = bestOfEach();
/** The best of those on the data of most runs, or null. */
const BEST = [...BESTS].find((run) => run.data === 0) ?? null;

function bestOfEach() {
  const found = new Map();
  if (RUNS.length < 2 || PRIMARY?.all.length !== 1) return new Set();
  const ended = RANKED.filter((run) => COMPLETED.has(run.status));
  const several = new Set(RUNS.map((run) => run.data).filter((each) => each !== null)).size > 1;
  for (const run of ended) {
    const alone = several && RUNS.filter((other) => other.data === run.data).length < 2;
    if (!found.has(run.data) && !alone) found.set(run.data, run);
  }
  return new Set(found.values());
}

/** Whether a run has all words of the filter: text in any of its cells, or comparisons such as `rmse<0.9`. */
function matches(run, words) {
  return words
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => {
      const found = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/.exec(word);
      const compared = found ? comparedBy(found[1]) : [];
      if (found && compared.length > 0) return compared.some((each) => compares(each.get(run), found[2], found[3]));
      return run.searched.includes(word.toLowerCase());
    });
}

function comparedBy(name) {
  const wanted = name.toLowerCase();
  const named = QUANTITIES.filter((each) => [each.label, each.title].some((text) => text.toLowerCase() === wanted));
  if (named.length > 0) return named;
  return QUANTITIES.filter((each) => each.label.toLowerCase().split(/[ .]/).includes(wanted));
}

function compares(value, operator, text) {
  if (value === null) return false;
  const numbers = typeof value === "number" && text.trim() !== "" && Number.isFinite(Number(text));
  const [left, right] = numbers ? [value, Number(text)] : [shown(value).toLowerCase(), text.toLowerCase()];
  if (operator === "=") return left === right;
  if (operator === "!=") return left !== right;
  if (!numbers) return false;
  return { "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right }[operator];
}

for (const run of RUNS) {
  const cells = [run.label, run.name, run.status.replaceAll("_", " "), run.reason, run.directory];
  for (const key of DATA.columns) cells.push(`${shortened(key)}=${shown(run.values.get(key))}`);
  run.searched = cells.join("\n").toLowerCase();
}

/** Runs that pass the filters, in the order of the table. */
function filtered() {
  const runs = RUNS.filter(
    (run) =>
      (state.statuses === null || state.statuses.has(run.status)) &&
      (state.only === null || state.only.has(run.id)) &&
      matches(run, state.words),
  );
  const by = quantityOf(state.sort.key);
  const get = by ? by.get : state.sort.key === "status" ? (run) => run.status : (run) => run.id;
  const sign = state.sort.descending ? -1 : 1;
  return runs.sort((a, b) => {
    const [x, y] = [get(a), get(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a.id - b.id;
    const order = typeof x === "number" && typeof y === "number" ? x - y : shown(x).localeCompare(shown(y), "en", { numeric: true });
    return sign * order || a.id - b.id;
  });
}

/** Runs in the plots: those that pass the filters, without those that are switched off. */
function plotted() {
  return filtered().filter((run) => !state.off.has(run.id));
}

/** The settings of a run that vary, as a line. */
function described(run) {
  return DATA.columns
    .filter((key) => run.values.get(key) !== null)
    .map((key) => `${shortened(key)}=${shown(run.values.get(key))}`)
    .join(", ");
}

/* Colours of runs, and of the theme. Categories: Okabe and Ito's palette, made darker or lighter for the ground; scales: viridis. */

const PALETTES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b5478b", "#c78f00", "#3a9bd9", "#7a4fb5", "#6b6b6b"],
  dark: ["#56b4e9", "#f08a4b", "#2bc79a", "#e08cc0", "#f0c340", "#8fb8ff", "#b79cf0", "#a8adb7"],
};
const VIRIDIS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];
const MOST_CATEGORIES = 8;

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A colour of the style sheet. */
function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function palette() {
  return PALETTES[isDark() ? "dark" : "light"];
}

/** The colour of 0 (faint on this ground) to 1 (strong). */
function scaled(part) {
  const place = isDark() ? 0.22 + 0.78 * part : 0.9 * (1 - part);
  const at = Math.min(0.9999, Math.max(0, place)) * (VIRIDIS.length - 1);
  const [low, high, share] = [VIRIDIS[Math.floor(at)], VIRIDIS[Math.floor(at) + 1], at % 1];
  return `rgb(${low.map((each, band) => Math.round(each + share * (high[band] - each))).join(",")})`;
}

/** Translates values into colours: `of(value)`, and either `categories` or the ends of a `scale`, for a legend. */
function colouring(by, { bestLow = false } = {}) {
  const colours = palette();
  if (by.numeric && by.values.length > MOST_CATEGORIES) {
    const log = isLog(by);
    const at = (value) => (log ? Math.log(value) : value);
    const [low, high] = [at(by.values[0]), at(by.values[by.values.length - 1])];
    const part = (value) => (high > low ? (at(value) - low) / (high - low) : 1);
    const of = (value) => (value === null ? themed("faint") : scaled(bestLow ? 1 - part(value) : part(value)));
    return { of, scale: [by.values[0], by.values[by.values.length - 1]], log };
  }
  if (by.numeric) {
    const parts = new Map(by.values.map((value, place) => [value, by.values.length > 1 ? place / (by.values.length - 1) : 1]));
    const of = (value) => (value === null ? themed("faint") : scaled(bestLow ? 1 - parts.get(value) : parts.get(value)));
    return { of, categories: by.values };
  }
  const named = new Map(by.values.slice(0, MOST_CATEGORIES).map((value, place) => [JSON.stringify(value), colours[place]]));
  const rest = by.values.length > MOST_CATEGORIES;
  return { of: (value) => named.get(JSON.stringify(value)) ?? themed("faint"), categories: by.values.slice(0, MOST_CATEGORIES), rest };
}

const SETTING_OF_RUN = quantity("group", "setting", "the settings but the seed", (run) => DATA.groups[run.group] ?? null);

/** What runs can be coloured by. */
const COLOURINGS = [SETTING_OF_RUN, ...QUANTITIES].filter((each) => each.values.length > 1);

function defaultColour() {
  const metric = PRIMARY && `metric:${PRIMARY.validation}`;
  if (SETTING_OF_RUN.values.length <= MOST_CATEGORIES || !COLOURINGS.some((each) => each.key === metric)) return "group";
  return metric;
}

/** Runs with something to draw: the others, such as skipped ones, have no colour and no entry in the legend. */
const DRAWN = new Set(RUNS.filter((run) => run.curves.size > 0 || run.metrics.size > 0));

function runColouring() {
  const by = COLOURINGS.find((each) => each.key === state.colour) ?? SETTING_OF_RUN;
  const lowIsBest = PRIMARY !== null && PRIMARY.direction === "lower" && by.key.startsWith("metric:") && by.key.endsWith(` ${PRIMARY.name}`);
  const drawn = new Set([...DRAWN].map((run) => JSON.stringify(by.get(run))));
  const values = by.values.filter((value) => drawn.has(JSON.stringify(value)));
  const found = colouring({ ...by, values }, { bestLow: lowIsBest });
  return { ...found, by, run: (run) => (DRAWN.has(run) ? found.of(by.get(run)) : themed("faint")) };
}

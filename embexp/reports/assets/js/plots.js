/* Charts: drawn while they are near the window, and again when runs, colours or the theme change. */

const CHARTS = [];

/**
 * A chart in `parent`. `build(chart, box)` returns ECharts' option, or a sentence to show instead.
 * `events` are the kinds of changes after which it is drawn again.
 */
function makeChart(parent, label, build, { height = 320, events = ["runs", "colour", "theme"] } = {}) {
  const box = el("div", { class: "chart", role: "img", "aria-label": label });
  const empty = el("p", { class: "empty", hidden: true });
  parent.append(empty, box);
  const entry = { box, parent, chart: null, near: false };
  box.dataset.stale = "";
  entry.draw = () => {
    if (!entry.near) return void (box.dataset.stale = "");
    delete box.dataset.stale;
    const size = typeof height === "function" ? height(box.clientWidth) : height;
    box.style.height = `${size}px`;
    if (!entry.chart) {
      entry.chart = echarts.init(box, null, { renderer: "canvas" });
      entry.chart.on("click", ({ data }) => entry.pressed?.(data));
    }
    entry.chart.resize();
    const found = build(entry.chart, box);
    const none = typeof found === "string";
    empty.hidden = !none;
    empty.textContent = none ? found : "";
    box.hidden = none;
    if (!none) {
      entry.chart.resize();
      entry.chart.setOption({ ...common(), ...found }, { notMerge: true });
    }
  };
  entry.show = (near) => {
    entry.near = near;
    if (near && "stale" in box.dataset) entry.draw();
  };
  let timer = null;
  const soon = () => {
    // Typing a filter changes the runs at every key.
    box.dataset.stale = "";
    clearTimeout(timer);
    timer = setTimeout(entry.draw, REST_MS);
  };
  box.style.height = `${typeof height === "function" ? 320 : height}px`;
  events.forEach((kind) => on(kind, kind === "runs" ? soon : entry.draw));
  CHARTS.push(entry);
  NEAR.observe(parent);
  new ResizeObserver(() => {
    if (!entry.chart || box.hidden || box.clientWidth === entry.width) return;
    entry.width = box.clientWidth;
    entry.draw();
  }).observe(box);
  return entry;
}

const REST_MS = 60;

const NEAR = new IntersectionObserver(
  (entries) => {
    for (const each of entries) {
      CHARTS.filter((entry) => entry.parent === each.target).forEach((entry) => entry.show(each.isIntersecting));
    }
  },
  { rootMargin: "300px" },
);

addEventListener("beforeprint", () => CHARTS.forEach((entry) => entry.show(true)));

function common() {
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: themed("text") },
    backgroundColor: "transparent",
  };
}

/** An axis in the page's colours; `more` overrides. */
function axis(name, more = {}) {
  return {
    name,
    nameLocation: "middle",
    nameGap: 30,
    nameTextStyle: { color: themed("muted"), fontSize: 12 },
    nameMoveOverlap: false,
    axisLine: { show: true, onZero: false, lineStyle: { color: themed("line") } },
    axisTick: { show: false },
    axisLabel: { color: themed("muted"), fontSize: 11, hideOverlap: true, formatter: (value) => (typeof value === "number" ? tick(value) : cut(String(value), 18)) },
    splitLine: { show: true, lineStyle: { color: themed("grid") } },
    scale: true,
    ...more,
  };
}

function tick(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
  if (size >= 1e3) return value.toLocaleString("en", { maximumFractionDigits: 1 });
  return plain(Number(value.toPrecision(4)));
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/** The width in pixels that the longest of some labels takes, at most `most`. */
function widest(texts, most) {
  const context = (widest.canvas ??= document.createElement("canvas")).getContext("2d");
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return Math.min(most, Math.ceil(Math.max(0, ...texts.map((text) => context.measureText(text).width))));
}

/** ECharts' tooltip with the page's own elements. */
function tooltip(content, more = {}) {
  return {
    trigger: "item",
    confine: true,
    backgroundColor: themed("raised"),
    borderColor: themed("line"),
    textStyle: { color: themed("text"), fontSize: 12 },
    extraCssText: "box-shadow: 0 2px 12px rgb(0 0 0 / 0.18); max-width: 320px; white-space: normal;",
    formatter: content,
    ...more,
  };
}

function tipOf(title, pairs, note) {
  return el(
    "div",
    { class: "tip" },
    el("strong", {}, title),
    note ? el("div", { class: "muted" }, note) : null,
    el("dl", {}, pairs.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
  );
}

/** The legend of a colouring, as elements. Pressing a category switches its runs on or off. */
function legend(colours) {
  const swatch = (colour) => {
    const node = el("span", { class: "swatch", "aria-hidden": "true" });
    node.style.background = colour;
    return node;
  };
  if (colours.scale) {
    const bar = el("span", { class: "ramp", "aria-hidden": "true" });
    const [low, high] = colours.scale;
    const at = (part) => (colours.log ? low * (high / low) ** part : low + part * (high - low));
    bar.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((part) => colours.of(at(part))).join(",")})`;
    return el("div", { class: "legend" }, el("span", { class: "muted" }, colours.by.label), el("span", {}, plain(Number(low.toPrecision(4)))), bar, el("span", {}, plain(Number(high.toPrecision(4)))));
  }
  if (colours.by.key === "group" && colours.categories.length < 2) return el("div");
  const entries = colours.categories.map((value) => {
    const members = RUNS.filter((run) => JSON.stringify(colours.by.get(run)) === JSON.stringify(value));
    const isOn = members.some((run) => !state.off.has(run.id));
    const toggle = () => {
      members.forEach((run) => (isOn ? state.off.add(run.id) : state.off.delete(run.id)));
      changed("runs");
    };
    return el("button", { type: "button", class: "entry", "aria-pressed": String(isOn), title: isOn ? "switch these runs off" : "switch these runs on", click: toggle }, swatch(colours.of(value)), shown(value));
  });
  const rest = colours.rest ? el("span", { class: "muted" }, swatch(themed("faint")), "others") : null;
  return el("div", { class: "legend" }, colours.by.key === "group" ? null : el("span", { class: "muted" }, colours.by.label), entries, rest);
}

/* Maps of tables: sampled rows by their principal components or, on demand, by UMAP; coloured by what is known of a row. */

const UMAP_EPOCHS = 200;

function setUpMaps() {
  const section = document.getElementById("maps");
  if (DATA.maps.length === 0) return void section.remove();
  const chosen = { map: 0, way: "pca", colour: null, words: "" };
  const note = el("p", { class: "muted small" });
  const keys = el("div");
  const holder = el("div", { class: "cell" });
  const colourHolder = el("span");
  const compute = el("button", { type: "button", id: "umap", click: () => computeNeighbours() }, "Compute UMAP");
  const ways = segmented("Projection", [["pca", "PCA"], ["umap", "UMAP"]], "pca", (value) => ((chosen.way = value), draw()));
  const names = DATA.maps.map((map, place) => [String(place), `${RUNS[map.run].label} · ${map.table} (${count(map.total)} × ${map.dim})`]);
  const find = el("input", { type: "search", placeholder: "find a token", "aria-label": "Find a token on the map", spellcheck: "false", input: () => ((chosen.words = find.value.toLowerCase()), draw()) });
  const inside = insideOf(() => DATA.maps[chosen.map]);
  section.append(el("div", { class: "controls" }, select("table", names, "0", (value) => ((chosen.map = Number(value)), recolour(), draw(), inside.draw())), ways, compute, colourHolder, find), keys, holder, note, inside.box);
  const chart = makeChart(holder, "Map of a table's rows", (drawn) => mapOption(), { height: (width) => Math.min(560, Math.max(340, width * 0.6)), events: ["theme"] });
  chart.pressed = (point) => point?.row !== undefined && inside.show(point.row);
  const draw = () => {
    const map = opened(DATA.maps[chosen.map]);
    ways.hidden = !map.umap;
    compute.hidden = Boolean(map.umap) || map.count < 20;
    compute.disabled = Boolean(map.computing);
    compute.textContent = map.computing ?? "Compute UMAP";
    const shares = map.shares.slice(0, 2).map((share) => `${(100 * share).toFixed(1)}%`).join(" and ");
    const rows = map.count === map.total ? `All ${count(map.total)} rows` : `${count(map.count)} of ${count(map.total)} rows: ${map.sampling}`;
    note.textContent = [`${rows}.`, isUmap(map) ? `UMAP of the first ${map.components} principal components.` : `The first two principal components have ${shares} of the variance.`, ...map.notes].join(" ");
    keys.replaceChildren(legend({ ...colours(map), by: { label: chosen.colour, key: "row", get: () => undefined } }, true));
    keys.querySelectorAll("button").forEach((button) => button.replaceWith(el("span", { class: "entry" }, ...button.childNodes)));
    chart.draw();
  };
  const isUmap = (map) => chosen.way === "umap" && Boolean(map.umap);

  function recolour() {
    const map = opened(DATA.maps[chosen.map]);
    const options = map.marks.map((mark) => [mark.name, mark.name]);
    chosen.colour = options.some(([name]) => name === chosen.colour) ? chosen.colour : (telling(map)?.name ?? null);
    colourHolder.replaceChildren(options.length > 1 ? select("colour by", options, chosen.colour, (value) => ((chosen.colour = value), draw())) : "");
  }

  /** The mark to begin with: one by which rows differ, not one of which a single row is an exception. */
  function telling({ marks, count: size }) {
    const largest = (mark) => Math.max(...mark.names.map((_, kind) => mark.values.filter((value) => value === kind).length));
    return marks.find((mark) => mark.names && largest(mark) < 0.98 * size) ?? marks.find((mark) => !mark.names) ?? marks[0];
  }

  function colours(map) {
    const mark = map.marks.find((each) => each.name === chosen.colour);
    if (!mark) return { of: () => palette()[0], categories: [] };
    const values = mark.names ? mark.names : [...new Set(mark.values)].sort((a, b) => a - b);
    const positive = mark.names ? [] : values.filter((value) => value > 0);
    const by = { label: mark.name, values: mark.names ? values : positive.length > 1 ? positive : values, numeric: !mark.names };
    const found = colouring(by);
    if (mark.names) found.categories = found.categories.filter((name) => mark.values.includes(mark.names.indexOf(name)));
    return { ...found, of: (value) => found.of(mark.names || value > 0 || positive.length < 2 ? value : positive[0]) };
  }

  function mapOption() {
    const map = opened(DATA.maps[chosen.map]);
    const mark = map.marks.find((each) => each.name === chosen.colour);
    const found = colours(map);
    const places = isUmap(map) ? map.umap : map.points;
    const hits = (row) => chosen.words !== "" && map.tokens[row].toLowerCase().includes(chosen.words);
    const searching = chosen.words !== "";
    const right = Math.max(...places.map(([x]) => x)) / 2;
    const markOf = (row, each = mark) => (each ? (each.names ? each.names[each.values[row]] : each.values[row]) : null);
    const data = Array.from({ length: map.count }, (_, row) => ({
      value: [places[row][0], places[row][1]],
      row,
      symbolSize: hits(row) ? 13 : map.count > 800 ? 5 : 7,
      label: hits(row) ? { show: true, formatter: cut(map.tokens[row], 24).replace(/[{}|]/g, " "), position: places[row][0] > right ? "left" : "right", color: themed("text"), textBorderColor: themed("ground"), textBorderWidth: 3, fontSize: 12 } : undefined,
      itemStyle: { color: found.of(markOf(row)), opacity: searching ? (hits(row) ? 1 : 0.15) : 0.78 },
    }));
    // Rows of a rare kind would be hidden under the others.
    const common = new Map();
    if (mark?.names) mark.values.forEach((value) => common.set(value, (common.get(value) ?? 0) + 1));
    data.sort((a, b) => hits(a.row) - hits(b.row) || (mark?.names ? common.get(mark.values[b.row]) - common.get(mark.values[a.row]) : mark ? mark.values[a.row] - mark.values[b.row] : 0));
    const name = (number) => (isUmap(map) ? "" : `component ${number}`);
    return {
      grid: { left: 46, right: 16, top: 26, bottom: 40 },
      xAxis: { type: "value", ...axis(name(1)), axisLabel: { show: false } },
      yAxis: { type: "value", ...axis(name(2), { nameGap: 16 }), axisLabel: { show: false } },
      toolbox: { right: 8, top: -6, itemSize: 13, iconStyle: { borderColor: themed("muted") }, feature: { dataZoom: { title: { zoom: "zoom into a box", back: "zoom back" } }, restore: { title: "whole" } } },
      tooltip: tooltip(({ data: point }) => tipOf(map.tokens[point.row], [["row", count(map.rows[point.row])], ...map.marks.map((each) => [each.name, each.names ? markOf(point.row, each) : count(each.values[point.row])])], null)),
      series: [{ type: "scatter", data, labelLayout: { hideOverlap: true } }],
    };
  }

  async function computeNeighbours() {
    const map = opened(DATA.maps[chosen.map]);
    if (map.computing) return;
    const tell = (text) => {
      map.computing = text;
      if (map === DATA.maps[chosen.map]) draw();
    };
    tell("computing…");
    await new Promise((resolve) => setTimeout(resolve, 20)); // so that the button is drawn first
    let seed = 20240229; // the same map at every press
    const random = () => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 4294967296);
    const umap = new UMAP.UMAP({ nComponents: 2, nNeighbors: Math.min(15, map.count - 1), minDist: 0.1, nEpochs: UMAP_EPOCHS, random });
    const found = await umap.fitAsync(map.points, (epoch) => {
      if (epoch % 50 === 0) tell(`computing… ${Math.round((100 * epoch) / UMAP_EPOCHS)}%`);
    });
    [map.umap, map.computing] = [found, null];
    chosen.way = "umap";
    [...ways.children].forEach((button, place) => button.setAttribute("aria-pressed", String(place === 1)));
    draw();
  }

  recolour();
  draw();
}

/** The nearest rows of a token, lengths by frequency, and what moved most: of the table of `get()`. */
function insideOf(get) {
  const listed = el("div", { class: "nearest" });
  const tokens = el("select", { "aria-label": "Token whose nearest rows are listed", change: () => list() });
  const parts = {
    near: el("div", { class: "cell" }, el("h3", {}, "nearest rows, by cosine"), tokens, listed),
    lengths: el("div", { class: "cell" }, el("h3", {}, "vector length by token frequency")),
    moved: el("div", { class: "cell" }, el("h3", {}, "pretrained rows whose direction changed most and least")),
  };
  const charts = [
    makeChart(parts.lengths, "Lengths of rows by the frequency of their tokens", () => lengthsOption(get()), { height: 260, events: ["theme"] }),
    makeChart(parts.moved, "Cosine distance of rows from their pretrained values", () => movedOption(get()), { height: () => 70 + 16 * (get().moved ? get().moved.most.length + get().moved.least.length : 0), events: ["theme"] }),
  ];
  const list = () => {
    const [, names, cosines] = get().near.find(([place]) => String(place) === tokens.value) ?? [null, [], []];
    listed.replaceChildren(...names.map((name, place) => el("div", {}, el("span", { class: "bar", "aria-hidden": "true" }), el("span", {}, name), el("span", { class: "number" }, cosines[place].toFixed(3)))));
    listed.querySelectorAll(".bar").forEach((bar, place) => (bar.style.width = `${Math.max(0, 100 * cosines[place])}%`));
  };
  const draw = () => {
    const map = get();
    parts.near.hidden = map.near.length === 0;
    parts.lengths.hidden = map.lengths.length === 0;
    parts.moved.hidden = !map.moved;
    tokens.replaceChildren(...map.near.map(([place]) => option(String(place), map.tokens[place])));
    list();
    charts.forEach((chart) => chart.draw());
  };
  const show = (row) => {
    if (!get().near.some(([place]) => place === row)) return;
    tokens.value = String(row);
    list();
  };
  draw();
  return { box: el("div", { class: "halves spaced" }, parts.near, parts.lengths, parts.moved), draw, show };
}

function lengthsOption({ lengths }) {
  if (lengths.length === 0) return "Token frequencies are unknown.";
  const [low, middle, high] = [0, 1, 2].map((place) => lengths.map((band) => band.lengths[place]));
  const colour = palette()[0];
  const names = lengths.map(({ counts: [most, least] }) => (most === least ? count(most) : `${count(most)} to ${count(least)}`));
  const line = (data, more) => ({ type: "line", data, symbol: "none", lineStyle: { opacity: 0 }, stack: "band", silent: true, ...more });
  return {
    grid: { left: 58, right: 16, top: 12, bottom: 76 },
    xAxis: { type: "category", data: names, ...axis("how often tokens occur", { nameGap: 58 }), axisLabel: { color: themed("muted"), fontSize: 11, rotate: 30 } },
    yAxis: { type: "value", ...axis(""), scale: false, min: 0 },
    tooltip: tooltip(([{ dataIndex }]) => tipOf(names[dataIndex], [["median length", plain(middle[dataIndex])], ["8 of 10 rows", `${plain(low[dataIndex])} to ${plain(high[dataIndex])}`], ["tokens", count(lengths[dataIndex].rows)]], null), { trigger: "axis" }),
    series: [
      line(low, {}),
      line(high.map((value, place) => value - low[place]), { areaStyle: { color: colour, opacity: 0.18 } }),
      { type: "line", data: middle, symbolSize: 6, lineStyle: { color: colour, width: 2 }, itemStyle: { color: colour } },
    ],
  };
}

function movedOption({ moved }) {
  if (!moved) return "No pretrained row was trained.";
  const colours = palette();
  const rows = [...moved.most.map((each) => [...each, colours[1]]), ...moved.least.map((each) => [...each, colours[0]])];
  const names = rows.map(([token]) => token);
  return {
    grid: { left: 14 + widest(names, 150), right: 24, top: 6, bottom: 44 },
    xAxis: { type: "value", ...axis(`cosine distance; mean of ${count(moved.rows)} rows: ${plain(moved.mean)}`), scale: false, min: 0 },
    yAxis: { type: "category", inverse: true, data: names, ...axis(""), splitLine: { show: false }, axisLabel: { color: themed("text"), fontSize: 11, width: 152, overflow: "truncate", interval: 0 } },
    tooltip: tooltip(({ dataIndex }) => tipOf(names[dataIndex], [["cosine distance", plain(rows[dataIndex][1])]], null)),
    series: [{ type: "bar", data: rows.map(([, distance, colour]) => ({ value: distance, itemStyle: { color: colour } })), barWidth: 10 }],
  };
}

/** Decodes the points of a map once: int16 numbers, little-endian, row by row, scaled to the largest. */
function opened(map) {
  if (map.points) return map;
  const binary = atob(map.packed);
  const view = new DataView(Uint8Array.from(binary, (letter) => letter.charCodeAt(0)).buffer);
  map.points = Array.from({ length: map.count }, (_, row) =>
    Array.from({ length: map.components }, (__, place) => (view.getInt16(2 * (row * map.components + place), true) / 32767) * map.scale),
  );
  return map;
}

/* Differences of models on the same examples, with their intervals: what `embexp compare` has found. */

function setUpPaired() {
  const section = document.getElementById("paired");
  const found = DATA.comparison;
  if (!found) return void section.remove();
  section.append(el("ul", { class: "plain" }, found.head.map((line) => el("li", {}, line))));
  for (const pair of found.pairs) section.append(differencesTable(pair, found.pairs), pair.count ? el("p", {}, pair.count) : "", pair.tables[1] ? lists(pair.tables[1]) : "");
  section.append(...found.notes.map((note) => el("p", { class: "muted small" }, note)));
}

const lists = ([heads, rows]) => grid(heads.map(([text, number]) => [text, number ? "number" : "text"]), rows, { classes: "grid spaced" });

/** The table of a pair, with a picture of each difference on a scale that all pairs share. */
function differencesTable(pair, pairs) {
  const [heads, rows] = pair.tables[0];
  const drawn = rows.map((row, place) => {
    const [difference, low, high, verdict, name] = pair.differences[place];
    const ends = pairs.flatMap((each) => each.differences.filter((other) => other[4] === name).flatMap((other) => other.slice(0, 3)));
    const widest = Math.max(...ends.map((end) => Math.abs(end ?? 0)));
    return [...row, intervalPicture(difference, low, high, widest || 1, verdict)];
  });
  return lists([[...heads, ["0 in the middle", false]], drawn]);
}

function intervalPicture(difference, low, high, widest, verdict) {
  const [width, height] = [180, 18];
  const x = (value) => (width / 2) * (1 + (0.95 * value) / widest);
  const shape = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    return made;
  };
  const words = `difference ${plain(difference)}${low === null ? "" : `, interval ${plain(low)} to ${plain(high)}`}${verdict ? `: ${verdict}` : ""}`;
  const picture = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words, class: `interval ${verdict.replace(" ", "-")}` });
  picture.append(shape("line", { x1: width / 2, x2: width / 2, y1: 0, y2: height, class: "zero" }));
  if (low !== null) picture.append(shape("line", { x1: x(low), x2: x(high), y1: height / 2, y2: height / 2, class: "range" }));
  picture.append(shape("circle", { cx: x(difference), cy: height / 2, r: 4 }));
  return picture;
}

/* Elements and numbers. All text goes through textContent: nothing of a config or of data is ever read as HTML. */

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** A value of a setting, as text. */
function shown(value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "number") return plain(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A number as people write it: no noise of binary fractions. */
function plain(value) {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e7) ? String(Number(value.toPrecision(4))) : String(Number(value.toPrecision(5)));
}

function count(value) {
  return value === null || value === undefined ? "" : Math.round(value).toLocaleString("en");
}

function bytes(value) {
  if (value === null || value === undefined) return "";
  const [size, unit] = value >= 1e9 ? [value / 1e9, "GB"] : value >= 1e6 ? [value / 1e6, "MB"] : value >= 1e3 ? [value / 1e3, "kB"] : [value, "B"];
  return `${size.toPrecision(3).replace(/e\+2$/, "00")} ${unit}`;
}

/** A function that writes all numbers of a column with the same decimals: as many as tell them apart. */
function aligned(values) {
  const numbers = values.filter((value) => typeof value === "number" && Number.isFinite(value));
  if (numbers.length === 0 || numbers.every(Number.isInteger)) return (value) => shown(value);
  const usual = median(numbers.map(Math.abs)); // a run that diverged costs the others no digits
  if (usual >= 1e6 || usual < 1e-3) return (value) => value.toExponential(3);
  const decimals = usual >= 1000 ? 1 : usual >= 100 ? 2 : usual >= 10 ? 3 : 4;
  return (value) => (Math.abs(value) < 1e6 ? value.toFixed(decimals) : value.toExponential(2));
}

function option(value, text, selected = false) {
  return el("option", { value, selected }, text);
}

/** A labelled select; `options` are [value, text]. */
function select(label, options, value, change) {
  const node = el("select", { change: () => change(node.value) }, options.map(([key, text]) => option(key, text, key === value)));
  return el("label", { class: "field" }, el("span", {}, label), node);
}

function checkbox(label, checked, change) {
  const node = el("input", { type: "checkbox", checked, change: () => change(node.checked) });
  return el("label", { class: "field check" }, node, el("span", {}, label));
}

/** Choices of which one is pressed. */
function segmented(label, options, value, change) {
  const buttons = options.map(([key, text]) =>
    el("button", { type: "button", "aria-pressed": String(key === value), click: () => press(key) }, text),
  );
  const press = (key) => {
    options.forEach(([each], place) => buttons[place].setAttribute("aria-pressed", String(each === key)));
    change(key);
  };
  return el("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length === 0 ? null : sorted.length % 2 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2;
}

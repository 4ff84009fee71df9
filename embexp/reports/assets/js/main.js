/* Puts the page together. */

state.colour = defaultColour();

function setUpHead() {
  const counts = new Map();
  for (const run of RUNS) counts.set(run.status, (counts.get(run.status) ?? 0) + 1);
  const best = BEST
    ? el("span", {}, "best by ", PRIMARY.validation, ": ", el("button", { type: "button", class: "link", click: () => openRun(BEST) }, BEST.label), ` with ${plain(goal(BEST))}`)
    : null;
  const tally = `${RUNS.length} ${RUNS.length === 1 ? "run" : "runs"}${counts.size > 1 ? `: ${[...counts].map(([status, number]) => `${number} ${status.replaceAll("_", " ")}`).join(", ")}` : ""}`;
  document.getElementById("overview").replaceChildren(...[el("span", {}, tally), best].filter(Boolean));
  document.querySelector("#runs h2").after(...DATA.notes.map((note) => el("p", { class: "muted" }, `note: ${note}`)));
  const button = document.getElementById("theme");
  const label = () => (button.textContent = isDark() ? "light" : "dark");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
    changed("theme");
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (label(), changed("theme")));
  label();
  let before = null; // paper is light
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme ?? "";
    document.documentElement.dataset.theme = "light";
    changed("theme");
  });
  addEventListener("afterprint", () => {
    if (before === "") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = before;
    changed("theme");
  });
}

function setUpNavigation() {
  const links = [...document.querySelectorAll("main > section")].map((section) => el("a", { href: `#${section.id}` }, section.dataset.short));
  document.getElementById("sections").replaceChildren(...links);
}

setUpHead();
setUpDialog();
for (const setUp of [setUpTable, setUpCurves, setUpParameters, setUpParallel, setUpSearch, setUpCosts, setUpRows, setUpVectors, setUpCompare, setUpPaired, setUpMaps]) setUp();
setUpNavigation();
document.documentElement.dataset.ready = String(Math.round(performance.now()));

"use strict";
/* Elements, numbers and colours. Text of a run gets into the page as text only: `h` never parses it. */

function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

const SECOND = 1e9,
  MINUTE = 60 * SECOND,
  HOUR = 3600 * SECOND;
const two = number => String(Math.floor(number)).padStart(2, "0");

/* A moment: `1.230871 s`, `5:06.462`, `4:00:25.603`; `digits` behind the point. */
function moment(ns, digits = 3) {
  const sign = ns < 0 ? "−" : "",
    all = Math.abs(ns);
  const unit = 10 ** (9 - digits),
    rounded = Math.round(all / unit) * unit;
  const rest = (rounded % MINUTE) / SECOND;
  if (rounded < MINUTE) return `${sign}${rest.toFixed(digits)} s`;
  const tail = rest.toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  if (rounded < HOUR) return `${sign}${Math.floor(rounded / MINUTE)}:${tail}`;
  return `${sign}${Math.floor(rounded / HOUR)}:${two((rounded % HOUR) / MINUTE)}:${tail}`;
}

/* How long: `85 µs`, `271 ms`, `1.24 s`, `25 min 03 s`, `4 h 00 min`. */
function lasting(ns) {
  if (!ns) return "0 s";
  if (ns < 1e6) return `${+(ns / 1e3).toPrecision(3)} µs`;
  if (ns < SECOND) return `${+(ns / 1e6).toPrecision(3)} ms`;
  if (ns < MINUTE - SECOND / 200) return `${+(ns / SECOND).toPrecision(3)} s`;
  const seconds = Math.round(ns / SECOND),
    minutes = Math.round(ns / MINUTE);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

function size(bytes) {
  for (const [unit, factor] of [
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
  ]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(bytes < 10 * factor ? 1 : 0)} ${unit}`;
  }
  return `${bytes} B`;
}

/* A colour of the style sheet, as the theme has it now. */
function colour(name) {
  const probe = document.getElementById("report");
  probe.style.outlineColor = `var(--${name})`;
  return getComputedStyle(probe).outlineColor;
}

/* The theme is the system's until the button is used. */
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.style.colorScheme || (system.matches ? "dark" : "light")) === "dark";
const isPhone = () => window.innerWidth <= 760;

function verdict(asExpected) {
  if (asExpected === null) return h("span", { class: "verdict" }, "no verdict");
  return h("span", { class: `verdict ${asExpected ? "good" : "bad"}` }, asExpected ? "✓ as expected" : "✗ unexpected");
}

function outcome(found) {
  const level = { fault: "bad", healthy: "good" }[found] || "quiet";
  return h("span", { class: level }, found || "nothing");
}

function pairs(className, found) {
  return h(
    "dl",
    { class: className },
    found.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/* The address of a file, by its path from here. */
const address = path => path.split("/").map(encodeURIComponent).join("/");

/* Text of a docstring: lines are joined, and what is in backticks is code. */
function prose(text) {
  return text
    .replace(/\s+/g, " ")
    .split("`")
    .map((part, number) => (number % 2 ? h("code", {}, part) : part));
}

/* What a chart says of the item under the pointer: the element that `formatter` makes of it. */
function tooltip(formatter) {
  return {
    trigger: "item",
    confine: true,
    borderWidth: 1,
    borderColor: colour("line"),
    backgroundColor: colour("raised"),
    textStyle: { color: colour("text"), fontSize: 12.5 },
    formatter,
  };
}

/* The page is drawn anew, with the same state, when the theme or the width changes. */
const charts = new Set();

function chart(element) {
  const made = echarts.init(element, null, { renderer: "canvas" });
  charts.add(made);
  return made;
}

function forgetChart(one) {
  charts.delete(one);
  one.dispose();
}

function forgetCharts() {
  for (const one of charts) one.dispose();
  charts.clear();
}

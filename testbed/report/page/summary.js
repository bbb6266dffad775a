/* What happened in a part, and where: verdict, moments, and the drawing with its marks. */

function drawing(text, marks) {
  const host = h("div", { class: "drawing" });
  const root = host.attachShadow({ mode: "open" });
  const svg = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  const style = document.createElementNS(svg.namespaceURI, "style");
  style.textContent = `
    :host { color: var(--text) } svg { max-width: 100%; height: auto; display: inline-block }
    svg > rect { fill: none } text { fill: var(--text) } .quiet, .port { fill: var(--quiet) }
    g > rect[class] { fill: var(--raised); stroke: var(--quiet) } g.link.marked path { stroke: var(--bad); stroke-width: 3.5 }
    g > rect.marked { stroke: var(--bad); stroke-width: 2.5 } text.mark { fill: var(--bg); font-weight: 700 }
    .dark text[style], .dark g.link:not(.marked) path { filter: brightness(1.6) saturate(0.8) }`;
  svg.append(style);
  svg.classList.toggle("dark", isDark());
  root.append(svg);
  const places = new Map();
  marks.forEach((mark, number) => {
    for (const [node, end] of mark.places) {
      const key = end || node;
      if (!places.has(key)) places.set(key, { node, end, numbers: [] });
      places.get(key).numbers.push(number + 1);
    }
  });
  for (const place of places.values()) badge(svg, place);
  return host;
}

function badge(svg, { node, end, numbers }) {
  const make = (name, properties) => {
    const element = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
    return element;
  };
  const find = (selector, key, value) =>
    [...svg.querySelectorAll(selector)].find(one => one.getAttribute(key).split(" ").includes(value));
  let x, y;
  const link = end && find("g.link", "data-ends", end);
  if (link) {
    link.classList.add("marked");
    const ends = link.getAttribute("data-ends").split(" "),
      numbersOf = link
        .querySelector("path")
        .getAttribute("d")
        .match(/-?[\d.]+/g)
        .map(Number);
    const [x0, y0, x1, y1] = [numbersOf[0], numbersOf[1], numbersOf.at(-2), numbersOf.at(-1)];
    const near = ends.indexOf(end) % 2 ? 0.72 : 0.28;
    [x, y] = [x0 + (x1 - x0) * near, y0 + (y1 - y0) * near];
  } else {
    const label = find("text[data-node]", "data-node", node),
      box = label && label.closest("g") && label.closest("g").querySelector("rect");
    if (!box) return;
    box.classList.add("marked");
    [x, y] = [Number(box.getAttribute("x")) + Number(box.getAttribute("width")), Number(box.getAttribute("y"))];
  }
  const text = numbers.length > 2 ? `${numbers[0]}–${numbers.at(-1)}` : numbers.join(",");
  const circle = make("rect", {
    x: x - 7 - 3 * text.length,
    y: y - 10,
    width: 14 + 6 * text.length,
    height: 20,
    rx: 10,
    class: "mark",
  });
  circle.style.fill = "var(--bad)";
  circle.style.stroke = "none";
  const label = make("text", { x, y: y + 4, "font-size": 11, "text-anchor": "middle", class: "mark" });
  label.textContent = text;
  svg.append(circle, label);
}

/* What happened, in the order of time: steps, faults, tables that become wrong, ends of requests. */
function moments(part, reach) {
  const found = [];
  const add = (t, text, level = "", step = false) => found.push({ t, text, level, step });
  for (const lane of part.lanes) {
    const bad = lane.bars.filter(bar => bar[3] === "bad");
    if (lane.group === "Steps" && lane.name === "steps") for (const bar of lane.bars) add(bar[0], bar[2], "", true);
    if (["Faults", "Links"].includes(lane.group)) {
      for (const bar of bad.slice(0, 3)) {
        const what = lane.group === "Faults" ? bar[2] : `${lane.name} ${bar[2]}`;
        add(bar[0], `${what}${bar[1] < part.end ? `, for ${lasting(bar[1] - bar[0])}` : ""}`, "bad");
      }
    }
    if (["ARP and ND", "MAC table"].includes(lane.group)) {
      for (const [from, to, text] of bad.slice(0, 1)) {
        const until = to < part.end ? `, for ${lasting(to - from)}` : "",
          more = bad.length > 1 ? `, and ${bad.length - 1} times more` : "";
        add(
          from,
          `wrong from here on${until}${more}: ${lane.name} ${lane.group === "MAC table" ? "on" : "is at"} ${text}`,
          "bad",
        );
      }
    }
    if (lane.group === "Completions") {
      const changes = lane.bars.filter((bar, number) => !number || bar[2] !== lane.bars[number - 1][2]);
      for (const [from, to, text, level] of changes.slice(0, 6))
        add(to, `${lane.name}: ${text} after ${lasting(to - from)}`, level);
    }
  }
  for (const [at, command, status] of part.typed)
    add(at, `testbed ${command}${status ? `: status ${status}` : ""}`, status ? "bad" : "");
  const { t, text } = part.events;
  for (const number of part.observations) add(t[number], text[number], part.observed === "fault" ? "bad" : "good");
  found.sort((a, b) => a.t - b.t || b.step - a.step);
  const shown = found.slice(0, 40);
  return h(
    "ol",
    { class: "moments" },
    shown.map(one =>
      h(
        "li",
        { class: one.step ? "step" : "inside" },
        h("button", { type: "button", class: "at", onclick: () => reach(one.t) }, moment(one.t)),
        h("span", { class: one.level }, one.text),
      ),
    ),
    found.length > shown.length &&
      h(
        "li",
        {},
        h("span", {}),
        h("span", { class: "quiet" }, `${found.length - shown.length} more in the list of events`),
      ),
  );
}

/* The profiles that switches started with, what was set later, and where each value is from: what a verdict may rest on. */
function profiles(part) {
  return part.switches.map(one => {
    const counts = new Map();
    for (const [, , quality] of one.values) counts.set(quality, (counts.get(quality) || 0) + 1);
    const known = ["documented", "from memory", "chosen", "set here"].filter(quality => counts.has(quality)),
      names = one.names.length > 4 ? `${one.names.slice(0, 3).join(", ")} and ${one.names.length - 3} more` : one.names.join(", ");
    return h(
      "details",
      { class: "about small" },
      h(
        "summary",
        {},
        `${names}: ${one.profile} `,
        h("span", { class: "quiet" }, `(${known.map(quality => `${counts.get(quality)} ${quality}`).join(", ")})`),
      ),
      h(
        "table",
        {},
        h(
          "tbody",
          {},
          one.values.map(([name, value, quality]) =>
            h("tr", {}, h("td", { class: "mono" }, name), h("td", {}, value), h("td", { class: "quiet" }, quality)),
          ),
          one.set.map(([t, name, value]) =>
            h("tr", {}, h("td", { class: "mono" }, name), h("td", {}, value), h("td", { class: "quiet" }, `set at ${moment(t)}`)),
          ),
        ),
      ),
    );
  });
}

function summary(part, drawings, reach) {
  const observation = part.events.text[part.observations.at(-1)];
  const title =
    part.expected === null
      ? null
      : h(
          "div",
          {},
          verdict(part.as_expected),
          " ",
          h("span", { class: "quiet" }, "expected "),
          outcome(part.expected),
          h("span", { class: "quiet" }, ", observed "),
          outcome(part.observed),
        );
  const marks =
    part.marks.length > 0 &&
    h(
      "ul",
      { class: "marks small" },
      part.marks
        .slice(0, 12)
        .map((mark, number) =>
          h(
            "li",
            {},
            h("span", { class: "badge" }, number + 1),
            h("span", {}, mark.text, h("span", { class: "quiet" }, `, ${moment(mark.start)} – ${moment(mark.end_t)}`)),
          ),
        ),
      part.marks.length > 12 && h("li", { class: "quiet" }, `and ${part.marks.length - 12} more`),
    );
  return h(
    "div",
    { class: "summary" },
    h(
      "div",
      {},
      title,
      part.text && h("p", { class: "quiet" }, part.text),
      observation && h("div", { class: "outcome" }, observation),
      part.failures.map(text => h("div", { class: text.includes("\n") ? "failures trace" : "failures" }, text)),
      part.warnings.map(text => h("div", { class: "failures warning" }, text)),
      pairs("evidence", part.evidence),
      part.settings.length > 0 && [h("h3", { style: "margin-top: 22px" }, "Settings"), pairs("evidence", part.settings)],
      part.lanes.length > 0 && [h("h3", { style: "margin-top: 22px" }, "What happened"), moments(part, reach)],
    ),
    h(
      "div",
      { class: "panel" },
      h("h3", {}, part.marks.length ? "Topology, and where it is broken" : "Topology"),
      part.drawing === null
        ? h("p", { class: "quiet" }, "The run ended before its topology was planned.")
        : drawing(drawings[part.drawing], part.marks),
      marks,
      part.switches.length > 0 && [h("h3", { style: "margin-top: 22px" }, "Profiles of switches"), profiles(part)],
    ),
  );
}

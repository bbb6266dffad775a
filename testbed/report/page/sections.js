/* The sections of a part beside its time line. */

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
  const find = (selector, key, value) => [...svg.querySelectorAll(selector)].find(one => one.getAttribute(key).split(" ").includes(value));
  let x, y;
  const link = end && find("g.link", "data-ends", end);
  if (link) {
    link.classList.add("marked");
    const ends = link.getAttribute("data-ends").split(" "), numbersOf = link.querySelector("path").getAttribute("d").match(/-?[\d.]+/g).map(Number);
    const [x0, y0, x1, y1] = [numbersOf[0], numbersOf[1], numbersOf.at(-2), numbersOf.at(-1)];
    const near = ends.indexOf(end) % 2 ? 0.72 : 0.28;
    [x, y] = [x0 + (x1 - x0) * near, y0 + (y1 - y0) * near];
  } else {
    const label = find("text[data-node]", "data-node", node), box = label && label.closest("g") && label.closest("g").querySelector("rect");
    if (!box) return;
    box.classList.add("marked");
    [x, y] = [Number(box.getAttribute("x")) + Number(box.getAttribute("width")), Number(box.getAttribute("y"))];
  }
  const text = numbers.length > 2 ? `${numbers[0]}–${numbers.at(-1)}` : numbers.join(",");
  const circle = make("rect", { x: x - 7 - 3 * text.length, y: y - 10, width: 14 + 6 * text.length, height: 20, rx: 10, class: "mark" });
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
        const what = lane.group === "Faults" ? lane.name : `${lane.name} ${bar[2]}`;
        add(bar[0], `${what}${bar[1] < part.end ? `, for ${lasting(bar[1] - bar[0])}` : ""}`, "bad");
      }
    }
    if (["ARP and ND", "MAC table"].includes(lane.group)) {
      for (const [from, to, text] of bad.slice(0, 1)) {
        const until = to < part.end ? `, for ${lasting(to - from)}` : "", more = bad.length > 1 ? `, and ${bad.length - 1} times more` : "";
        add(from, `wrong from here on${until}${more}: ${lane.name} ${lane.group === "MAC table" ? "on" : "is at"} ${text}`, "bad");
      }
    }
    if (lane.group === "Completions") {
      const changes = lane.bars.filter((bar, number) => !number || bar[2] !== lane.bars[number - 1][2]);
      for (const [from, to, text, level] of changes.slice(0, 6)) add(to, `${lane.name}: ${text} after ${lasting(to - from)}`, level);
    }
  }
  const { kinds, kind, t, text } = part.events;
  const observed = kinds.indexOf("observed");
  kind.forEach((one, number) => { if (one === observed) add(t[number], text[number], part.observed === "fault" ? "bad" : "good"); });
  found.sort((a, b) => a.t - b.t || b.step - a.step);
  const shown = found.slice(0, 40);
  return h("ol", { class: "moments" }, shown.map(one => h("li", { class: one.step ? "step" : "inside" },
    h("button", { type: "button", class: "at", onclick: () => reach(one.t) }, moment(one.t)), h("span", { class: one.level }, one.text))),
    found.length > shown.length && h("li", {}, h("span", {}), h("span", { class: "quiet" }, `${found.length - shown.length} more in the list of events`)));
}

function summary(part, drawings, reach) {
  const said = part.events.text[part.events.kind.lastIndexOf(part.events.kinds.indexOf("observed"))];
  const title = part.expected === null ? null : h("div", {}, verdict(part.as_expected), " ", h("span", { class: "quiet" }, "expected "), outcome(part.expected),
    h("span", { class: "quiet" }, ", observed "), outcome(part.observed));
  const marks = part.marks.length > 0 && h("ul", { class: "marks small" }, part.marks.slice(0, 12).map((mark, number) => h("li", {},
    h("span", { class: "badge" }, number + 1), h("span", {}, mark.text, h("span", { class: "quiet" }, `, ${moment(mark.start)} – ${moment(mark.end_t)}`)))),
    part.marks.length > 12 && h("li", { class: "quiet" }, `and ${part.marks.length - 12} more`));
  return h("div", { class: "summary" },
    h("div", {}, title, part.text && h("p", { class: "quiet" }, part.text), said && h("div", { class: "outcome" }, said),
      part.failures.map(text => h("div", { class: "failures" }, text)), pairs("evidence", part.evidence),
      part.lanes.length > 0 && [h("h3", { style: "margin-top: 22px" }, "What happened"), moments(part, reach)]),
    h("div", { class: "panel" }, h("h3", {}, part.marks.length ? "Topology, and where it is broken" : "Topology"),
      part.drawing === null ? h("p", { class: "quiet" }, "The run ended before its topology was planned.") : drawing(drawings[part.drawing], part.marks), marks));
}

function packetTable(part) {
  const rows = part.captures.flatMap(capture => capture.rows.map(row => ({ ...row, capture }))).sort((a, b) => a.t - b.t || a.number - b.number);
  if (!rows.length) return h("p", { class: "quiet" }, prose("Nothing was captured. A scenario captures with `capture()` of an interface."));
  const body = h("tbody", {});
  const only = h("input", { type: "checkbox", onchange: () => fill() });
  const select = h("select", { onchange: () => fill() }, h("option", {}, "all captures"), part.captures.map(one => h("option", {}, one.file)));
  const fill = () => {
    const index = select.selectedIndex - 1;
    const wanted = rows.filter(row => (index < 0 || row.capture === part.captures[index]) && (!only.checked || row.level !== "plain"));
    body.replaceChildren(...wanted.slice(0, 400).flatMap(row => packetRow(row, part)));
    if (wanted.length > 400) body.append(h("tr", {}, h("td", { colSpan: 5, class: "quiet" }, `${wanted.length - 400} more: choose a capture`)));
  };
  fill();
  const links = part.captures.map(one => [h("a", { href: encodeURI(`${part.directory}/${one.file}`) }, one.file),
    ` (${one.complete ? one.frames : `more than ${one.frames}`} frames${one.left_out ? `, ${one.left_out} unremarkable rows left out` : ""}) `]);
  return h("div", {},
    h("p", { class: "small quiet" }, "A row is what follows each other: a message, a try of it, repeated requests. Open a row for the fields of its first packet. Captures, for Wireshark: ", links),
    h("div", { class: "tools small" }, select, h("label", {}, only, " only what is remarkable")),
    h("div", { class: "scroll" }, h("table", { class: "packets small" },
      h("thead", {}, h("tr", {}, h("th", {}, "time"), h("th", { class: "wide" }, "capture, frame"), h("th", { class: "wide number" }, "packets"), h("th", {}, "packet"), h("th", {}, "remarkable"))), body)));
}

function packetRow(row, part) {
  const frames = row.count > 1 ? `${row.number}–${row.last_number}` : `${row.number}`;
  let open = null;
  const toggle = () => {
    if (open) { open.remove(); open = null; button.setAttribute("aria-expanded", "false"); return; }
    const filter = row.count > 1 ? `frame.number >= ${row.number} && frame.number <= ${row.last_number}` : `frame.number == ${row.number}`;
    open = h("tr", {}, h("td", { colSpan: 5 }, h("div", { class: "layers" }, row.layers.map(([name, fields]) => h("div", { class: "panel" }, h("h3", { class: "small" }, name), pairs("", fields)))),
      h("div", { class: "small quiet" }, "In Wireshark: ", h("a", { href: encodeURI(`${part.directory}/${row.capture.file}`) }, row.capture.file), " with the filter ", h("code", {}, filter))));
    element.after(open);
    button.setAttribute("aria-expanded", "true");
  };
  const button = h("button", { type: "button", "aria-expanded": "false", style: "border: 0; background: none; padding: 0; text-align: left; color: inherit", onclick: event => { event.stopPropagation(); toggle(); } }, row.text);
  const element = h("tr", { class: `row level-${row.level}`, onclick: toggle }, h("td", { class: "mono number", style: "text-align: left" }, moment(row.t, 6)),
    h("td", { class: "wide mono" }, `${row.capture.file} ${frames}`), h("td", { class: "wide number" }, row.count), h("td", {}, button), h("td", {}, row.why || null));
  return [element];
}

function counters(part) {
  if (!part.counters.length) return h("p", { class: "quiet" }, "The counters were not read.");
  const bad = part.counters.filter(one => one[4]).sort((a, b) => b[3] - a[3]).slice(0, 24);
  const box = h("div", {});
  const plot = h("div", { style: `height: ${bad.length * 22 + 30}px` });
  if (bad.length) box.append(h("p", { class: "small quiet" }, "Counters of errors, drops and retries at the end that are not 0:"), plot);
  else box.append(h("p", {}, "No counter of an error, a drop or a retry is above 0."));
  const name = one => `${one[0]} ${one[1]} ${one[2]}`;
  const draw = () => bad.length && chart(plot).setOption({
    animation: false, grid: { left: isPhone() ? 170 : 330, right: 60, top: 4, bottom: 22 },
    xAxis: { type: "value", minInterval: 1, splitLine: { lineStyle: { color: colour("line") } }, axisLabel: { color: colour("quiet") } },
    yAxis: { type: "category", inverse: true, data: bad.map(name), axisTick: { show: false }, axisLine: { show: false }, axisLabel: { color: colour("text"), width: isPhone() ? 160 : 320, overflow: "truncate" } },
    series: [{ type: "bar", data: bad.map(one => one[3]), color: colour("note"), barMaxWidth: 14, label: { show: true, position: "right", color: colour("text") } }],
  });
  const all = h("details", { class: "about" }, h("summary", {}, `All ${part.counters.length} counters that are not 0`),
    h("div", { class: "scroll" }, h("table", { class: "small mono" }, h("tbody", {}, part.counters.map(one => h("tr", { class: one[4] ? "note" : "" }, h("td", {}, one[0]), h("td", {}, one[1]), h("td", {}, one[2]), h("td", { class: "number" }, one[3])))))));
  box.append(all);
  return { element: box, draw };
}

function gear(part, run) {
  const quoted = (run.text.match(/On real gear: [\s\S]*?(?=\n\n|$)/) || [])[0];
  return h("div", {}, quoted && h("blockquote", { class: "quote" }, prose(quoted), h("div", { class: "small quiet" }, `From the description of ${run.name}.`)),
    h("div", { class: "gear" }, part.gear.map(one => h("div", { class: "panel" }, h("h3", {}, one.title),
      h("table", { class: "small" }, h("tbody", {}, one.commands.map(command => h("tr", {}, h("td", {}, command.where), h("td", {}, h("code", {}, command.run), h("div", { class: "quiet" }, command.look)))))),
      h("p", { class: "small quiet" }, "Source: ", one.source)))),
    !quoted && !part.gear.length && h("p", { class: "quiet" }, "Nothing in this run has a counterpart in the list yet."),
    h("p", { class: "small quiet" }, "What differs between this lab and hardware is in docs/fidelity.md of testbed."));
}

/* Rows are made for what is to be seen, so that a hundred thousand are no burden. */
class EventList {
  constructor(part) {
    this.part = part;
    this.chosen = -1;
    const { kinds } = part.events;
    this.kind = h("select", { onchange: () => this.filter() }, h("option", { value: "" }, "all kinds"), [...kinds].sort().map(kind => h("option", { value: kind }, kind)));
    this.search = h("input", { type: "search", placeholder: "search the events", oninput: () => this.filter() });
    this.count = h("span", { class: "quiet small" });
    this.inner = h("div", { style: "position: relative" });
    this.box = h("div", { class: "events", tabIndex: 0, onscroll: () => this.draw() }, this.inner);
    this.element = h("div", {}, h("div", { class: "tools" }, this.kind, this.search, this.count), this.box);
    this.levels = new Map(part.lanes.flatMap(lane => lane.points.map(point => [point[2], point[1]])));
    this.filter();
  }
  filter() {
    const { t, text, kind, kinds, node, nodes } = this.part.events, words = this.search.value.toLowerCase(), only = kinds.indexOf(this.kind.value);
    this.found = [];
    for (let i = 0; i < t.length; i++) {
      if (only >= 0 && kind[i] !== only) continue;
      if (words && !`${text[i]} ${nodes[node[i]]} ${kinds[kind[i]]}`.toLowerCase().includes(words)) continue;
      this.found.push(i);
    }
    this.count.textContent = `${this.found.length} of ${t.length} events`;
    this.inner.style.height = `${Math.max(1, this.found.length) * 26}px`;
    this.draw();
  }
  draw() {
    const { t, text, kind, kinds, node, nodes } = this.part.events;
    const first = Math.max(0, Math.floor(this.box.scrollTop / 26) - 5), last = Math.min(this.found.length, first + 34);
    this.inner.replaceChildren(...this.found.slice(first, last).map((i, offset) => h("div", {
      class: `row level-${this.levels.get(i) || "plain"} ${i === this.chosen ? "chosen" : ""}`, style: `top: ${(first + offset) * 26}px`, title: text[i],
    }, h("span", { class: "number" }, moment(t[i], 6)), h("span", { class: "wide" }, kinds[kind[i]]), h("span", { class: "wide" }, nodes[node[i]]), h("span", {}, text[i]))));
  }
  choose(event) {
    this.chosen = event;
    if (!this.found.includes(event)) { this.kind.value = ""; this.search.value = ""; this.filter(); }
    this.box.scrollTop = Math.max(0, this.found.indexOf(event) * 26 - 130);
    this.draw();
  }
}

function files(part) {
  return h("div", { class: "files" }, part.files.map(([name, link, bytes]) => h("div", {}, h("a", { href: encodeURI(link) }, name), h("span", { class: "quiet" }, size(bytes)))));
}

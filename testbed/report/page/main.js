/* The page: its head, the part that is chosen, or a comparison of several. */

const state = { chosen: 0, compared: null };

function show(report) {
  document.getElementById("report").replaceChildren();
  const hash = new URLSearchParams(location.hash.slice(1));
  const index = report.parts.findIndex(part => part.label === hash.get("v"));
  state.chosen =
    index >= 0
      ? index
      : Math.max(
          0,
          report.parts.findIndex(part => part.as_expected === false),
        );
  const named = (hash.get("compare") || "")
    .split(",")
    .map(label => report.parts.findIndex(part => part.label === label))
    .filter(i => i >= 0);
  if (named.length) state.compared = new Set(named);
  else if (report.side_by_side) state.compared = new Set(report.parts.keys());
  system.addEventListener("change", () => draw(report));
  let phone = isPhone();
  window.addEventListener("resize", () => {
    if (phone !== isPhone()) {
      phone = isPhone();
      draw(report);
    } else charts.forEach(one => one.resize());
  });
  window.addEventListener("beforeprint", () => drawOnPaper(report));
  window.addEventListener("afterprint", () => draw(report));
  draw(report);
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

function draw(report) {
  forgetCharts();
  const root = document.getElementById("report"),
    at = window.scrollY;
  const page = state.compared ? comparison(report) : single(report);
  root.replaceChildren(head(report), variants(report), ...page.elements);
  page.draw();
  window.scrollTo(0, at);
}

/* On paper nothing can be chosen: all variants are there, unfolded. */
function drawOnPaper(report) {
  forgetCharts();
  const pages = state.compared ? [comparison(report)] : report.parts.map((_, number) => single(report, number)),
    titled = (page, number) => [pages.length > 1 && h("h1", {}, report.parts[number].label), ...page.elements];
  const root = document.getElementById("report");
  root.replaceChildren(head(report), variants(report), ...pages.flatMap(titled).filter(Boolean));
  for (const page of pages) page.draw();
  for (const folded of root.querySelectorAll("details")) folded.open = true;
  charts.forEach(one => one.getZr().flush());
}

function choose(report, number) {
  state.chosen = number;
  state.compared = null;
  history.replaceState(null, "", `#${new URLSearchParams({ v: report.parts[number].label })}`);
  draw(report);
}

function head(report) {
  const [run] = report.runs;
  const dark = isDark();
  const theme = h(
    "button",
    {
      type: "button",
      class: "theme",
      title: "light or dark",
      onclick: () => {
        document.documentElement.style.colorScheme = dark ? "light" : "dark";
        draw(report);
      },
    },
    dark ? "☀ light" : "☾ dark",
  );
  if (report.runs.length > 1) {
    return h(
      "header",
      {},
      h("div", { class: "top" }, h("h1", {}, `Comparison of ${report.runs.length} runs`), theme),
      report.runs.map(one =>
        h(
          "div",
          { style: "margin: 10px 0" },
          h("b", {}, one.name),
          " ",
          h("span", { class: "mono quiet" }, one.place),
          " ",
          verdict(one.as_expected),
          facts(one),
        ),
      ),
    );
  }
  return h(
    "header",
    {},
    h(
      "div",
      { class: "top" },
      h("div", {}, h("div", { class: "quiet mono" }, run.name), h("h1", {}, run.title || run.name)),
      h("div", { class: "tools" }, verdict(run.as_expected), theme),
    ),
    facts(run),
    run.text &&
      h(
        "details",
        { class: "about" },
        h("summary", {}, "What the scenario shows"),
        run.text.split("\n\n").map(text => h("p", {}, prose(text))),
      ),
  );
}

function facts(run) {
  return h(
    "dl",
    { class: "facts small" },
    run.facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, value))),
  );
}

function variants(report) {
  if (report.parts.length < 2) return "";
  const toggle = (number, on) => {
    state.compared = state.compared || new Set();
    if (on) state.compared.add(number);
    else state.compared.delete(number);
    if (!state.compared.size) state.compared = null;
    draw(report);
  };
  const row = (part, number) => {
    const is = state.compared ? state.compared.has(number) : number === state.chosen;
    return h(
      "tr",
      { class: is ? "chosen" : "", onclick: () => choose(report, number) },
      h(
        "td",
        {},
        h(
          "button",
          {
            type: "button",
            class: "name",
            "aria-current": String(is),
            onclick: event => {
              event.stopPropagation();
              choose(report, number);
            },
          },
          part.label,
        ),
        part.text && h("div", { class: "small quiet about-part" }, part.text),
      ),
      h("td", {}, outcome(part.expected)),
      h(
        "td",
        {},
        outcome(part.observed),
        " ",
        part.as_expected === false
          ? h("span", { class: "bad" }, "✗")
          : part.as_expected
            ? h("span", { class: "good" }, "✓")
            : "",
      ),
      h("td", { class: "number" }, lasting(part.virtual_s * 1e9)),
      h(
        "td",
        { class: "wide small" },
        part.evidence
          .slice(0, 4)
          .map(([name, value], i) => [i ? " · " : "", h("span", { class: "quiet" }, name), " ", value]),
      ),
      h(
        "td",
        { class: "number", onclick: event => event.stopPropagation() },
        h("input", {
          type: "checkbox",
          "aria-label": `compare ${part.label}`,
          checked: Boolean(state.compared && state.compared.has(number)),
          onchange: event => toggle(number, event.target.checked),
        }),
      ),
    );
  };
  return h(
    "section",
    {},
    h("h2", {}, "Variants"),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "variants" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", {}, "variant"),
            h("th", {}, "expected"),
            h("th", {}, "observed"),
            h("th", { class: "number" }, "virtual time"),
            h("th", { class: "wide" }, "evidence"),
            h("th", { class: "number" }, "compare"),
          ),
        ),
        h("tbody", {}, report.parts.map(row)),
      ),
    ),
  );
}

function single(report, number = state.chosen) {
  const part = report.parts[number];
  if (!part) return { elements: [], draw: () => {} };
  const run = report.runs[part.run];
  const events = new EventList(part),
    timeline = new Timeline(part, event => events.choose(event)),
    counted = counters(part),
    plots = part.counted && new CounterPlots((part.alone ??= alone(part)), timeline.axis);
  const sections = [
    [
      "time",
      "Time line",
      part.lanes.length
        ? timeline.element
        : h("p", { class: "quiet" }, "The run ended before anything happened in it."),
    ],
    ["packets", "Packets", packetTable(part)],
    ...(part.answers
      ? [["answers", "Who answered ARP and ND", answersTable(part.answers, t => timeline.reach(t))]]
      : []),
    ...(part.typed.length ? [["typed", "What was typed", typed(part, t => timeline.reach(t))]] : []),
    ...(plots ? [["counted", "Counters over time", plots.element]] : []),
    ...(part.probes.length ? [["probes", "Probes of all pairs", probes(part)]] : []),
    ...(part.paths.length ? [["paths", "Paths of the job", paths(part)]] : []),
    ...(part.matrices.length ? [["matrices", "Traffic matrix", matrices(part)]] : []),
    ["counters", "Counters", counted.element || counted],
    ["gear", "On real gear", gear(part, run)],
    ["events", "Events", events.element],
    ["files", "Files", files(part)],
  ];
  const bar = h(
    "div",
    { class: "bar" },
    h("b", {}, part.label),
    part.expected !== null && verdict(part.as_expected),
    h("span", { class: "grow" }),
    h(
      "nav",
      { "aria-label": "sections" },
      sections.map(([id, title]) =>
        h(
          "a",
          {
            href: `#${id}`,
            onclick: event => {
              event.preventDefault();
              document.getElementById(id).scrollIntoView({ behavior: "smooth" });
            },
          },
          title,
        ),
      ),
    ),
  );
  return {
    elements: [
      bar,
      summary(part, report.drawings, t => timeline.reach(t)),
      ...sections.map(([id, title, element]) => h("section", { id }, h("h2", {}, title), element)),
    ],
    draw: () => {
      if (part.lanes.length) timeline.draw();
      if (counted.draw) counted.draw();
      if (plots) plots.draw();
    },
  };
}

/* Parts side by side: what is different in their outcome, the first event that is, and their time lines. */
function comparison(report) {
  const parts = [...state.compared].sort((a, b) => a - b).map(number => report.parts[number]);
  const lines = parts.map(part => new Timeline(part, () => {}));
  const rows = new Map([
    ["expected", []],
    ["observed", []],
    ["virtual time", []],
    ["trace", []],
  ]);
  parts.forEach((part, column) => {
    const found = [
      ["expected", part.expected ?? ""],
      ["observed", part.observed ?? "nothing"],
      ["virtual time", lasting(part.virtual_s * 1e9)],
      ["trace", part.trace.slice(0, 12)],
      ...part.settings,
      ...part.evidence,
    ];
    for (const [name, value] of found) {
      if (!rows.has(name)) rows.set(name, []);
      rows.get(name)[column] = value;
    }
  });
  const table = h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "small" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}),
          parts.map(part => h("th", {}, part.label)),
        ),
      ),
      h(
        "tbody",
        {},
        [...rows].map(([name, values]) => {
          const differs = new Set(parts.map((_, column) => values[column])).size > 1;
          return h(
            "tr",
            {},
            h("td", { class: "quiet" }, name),
            parts.map((_, column) => h("td", { class: differs ? "differs" : "" }, values[column] ?? "–")),
          );
        }),
      ),
    ),
  );
  const counted = parts.filter(part => part.counted),
    whose = counted.map(part => part.label).join("\n");
  if (counted.length > 1 && report.together?.whose !== whose) report.together = { whose, counted: together(counted) };
  const end = Math.max(...parts.map(part => part.end)),
    plots = counted.length > 1 && new CounterPlots(report.together.counted, new Folded(end, []));
  return {
    elements: [
      h("div", { class: "bar" }, h("b", {}, `${parts.length} side by side`)),
      h("h2", {}, "Outcome and evidence"),
      table,
      ...firstDifference(parts),
      ...(plots ? [h("section", { id: "counted" }, h("h2", {}, "Counters over each other"), plots.element)] : []),
      h(
        "div",
        { class: "compare" },
        parts.map((part, number) =>
          h(
            "section",
            {},
            h("h2", {}, part.label, " ", part.expected !== null && verdict(part.as_expected)),
            part.text && h("p", { class: "quiet" }, part.text),
            lines[number].element,
          ),
        ),
      ),
    ],
    draw: () => {
      if (plots) plots.draw();
      lines.filter(line => line.part.lanes.length).forEach(line => line.draw());
    },
  };
}

function firstDifference(parts) {
  if (parts.length < 2) return [];
  const words = (part, i) =>
    i < part.events.t.length
      ? `${part.events.nodes[part.events.node[i]]} ${part.events.kinds[part.events.kind[i]]} ${part.events.text[i]}`
      : "nothing more";
  const longest = Math.max(...parts.map(part => part.events.t.length));
  for (let i = 0; i < longest; i++) {
    const found = parts.map(part => words(part, i));
    if (new Set(found).size > 1) {
      return [
        h("h2", {}, "The first event that differs"),
        h("p", { class: "small quiet" }, `Event ${i + 1}; times are not compared.`),
        h(
          "table",
          { class: "small" },
          h(
            "tbody",
            {},
            parts.map((part, column) =>
              h(
                "tr",
                {},
                h("td", { class: "quiet" }, part.label),
                h("td", { class: "mono" }, i < part.events.t.length ? moment(part.events.t[i], 6) : ""),
                h("td", { class: "mono" }, found[column]),
              ),
            ),
          ),
        ),
      ];
    }
  }
  return [h("p", {}, "All events are the same.")];
}

/* Counters over time: a small plot for each that is chosen, on the folded axis of the time line, or of several parts
   over each other. */

const FIRST_OF_GROUP = 8,
  MOST_PLOTS = 24,
  MOST_CHOICES = 200,
  COLOURS = ["accent", "note", "arp", "good", "bad", "bar"];
const short = new Intl.NumberFormat("en", { notation: "compact" }),
  whole = new Intl.NumberFormat("en");

/* Return the counters of several parts as those of one, each row with the changes of each part. Those whose last values
   differ most are shown first. */
function together(parts) {
  const found = new Map();
  parts.forEach((part, number) => {
    for (const [node, place, name, group, changes] of part.counted.rows) {
      const key = JSON.stringify([node, place, name]);
      if (!found.has(key)) found.set(key, [node, place, name, group, parts.map(() => [])]);
      found.get(key)[4][number] = changes;
    }
  });
  const differs = ([, , , , every]) => {
    const last = every.map(changes => (changes.length ? changes[changes.length - 1] : 0));
    return Math.max(...last) - Math.min(...last);
  };
  const rows = [...found.values()]
    .map(row => [row, differs(row)])
    .sort(([one, its], [other, others]) => one[3] - other[3] || others - its);
  const shown = [...rows.keys()].filter(number => rows[number][1]).slice(0, FIRST_OF_GROUP);
  const sources = parts.map(part => ({ label: part.label, t: part.counted.t, after: part.counted.after }));
  return { sources, groups: parts[0].counted.groups, rows: rows.map(([row]) => row), shown };
}

/* The counters of one part in the same form. */
function alone(part) {
  const { t, after, groups, rows, shown } = part.counted;
  return { sources: [{ label: part.label, t, after }], groups, rows: rows.map(row => [...row.slice(0, 4), [row[4]]]), shown };
}

class CounterPlots {
  /* `counted.shown` has the numbers of the rows that are chosen; it stays when the page is drawn anew. */
  constructor(counted, axis) {
    this.counted = counted;
    this.alone = counted.sources.length === 1;
    this.axis = axis;
    this.drawn = [];
    this.plots = h("div", { class: "plots" });
    this.list = h("div", { class: "choice small" });
    this.left = h("span", { class: "small quiet", "aria-live": "polite" });
    this.search = h("input", {
      type: "search",
      placeholder: "node, interface or counter",
      "aria-label": "find counters",
      oninput: () => this.offer(),
    });
    this.summary = h("summary", {});
    const chooser = h(
      "details",
      { class: "about", ontoggle: () => this.list.childElementCount || this.offer() },
      this.summary,
      h("div", { class: "tools" }, this.search, this.left),
      this.list,
    );
    this.element = h(
      "div",
      {},
      h(
        "p",
        { class: "small quiet" },
        `Counters are read at ${counted.sources.every(one => one.t.length === 1) ? "one moment, the point" : "the moments of the points"}: ` +
          "when the lab is up, after each step or command and at the end. When they grew in between is not known. " +
          "Each plot has its own scale.",
      ),
      !this.alone &&
        h(
          "p",
          { class: "small" },
          counted.sources.map(({ label }, source) => h("span", {}, this.dot(source), ` ${label}  `)),
        ),
      h(
        "div",
        { class: "tools" },
        counted.groups.map((text, group) => {
          const numbers = this.rowsOf(group);
          return (
            numbers.length > 0 &&
            h(
              "button",
              { type: "button", onclick: () => this.choose(numbers.slice(0, FIRST_OF_GROUP)) },
              `${text} (${numbers.length})`,
            )
          );
        }),
      ),
      chooser,
      this.plots,
    );
    this.chooser = chooser;
  }

  tone(source, group) {
    return this.alone ? (group ? "accent" : "note") : COLOURS[source % COLOURS.length];
  }

  dot(source) {
    return h("span", { style: `color: var(--${this.tone(source)})`, "aria-hidden": "true" }, "●");
  }

  rowsOf(group) {
    return [...this.counted.rows.keys()].filter(number => this.counted.rows[number][3] === group);
  }

  name(number) {
    return this.counted.rows[number].slice(0, 3).join(" ");
  }

  choose(numbers) {
    this.counted.shown = numbers;
    this.draw();
    this.offer();
  }

  /* The list of counters to choose from, made when it is open: there may be thousands. The event of its opening comes
     late, and must not make anew a list in which something has the focus. */
  offer() {
    if (!this.chooser.open) {
      this.list.replaceChildren();
      return;
    }
    const words = this.search.value.toLowerCase().split(/\s+/);
    const { rows, shown } = this.counted;
    const found = [...rows.keys()].filter(number => {
      const name = this.name(number).toLowerCase();
      return words.every(word => name.includes(word));
    });
    const more = found.length - MOST_CHOICES;
    this.left.textContent = `${found.length} of ${rows.length} counters${more > 0 ? `, ${more} not listed: narrow the search` : ""}`;
    this.list.replaceChildren(
      ...found.slice(0, MOST_CHOICES).map(number =>
        h(
          "label",
          {},
          h("input", {
            type: "checkbox",
            checked: shown.includes(number),
            disabled: shown.length >= MOST_PLOTS && !shown.includes(number),
            onchange: event => this.toggle(number, event.target.checked),
          }),
          this.name(number),
        ),
      ),
    );
  }

  toggle(number, on) {
    this.counted.shown = this.counted.shown.filter(one => one !== number).concat(on ? [number] : []);
    for (const box of this.list.querySelectorAll("input")) box.disabled = this.counted.shown.length >= MOST_PLOTS && !box.checked;
    this.draw();
  }

  draw() {
    this.drawn.forEach(forgetChart);
    const { rows, shown } = this.counted;
    this.summary.textContent = `Choose counters: ${shown.length} of the ${rows.length} that are not 0`;
    const figures = shown.map(number => this.figure(number));
    this.plots.replaceChildren(...figures.map(one => one.element));
    if (!shown.length) this.plots.append(h("p", { class: "quiet" }, "No counter is chosen."));
    this.drawn = figures.map(one => one.draw());
  }

  /* The value of a counter at each moment of a part. */
  values(number, source) {
    const changes = this.counted.rows[number][4][source],
      found = new Array(this.counted.sources[source].t.length).fill(0);
    for (let i = 0; i < changes.length; i += 2) found.fill(changes[i + 1], changes[i]);
    return found;
  }

  figure(number) {
    const [node, place, name, group] = this.counted.rows[number],
      { sources } = this.counted,
      every = sources.map((_, source) => this.values(number, source)),
      last = every.map(values => whole.format(values[values.length - 1]));
    const spoken = every.map((values, source) => {
      const words = values
        .map((value, i) => [value, i])
        .filter(([value, i]) => !i || value !== values[i - 1])
        .slice(0, 20)
        .map(([value, i]) => `${value} at ${moment(sources[source].t[i])}`);
      return `${this.alone ? "" : `${sources[source].label} `}${words.join(", ")}`;
    });
    const plot = h("div", { class: "plot", role: "img", "aria-label": `${this.name(number)}: ${spoken.join("; ")}` });
    const element = h(
      "figure",
      { class: "panel small" },
      h(
        "figcaption",
        {},
        h("span", {}, h("span", { class: "quiet" }, `${node} ${place} `), h("b", {}, name)),
        this.alone
          ? h("span", { class: group ? "number" : "number note" }, last)
          : h(
              "span",
              { class: "number" },
              last.map((value, source) => [source ? " · " : "", this.dot(source), ` ${value}`]),
            ),
      ),
      plot,
    );
    return { element, draw: () => this.plot(plot, every, group) };
  }

  plot(element, every, group) {
    const made = chart(element),
      top = Math.max(1, ...every.flat());
    const ticks = this.axis.ticks(0, this.axis.length, 4);
    const [line, quiet, bg, fold] = ["line", "quiet", "panel", "fold"].map(colour);
    const custom = (data, renderItem, z, silent) => ({ type: "custom", data, renderItem, z, silent, encode: { x: 0, y: 1 } });
    made.setOption({
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      tooltip: tooltip(item => this.tip(item.dataIndex, item.seriesIndex - 1, every)),
      grid: { left: 46, right: 10, top: 10, bottom: 24 },
      xAxis: {
        type: "value",
        min: 0,
        max: this.axis.length,
        axisLine: { lineStyle: { color: line } },
        axisTick: { customValues: ticks.places },
        axisLabel: {
          color: quiet,
          fontSize: 10.5,
          formatter: ticks.label,
          customValues: ticks.places,
          hideOverlap: true,
        },
        splitLine: { show: false },
      },
      yAxis: {
        type: "value",
        min: 0,
        max: top,
        interval: top,
        axisLabel: { color: quiet, fontSize: 10.5, formatter: value => short.format(value) },
        splitLine: { lineStyle: { color: line } },
      },
      series: [
        custom(
          this.axis.folds(0, this.axis.length).map(part => [part.at, 0, part.at + part.length]),
          (params, api) => {
            const [left] = api.coord([api.value(0), 0]),
              [right] = api.coord([api.value(2), 0]),
              { y, height } = params.coordSys;
            return { type: "rect", shape: { x: left, y, width: right - left, height }, style: { fill: fold } };
          },
          1,
          true,
        ),
        ...every.map((values, source) => {
          const at = this.counted.sources[source].t.map(t => this.axis.place(t)),
            stroke = colour(this.tone(source, group));
          return custom(
          values.map((value, i) => [at[i], value, at[i - 1] ?? at[i], values[i - 1] ?? value]),
          (_, api) => {
            const [x, y] = api.coord([api.value(0), api.value(1)]),
              [from, before] = api.coord([api.value(2), api.value(3)]);
            return {
              type: "group",
              children: [
                {
                  type: "polyline",
                  silent: true,
                  shape: { points: [[from, before], [x, before], [x, y]] },
                  style: { stroke, lineWidth: 1.5, fill: null },
                },
                { type: "circle", shape: { cx: x, cy: y, r: 10 }, style: { fill: "transparent" } },
                { type: "circle", shape: { cx: x, cy: y, r: 3 }, style: { fill: stroke, stroke: bg, lineWidth: 1 } },
              ],
            };
          },
          2,
          false,
          );
        }),
      ],
    });
    return made;
  }

  tip(i, source, every) {
    const values = every[source],
      { label, t, after } = this.counted.sources[source],
      grown = i ? values[i] - values[i - 1] : 0;
    return h(
      "div",
      { class: "tip" },
      !this.alone && h("div", {}, label),
      h("b", {}, whole.format(values[i]), grown > 0 && ` (+${whole.format(grown)})`),
      h("div", { class: "quiet" }, `${moment(t[i], 6)}, after: ${after[i]}`),
    );
  }
}

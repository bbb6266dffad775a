/* The time line of a part: lanes with bars and points, and the packets of a capture below them, on one folded axis. */

const SHOWN_LANES = 6,
  PACKETS_HEIGHT = 96,
  AXIS = 30,
  SLIDER = 44;

class Timeline {
  constructor(part, chosen) {
    this.part = part;
    this.chosen = chosen;
    this.open = new Set();
    this.closed = new Set();
    const captured = part.captures.flatMap(one => one.rows.map(row => row.t));
    this.end = Math.max(part.end, 1, ...captured.filter(t => t < part.end * 1.5));
    this.axis = new Folded(this.end, part.folds);
    this.capture = part.captures.reduce(
      (best, one) => (best && best.rows.filter(isBad).length >= one.rows.filter(isBad).length ? best : one),
      null,
    );
    for (const lane of part.lanes) {
      lane.bars.sort((a, b) => a[0] - b[0]);
      lane.barFrom = Float64Array.from(lane.bars, bar => this.axis.place(bar[0]));
      lane.barTo = Float64Array.from(lane.bars, bar => this.axis.place(bar[1]));
      lane.pointAt = Float64Array.from(lane.points, point => this.axis.place(point[0]));
    }
    this.names = h("div", { class: "names" });
    this.canvas = h("div", {
      class: "canvas",
      tabIndex: 0,
      role: "img",
      onkeydown: event => this.key(event),
      "aria-label":
        "Time line. Left and right move it, plus and minus zoom, 0 shows all. The same events are in the list below.",
    });
    this.box = h("div", { class: "timeline" }, this.names, this.canvas);
    this.detail = h(
      "div",
      { class: "detail small quiet", "aria-live": "polite" },
      "Point at a bar for what it is; click it, and the list of events goes there. Drag moves, Ctrl and the wheel zoom.",
    );
    this.legend = h("div", { class: "legend small quiet" });
    this.element = h("div", {}, this.tools(), this.box, this.legend, this.detail);
  }

  tools() {
    const act = (text, title, run) => h("button", { type: "button", title, onclick: run }, text);
    const select =
      this.part.captures.length > 1 &&
      h(
        "label",
        { class: "small quiet" },
        "packets of ",
        h(
          "select",
          {
            onchange: event => {
              this.capture = this.part.captures[event.target.selectedIndex];
              this.update();
            },
          },
          this.part.captures.map(one => h("option", { selected: one === this.capture }, one.file)),
        ),
      );
    return h(
      "div",
      { class: "tools" },
      act("−", "zoom out (key −)", () => this.zoom(2)),
      act("+", "zoom in (key +)", () => this.zoom(0.5)),
      act("All", "show all (key 0)", () => this.show(0, this.axis.length)),
      this.part.folds.length > 0 &&
        h(
          "span",
          { class: "small quiet" },
          `${this.part.folds.length} idle ${this.part.folds.length === 1 ? "part is" : "parts are"} folded`,
        ),
      select,
    );
  }

  rows() {
    const rows = [];
    for (const group of new Set(this.part.lanes.map(lane => lane.group))) {
      const lanes = this.part.lanes.filter(lane => lane.group === group);
      let shown = lanes;
      if (lanes.length > SHOWN_LANES && !this.open.has(group)) {
        const heavy = [...lanes]
          .sort((a, b) => b.weight[0] - a.weight[0] || b.weight[1] - a.weight[1])
          .slice(0, SHOWN_LANES);
        shown = lanes.filter(lane => heavy.includes(lane));
      }
      if (this.closed.has(group)) shown = [];
      rows.push({ group, lanes, hidden: lanes.length - shown.length });
      rows.push(...shown.map(lane => ({ lane })));
    }
    return rows;
  }

  draw() {
    this.phone = isPhone();
    this.height = this.phone ? 34 : 25;
    this.gutter = this.phone ? 10 : 290;
    this.box.style.setProperty("--gutter", this.phone ? "100%" : `${this.gutter}px`);
    this.rowsNow = this.rows();
    const lanesHeight = this.rowsNow.length * this.height;
    const packets = this.capture ? PACKETS_HEIGHT : 0;
    this.canvas.style.height = `${lanesHeight + AXIS + packets + SLIDER}px`;
    this.names.replaceChildren(...this.rowsNow.map((row, number) => this.name(row, number)));
    if (this.capture && !this.phone) {
      this.names.append(
        h(
          "div",
          { style: `top: ${lanesHeight + AXIS}px; height: ${PACKETS_HEIGHT}px` },
          h("span", {}, h("b", { class: "small quiet" }, "PACKETS "), this.capture.file),
        ),
      );
    }
    if (this.chart) forgetChart(this.chart);
    this.chart = chart(this.canvas);
    const grid = { left: this.gutter, right: 14, containLabel: false };
    const x = {
      type: "value",
      min: 0,
      max: this.axis.length,
      axisLine: { lineStyle: { color: colour("line") } },
      splitLine: { show: false },
    };
    const zoom = { xAxisIndex: this.capture ? [0, 1] : [0], filterMode: "none", throttle: 30 };
    this.chart.setOption({
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      tooltip: tooltip(item => this.tip(item)),
      grid: [
        { ...grid, top: 0, height: lanesHeight },
        { ...grid, top: lanesHeight + AXIS + 8, height: Math.max(0, packets - 14) },
      ],
      xAxis: [
        { ...x, gridIndex: 0 },
        { ...x, gridIndex: 1, axisLabel: { show: false }, axisTick: { show: false } },
      ],
      yAxis: [
        { type: "value", gridIndex: 0, min: 0, max: this.rowsNow.length, inverse: true, show: false },
        {
          type: "value",
          gridIndex: 1,
          show: packets > 0,
          minInterval: 1,
          splitNumber: 2,
          position: "right",
          axisLabel: { color: colour("quiet"), fontSize: 10, inside: true },
          splitLine: { lineStyle: { color: colour("line") } },
        },
      ],
      dataZoom: [
        {
          ...zoom,
          type: "inside",
          zoomOnMouseWheel: "ctrl",
          moveOnMouseMove: true,
          moveOnMouseWheel: false,
          preventDefaultMouseMove: false,
        },
        {
          ...zoom,
          type: "slider",
          left: this.gutter,
          right: 14,
          height: 22,
          bottom: 10,
          showDataShadow: false,
          labelFormatter: place => moment(this.axis.time(place), 3),
          borderColor: colour("line"),
          fillerColor: colour("slider"),
          textStyle: { color: colour("quiet"), fontSize: 11 },
          brushSelect: false,
        },
      ],
      series: [],
    });
    this.chart.on("datazoom", () => this.later());
    this.chart.on("click", item => item.data && this.pick(item.data[5]));
    this.window = this.window || [0, this.axis.length];
    this.show(...this.window);
  }

  name(row, number) {
    const style = `top: ${number * this.height}px; height: ${this.height}px`;
    if (row.lane) return h("div", { style, title: row.lane.name }, h("span", {}, row.lane.name));
    const some = row.hidden && !this.closed.has(row.group);
    const state = this.closed.has(row.group) ? "▸" : "▾";
    return h(
      "div",
      { style },
      h(
        "button",
        {
          type: "button",
          "aria-expanded": String(!this.closed.has(row.group)),
          onclick: () => this.toggle(this.closed, row.group),
        },
        `${state} ${row.group}`,
      ),
      (some || this.open.has(row.group)) &&
        h(
          "button",
          {
            type: "button",
            style: "margin-left: 10px; color: var(--accent)",
            onclick: () => this.toggle(this.open, row.group),
          },
          some ? `${row.hidden} more` : "fewer",
        ),
    );
  }

  toggle(set, group) {
    if (!set.delete(group)) set.add(group);
    this.draw();
  }

  show(start, end) {
    const span = Math.min(Math.max(end - start, 10), this.axis.length);
    const from = Math.max(0, Math.min(start, this.axis.length - span));
    const percent = place => (place / this.axis.length) * 100;
    this.chart.dispatchAction({ type: "dataZoom", start: percent(from), end: percent(from + span) });
    this.window = [from, from + span];
    this.update();
  }

  /* Shows a time with what is around it. */
  reach(t) {
    const place = this.axis.place(t),
      span = Math.min(this.window[1] - this.window[0], this.axis.length / 6);
    this.show(place - span / 3, place + (span * 2) / 3);
    this.box.scrollIntoView({ block: "nearest" });
  }

  zoom(factor) {
    const [start, end] = this.window,
      middle = (start + end) / 2,
      half = ((end - start) / 2) * factor;
    this.show(middle - half, middle + half);
  }

  key(event) {
    const [start, end] = this.window,
      step = (end - start) / 5;
    const acts = {
      ArrowLeft: () => this.show(start - step, end - step),
      ArrowRight: () => this.show(start + step, end + step),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.show(0, this.axis.length),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  later() {
    const zoom = this.chart.getOption().dataZoom[0];
    this.window = [(zoom.start / 100) * this.axis.length, (zoom.end / 100) * this.axis.length];
    if (!this.pending)
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        this.update();
      });
  }

  /* What is in the window, with bars and points that would share pixels made one. */
  update() {
    const [start, end] = this.window,
      width = Math.max(50, this.canvas.clientWidth - this.gutter - 14);
    const pixel = (end - start) / width;
    const ticks = this.axis.ticks(start, end, Math.max(2, Math.floor(width / 110)));
    const bars = [],
      points = [];
    this.rowsNow.forEach((row, number) => {
      if (row.lane) visible(row.lane, number, start, end, pixel, bars, points);
    });
    const label = {
      color: colour("quiet"),
      fontSize: 11,
      formatter: ticks.label,
      customValues: ticks.places,
      hideOverlap: true,
    };
    const drawn = look(this);
    this.chart.setOption(
      {
        xAxis: [{ axisLabel: label, axisTick: { customValues: ticks.places } }, {}],
        series: [
          this.custom(
            "rows",
            this.rowsNow.map((row, number) => [0, this.axis.length, number, 0, row.lane ? 0 : 1]),
            drawn.row,
            1,
            true,
          ),
          this.custom(
            "folds",
            this.axis.folds(start, end).map(part => [part.at, part.at + part.length, 0, 0, part.to - part.from]),
            drawn.fold,
            2,
            true,
          ),
          this.custom("bars", bars, drawn.bar, 3),
          this.custom("points", points, drawn.point, 4),
          ...packetSeries(this, start, end, width),
        ],
      },
      { replaceMerge: ["series"] },
    );
  }

  custom(id, data, renderItem, z, silent = false) {
    return {
      id,
      type: "custom",
      data,
      renderItem,
      z,
      silent,
      clip: true,
      encode: { x: [0, 1], y: 2 },
      xAxisIndex: 0,
      yAxisIndex: 0,
    };
  }

  tip(item) {
    if (item.seriesType === "bar")
      return h(
        "div",
        { class: "tip" },
        `${item.data[1]} × ${item.seriesName}, about ${moment(this.axis.time(item.data[0]))}`,
      );
    const [, , number, , index, event, count] = item.data,
      lane = this.rowsNow[number].lane;
    const lines = [];
    if (item.seriesId === "bars") {
      const bar = lane.bars[index];
      lines.push(
        h("b", {}, bar[2]),
        h("div", { class: "quiet" }, `${moment(bar[0], 6)} – ${moment(bar[1], 6)}, ${lasting(bar[1] - bar[0])}`),
      );
    }
    if (event >= 0) lines.push(h("div", {}, `${moment(this.part.events.t[event], 6)} ${this.part.events.text[event]}`));
    if (count > 1) lines.push(h("div", { class: "quiet" }, `and ${count - 1} more here: zoom in`));
    return h("div", { class: "tip" }, h("div", { class: "quiet" }, lane.name), lines);
  }

  pick(event) {
    if (!(event >= 0)) return;
    const { t, text, kinds, kind } = this.part.events;
    this.detail.replaceChildren(
      h("span", { class: "mono" }, moment(t[event], 9)),
      " ",
      h("b", {}, kinds[kind[event]]),
      " ",
      text[event],
    );
    this.chosen(event);
  }
}

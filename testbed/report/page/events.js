/* Rows are made for what is to be seen, so that a hundred thousand are no burden. */
class EventList {
  constructor(part) {
    this.part = part;
    this.chosen = -1;
    const { kinds } = part.events;
    this.kind = h(
      "select",
      { onchange: () => this.filter() },
      h("option", { value: "" }, "all kinds"),
      [...kinds].sort().map(kind => h("option", { value: kind }, kind)),
    );
    this.search = h("input", { type: "search", placeholder: "search the events", oninput: () => this.filter() });
    this.count = h("span", { class: "quiet small" });
    this.inner = h("div", { style: "position: relative" });
    this.box = h("div", { class: "events", tabIndex: 0, onscroll: () => this.draw() }, this.inner);
    this.element = h("div", {}, h("div", { class: "tools" }, this.kind, this.search, this.count), this.box);
    this.levels = new Map(part.lanes.flatMap(lane => lane.points.map(point => [point[2], point[1]])));
    this.filter();
  }
  filter() {
    const { t, text, kind, kinds, node, nodes } = this.part.events,
      words = this.search.value.toLowerCase(),
      only = kinds.indexOf(this.kind.value);
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
    const first = Math.max(0, Math.floor(this.box.scrollTop / 26) - 5),
      last = Math.min(this.found.length, first + 34);
    this.inner.replaceChildren(
      ...this.found.slice(first, last).map((i, offset) =>
        h(
          "div",
          {
            class: `row level-${this.levels.get(i) || "plain"} ${i === this.chosen ? "chosen" : ""}`,
            style: `top: ${(first + offset) * 26}px`,
            title: text[i],
          },
          h("span", { class: "number" }, moment(t[i], 6)),
          h("span", { class: "wide" }, kinds[kind[i]]),
          h("span", { class: "wide" }, nodes[node[i]]),
          h("span", {}, text[i]),
        ),
      ),
    );
  }
  choose(event) {
    this.chosen = event;
    if (!this.found.includes(event)) {
      this.kind.value = "";
      this.search.value = "";
      this.filter();
    }
    this.box.scrollTop = Math.max(0, this.found.indexOf(event) * 26 - 130);
    this.draw();
  }
}

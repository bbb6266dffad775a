/* Who answered ARP requests and neighbour solicitations, as captures show it. */

function answersTable({ rows, left_out, undecided }, reach) {
  const row = one =>
    h(
      "tr",
      { class: `level-${one.level}` },
      h("td", {}, h("button", { type: "button", class: "at", onclick: () => reach(one.t) }, moment(one.t, 6))),
      h("td", {}, one.asker),
      h("td", { class: "mono" }, one.ip),
      h("td", { class: "mono" }, one.mac || "–"),
      h("td", {}, h("b", {}, one.by)),
      h("td", {}, one.why),
      h("td", { class: "number" }, one.count),
    );
  const notes = [
    undecided > 0 &&
      `Of ${undecided} more request${undecided === 1 ? "" : "s"} no reply was captured, and the asker's links were not captured long enough to say that there was none.`,
    left_out > 0 && `${left_out} unremarkable rows are left out.`,
  ].filter(Boolean);
  return h(
    "div",
    {},
    rows.length > 0 &&
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "packets small answers" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["first", "asked by", "for", "answer", "answered by", "how it is known"].map(head => h("th", {}, head)),
              h("th", { class: "number" }, "times"),
            ),
          ),
          h("tbody", {}, rows.map(row)),
        ),
      ),
    notes.length > 0 && h("p", { class: "small quiet" }, notes.join(" ")),
  );
}

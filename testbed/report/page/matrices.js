/* Traffic matrices: a row for each rank that sends, a column for each that receives; the darker, the more bytes. */

function matrices(part) {
  return h("div", {}, part.matrices.map(matrix));
}

function matrix({ ranks, collectives, cells }) {
  const sizes = new Map(cells.map(([from, to, bytes]) => [from * ranks.length + to, bytes]));
  const most = Math.max(...sizes.values(), 1),
    total = [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0),
    pairs = ranks.length * (ranks.length - 1),
    few = ranks.length <= 16;
  const cell = (from, to) => {
    const bytes = sizes.get(from * ranks.length + to);
    if (!bytes) return h("td", { class: from === to ? "self" : "" });
    const share = Math.round(8 + (52 * bytes) / most);
    return h(
      "td",
      {
        style: `background: color-mix(in srgb, var(--accent) ${share}%, transparent)`,
        title: `rank ${from} on ${ranks[from]} to rank ${to} on ${ranks[to]}: ${bytes} bytes`,
      },
      few && size(bytes),
    );
  };
  return h(
    "figure",
    { class: "matrix" },
    h(
      "figcaption",
      { class: "small quiet" },
      `${collectives} collectives of ${ranks.length} ranks: ${size(total)}, ${size(most)} at most from one rank to another; `,
      `${Math.round(100 * (1 - sizes.size / pairs))} % of the pairs carry nothing. Rows send, columns receive.`,
    ),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: few ? "small" : "small dense" },
        h("thead", {}, h("tr", {}, h("th", {}), ranks.map((host, rank) => h("th", { title: host }, few ? `${rank}` : "")))),
        h(
          "tbody",
          {},
          ranks.map((host, from) =>
            h("tr", {}, h("th", {}, few || from % 8 === 0 ? `${from} ${host}` : ""), ranks.map((_, to) => cell(from, to))),
          ),
        ),
      ),
    ),
  );
}

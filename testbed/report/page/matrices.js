/* Traffic matrices: a row for each rank that sends, a column for each that receives; the darker, the more bytes. */

const MOST_DRAWN = 128; // ranks: a table has their square of cells

function matrices(part) {
  return h("div", {}, part.matrices.map(matrix));
}

function matrix({ ranks, collectives, cells }) {
  const sizes = new Map(cells.map(([from, to, bytes]) => [from * ranks.length + to, bytes]));
  const most = cells.reduce((largest, [, , bytes]) => Math.max(largest, bytes), 1),
    total = cells.reduce((sum, [, , bytes]) => sum + bytes, 0),
    pairs = ranks.length * (ranks.length - 1),
    drawn = ranks.length <= MOST_DRAWN;
  return h(
    "figure",
    { class: "matrix" },
    h(
      "figcaption",
      { class: "small quiet" },
      `${collectives} collective${collectives === 1 ? "" : "s"} of ${ranks.length} ranks: ${size(total)}, ${size(most)} at most from one rank to another; `,
      `${Math.round(100 * (1 - sizes.size / pairs))} % of the pairs carry nothing. `,
      drawn ? "Rows send, columns receive." : "There are too many ranks for a table.",
    ),
    drawn && matrixTable(ranks, sizes, most),
  );
}

function matrixTable(ranks, sizes, most) {
  const few = ranks.length <= 16;
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
  );
}

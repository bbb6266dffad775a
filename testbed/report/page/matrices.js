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
    drawn && squareTable(ranks, rank => `${rank}`, cellOf(ranks, sizes, most)),
  );
}

function cellOf(ranks, sizes, most) {
  return (from, to, few) => {
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
}

/* A row for each name, `cell(row, column, few)` is what it has in a column; only a few have texts. */
function squareTable(names, head, cell) {
  const few = names.length <= 16;
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: few ? "small" : "small dense" },
      h("thead", {}, h("tr", {}, h("th", {}), names.map((name, at) => h("th", { title: name }, few ? head(at) : "")))),
      h(
        "tbody",
        {},
        names.map((name, from) =>
          h("tr", {}, h("th", {}, few || from % 8 === 0 ? `${from} ${name}` : ""), names.map((_, to) => cell(from, to, few))),
        ),
      ),
    ),
  );
}

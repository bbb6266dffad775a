/* The packets of a part that matter. */

function packetTable(part) {
  const rows = part.captures
    .flatMap(capture => capture.rows.map(row => ({ ...row, capture })))
    .sort((a, b) => a.t - b.t || a.number - b.number);
  if (!rows.length)
    return h(
      "p",
      { class: "quiet" },
      prose("Nothing was captured. A scenario captures with `capture()` of an interface."),
    );
  const body = h("tbody", {});
  const only = h("input", { type: "checkbox", onchange: () => fill() });
  const select = h(
    "select",
    { onchange: () => fill() },
    h("option", {}, "all captures"),
    part.captures.map(one => h("option", {}, one.file)),
  );
  const fill = () => {
    const index = select.selectedIndex - 1;
    const wanted = rows.filter(
      row => (index < 0 || row.capture === part.captures[index]) && (!only.checked || row.level !== "plain"),
    );
    body.replaceChildren(...wanted.slice(0, 400).flatMap(row => packetRow(row, part)));
    if (wanted.length > 400)
      body.append(
        h("tr", {}, h("td", { colSpan: 5, class: "quiet" }, `${wanted.length - 400} more: choose a capture`)),
      );
  };
  fill();
  const links = part.captures.map(one => [
    h("a", { href: address(`${part.directory}/${one.file}`) }, one.file),
    ` (${one.complete ? one.frames : `more than ${one.frames}`} frames${one.left_out ? `, ${one.left_out} unremarkable rows left out` : ""}) `,
  ]);
  return h(
    "div",
    {},
    h(
      "p",
      { class: "small quiet" },
      "A row is what follows each other: a message, a try of it, repeated requests. Open a row for the fields of its first packet. Captures, for Wireshark: ",
      links,
    ),
    h("div", { class: "tools small" }, select, h("label", {}, only, " only what is remarkable")),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "packets small" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", {}, "time"),
            h("th", { class: "wide" }, "capture, frame"),
            h("th", { class: "wide number" }, "packets"),
            h("th", {}, "packet"),
            h("th", {}, "remarkable"),
          ),
        ),
        body,
      ),
    ),
  );
}

function packetRow(row, part) {
  const frames = row.count > 1 ? `${row.number}–${row.last_number}` : `${row.number}`;
  let open = null;
  const toggle = () => {
    if (open) {
      open.remove();
      open = null;
      button.setAttribute("aria-expanded", "false");
      return;
    }
    const filter =
      row.count > 1
        ? `frame.number >= ${row.number} && frame.number <= ${row.last_number}`
        : `frame.number == ${row.number}`;
    open = h(
      "tr",
      {},
      h(
        "td",
        { colSpan: 5 },
        h(
          "div",
          { class: "layers" },
          row.layers.map(([name, fields]) =>
            h("div", { class: "panel" }, h("h3", { class: "small" }, name), pairs("", fields)),
          ),
        ),
        h(
          "div",
          { class: "small quiet" },
          "In Wireshark: ",
          h("a", { href: address(`${part.directory}/${row.capture.file}`) }, row.capture.file),
          " with the filter ",
          h("code", {}, filter),
        ),
      ),
    );
    element.after(open);
    button.setAttribute("aria-expanded", "true");
  };
  const button = h(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      style: "border: 0; background: none; padding: 0; text-align: left; color: inherit",
      onclick: event => {
        event.stopPropagation();
        toggle();
      },
    },
    row.text,
  );
  const element = h(
    "tr",
    { class: `row level-${row.level}`, onclick: toggle },
    h("td", { class: "mono number", style: "text-align: left" }, moment(row.t, 6)),
    h("td", { class: "wide mono" }, `${row.capture.file} ${frames}`),
    h("td", { class: "wide number" }, row.count),
    h("td", {}, button),
    h("td", {}, row.why || null),
  );
  return [element];
}

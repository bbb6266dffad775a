/* Pingmeshes: a row for each NIC that sends probes, a column for each that receives; the redder, the more are lost. */

function probes(part) {
  return h("div", {}, part.probes.map(mesh));
}

function mesh({ t, protocol, nics, bytes, sent, arrived, median_us, errors, lost_at, slow_ports, resent }) {
  const sum = table => table.flat().reduce((total, count) => total + count, 0),
    all = sum(sent),
    lost = all - sum(arrived),
    reasons = new Map(errors.map(([from, to, reason]) => [`${from} ${to}`, reason])),
    medians = median_us.flat().filter(one => one !== null),
    slowest = Math.max(1, ...medians);
  const cell = (from, to, few) => {
    if (from === to) return h("td", { class: "self" });
    const gone = sent[from][to] - arrived[from][to],
      share = sent[from][to] ? gone / sent[from][to] : 1,
      median = median_us[from][to];
    const colour =
      share > 0
        ? `color-mix(in srgb, var(--bad) ${Math.round(15 + 60 * share)}%, transparent)`
        : `color-mix(in srgb, var(--accent) ${Math.round(4 + (46 * (median ?? 0)) / slowest)}%, transparent)`;
    const reason = reasons.get(`${nics[from]} ${nics[to]}`);
    return h(
      "td",
      {
        style: `background: ${colour}`,
        title: `${nics[from]} to ${nics[to]}: ${arrived[from][to]} of ${sent[from][to]} arrived${reason ? `; ${reason}` : ""}`,
      },
      few && (median === null ? "none" : `${Math.round(median)}${gone ? ` −${gone}` : ""}`),
    );
  };
  const what = protocol === "rdma" ? "RDMA (UD), one way" : "TCP, until the SYN is answered";
  return h(
    "figure",
    { class: "matrix" },
    h(
      "figcaption",
      { class: "small quiet" },
      `${moment(t)}: ${what}, ${bytes} bytes, median in µs. Rows send, columns receive. `,
      lost ? `${lost} of ${all} probes are lost.` : "No probe is lost.",
    ),
    squareTable(nics, at => `${at}`, cell),
    h(
      "ul",
      { class: "small" },
      lost_at.map(({ place, count }) => h("li", {}, `${count} last seen: ${place}`)),
      Object.entries(slow_ports).map(([port, us]) => h("li", {}, `${port} keeps packets for ${Math.round(us)} µs`)),
      resent > 0 && h("li", {}, `${resent} connections needed a second SYN, or a second answer to it`),
    ),
  );
}

/* The paths of the flows between the ranks of jobs, those by one chain of switches together. */
const MOST_PATHS = 200;

function paths(part) {
  return h("div", {}, part.paths.map(pathTable));
}

function pathTable({ t, name, flows, unknown }) {
  const shown = flows.slice(0, MOST_PATHS);
  return h(
    "div",
    {},
    h(
      "p",
      { class: "small quiet" },
      `${name}, at ${moment(t)}: the interfaces that send the packets from one rank to another, in order, as the switches were asked. `,
      flows.length > shown.length && `${flows.length - shown.length} more flows are in events.jsonl.`,
    ),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "small" },
        h("thead", {}, h("tr", {}, h("th", {}, "from"), h("th", {}, "to"), h("th", {}, "UDP source port"), h("th", {}, "path"))),
        h(
          "tbody",
          {},
          shown.map(([from, to, port, ends]) =>
            h("tr", {}, h("td", {}, `rank ${from}`), h("td", {}, `rank ${to}`), h("td", {}, `${port}`), h("td", { class: "mono" }, ends.join(" → "))),
          ),
        ),
      ),
    ),
    unknown.length > 0 && h("ul", { class: "small" }, unknown.slice(0, 20).map(text => h("li", {}, text))),
  );
}

/* The sections of a part below its packets: counters, real gear, files. */

function counters(part) {
  if (!part.counters.length) return h("p", { class: "quiet" }, "The counters were not read.");
  const about = one => part.meanings[one[2]];
  const bad = part.counters
    .filter(one => about(one)[0])
    .sort((a, b) => b[3] - a[3])
    .slice(0, 24);
  const box = h("div", {});
  const plot = h("div", { style: `height: ${bad.length * 22 + 30}px` });
  if (bad.length)
    box.append(
      h("p", { class: "small quiet" }, "Counters of errors, drops and retries at the end that are not 0:"),
      plot,
    );
  else box.append(h("p", {}, "No counter of an error, a drop or a retry is above 0."));
  const name = one => `${one[0]} ${one[1]} ${one[2]}`;
  const described = one => `${one[3]} ${about(one)[1]}, ${about(one)[2]}`;
  const draw = () =>
    bad.length &&
    chart(plot).setOption({
      animation: false,
      grid: { left: isPhone() ? 170 : 330, right: isPhone() ? 60 : 210, top: 4, bottom: 22 },
      xAxis: {
        type: "value",
        minInterval: 1,
        splitLine: { lineStyle: { color: colour("line") } },
        axisLabel: { color: colour("quiet") },
      },
      yAxis: {
        type: "category",
        inverse: true,
        data: bad.map(name),
        axisTick: { show: false },
        axisLine: { show: false },
        axisLabel: { color: colour("text"), width: isPhone() ? 160 : 320, overflow: "truncate" },
      },
      series: [
        {
          type: "bar",
          data: bad.map(one => one[3]),
          color: colour("note"),
          barMaxWidth: 14,
          label: {
            show: true,
            position: "right",
            color: colour("text"),
            formatter: item => (isPhone() ? item.value : described(bad[item.dataIndex])),
          },
        },
      ],
    });
  const all = h(
    "details",
    { class: "about" },
    h("summary", {}, `All ${part.counters.length} counters that are not 0`),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "small mono" },
        h(
          "tbody",
          {},
          part.counters.map(one => {
            const [isBad, unit, owner, text] = about(one);
            return h(
              "tr",
              { class: isBad ? "note" : "", title: text },
              [...one.slice(0, 3), owner].map(cell => h("td", {}, cell)),
              h("td", { class: "number" }, one[3]),
              h("td", {}, unit),
            );
          }),
        ),
      ),
    ),
  );
  box.append(all);
  return { element: box, draw };
}

function gear(part, run) {
  const quoted = (run.text.match(/On real gear: [\s\S]*?(?=\n\n|$)/) || [])[0];
  return h(
    "div",
    {},
    quoted &&
      h(
        "blockquote",
        { class: "quote" },
        prose(quoted),
        h("div", { class: "small quiet" }, `From the description of ${run.name}.`),
      ),
    h(
      "div",
      { class: "gear" },
      part.gear.map(one =>
        h(
          "div",
          { class: "panel" },
          h("h3", {}, one.title),
          h(
            "table",
            { class: "small" },
            h(
              "tbody",
              {},
              one.commands.map(command =>
                h(
                  "tr",
                  {},
                  h("td", {}, command.where),
                  h("td", {}, h("code", {}, command.run), h("div", { class: "quiet" }, command.look)),
                ),
              ),
            ),
          ),
          h("p", { class: "small quiet" }, "Source: ", one.source),
        ),
      ),
    ),
    !quoted &&
      !part.gear.length &&
      h("p", { class: "quiet" }, "Nothing in this run has a counterpart in the list yet."),
    h("p", { class: "small quiet" }, "What differs between this lab and hardware is in docs/fidelity.md of testbed."),
  );
}

/* The commands that a user gave in a lab, and what came back. */
function typed(part, reach) {
  return h(
    "ol",
    { class: "moments" },
    part.typed.map(([t, command, status, back]) =>
      h(
        "li",
        { class: "step" },
        h("button", { type: "button", class: "at", onclick: () => reach(t) }, moment(t)),
        h(
          "div",
          {},
          h("code", {}, `testbed ${command}`),
          status === null && h("span", { class: "quiet" }, " went on until the end of the lab"),
          status > 0 && h("span", { class: "bad" }, ` status ${status}`),
          back && h("pre", { class: "back" }, back),
        ),
      ),
    ),
  );
}

function files(part) {
  return h(
    "div",
    { class: "files" },
    part.files.map(([name, link, bytes]) =>
      h("div", {}, h("a", { href: address(link) }, name), h("span", { class: "quiet" }, size(bytes))),
    ),
  );
}

/* What a time line draws: which bars and points are in its window, how they look, and the packets below them. */

const LEVELS = ["plain", "good", "note", "bad"];
const TOUCH = 6;

/* How an item is drawn; colours are read once. */
function look(timeline) {
  const fill = { plain: colour("bar"), good: colour("good"), note: colour("note"), bad: colour("bad") };
  const [text, line, quiet, bg, panel] = ["bar-text", "line", "quiet", "bg", "panel"].map(colour);
  const top = timeline.phone ? 15 : 4,
    low = timeline.phone ? 3 : 4,
    height = timeline.height;
  const area = (params, api) => {
    const [x0, y] = api.coord([api.value(0), api.value(2)]),
      [x1] = api.coord([api.value(1), api.value(2)]);
    const { x, width } = params.coordSys,
      left = Math.max(x0, x - 2),
      right = Math.min(x1, x + width + 2);
    return { left, right, y };
  };
  return {
    row: (params, api) => {
      const { y } = area(params, api),
        { x, width } = params.coordSys;
      return {
        type: "rect",
        shape: { x: 0, y, width: x + width, height },
        style: { fill: api.value(4) ? panel : bg, stroke: line, lineWidth: api.value(4) ? 1 : 0.35 },
      };
    },
    fold: (params, api) => {
      const { left, right } = area(params, api),
        { y, height: all } = params.coordSys;
      return {
        type: "group",
        children: [
          {
            type: "rect",
            shape: { x: left, y, width: Math.max(1, right - left), height: all },
            style: { fill: colour("fold") },
          },
          ...(right - left > 26
            ? [
                {
                  type: "text",
                  style: {
                    text: `⋯ ${lasting(api.value(4))}`,
                    x: (left + right) / 2,
                    y: y + 3,
                    textAlign: "center",
                    fill: quiet,
                    fontSize: 10,
                    width: right - left,
                    overflow: "truncate",
                  },
                },
              ]
            : []),
        ],
      };
    },
    bar: (params, api) => {
      const { left, right, y } = area(params, api),
        level = LEVELS[api.value(3)],
        lane = timeline.rowsNow[api.value(2)].lane;
      if (right < left) return null;
      const width = Math.max(2, right - left),
        bar = lane.bars[api.value(4)];
      const merged = api.value(6) > 1;
      return {
        type: "rect",
        shape: { x: left, y: y + top, width, height: height - top - low, r: Math.min(3, width / 2) },
        style: { fill: fill[level], opacity: level === "plain" ? 0.85 : 0.92 },
        emphasis: { style: { opacity: 1, stroke: fill[level], lineWidth: 2 } },
        textContent:
          width > 34 && !merged
            ? {
                style: {
                  text: bar[2],
                  fill: level === "plain" ? text : bg,
                  fontSize: 11.5,
                  width: width - 10,
                  overflow: "truncate",
                },
              }
            : undefined,
        textConfig: { position: "insideLeft", distance: 6 },
      };
    },
    point: (params, api) => {
      const [x, y] = api.coord([api.value(0), api.value(2)]),
        level = LEVELS[api.value(3)],
        many = api.value(6) > 1;
      const middle = y + top + (height - top - low) / 2;
      return {
        type: "circle",
        shape: { cx: x, cy: middle, r: many ? 5 : 3.8 },
        style: { fill: level === "plain" ? quiet : fill[level], stroke: bg, lineWidth: 1.3 },
        emphasis: { style: { lineWidth: 2.5 } },
      };
    },
  };
}

/* The packets of the capture that was chosen, of each category in bins as wide as a bar. */
function packetSeries(timeline, start, end, width) {
  if (!timeline.capture) return [];
  const bins = Math.max(20, Math.floor(width / 7)),
    wide = (end - start) / bins;
  const fill = {
    "RDMA requests": colour("accent"),
    "sent again": colour("note"),
    responses: colour("good"),
    "NAKs and CNPs": colour("bad"),
    "ARP and ND": colour("arp"),
    other: colour("quiet"),
  };
  timeline.legend.replaceChildren(
    "Packets: ",
    ...Object.keys(timeline.capture.times).map(name =>
      h("span", {}, h("i", { style: `background: ${fill[name]}` }), name),
    ),
  );
  return Object.entries(timeline.capture.times).map(([name, steps]) => {
    const counts = new Uint32Array(bins);
    let t = 0;
    for (const step of steps) {
      t += step;
      const bin = Math.floor((timeline.axis.place(Math.min(Math.max(t * 1000, 0), timeline.end)) - start) / wide);
      if (bin >= 0 && bin < bins) counts[bin]++;
    }
    return {
      id: `packets ${name}`,
      name,
      type: "bar",
      stack: "packets",
      xAxisIndex: 1,
      yAxisIndex: 1,
      barWidth: Math.max(1, width / bins - 1.5),
      color: fill[name],
      data: Array.from(counts, (count, bin) => [start + (bin + 0.5) * wide, count]).filter(one => one[1]),
    };
  });
}

const isBad = row => row.level === "bad";

/* Items are [place, place, row, level, index, event, how many]. */
function visible(lane, row, start, end, pixel, bars, points) {
  let last = null;
  for (let i = 0; i < lane.bars.length; i++) {
    const from = lane.barFrom[i],
      to = lane.barTo[i];
    if (to < start) continue;
    if (from > end) break;
    const level = LEVELS.indexOf(lane.bars[i][3]);
    if (last && to - from < 3 * pixel && from - last[1] < 2 * pixel && last[1] - last[0] < 12 * pixel) {
      last[1] = Math.max(last[1], to);
      last[3] = Math.max(last[3], level);
      last[6]++;
    } else {
      last = [from, to, row, level, i, lane.bars[i][4], 1];
      bars.push(last);
    }
  }
  last = null;
  for (let i = 0; i < lane.points.length; i++) {
    const at = lane.pointAt[i];
    if (at < start || at > end) continue;
    const level = LEVELS.indexOf(lane.points[i][1]);
    if (last && at - last[0] < TOUCH * pixel) {
      last[6]++;
      if (level > last[3]) [last[3], last[4], last[5]] = [level, i, lane.points[i][2]];
    } else {
      last = [at, at, row, level, i, lane.points[i][2], 1];
      points.push(last);
    }
  }
}

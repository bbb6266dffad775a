/* Virtual time on an axis whose idle parts are folded: `place` of nanoseconds, and `time` of a place. */
class Folded {
  constructor(end, folds) {
    const idle = folds.reduce((sum, [from, to]) => sum + to - from, 0);
    const active = Math.max(1, end - idle);
    this.fold = folds.length ? active * Math.min(0.025, 0.4 / folds.length) : 0;
    this.parts = [];
    let place = 0,
      time = 0;
    const add = (until, length, folded) => {
      if (until <= time) return;
      this.parts.push({ from: time, to: until, at: place, length, folded });
      place += length;
      time = until;
    };
    for (const [from, to] of folds) {
      add(from, from - time, false);
      add(to, this.fold, true);
    }
    add(Math.max(end, 1), Math.max(end, 1) - time, false);
    this.length = place;
  }
  _part(value, key, span) {
    let low = 0,
      high = this.parts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.parts[middle][key] <= value) low = middle;
      else high = middle - 1;
    }
    return this.parts[low];
  }
  place(t) {
    const part = this._part(t, "from");
    return part.at + ((t - part.from) / (part.to - part.from)) * part.length;
  }
  time(place) {
    const part = this._part(place, "at");
    return part.from + ((place - part.at) / part.length) * (part.to - part.from);
  }
  folds(start, end) {
    return this.parts.filter(part => part.folded && part.at < end && part.at + part.length > start);
  }
  /* Places with round times, `wanted` of them at most, none in a fold, and where time goes on after a fold. */
  ticks(start, end, wanted) {
    const least = (end - start) / wanted;
    const step =
      [1, 2, 5, 10, 20, 50, 100, 200, 500]
        .flatMap(n => [n, n * 1e3, n * 1e6])
        .concat(
          [1, 2, 5, 10, 15, 30].map(n => n * SECOND),
          [1, 2, 5, 10, 15, 30].map(n => n * MINUTE),
          [1, 2, 4, 6, 12, 24].map(n => n * HOUR),
        )
        .sort((a, b) => a - b)
        .find(n => n >= least) || 24 * HOUR;
    const found = [];
    for (const part of this.parts) {
      if (part.folded || part.at + part.length < start || part.at > end) continue;
      const from = Math.max(part.from, this.time(Math.max(start, part.at)));
      const to = Math.min(part.to, this.time(Math.min(end, part.at + part.length)));
      const before = found.length;
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) found.push(this.place(t));
      if (found.length === before) found.push(this.place(from));
    }
    const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / SECOND) + 1e-9)));
    const kept = [];
    for (const place of found) if (!kept.length || place - kept[kept.length - 1] >= least * 0.7) kept.push(place);
    return { places: kept, label: place => moment(this.time(place), digits) };
  }
}

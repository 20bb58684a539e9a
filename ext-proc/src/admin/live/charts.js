// The charts of the last ten minutes, or of the whole minutes since the first sample.
const SPAN_MS_MAX = 600000, MINUTE_MS = 60000, CHART_HEIGHT = 150, LEFT = 46, BOTTOM = 20, TOP = 8, BREAK_MS = 15000;
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return [1, 2, 5, 10].map(step => step * power).find(top => top >= value);
}
function spanMs(first, end) {
  return Math.min(SPAN_MS_MAX, MINUTE_MS * Math.max(1, Math.ceil((end - first) / MINUTE_MS)));
}
function ago(ms) {
  return ms < MINUTE_MS ? `${ms / 1000} s ago` : `${ms / MINUTE_MS} min ago`;
}
function axes(svg, width, top, span, format) {
  const height = CHART_HEIGHT - TOP - BOTTOM;
  for (const share of [0, 0.5, 1]) {
    const y = TOP + height * (1 - share);
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: width, y1: y, y2: y }));
    svg.append(shape("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, format(top * share)));
  }
  [["start", 0, ago(span)], ["middle", 0.5, ago(span / 2)], ["end", 1, "now"]].forEach(([anchor, share, text]) =>
    svg.append(shape("text", { x: LEFT + share * (width - LEFT), y: CHART_HEIGHT - 4, "text-anchor": anchor }, text)));
}
function pieces(points) {
  const all = [];
  points.forEach((point, i) => {
    const isNew = i === 0 || point.at - points[i - 1].at > BREAK_MS;
    if (isNew) all.push([]);
    all[all.length - 1].push(point);
  });
  return all;
}
// Series are lists of { name, index, values }, with a value or null for each sample.
function chart(card, title, samples, series, { isStacked = false, top, format, hint }) {
  card.append(element("h3", title, "", hint));
  if (!samples.length || !series.some(one => one.values.some(value => value !== null))) {
    card.append(element("p", "Nothing yet: the first sample comes after ten seconds of traffic.", "nothing"));
    return;
  }
  const width = Math.max(240, card.clientWidth - 28), height = CHART_HEIGHT - TOP - BOTTOM;
  const sums = samples.map(() => 0);
  const layers = series.map(one => one.values.map((value, i) => {
    const base = isStacked ? sums[i] : 0;
    if (isStacked) sums[i] += value ?? 0;
    return value === null ? null : [base, base + value];
  }));
  const most = top ?? niceTop(Math.max(...layers.flat().filter(layer => layer !== null).map(layer => layer[1])));
  const end = Date.now(), span = spanMs(samples[0].time_unix_ms, end);
  const x = at => LEFT + Math.max(0, 1 - (end - at) / span) * (width - LEFT);
  const y = value => TOP + height * (1 - Math.min(1, value / most));
  const svg = drawing(width, CHART_HEIGHT, title);
  axes(svg, width, most, span, format);
  series.forEach((one, s) => {
    const points = samples.flatMap((sample, i) => layers[s][i] ? [{ at: sample.time_unix_ms, layer: layers[s][i] }] : []);
    for (const piece of pieces(points)) {
      const line = piece.map(point => `${x(point.at)},${y(point.layer[1])}`);
      if (piece.length === 1) {
        svg.append(shape("circle", { class: `area s${one.index}`, cx: x(piece[0].at), cy: y(piece[0].layer[1]), r: 2 }));
      } else if (isStacked) {
        const base = piece.map(point => `${x(point.at)},${y(point.layer[0])}`).reverse();
        svg.append(shape("polygon", { class: `area s${one.index}`, points: [...line, ...base].join(" ") }));
      } else {
        svg.append(shape("polyline", { class: `curve s${one.index}`, points: line.join(" ") }));
      }
    }
  });
  const legend = element("p", undefined, "legend");
  series.forEach(one => {
    const last = one.values.findLast(value => value !== null);
    const entry = element("span", undefined, "", one.hint);
    entry.append(element("i", undefined, `s${one.index}`), `${one.name} ${last === undefined ? "" : format(last)}`);
    legend.append(entry);
  });
  card.append(svg, legend);
}
function showCharts(parent, samples) {
  // All cards have their place before a chart asks for its width.
  const cards = [0, 1, 2].map(() => element("div", undefined, "card"));
  parent.append(...cards);
  const counts = new Map();
  samples.forEach(sample => Object.entries(sample.decisions).forEach(([reason, count]) => counts.set(reason, (counts.get(reason) ?? 0) + count)));
  const order = Object.keys(REASONS);
  const reasons = [...counts.keys()].sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const rate = (sample, count) => sample.seconds > 0 ? (count ?? 0) / sample.seconds : null;
  const byReason = reasons.map((reason, i) => {
    const [name, hint] = words(REASONS, reason);
    return { name, hint, index: i % 7, values: samples.map(sample => rate(sample, sample.decisions[reason])) };
  });
  if (samples.some(sample => sample.rejected)) byReason.push({ name: "rejected", hint: "No replica got the request.", index: 7, values: samples.map(sample => rate(sample, sample.rejected)) });
  const perSecond = value => number(value, value < 10 ? 1 : 0);
  chart(cards[0], "Requests per second, by reason", samples, byReason, { isStacked: true, format: perSecond, hint: "Why requests went where they went" });
  const hits = [{ name: "from the cache", index: 0, values: samples.map(sample => sample.prompt_tokens > 0 ? sample.cached_tokens / sample.prompt_tokens : null) }];
  chart(cards[1], "Prompt tokens from the cache", samples, hits, { top: 1, format: value => percent(value, 1), hint: "Share of the prompt tokens that engines had in their caches" });
  const times = [["95 of 100 requests", 1, "ttft_p95_ms"], ["half of the requests", 2, "ttft_p50_ms"]];
  const curves = times.map(([name, index, member]) => ({ name, index, values: samples.map(sample => sample[member] ?? null) }));
  chart(cards[2], "Time to first token (p50, p95)", samples, curves, { format: time, hint: "Time from the request to the first byte of the response; an answer that is not streamed has its first byte at its end" });
}

// The picture of the traffic: from Envoy to the replicas.
const FLOW_REPLICAS_MAX = 16, ROW = 34, WIRE_MAX = 16;
function affinityColour(share) { return `hsl(${210 - 70 * share} ${8 + 62 * share}% ${66 - 26 * share}%)`; }
function trafficOf(replicas, decisions) {
  const found = new Map(replicas.map(replica => [replica.address, { count: 0, matched: 0 }]));
  for (const decision of decisions) {
    const traffic = found.get(decision.target);
    if (!traffic) continue;
    traffic.count += 1;
    traffic.matched += decision.matched_share;
  }
  return found;
}
function showFlow(parent, pool, replicas, decisions, sample) {
  const card = element("div", undefined, "card flow");
  card.append(element("h3", "Where requests go", "", "Of the last hundred decisions"));
  parent.append(card);
  const shown = replicas.slice(0, FLOW_REPLICAS_MAX);
  if (!shown.length) {
    card.append(element("p", "The pool has no replica.", "nothing"));
    return;
  }
  const width = Math.max(280, card.clientWidth - 28), height = Math.max(90, shown.length * ROW + 8);
  const isNarrow = width < 560, boxWidth = isNarrow ? 96 : 150, right = isNarrow ? 132 : 300;
  const svg = drawing(width, height, "Requests from Envoy to the replicas");
  const middle = height / 2, from = boxWidth, to = width - right;
  const traffic = trafficOf(shown, decisions);
  const most = Math.max(1, ...[...traffic.values()].map(one => one.count));
  shown.forEach((replica, i) => {
    const y = 4 + i * ROW + ROW / 2, one = traffic.get(replica.address);
    if (one.count > 0) {
      const bend = (from + to) / 2;
      const wire = shape("path", { class: "wire", d: `M${from} ${middle} C${bend} ${middle} ${bend} ${y} ${to} ${y}`, "stroke-width": Math.max(1.5, WIRE_MAX * one.count / most) });
      wire.append(shape("title", {}, `${one.count} of the last ${decisions.length} decisions`));
      svg.append(wire);
    }
  });
  svg.append(shape("rect", { class: "box", x: 1, y: middle - 38, width: boxWidth - 2, height: 76, rx: 8, fill: "var(--page)" }));
  const rate = sample && sample.seconds > 0 ? Object.values(sample.decisions).reduce((sum, count) => sum + count, 0) / sample.seconds : null;
  const lines = [["strong", "Envoy"], ["", rate === null ? "measuring" : `${number(rate, 1)} requests/s`], ["", `${number(pool.queue_length)} in the queue`]];
  lines.forEach(([kind, text], i) => svg.append(shape("text", { class: kind, x: boxWidth / 2, y: middle - 14 + 18 * i, "text-anchor": "middle" }, text)));
  shown.forEach((replica, i) => {
    const y = 4 + i * ROW + 3, one = traffic.get(replica.address), high = ROW - 6;
    const usage = replica.kv_usage ?? 0, affinity = one.count > 0 ? one.matched / one.count : 0;
    const box = { x: to, y, width: isNarrow ? 40 : 70, height: high, rx: 5 };
    const fill = shape("rect", { x: to, y: y + high * (1 - usage), width: box.width, height: high * usage, rx: 3, fill: affinityColour(affinity) });
    fill.append(shape("title", {}, `KV memory in use: ${percent(usage, 1)}; of the prompts ${percent(affinity, 1)} was known`));
    svg.append(fill, shape("rect", { class: replica.failure ? "box bad" : "box", ...box }));
    const text = to + box.width + 8, port = replica.address.slice(replica.address.lastIndexOf(":"));
    svg.append(shape("text", { class: "strong", x: text, y: y + 12 }, isNarrow ? port : replica.address));
    const state = replica.failure ? words(STATES, replica.availability)[0] : `${number(replica.outstanding)} in flight${isNarrow ? "" : `, ${percent(affinity, 1)} known`}`;
    svg.append(shape("text", { x: text, y: y + 25 }, state));
  });
  const more = replicas.length > shown.length ? ` ${replicas.length - shown.length} more replicas are in the table.` : "";
  card.append(svg, element("p", `Line: share of the traffic. Box: filled by the KV memory in use; the greener, the more of its prompts its cache had.${more}`, "legend"));
}

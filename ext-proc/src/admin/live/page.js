// The page: what it reads every two seconds, and its buttons.
const EVERY_MS = 2000;
let token = "", isPaused = false, lastDecisions = [];
function quantile(values, share) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : null;
}
function card(parent, title) {
  const made = element("div", undefined, "card"), tiles = element("div", undefined, "tiles");
  made.append(element("h3", title), tiles);
  parent.append(made);
  return tiles;
}
function showFigures(parent, pool, { replicas, decisions, sample, scaled }) {
  const cards = element("div", undefined, "cards"), counters = pool.counters;
  const first = decisions.map(decision => decision.response?.ttft_ms);
  const rate = sample && sample.seconds > 0 ? Object.values(sample.decisions).reduce((sum, count) => sum + count, 0) / sample.seconds : null;
  const traffic = card(cards, "Traffic");
  tile(traffic, "requests per second", number(rate, 1), "In the last five seconds");
  tile(traffic, "in flight", number(pool.in_flight), "Requests at a replica");
  tile(traffic, "answered", number(counters.finished_ok), "Since the service started");
  tile(traffic, "failed", number(counters.finished_failed), "Since the service started");
  const latency = card(cards, "Latency");
  tile(latency, "first byte, half of them", time(quantile(first, 0.5)), "Median of the last hundred requests");
  tile(latency, "first byte, 95 of 100", time(quantile(first, 0.95)), "95th percentile of the last hundred requests");
  tile(latency, "in the queue", number(pool.queue_length), "Requests that wait for a replica");
  tile(latency, "oldest wait", time(pool.oldest_wait_ms), "Wait of the oldest request in the queue");
  const cache = card(cards, "Cache and replicas");
  const usages = replicas.map(replica => replica.kv_usage).filter(Number.isFinite);
  const fullest = usages.length ? Math.max(...usages) : null;
  const source = counters.measured_prompt_tokens ? "measured" : "counted";
  tile(cache, "prompt from the cache", percent(counters[source + "_cached_tokens"], counters[source + "_prompt_tokens"]), "Share of the prompt tokens that engines had in their caches, since the service started");
  tile(cache, "replicas available", `${pool.available_replicas} of ${pool.replicas}`, "Replicas that take another request");
  tile(cache, "of it predicted", percent(counters.predicted_cached_tokens, counters.measured_prompt_tokens), "Share of the prompt tokens that the service believed to be in the caches");
  tile(cache, "largest KV use", percent(fullest, fullest === null ? 0 : 1), "KV memory in use of the fullest replica");
  if (scaled) {
    tile(cache, `replicas wanted (${scaled.reason.replaceAll("_", " ")})`, number(scaled.desired), "By the plan of the service");
    tile(cache, "demand / forecast", `${number(scaled.demand_replicas, 1) ?? "–"} / ${number(scaled.forecasts[scaled.model]?.upper, 1) ?? "–"}`, "In replicas");
  }
  parent.append(cards);
}
function showPools(pools, replicas, decisions, scaling, histories) {
  const all = element("div");
  $("pools").replaceChildren(all);
  for (const pool of pools) {
    const block = element("section"), counters = pool.counters;
    all.append(block);
    const title = element("h2", pool.pool);
    title.append(" ", element("span", `${pool.policy.replaceAll("_", " ")}, push mode ${pool.push}`, "dim"));
    block.append(title);
    if (counters.overridden) block.append(element("p", `Envoy sent ${number(counters.overridden)} requests elsewhere than to their selected replica: a route or a cluster overrides the choice`, "bad"));
    if (counters.timed_out) block.append(element("p", `Timeouts of Envoy's routes ended ${number(counters.timed_out)} requests`, "bad"));
    if (pool.source_problem) block.append(element("p", pool.source_problem, "bad"));
    const own = decisions.filter(decision => decision.pool === pool.pool);
    const samples = histories.find(history => history.pool === pool.pool)?.samples ?? [];
    const last = samples[samples.length - 1];
    const members = replicas.filter(replica => replica.pool === pool.pool);
    showFigures(block, pool, { replicas: members, decisions: own, sample: last, scaled: scaling.pools.find(scaled => scaled.pool === pool.pool) });
    showFlow(block, pool, members, own, last);
    const charts = element("div", undefined, "cards");
    block.append(charts);
    showCharts(charts, samples);
  }
}
async function read(path) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const response = await fetch(path, { headers, cache: "no-store" });
  if (response.status === 401) $("token").hidden = false;
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}
function say(text, isBad) { $("state").textContent = text; $("state").className = isBad ? "bad" : ""; }
async function show() {
  try {
    const paths = ["api/pools", "api/replicas", "api/decisions", "api/scaling", "api/batch", "api/tenants", "api/history"];
    const [pools, replicas, decisions, scaling, gates, tenants, histories] = await Promise.all(paths.map(read));
    $("token").hidden = true;
    if (!isPaused) lastDecisions = decisions;
    showPools(pools, replicas, decisions, scaling, histories);
    showTiers(pools, gates);
    showTenants(tenants);
    showReplicas(replicas);
    showReasons(pools);
    showDecisions(lastDecisions);
    say("live, every 2 s", false);
  } catch (error) {
    say("not connected (" + error.message + ")", true);
  }
}
$("token").addEventListener("submit", event => {
  event.preventDefault();
  token = event.target.querySelector("input").value.trim();
  show();
});
$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").textContent = isPaused ? "Go on" : "Pause";
  if (!isPaused) show();
});
for (const id of ["shown", "filter"]) $(id).addEventListener("input", () => showDecisions(lastDecisions));
show();
setInterval(() => document.hidden || show(), EVERY_MS);

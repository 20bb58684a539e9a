// The tables below the charts.
const TENANTS_MAX = 20, ID_LETTERS = 8;
// A column that says the same in each row is left out.
function hideWhere(body, column, isHidden) { body.parentElement.classList.toggle("no-" + column, isHidden); }
function showTiers(pools, gates) {
  const rows = pools.flatMap(pool => (pool.tiers ?? []).map(tier => {
    const row = element("tr");
    cell(row, pool.pool);
    cell(row, tier.tier);
    cell(row, number(tier.waiting), "n");
    cell(row, time(tier.oldest_wait_ms), "n");
    cell(row, number(tier.arrived), "n");
    cell(row, number(tier.dispatched), "n");
    cell(row, number(tier.rejected), "n");
    cell(row, percent(tier.within_slo, tier.within_slo + tier.past_slo) ?? "no streams", "n");
    return row;
  }));
  $("tiers").hidden = rows.length === 0;
  $("tier-rows").replaceChildren(...rows);
  const tiles = document.createDocumentFragment();
  for (const gate of gates.filter(gate => gate.has_gate)) {
    if (gate.utilisation !== null) tile(tiles, `KV memory in use, ${gate.pool}`, percent(gate.utilisation, 1), "By the rule that lets batch requests go");
    tile(tiles, `batch requests held, ${gate.pool}`, number(gate.held), "They wait until there is memory to spare");
    tile(tiles, `may go next, ${gate.pool}`, number(gate.credit), "Batch requests that the next look at the memory would let go");
    Object.entries(gate.released).filter(([, count]) => count > 0).forEach(([reason, count]) => {
      const [name, title] = words(RELEASES, reason);
      tile(tiles, `let go: ${name}`, number(count), title);
    });
  }
  $("gates").replaceChildren(tiles);
}
function showTenants(pools) {
  const all = pools.flatMap(pool => pool.tenants.map(tenant => [pool.pool, tenant]));
  all.sort(([, a], [, b]) => b.tokens - a.tokens || b.requests - a.requests);
  $("tenants").hidden = !all.some(([, tenant]) => !tenant.tenant.includes(" "));
  $("tenant-rows").replaceChildren(...all.slice(0, TENANTS_MAX).map(([pool, tenant]) => {
    const row = element("tr");
    cell(row, pool);
    cell(row, tenant.tenant);
    cell(row, number(tenant.waiting), "n");
    cell(row, number(tenant.in_flight), "n");
    cell(row, number(tenant.requests), "n");
    cell(row, number(tenant.refused), "n");
    cell(row, number(tenant.tokens), "n");
    cell(row, percent(tenant.cached_tokens, tenant.prompt_tokens), "n");
    return row;
  }));
}
function showReplicas(replicas) {
  hideWhere($("replicas"), "pool", new Set(replicas.map(replica => replica.pool)).size < 2);
  $("replicas").replaceChildren(...replicas.map(replica => {
    const row = element("tr", undefined, replica.failure ? "failed" : "");
    cell(row, replica.pool, "pool");
    cell(row, replica.address);
    const [state, title] = words(STATES, replica.draining ? "draining" : replica.availability);
    const isGood = replica.availability === "available" && !replica.draining;
    cell(row, state, replica.failure ? "bad" : isGood ? "good" : "hot", title);
    cell(row, number(replica.outstanding), "n");
    cell(row, number(replica.pending), "n");
    cell(row, number(replica.running), "n");
    cell(row, replica.headroom === null ? "any" : number(replica.headroom), "n");
    meterCell(row, replica.kv_usage);
    cell(row, time(replica.probe_age_ms), "n");
    const failure = replica.failure;
    cell(row, failure ? `${clock(failure.since_unix_ms)} UTC, for ${time(Math.max(0, Date.now() - failure.since_unix_ms))}: ${failure.reason}` : "", failure ? "why" : "");
    return row;
  }));
}
function showReasons(pools) {
  const sums = new Map();
  const add = (key, count) => sums.set(key, (sums.get(key) ?? 0) + count);
  for (const { counters } of pools) {
    Object.entries(counters.decisions).forEach(([reason, count]) => add("d" + reason, count));
    Object.entries(counters.rejects).forEach(([reason, count]) => add("r" + reason, count));
  }
  const found = [...sums].filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]);
  $("why").hidden = found.length === 0;
  const tiles = document.createDocumentFragment();
  for (const [key, count] of found) {
    const isReject = key[0] === "r", [name, title] = words(isReject ? REJECTS : REASONS, key.slice(1));
    tile(tiles, isReject ? "rejected: " + name : name, number(count), title);
  }
  $("reasons").replaceChildren(tiles);
}
function hasFailed(decision) { return !decision.target || decision.response?.status >= 400 || decision.response?.status === 0; }
function hasEnded(decision) { return Boolean(decision.response) || !decision.target; }
function isShown(decision) {
  const kinds = { ended: hasEnded, failed: hasFailed, queued: one => one.queued_ms >= 1, all: () => true };
  const text = $("filter").value.trim().toLowerCase();
  const texts = [decision.target, decision.tenant, decision.id, decision.pool];
  return kinds[$("shown").value](decision) && (!text || texts.some(one => one?.toLowerCase().includes(text)));
}
function idCell(row, id) {
  const made = element("td", id ? undefined : "–");
  if (id) {
    const button = element("button", id.slice(0, ID_LETTERS), "", `Copy ${id}`);
    button.type = "button";
    button.addEventListener("click", () => navigator.clipboard?.writeText(id).then(() => { button.textContent = "copied"; }));
    made.append(button);
  }
  row.append(made);
}
function showDecisions(decisions) {
  const body = $("decisions");
  hideWhere(body, "pool", new Set(decisions.map(decision => decision.pool)).size < 2);
  hideWhere(body, "tier", !decisions.some(decision => decision.tier));
  hideWhere(body, "tenant", !decisions.some(decision => decision.tenant));
  const shown = decisions.filter(isShown);
  const open = decisions.filter(decision => !hasEnded(decision)).length;
  $("kept").textContent = decisions.length ? `${shown.length} of the ${decisions.length} that this page has seen; ${open} still run` : "none since this page looks";
  body.replaceChildren(...shown.map(decision => {
    const row = element("tr", undefined, hasFailed(decision) ? "failed" : ""), response = decision.response;
    cell(row, new Date(decision.time_unix_ms).toISOString().slice(11, 23));
    cell(row, decision.pool, "pool");
    cell(row, decision.tier, "tier");
    cell(row, decision.tenant, "tenant");
    cell(row, decision.target ?? "rejected", decision.target ? "" : "bad");
    const [why, title] = words(decision.target ? REASONS : REJECTS, decision.reason);
    cell(row, why, "", title);
    meterCell(row, decision.target ? decision.matched_share : null);
    cell(row, time(decision.queued_ms), "n");
    cell(row, response?.status, response ? (hasFailed(decision) ? "n bad" : "n good") : "n");
    cell(row, time(response?.ttft_ms), "n");
    cell(row, number(response?.prompt_tokens), "n");
    cell(row, number(response?.cached_tokens), "n");
    cell(row, number(response?.output_tokens), "n");
    idCell(row, decision.id);
    return row;
  }));
}

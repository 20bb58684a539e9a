"use strict";
// Plain words for the identifiers of the service, each with what it means.
const REASONS = {
  prefix: ["prompt in the cache", "The replica has the longest part of the prompt in its cache."],
  spread: ["load spread", "Little of the prompt is in any cache, so the load is spread."],
  soonest: ["soonest first token", "The estimated time to first token is the lowest there."],
  least_loaded: ["least load", "The replica had the least load."],
  ring: ["hash ring", "The hash ring of the session selected it."],
  turn: ["in turn", "Round robin."],
  random: ["at random", "The policy chose it at random."],
  utilisation: ["memory to spare", "The memory of the region's replicas is little used."],
  adapter: ["adapter loaded", "The replica holds the adapter, and no part of the prompt."],
};
const REJECTS = {
  queue_full: ["queue full", "The queue had no place."],
  waited_too_long: ["waited too long", "The request waited in the queue for as long as it may."],
  empty_subset: ["no allowed replica", "None of the replicas that may serve the request exists."],
  no_replica: ["no replica", "The pool has no replica."],
  no_healthy_replica: ["no healthy replica", "No replica had a good probe while the request waited."],
  region_full: ["region full", "The queue was too long for a request of another region."],
  tenant_limit: ["tenant at its limit", "The tenant had as many requests as it may have."],
  shutting_down: ["shutting down", "The service was stopping."],
  quarantined: ["quarantined", "Two replicas broke on the prompt."],
  no_spare_capacity: ["no spare capacity", "The batch request found no free memory in time."],
};
const STATES = {
  available: ["available", "The replica takes requests."],
  draining: ["draining", "The replica finishes its requests and gets no new one."],
  never_probed: ["not probed yet", "No probe has ended yet."],
  probe_failed: ["probe failed", "The last probe failed."],
  stale: ["no news", "The last good probe is too old."],
  failing: ["requests fail", "Its last requests failed, so it gets a trial request now and then."],
  hung: ["hangs", "It accepts requests, and no response comes back."],
  pending: ["has a queue", "A request waits in the engine, so the next ones wait in the service."],
  no_headroom: ["has its fill", "It got as many requests as it may before the next probe."],
  full: ["full", "It has as many requests as it may have."],
};
const RELEASES = {
  below_high: ["memory below the first bound", "The KV memory in use was below batch_release_below."],
  below_low: ["memory below the second bound", "The KV memory in use was below three quarters of batch_release_below."],
  promoted: ["deadline near", "The deadline of the request was near."],
  share: ["guaranteed share", "Batch work gets a small share at all times."],
};
function words(names, id) { return names[id] ?? [id.replaceAll("_", " "), ""]; }

//! The names of every header that the filter, the service and Envoy exchange.

/// Filter to service: the fingerprint.
pub const FINGERPRINT: &str = "x-isotherm-fingerprint";
/// Filter to service: the model that the request names.
pub const MODEL: &str = "x-isotherm-model";
/// Filter to service, and to Envoy's own ring hash when the service is away: the session key.
pub const SESSION: &str = "x-isotherm-session";
/// Filter to service: the workload tier.
pub const TIER: &str = "x-isotherm-tier";
/// Filter to service: estimated prompt tokens and the maximum of output tokens, as `PROMPT[;OUTPUT_MAX]`.
pub const TOKENS: &str = "x-isotherm-tokens";
/// Service (or filter) to Envoy's route: the `cluster_header` target.
pub const CLUSTER: &str = "x-isotherm-cluster";
/// Service to Envoy: `ip:port[,ip:port...]`, the chosen endpoint and its fallbacks (Gateway API Inference Extension).
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Gateway to service or client: the endpoint that served (Gateway API Inference Extension).
pub const DESTINATION_SERVED: &str = "x-gateway-destination-endpoint-served";
/// Region to region: who forwarded this request.
pub const ORIGIN: &str = "x-isotherm-origin";
/// Region to region, and back to the region that forwarded: the regions that were tried, comma-separated, in order.
pub const TRIED: &str = "x-isotherm-tried";
/// Service to the region that forwarded: why the request was refused, such as `region_full`.
pub const REFUSED: &str = "x-isotherm-refused";
/// Envoy to service, as metadata of the gRPC call and never of a request: which of Envoy's listeners the request came
/// by. [`ORIGIN`] and [`TRIED`] are believed only where it says [`LISTENER_REGIONS`].
pub const LISTENER: &str = "x-isotherm-listener";
/// The value of [`LISTENER`] on the listeners that only regions reach.
pub const LISTENER_REGIONS: &str = "regions";
/// Response trailer, filter to service: how the request ended. See [`crate::outcome`].
pub const OUTCOME: &str = "x-isotherm-outcome";
/// The filter's request role to the matchers of what Envoy need not make then: the number under which the request was decided
/// on the decision stream. External processing is not asked about a request that has it.
pub const DECIDED: &str = "x-isotherm-decided";
/// Service to client, opt-in: why the request went where it went.
pub const DECISION: &str = "x-isotherm-decision";
/// What every internal header begins with; the edge removes all of them from what clients send.
pub const PREFIX: &str = "x-isotherm-";

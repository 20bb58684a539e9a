//! The headers that the filter, the service and Envoy exchange, as one table. `docs/headers.md` is generated from it.

/// A header of the table.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The name, in lower case.
    pub name: &'static str,
    /// The component that sets the header.
    pub sender: &'static str,
    /// The component that reads the header.
    pub receiver: &'static str,
    /// The bound of the value.
    pub bound: &'static str,
    /// The content of the value.
    pub content: &'static str,
}

/// Declares a constant for each header and the table [`ALL`].
macro_rules! headers {
    ($($constant:ident = $name:literal, $sender:literal => $receiver:literal, $bound:literal, $content:literal;)*) => {
        $(#[doc = $content] pub const $constant: &str = $name;)*

        /// Every header.
        pub const ALL: &[Header] = &[$(Header {
            name: $name,
            sender: $sender,
            receiver: $receiver,
            bound: $bound,
            content: $content,
        }),*];
    };
}

headers! {
    FINGERPRINT = "x-isotherm-fingerprint", "filter" => "service", "6,144 bytes",
        "The fingerprint of the prompt: its length and its chain of block hashes, in base64url.";
    MODEL = "x-isotherm-model", "filter" => "service", "256 bytes",
        "The model that the request names, percent-encoded.";
    UNREAD_MODEL = "x-isotherm-unread-model", "filter" => "service", "one reason",
        "The reason why the model of the request cannot be told, such as `encoding`. The header is absent where the request names a model, or none.";
    SESSION = "x-isotherm-session", "filter" => "service, Envoy's ring hash", "19 bytes",
        "The session key, hashed with the secret of the configuration, as four groups of an IPv6 address. Envoy's ring hash reads it when the service is unavailable.";
    TENANT = "x-isotherm-tenant", "filter" => "service", "64 bytes",
        "The tenant of the request, by the sources of the configuration. Without the header, the request belongs to the common tenant.";
    TIER = "x-isotherm-tier", "filter" => "service", "one of the three tiers",
        "The workload tier: `interactive-fast`, `interactive-normal` or `non-interactive`.";
    TTFT_MS = "x-isotherm-ttft-ms", "filter, service" => "service", "7 bytes",
        "The budget of the request for its first token, in milliseconds, from 1 to 3,600,000. A request that goes to another region carries what is left.";
    DEADLINE = "x-isotherm-deadline", "filter, service" => "service", "10 bytes",
        "The time left until the deadline of the request, in milliseconds, from 0 to 2,592,000,000. A request that goes to another region carries what is left then.";
    TOKENS = "x-isotherm-tokens", "filter" => "service", "22 bytes",
        "The estimated prompt tokens and the limit of output tokens, as `PROMPT[+][;OUTPUT_MAX]`. `+` marks a prompt of which only the beginning was read.";
    STREAM = "x-isotherm-stream", "filter" => "service", "1 byte",
        "`1` if the request asks for a streamed response. Without it, the response may come as a whole.";
    PREVIOUS_RESPONSE = "x-isotherm-previous-response", "filter" => "service", "128 bytes",
        "The id of the stored response that the request continues (`previous_response_id`).";
    HELD = "x-isotherm-held", "filter" => "service", "20 bytes",
        "How long the filter held a request that its caller traces, in microseconds.";
    CLUSTER = "x-isotherm-cluster", "Envoy's listener, filter, service" => "Envoy's route", "a cluster of the configuration",
        "The cluster for the request (`cluster_header`). The listener sets the default cluster.";
    DESTINATION = "x-gateway-destination-endpoint", "service" => "Envoy", "one replica and its fallbacks",
        "The selected endpoint and its fallbacks, as `ip:port[,ip:port...]` (Gateway API Inference Extension).";
    PREFILLER = "x-prefiller-host-port", "service" => "llm-d's sidecar beside the engine", "one address",
        "The prefill replica that computes the prompt, as `ip:port`. Without it, the selected replica computes the prompt.";
    VLLM_PRIORITY = "x-vllm-priority", "service" => "vLLM", "one number",
        "The priority of the request in vLLM's own queue; a lower number comes first. The service sets it where the pool has `engine_priority: vllm`.";
    SGLANG_PRIORITY = "x-override-priority", "service" => "SGLang", "one number",
        "The priority of the request in SGLang's own queue; a higher number comes first. The service sets it where the pool has `engine_priority: sglang`.";
    DESTINATION_SERVED = "x-gateway-destination-endpoint-served", "gateway" => "service, client", "one address",
        "The endpoint that responded (Gateway API Inference Extension).";
    ORIGIN = "x-isotherm-origin", "service" => "another region", "the name of a region",
        "The region that forwarded the request.";
    TRIED = "x-isotherm-tried", "service" => "another region and back", "the names of the regions",
        "The regions that were tried, in order, separated by commas.";
    REFUSED = "x-isotherm-refused", "service" => "the region that forwarded", "one reason",
        "The reason for which the region refused the request, such as `region_full`.";
    LISTENER = "x-isotherm-listener", "Envoy" => "service", "one word",
        "The listener of the request, in the metadata of the gRPC call and never in a request. The service believes `x-isotherm-origin` and `x-isotherm-tried` only where the value is `regions`.";
    OUTCOME = "x-isotherm-outcome", "filter" => "service", "512 bytes",
        "The outcome of the request, in a response trailer: `v=1;status=200;ttft_us=..;stream=1;prompt=..;cached=..;completion=..;waiting=..;running=..;kv=..;broke=1;timeout=1;unsent=1;error=1;response=..;attempts=..;cluster=..;upstream=..`, without unknown fields.";
    DECIDED = "x-isotherm-decided", "filter" => "Envoy's matchers", "10 bytes",
        "The number of a request that was decided on the decision stream. Envoy skips external processing for it.";
    GATE = "x-isotherm-gate", "filter" => "filter, role `gate`", "1 byte",
        "The mark of a request whose headers the next instance of the filter must hold.";
    DECISION = "x-isotherm-decision", "service" => "client", "2,048 bytes of the next region",
        "The reason for the decision, where the configuration exposes it.";
}

/// The names of the headers that only Isotherm may set.
pub fn own() -> impl Iterator<Item = &'static str> {
    let names = ALL.iter().map(|header| header.name);
    names.filter(|name| name.starts_with(PREFIX) || *name == DESTINATION)
}

/// The value of [`LISTENER`] on the listeners that only regions reach.
pub const LISTENER_REGIONS: &str = "regions";
/// The headers by which llm-d's sidecar, in front of an engine, sends a part of a request to another address. Only the service
/// may set any of them: a client could point the sidecar at any host. The list has the sidecar's current
/// names, and the older ones, which it still reads.
pub const SIDECAR: [&str; 8] = [
    PREFILLER,
    "x-llm-d-prefiller-host-port",
    "x-prefiller-url",
    "x-encoder-hosts-ports",
    "x-llm-d-encoder-hosts-ports",
    "x-kv-cache-source-host-port",
    "x-llm-d-kv-cache-source-host-port",
    "x-data-parallel-host-port",
];
/// Beginnings of the headers by which a gateway or a router steers an engine. No client may set one: it could choose the rank or the
/// priority of its requests, or the id of another client's request, which the engine then aborts.
///
/// vLLM and SGLang read `x-data-parallel-rank`, SGLang `x-override-rid`, SGLang's router `x-smg-*` and `x-sgl-*`, llm-d `x-llm-d-*`, Dynamo
/// `x-prefill-instance-id`.
pub const ENGINE_CONTROL_PREFIXES: [&str; 8] = [
    "x-data-parallel-",
    "x-dynamo-",
    "x-llm-d-",
    "x-override-",
    "x-prefill",
    "x-sgl",
    "x-smg-",
    "x-vllm-",
];
/// Further headers by which a gateway or a router steers an engine.
pub const ENGINE_CONTROL: [&str; 3] = ["x-dp-rank", "x-request-priority", "x-worker-instance-id"];
/// The header with the trace of which a request is a part (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// The header by which Envoy names a request in its logs.
pub const REQUEST_ID: &str = "x-request-id";
/// The longest [`REQUEST_ID`] that is passed on, in bytes: Envoy's own have 36.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// The prefix of internal headers. The filter at the edge of the network removes them from the requests of clients.
pub const PREFIX: &str = "x-isotherm-";

//! Envoy's configuration as gateways of the Gateway API Inference Extension write it: no filter of Isotherm, and an
//! external processor that picks the endpoint of every request.
//!
//! The shapes are those of Istio 1.30 (`pilot/pkg/xds/filters`, `pilot/pkg/networking/core/route`), Envoy AI Gateway 1.1
//! (`internal/extensionserver/inferencepool.go`), llm-d's chart for a standalone Envoy, and Envoy Gateway 1.9 with its
//! default buffer limit.

use crate::document::Document;
use crate::filters::edit_filter;
use serde_json::{Value, json};

const LISTENER: &str = "static_resources/listeners/name=llm";
const CONNECTION_MANAGER: &str = "filter_chains/0/filters/0/typed_config";
const EXT_PROC: &str = "envoy.filters.http.ext_proc";
/// The shipped filter that reads prompts.
const FILTER: &str = "isotherm.request";
const ENDPOINT: &str = "x-gateway-destination-endpoint";
/// The name of the cluster that sends a request to the address in a header.
const ORIGINAL_DST: &str = "original_destination";

/// A gateway whose configuration a test imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayShape {
    /// Istio: the processor is configured at the route, and the endpoint is read from metadata.
    Istio,
    /// Envoy AI Gateway: the endpoint is read from a header.
    AiGateway,
    /// Envoy AI Gateway with the annotations for buffered bodies and mode overrides.
    AiGatewayBuffered,
    /// llm-d's standalone Envoy, which lets requests pass without the picker.
    LlmdStandalone,
    /// Envoy Gateway's default buffer limit of 32 KiB.
    EnvoyGateway,
}

impl GatewayShape {
    /// Every gateway.
    pub const ALL: [Self; 5] = [
        Self::Istio,
        Self::AiGateway,
        Self::AiGatewayBuffered,
        Self::LlmdStandalone,
        Self::EnvoyGateway,
    ];

    /// Whether the gateway sends a body as one message, and so limits its length.
    pub fn buffers_bodies(self) -> bool {
        self == Self::AiGatewayBuffered
    }

    /// Turns the shipped configuration into that of the gateway.
    pub fn apply(self, document: &mut Document) -> anyhow::Result<()> {
        self.set_filters(document)?;
        let manager = format!("{LISTENER}/{CONNECTION_MANAGER}");
        let host = format!("{manager}/route_config/virtual_hosts/name=llm");
        document.set(&format!("{host}/routes"), json!([self.route()]))?;
        document.remove(&format!("{host}/request_body_buffer_limit"))?;
        let limit = match self {
            Self::EnvoyGateway => 32_768,
            // The limit in the examples of AI Gateway.
            Self::AiGatewayBuffered => 50 << 20,
            _ => 1 << 20,
        };
        document.set(
            &format!("{LISTENER}/per_connection_buffer_limit_bytes"),
            limit,
        )?;
        document.push("static_resources/clusters", original_destination())?;
        document.set(
            "static_resources/clusters/name=llama/load_balancing_policy/policies/0/typed_extension_config/typed_config/override_host_sources",
            json!([{ "metadata": { "key": "envoy.lb", "path": [{ "key": ENDPOINT }] } }]),
        )?;
        document.set(
            "static_resources/clusters/name=llama/load_balancing_policy/policies/0/typed_extension_config/typed_config/selected_host_key",
            json!({ "key": "envoy.lb", "path": [{ "key": format!("{ENDPOINT}-served") }] }),
        )
    }

    /// Replaces the filters alone: requests pass an external processor, and Envoy selects their endpoint itself.
    pub fn set_filters(self, document: &mut Document) -> anyhow::Result<()> {
        let filters = format!("{LISTENER}/{CONNECTION_MANAGER}/http_filters");
        document.set(&filters, self.filters())
    }

    /// Puts the filter of the shipped configuration in front of the gateway's processor, as a wasm extension of the gateway.
    pub fn apply_behind_filter(self, document: &mut Document) -> anyhow::Result<()> {
        let filters = format!("{LISTENER}/{CONNECTION_MANAGER}/http_filters");
        let filter = document.get(&format!("{filters}/name={FILTER}"))?.clone();
        self.apply(document)?;
        let behind = document.get(&filters)?.as_array().cloned();
        let all = [vec![filter], behind.unwrap_or_default()].concat();
        document.set(&filters, all)?;
        document.remove(&format!("{filters}/name={FILTER}/disabled"))?;
        edit_filter(document, FILTER, |filter| {
            filter.remove("decision_stream").map(drop)
        })
    }

    fn filters(self) -> Value {
        let router = json!({
            "name": "envoy.filters.http.router",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
            }
        });
        let namespaces = json!({ "untyped": ["envoy.lb"] });
        let is_istio = self == Self::Istio;
        let (service, mode) = match is_istio {
            // Istio configures the processor at the route.
            true => (
                json!({ "envoy_grpc": { "cluster_name": "dummy" } }),
                json!({ "request_header_mode": "SKIP", "response_header_mode": "SKIP" }),
            ),
            false => (service(), self.processing_mode()),
        };
        let processor = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": service,
            "failure_mode_allow": is_istio || self == Self::LlmdStandalone,
            "allow_mode_override": self == Self::AiGatewayBuffered,
            "message_timeout": "300s",
            "processing_mode": mode,
            "metadata_options": {
                "forwarding_namespaces": namespaces, "receiving_namespaces": namespaces
            }
        });
        json!([{ "name": EXT_PROC, "typed_config": processor }, router])
    }

    fn processing_mode(self) -> Value {
        let bodies = match self.buffers_bodies() {
            true => "BUFFERED",
            false => "FULL_DUPLEX_STREAMED",
        };
        json!({
            "request_header_mode": "SEND", "response_header_mode": "SEND",
            "request_body_mode": bodies, "response_body_mode": bodies,
            "request_trailer_mode": "SEND", "response_trailer_mode": "SEND"
        })
    }

    fn route(self) -> Value {
        let cluster = match self {
            Self::Istio | Self::EnvoyGateway => "llama",
            Self::AiGateway | Self::AiGatewayBuffered | Self::LlmdStandalone => ORIGINAL_DST,
        };
        let overrides = match self {
            Self::Istio => json!({ EXT_PROC: {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
                "overrides": {
                    "grpc_service": service(),
                    "processing_mode": self.processing_mode(),
                    "failure_mode_allow": false
                }
            }}),
            _ => json!({}),
        };
        json!({
            "match": { "prefix": "/" },
            "route": { "cluster": cluster, "timeout": "0s" },
            "typed_per_filter_config": overrides
        })
    }
}

fn service() -> Value {
    json!({ "envoy_grpc": { "cluster_name": "isotherm" } })
}

fn original_destination() -> Value {
    json!({
        "name": ORIGINAL_DST,
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "10s",
        "original_dst_lb_config": { "use_http_header": true, "http_header_name": ENDPOINT }
    })
}

//! The behaviour that the conformance tests of the Gateway API Inference Extension ask of an endpoint picker, behind
//! `ext_proc.conformance`: their clients choose the endpoint, and learn which one responded.

use isotherm_wasm_filter_core::Headers;

use super::subset;
use crate::pool::EndpointMatch;

/// The request header with the endpoints: `ip` or `ip:port`, comma-separated.
const SELECTION: &str = "test-epp-endpoint-selection";
/// The response header with the endpoint that responded.
pub(super) const SERVED: &str = "x-conformance-test-served-endpoint";

/// Returns the endpoints that a request selects.
pub(super) fn selection(headers: &Headers) -> Option<Vec<EndpointMatch>> {
    let (_, value) = headers.iter().find(|(name, _)| name == SELECTION)?;
    let text = str::from_utf8(value).ok()?;
    Some(subset::parse(text.split(',')))
}

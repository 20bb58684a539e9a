//! The state that all streams share besides the pools.

use std::sync::Arc;

use isotherm_fingerprint::paths::AllowedPaths;
use isotherm_wasm_filter_core::body_timer::BodyTimeout;
use isotherm_wasm_filter_core::request::{objectives_in_headers, strip};
use isotherm_wasm_filter_core::{HeaderEdit, Headers, RequestConfig};

use super::mode::StreamModes;
use crate::config::{ExtProcConfig, TrustedHeaders};
use crate::decision_log::unix_ms;

/// The most bytes of a body that the service reads before it decides, as many as the filter by default.
const PROMPT_BYTES_MAX: usize = 4 << 20;
/// The lowest rate at which the bytes of a large body may arrive, as the filter's by default.
const BODY_BYTES_PER_S_MIN: u64 = 16 << 10;

/// The configuration of external processing, and of the filter's code that reads bodies.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(super) config: ExtProcConfig,
    pub(super) filter: Arc<RequestConfig>,
}

impl Settings {
    /// Derives the settings from the configuration.
    pub(crate) fn new(config: ExtProcConfig, paths: AllowedPaths) -> Self {
        let filter = RequestConfig::default()
            .with_paths(paths)
            .with_buffer(PROMPT_BYTES_MAX)
            .with_tenant_header(config.tenant_header.clone());
        Self {
            config,
            filter: Arc::new(filter),
        }
    }

    /// Whether the internal headers of a request come from the filter. A gateway that sends no bodies has it in front.
    pub(super) fn trusts_headers(&self, modes: StreamModes) -> bool {
        match self.config.trusted_headers {
            TrustedHeaders::Auto => !modes.sends_bodies(),
            TrustedHeaders::Always => true,
            TrustedHeaders::Never => false,
        }
    }

    /// The time that a body may take, if it is bounded.
    pub(super) fn body_timeout(&self) -> Option<BodyTimeout> {
        BodyTimeout::new(self.config.body_timeout, BODY_BYTES_PER_S_MIN)
    }

    /// The tenant of a request that no filter has read, by the configured header.
    pub(super) fn tenant(&self, headers: &Headers) -> Option<Arc<str>> {
        let name = self.config.tenant_header.as_deref()?;
        let (_, value) = headers.iter().find(|(known, _)| known == name)?;
        self.filter.tenant_value(value).map(Into::into)
    }

    /// The headers of the objectives that a request which no filter has read states in its own headers.
    pub(super) fn objectives(&self, headers: &Headers) -> Vec<HeaderEdit> {
        objectives_in_headers(&self.filter, headers, unix_ms)
    }

    /// The internal headers of a client, which the service removes where no filter does, unless it sets them itself.
    pub(super) fn forged(&self, headers: &Headers) -> Vec<String> {
        let edits = strip(&self.filter, headers).into_iter();
        edits.map(|edit| edit.parts().0.to_owned()).collect()
    }
}

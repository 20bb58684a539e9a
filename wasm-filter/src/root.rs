//! One instance of the plugin: reads its configuration, then makes a context for each request.

use std::cell::RefMut;

use isotherm_wasm_filter_core::Plugin;
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use crate::decision_stream::{Shared, Wire};
use crate::host;
use crate::metrics::ResponseMetrics;
use crate::request::RequestContext;
use crate::response::ResponseContext;

/// The plugin's own context.
pub(crate) struct Root {
    /// Its number on the host.
    id: u32,
    role: Role,
    decision_stream: Option<Shared>,
}

/// What each request gets a copy of.
enum Role {
    /// Not configured; Envoy sends no request to such an instance.
    Idle,
    Request(RequestContext),
    Response(ResponseContext),
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            role: Role::Idle,
            decision_stream: None,
        }
    }

    /// The decision stream, for a moment. Nobody else has it in one of the root's callbacks.
    fn decision_stream(&self) -> Option<RefMut<'_, Wire>> {
        self.decision_stream.as_ref()?.try_borrow_mut().ok()
    }
}

impl Context for Root {
    fn on_grpc_stream_message(&mut self, stream: u32, message_bytes: usize) {
        if let Some(mut decision_stream) = self.decision_stream() {
            decision_stream.heard(stream, message_bytes, host::now(self));
        }
    }

    fn on_grpc_stream_close(&mut self, stream: u32, _: u32) {
        if let Some(mut decision_stream) = self.decision_stream() {
            decision_stream.closed(stream);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, configuration_bytes: usize) -> bool {
        let configuration = if configuration_bytes == 0 {
            None
        } else {
            self.get_plugin_configuration()
        };
        match Plugin::parse(&configuration.unwrap_or_default()) {
            Ok(Plugin::Request(config)) => {
                let decision_stream = config.decision_stream();
                self.decision_stream = decision_stream
                    .map(|decision_stream| Wire::start(self.id, decision_stream, host::now(self)));
                let context = RequestContext::new(config, self.decision_stream.clone());
                self.role = Role::Request(context);
                true
            }
            Ok(Plugin::Response(config)) => {
                self.role = Role::Response(ResponseContext::new(config, ResponseMetrics::define()));
                true
            }
            Err(error) => {
                let message = format!("isotherm: the filter's configuration is refused: {error}");
                // Where the host does not take the decision stream, its own report of the refusal has to do.
                let _ = hostcalls::log(LogLevel::Error, &message);
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(mut decision_stream) = self.decision_stream() {
            decision_stream.fired(host::now(self));
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(match &self.role {
            Role::Idle => Box::new(PassThrough),
            Role::Request(context) => Box::new(context.for_request(id)),
            Role::Response(context) => Box::new(context.for_request()),
        })
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// Does nothing.
struct PassThrough;

impl Context for PassThrough {}
impl HttpContext for PassThrough {}

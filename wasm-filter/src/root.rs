//! One instance of the plugin: reads its configuration, then makes a context for each request.

use isotherm_filter_logic::Plugin;
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use crate::metrics::{RequestMetrics, ResponseMetrics};
use crate::request::RequestContext;
use crate::response::ResponseContext;

/// What each request gets a copy of.
#[derive(Default)]
pub(crate) enum Root {
    /// Not configured; Envoy sends no request to such an instance.
    #[default]
    Idle,
    Request(RequestContext),
    Response(ResponseContext),
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, configuration_bytes: usize) -> bool {
        let configuration = if configuration_bytes == 0 {
            None
        } else {
            self.get_plugin_configuration()
        };
        match Plugin::parse(&configuration.unwrap_or_default()) {
            Ok(Plugin::Request(config)) => {
                *self = Self::Request(RequestContext::new(config, RequestMetrics::define()));
                true
            }
            Ok(Plugin::Response(config)) => {
                *self = Self::Response(ResponseContext::new(config, ResponseMetrics::define()));
                true
            }
            Err(error) => {
                let message = format!("isotherm: the filter's configuration is refused: {error}");
                // Where the host does not take the line, its own report of the refusal has to do.
                let _ = hostcalls::log(LogLevel::Error, &message);
                false
            }
        }
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(match self {
            Self::Idle => Box::new(PassThrough),
            Self::Request(context) => Box::new(context.for_request()),
            Self::Response(context) => Box::new(context.for_request()),
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

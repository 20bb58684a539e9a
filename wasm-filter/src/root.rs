//! The root context of a plugin instance: parses the configuration and creates a context for each request.

use std::cell::RefMut;
use std::rc::Rc;

use isotherm_wasm_filter_core::PluginConfig;
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use crate::decision_stream::Connection;
use crate::gate::{GateContext, GateRole};
use crate::held_bodies::HeldBodies;
use crate::host;
use crate::host_watch::HostWatch;
use crate::metrics::{RequestMetrics, ResponseMetrics};
use crate::request::{RequestContext, RequestRole};
use crate::response::{ResponseContext, ResponseRole};

pub(crate) struct Root {
    /// The id of the context on the host.
    id: u32,
    role: Role,
}

enum Role {
    /// The instance has no configuration yet; Envoy sends no request to it.
    Idle,
    Request(Rc<RequestRole>),
    Response(ResponseRole),
    Gate(Rc<GateRole>),
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            role: Role::Idle,
        }
    }

    /// The connection of the decision stream, which no request borrows during a callback of the root context.
    fn connection(&self) -> Option<RefMut<'_, Connection>> {
        match &self.role {
            Role::Request(role) => role.connection.as_ref()?.try_borrow_mut().ok(),
            Role::Idle | Role::Response(_) | Role::Gate(_) => None,
        }
    }
}

impl Context for Root {
    fn on_grpc_stream_message(&mut self, stream: u32, message_bytes: usize) {
        if let Some(mut connection) = self.connection() {
            connection.on_message(stream, message_bytes, host::now());
        }
    }

    fn on_grpc_stream_close(&mut self, stream: u32, _: u32) {
        if let Some(mut connection) = self.connection() {
            connection.on_close(stream);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, configuration_bytes: usize) -> bool {
        let configuration = (configuration_bytes > 0).then(|| self.get_plugin_configuration());
        let configuration = configuration.flatten().unwrap_or_default();
        self.role = match PluginConfig::parse_named(&configuration, &plugin_name()) {
            Ok(PluginConfig::Request(config)) => {
                let start = |stream| Connection::start(self.id, &config, stream, host::now());
                Role::Request(Rc::new(RequestRole {
                    bodies: HeldBodies::start(self.id, &config),
                    connection: config.decision_stream().map(start),
                    metrics: RequestMetrics::define(),
                    watch: HostWatch::new(self.id, &config),
                    config,
                }))
            }
            Ok(PluginConfig::Response(config)) => Role::Response(ResponseRole {
                config,
                metrics: ResponseMetrics::define(),
            }),
            Ok(PluginConfig::Gate) => match GateRole::start(self.id) {
                Some(role) => Role::Gate(Rc::new(role)),
                None => return false,
            },
            Err(error) => {
                let message = format!("isotherm: the filter's configuration is refused: {error}");
                // The host reports the refusal itself when it does not accept the log line.
                let _ = hostcalls::log(LogLevel::Error, &message);
                return false;
            }
        };
        true
    }

    fn on_tick(&mut self) {
        match &self.role {
            Role::Request(role) => role.on_timer(),
            Role::Gate(role) => role.on_timer(),
            Role::Idle | Role::Response(_) => {}
        }
    }

    fn on_queue_ready(&mut self, _: u32) {
        if let Role::Gate(role) = &self.role {
            role.on_queue();
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(match &self.role {
            Role::Idle => Box::new(PassThrough),
            Role::Request(role) => Box::new(RequestContext::new(role, id)),
            Role::Response(role) => Box::new(ResponseContext::new(*role)),
            Role::Gate(role) => Box::new(GateContext::new(role, id)),
        })
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// The name or root id of the plugin, whichever gives the role.
fn plugin_name() -> String {
    let name = |property| hostcalls::get_property(vec![property]).ok().flatten();
    let names =
        ["plugin_name", "plugin_root_id"].map(|property| name(property).unwrap_or_default());
    let [name, root_id] = names.map(|name| String::from_utf8_lossy(&name).into_owned());
    if PluginConfig::is_response_name(&root_id) {
        root_id
    } else {
        name
    }
}

/// A context without effect.
struct PassThrough;

impl Context for PassThrough {}
impl HttpContext for PassThrough {}

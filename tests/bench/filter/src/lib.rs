//! A minimal filter for the benches, and the core inside a sandbox. The configuration names the role.
//!
//! - `copy` runs before an external processor: it holds a request until its body is complete, as Isotherm's filter does, and
//!   copies each piece into the sandbox.
//! - `trailer` runs after it: it adds a trailer to each response, so that the external processor gets its second message. Any
//!   cost of Isotherm's filter beyond these two roles is the cost of its analysis.
//! - `count UNIT` prepares a unit of work and runs it at each tick, for a host that counts instructions.
//! - `time UNIT` runs a unit for some seconds, and logs the duration of one run by the host's clock.

mod copy;
mod timed;
mod trailer;

/// The entry point of the host, in a module of its own because the macro generates undocumented items.
mod entry {
    use proxy_wasm::types::LogLevel;

    proxy_wasm::main! {{
        proxy_wasm::set_log_level(LogLevel::Info);
        proxy_wasm::set_root_context(|_| Box::new(crate::Root::default()));
    }}
}

use isotherm_bench_core::{Unit, Work};
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{ContextType, LogLevel};

use crate::copy::Copy;
use crate::trailer::Trailer;

/// The role of the instance.
#[derive(Default)]
enum Root {
    #[default]
    Copy,
    Trailer,
    Count(Work),
    Time,
}

impl Root {
    fn parse(configuration: &str) -> Option<Self> {
        Some(match configuration.split_once(' ') {
            Some(("count", unit)) => Self::Count(Unit::named(unit)?.ready()),
            Some(("time", unit)) => {
                timed::run(&Unit::named(unit)?);
                Self::Time
            }
            None if configuration == "copy" => Self::Copy,
            None if configuration == "trailer" => Self::Trailer,
            _ => return None,
        })
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _: usize) -> bool {
        let configuration = self.get_plugin_configuration().unwrap_or_default();
        let parsed = core::str::from_utf8(&configuration)
            .ok()
            .and_then(Self::parse);
        let is_known = parsed.is_some();
        match parsed {
            Some(parsed) => *self = parsed,
            None => {
                let wanted = "bench filter: `copy`, `trailer`, `count UNIT` or `time UNIT`";
                let _ = hostcalls::log(LogLevel::Error, wanted);
            }
        }
        is_known
    }

    fn on_tick(&mut self) {
        if let Self::Count(work) = self {
            work();
        }
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(match self {
            Self::Trailer => Box::new(Trailer),
            Self::Copy | Self::Count(_) | Self::Time => Box::new(Copy::default()),
        })
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

//! The Isotherm filter: a proxy-wasm module for Envoy.
//!
//! The module passes data between the host and [`isotherm_wasm_filter_core`]. One module has every role, so that the
//! instances in a filter chain share one VM and one copy of the code.
//!
//! No code here may panic: a panic destroys the VM of the Envoy worker, and every request on that worker loses its affinity
//! until Envoy has started a new VM.

mod access_log;
mod clock;
mod decision_stream;
mod gate;
mod held_bodies;
mod host;
mod host_watch;
mod metrics;
mod request;
mod response;
mod root;

/// The entry point of the host, in its own module because the macro's output has no documentation.
mod entry {
    use proxy_wasm::types::LogLevel;

    proxy_wasm::main! {{
        proxy_wasm::set_log_level(LogLevel::Info);
        proxy_wasm::set_root_context(|id| Box::new(crate::root::Root::new(id)));
    }}
}

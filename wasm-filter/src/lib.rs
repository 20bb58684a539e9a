//! The Isotherm filter: a proxy-wasm module for Envoy.
//!
//! Only glue: what the host says is handed to [`isotherm_wasm_filter_core`], what that wants is handed back. One
//! module has both roles, since the two instances in a filter chain then share one VM and one copy of the code.
//!
//! Nothing here may panic: a panic takes the VM of the whole Envoy worker with it, and every request on it loses
//! its affinity until Envoy has made a new one.

mod answer;
mod decision_stream;
mod host;
mod metrics;
mod request;
mod response;
mod root;

/// Where the host begins. In a module of its own, as what the macro writes takes no documentation.
mod entry {
    use proxy_wasm::types::LogLevel;

    proxy_wasm::main! {{
        proxy_wasm::set_log_level(LogLevel::Info);
        proxy_wasm::set_root_context(|id| Box::new(crate::root::Root::new(id)));
    }}
}

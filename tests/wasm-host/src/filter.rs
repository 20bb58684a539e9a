//! The module, driven as Envoy drives it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, bail};
use wasmi::{
    CompilationMode, Config, Engine, Instance, Module, Store, TypedFunc, WasmParams, WasmResults,
};

use crate::host::{Headers, Host, ROOT};
use crate::{imports, module_path};

/// Modules that this process has read, by path and by whether instructions are counted. Reading one takes longer than a
/// request.
static MODULES: Mutex<BTreeMap<(PathBuf, bool), Module>> = Mutex::new(BTreeMap::new());

/// Reads a module, or returns the one that this process has read before.
fn module(path: &Path, counting: bool) -> anyhow::Result<Module> {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (path.to_owned(), counting);
    if let Some(module) = modules.get(&key) {
        return Ok(module.clone());
    }
    let bytes = std::fs::read(path).with_context(|| {
        format!(
            "there is no built filter at {}: run `cargo xtask filter`, or name another by ISOTHERM_FILTER_WASM",
            path.display()
        )
    })?;
    let mut config = Config::default();
    config.wasm_simd(true).consume_fuel(counting);
    if counting {
        // By default the first call of a function pays for its translation, in proportion to its length.
        config.compilation_mode(CompilationMode::Eager);
    }
    let module = Module::new(&Engine::new(&config), &bytes)?;
    modules.insert(key, module.clone());
    Ok(module)
}

/// The filter's response to a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request or response goes on.
    Continue,
    /// The request or response is held back.
    Pause,
}

/// A plugin instance with one request.
#[derive(Debug)]
pub struct Filter {
    store: Store<Host>,
    instance: Instance,
    held_back: bool,
}

impl Filter {
    /// Loads the filter, configures it and begins a request.
    pub fn configured(configuration: &str) -> anyhow::Result<Self> {
        Self::load(&module_path(), configuration, false)
    }

    /// Loads any module and counts the instructions that it executes: see [`Filter::executed`].
    pub fn counting(module: &Path, configuration: &str) -> anyhow::Result<Self> {
        Self::load(module, configuration, true)
    }

    fn load(path: &Path, configuration: &str, counting: bool) -> anyhow::Result<Self> {
        let module = module(path, counting)?;
        let engine = module.engine();
        let linker = imports::linker(engine, &module)?;
        let host = Host {
            configuration: configuration.as_bytes().to_vec(),
            ..Host::default()
        };
        let mut store = Store::new(engine, host);
        if counting {
            store.set_fuel(u64::MAX)?;
        }
        let instance = linker.instantiate_and_start(&mut store, &module)?;
        let mut filter = Self {
            store,
            instance,
            held_back: false,
        };

        filter.call::<(), ()>("_initialize", ())?;
        filter.call::<_, ()>("proxy_on_context_create", (ROOT, 0))?;
        if filter.call::<_, u32>("proxy_on_vm_start", (ROOT, 0))? == 0 {
            bail!("the filter refuses to start");
        }
        let bytes = u32::try_from(configuration.len())?;
        if filter.call::<_, u32>("proxy_on_configure", (ROOT, bytes))? == 0 {
            bail!("refused: {}", filter.host().log.join("\n"));
        }
        filter.begin_request()?;
        Ok(filter)
    }

    /// Begins another request, which the following calls belong to. The one before goes on without further events.
    pub fn begin_request(&mut self) -> anyhow::Result<()> {
        let id = self.host().request.max(ROOT) + 1;
        self.host_mut().request = id;
        self.host_mut().request_body.clear();
        self.call("proxy_on_context_create", (id, ROOT))
    }

    /// The instructions that the module executed since the last call, by the interpreter's measure: about one unit per
    /// instruction, and equal on every machine.
    pub fn executed(&mut self) -> anyhow::Result<u64> {
        let executed = u64::MAX - self.store.get_fuel()?;
        self.store.set_fuel(u64::MAX)?;
        Ok(executed)
    }

    /// Lets the period of the plugin's timer pass, and fires the timer.
    pub fn tick(&mut self) -> anyhow::Result<()> {
        let host = self.host_mut();
        host.now_ns += u64::from(host.tick_ms) * 1_000_000;
        self.call("proxy_on_tick", ROOT)
    }

    /// Delivers a message on the stream with an index.
    pub fn stream_message(&mut self, stream: u32, message: &[u8]) -> anyhow::Result<()> {
        self.host_mut().stream_message = message.to_vec();
        let bytes = u32::try_from(message.len())?;
        self.call("proxy_on_grpc_receive", (ROOT, stream, bytes))
    }

    /// Ends the stream with an index.
    pub fn stream_closed(&mut self, stream: u32) -> anyhow::Result<()> {
        const UNAVAILABLE: u32 = 14;
        self.call("proxy_on_grpc_close", (ROOT, stream, UNAVAILABLE))
    }

    /// The state of the host.
    pub fn host(&self) -> &Host {
        self.store.data()
    }

    /// The mutable state of the host.
    pub fn host_mut(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    /// The request's headers arrive.
    pub fn request_headers(&mut self, headers: Headers, is_end: bool) -> anyhow::Result<Action> {
        let count = u32::try_from(headers.len())?;
        self.host_mut().request_headers = headers;
        let action = self.action(
            "proxy_on_request_headers",
            (self.host().request, count, u32::from(is_end)),
        )?;
        self.held_back = action == Action::Pause;
        Ok(action)
    }

    /// A piece of the request's body arrives, behind what is held back.
    pub fn request_body(&mut self, piece: &[u8], is_end: bool) -> anyhow::Result<Action> {
        if !self.held_back {
            self.host_mut().request_body.clear();
        }
        self.host_mut().request_body.extend_from_slice(piece);
        let bytes = u32::try_from(self.host().request_body.len())?;
        let action = self.action(
            "proxy_on_request_body",
            (self.host().request, bytes, u32::from(is_end)),
        )?;
        self.held_back = action == Action::Pause;
        Ok(action)
    }

    /// The request ends with trailers.
    pub fn request_trailers(&mut self) -> anyhow::Result<Action> {
        self.action("proxy_on_request_trailers", (self.host().request, 1_u32))
    }

    /// The response's headers arrive.
    pub fn response_headers(&mut self, headers: Headers, is_end: bool) -> anyhow::Result<Action> {
        let count = u32::try_from(headers.len())?;
        self.host_mut().response_headers = headers;
        self.action(
            "proxy_on_response_headers",
            (self.host().request, count, u32::from(is_end)),
        )
    }

    /// A piece of the response's body arrives. Trailers can be added to the last one.
    pub fn response_body(&mut self, piece: &[u8], is_end: bool) -> anyhow::Result<Action> {
        self.host_mut().response_body = piece.to_vec();
        if is_end {
            self.host_mut().response_trailers = Some(Headers::new());
        }
        let bytes = u32::try_from(piece.len())?;
        self.action(
            "proxy_on_response_body",
            (self.host().request, bytes, u32::from(is_end)),
        )
    }

    /// The response ends with trailers of its own.
    pub fn response_trailers(&mut self, trailers: Headers) -> anyhow::Result<Action> {
        let count = u32::try_from(trailers.len())?;
        self.host_mut().response_trailers = Some(trailers);
        self.action("proxy_on_response_trailers", (self.host().request, count))
    }

    /// The request is over, however it ended.
    pub fn over(&mut self) -> anyhow::Result<()> {
        self.call::<_, ()>("proxy_on_delete", self.host().request)
    }

    fn action(&mut self, function: &str, arguments: impl WasmParams) -> anyhow::Result<Action> {
        match self.call::<_, u32>(function, arguments)? {
            0 => Ok(Action::Continue),
            1 => Ok(Action::Pause),
            other => bail!("{function} returns {other}"),
        }
    }

    fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        function: &str,
        arguments: P,
    ) -> anyhow::Result<R> {
        let host = self.store.data_mut();
        host.effective = None;
        // These callbacks are the plugin's own; the others belong to the request.
        let of_root = ["configure", "vm_start", "tick", "grpc"];
        let is_of_root = of_root.iter().any(|part| function.contains(part));
        host.current = if is_of_root { ROOT } else { host.request };
        let typed: TypedFunc<P, R> = self.instance.get_typed_func(&self.store, function)?;
        typed
            .call(&mut self.store, arguments)
            .with_context(|| format!("{function}: {}", self.store.data().log.join("\n")))
    }
}

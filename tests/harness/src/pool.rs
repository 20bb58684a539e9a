//! The replicas of one model, as a stack starts them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Preset of hardware and model, which determines the timing.
    pub preset: String,
    /// Factor by which the engine runs faster than that hardware.
    pub speed: f64,
    /// Further command-line arguments.
    pub arguments: Vec<String>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            preset: "llama-3.1-8b-l4".into(),
            speed: 10.0,
            arguments: Vec::new(),
        }
    }
}

/// The replicas of one model.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) model: String,
    pub(crate) cluster: String,
    pub(crate) engines: usize,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) engine: EngineOptions,
    /// Further command-line arguments of single engines, by their number in the stack.
    pub(crate) arguments_of: BTreeMap<usize, Vec<String>>,
    pub(crate) policy: String,
    pub(crate) push: String,
}

impl Pool {
    /// A pool of one engine with SkyLB's policy and push mode, whose choices a test can predict. The cluster is `llama`,
    /// as in `standalone.yaml`.
    pub fn new(model: &str) -> Self {
        Self {
            model: model.into(),
            cluster: "llama".into(),
            engines: 1,
            addresses: Vec::new(),
            engine: EngineOptions::default(),
            arguments_of: BTreeMap::new(),
            policy: "prefix_tree".into(),
            push: "pending".into(),
        }
    }

    /// Sets the name of the pool's cluster in Envoy; each pool of a stack needs its own.
    pub fn cluster(mut self, name: &str) -> Self {
        self.cluster = name.into();
        self
    }

    /// Sets how many engines the stack starts.
    pub fn replicas(mut self, count: usize) -> Self {
        self.engines = count;
        self
    }

    /// Uses replicas that run already instead of engines.
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.engines = 0;
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// Sets the options of the engines.
    pub fn engine(mut self, options: EngineOptions) -> Self {
        self.engine = options;
        self
    }

    /// Gives one engine further command-line arguments; engines of a stack are numbered from 0.
    pub fn arguments_of(mut self, number: usize, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        self.arguments_of.insert(number, arguments);
        self
    }

    /// Sets the routing policy, by its name in the configuration.
    pub fn policy(mut self, name: &str) -> Self {
        self.policy = name.into();
        self
    }

    /// Sets the push mode, by its name in the configuration.
    pub fn push(mut self, name: &str) -> Self {
        self.push = name.into();
        self
    }
}

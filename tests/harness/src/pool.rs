//! What a stack is told about the replicas of one model.

use std::net::SocketAddr;

use crate::engine::EngineOptions;

/// The replicas of one model.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) model: String,
    pub(crate) cluster: String,
    pub(crate) replicas: usize,
    pub(crate) others: Vec<SocketAddr>,
    pub(crate) engine: EngineOptions,
    pub(crate) policy: String,
    pub(crate) push: String,
}

impl Pool {
    /// One replica, SkyLB's policy and mode of pushing, whose choices a test can foretell; the cluster is called `llama`, as in `standalone.yaml`.
    #[must_use]
    pub fn new(model: &str) -> Self {
        Self {
            model: model.into(),
            cluster: "llama".into(),
            replicas: 1,
            others: Vec::new(),
            engine: EngineOptions::default(),
            policy: "prefix_tree".into(),
            push: "pending".into(),
        }
    }

    /// The name of its cluster in Envoy; each pool of a stack needs its own.
    #[must_use]
    pub fn cluster(mut self, name: &str) -> Self {
        self.cluster = name.into();
        self
    }

    /// How many engines it starts with.
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// Replicas that run already, in place of engines: whatever answers at these addresses, `/metrics` included.
    #[must_use]
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.replicas = 0;
        self.others = addresses.into_iter().collect();
        self
    }

    /// How its engines are started.
    #[must_use]
    pub fn engine(mut self, options: EngineOptions) -> Self {
        self.engine = options;
        self
    }

    /// The routing policy, by its name in the configuration.
    #[must_use]
    pub fn policy(mut self, name: &str) -> Self {
        self.policy = name.into();
        self
    }

    /// The mode of pushing, by its name in the configuration.
    #[must_use]
    pub fn push(mut self, name: &str) -> Self {
        self.push = name.into();
        self
    }
}

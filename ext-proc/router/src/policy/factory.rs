//! The factory of a configuration, from which each router gets a policy of its own.

use core::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;

use super::{Isotherm, Policy};
use crate::config::Config;

/// Configuration of a router.
pub type RouterConfig = Config<PolicyFactory>;

type Build = dyn Fn(u64) -> Box<dyn Policy> + Send + Sync;

/// A named policy: builds one for each router of a configuration, since a policy may have state.
///
/// Two factories are equal if their names are. A router whose configuration is replaced keeps its policy, and the state of that,
/// while the name stays.
#[derive(Clone)]
pub struct PolicyFactory {
    name: Arc<str>,
    build: Arc<Build>,
}

impl PolicyFactory {
    /// A policy of this name. `build` gets the router's seed, for policies that choose at random.
    pub fn new(
        name: impl Into<Arc<str>>,
        build: impl Fn(u64) -> Box<dyn Policy> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            build: Arc::new(build),
        }
    }

    /// Name of the policy, as explanations show it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn build(&self, seed: u64) -> Box<dyn Policy> {
        (self.build)(seed)
    }
}

impl Default for PolicyFactory {
    /// The default policy: the least expected cost to all, chosen as late as possible.
    fn default() -> Self {
        Self::new("isotherm", |_| Box::new(Isotherm))
    }
}

impl PartialEq for PolicyFactory {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Debug for PolicyFactory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolicyFactory").field(&self.name).finish()
    }
}

impl Display for PolicyFactory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

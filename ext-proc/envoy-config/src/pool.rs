//! The operator's statements: the pools, the address of the service, the path of the filter.

use std::net::SocketAddr;

/// A pool of the service's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Names of the model; `*` stands for every model that no other pool names.
    pub models: Vec<String>,
    /// Cluster of the pool in Envoy.
    pub cluster: String,
}

/// Where Envoy reaches the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAddress {
    /// An IP address and port.
    Socket(SocketAddr),
    /// A name that DNS resolves, and a port.
    Name(String, u16),
    /// A Unix socket.
    Pipe(String),
}

/// A text that is no address of a service.
#[derive(Clone, Debug, thiserror::Error)]
#[error("an address is needed: 127.0.0.1:9002, isotherm.example:9002 or unix:/run/isotherm.sock")]
pub struct AddressError;

impl std::str::FromStr for ServiceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Pipe(path.to_owned()));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Socket(address));
        }
        let (name, port) = text.rsplit_once(':').ok_or(AddressError)?;
        let is_name = !name.is_empty()
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
        match port.parse() {
            Ok(port) if is_name => Ok(Self::Name(name.to_owned(), port)),
            _ => Err(AddressError),
        }
    }
}

/// Setup of the pieces. An absent value stays as in the shipped file.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The pools; without one, the shipped example's.
    pub pools: Vec<Pool>,
    /// Where Envoy reaches the service.
    pub service: Option<ServiceAddress>,
    /// Path of the module in Envoy's file system.
    pub filter: Option<String>,
}

impl Setup {
    /// The pool of requests that no filter has seen: the one for every model, else the first.
    #[must_use]
    pub fn default_pool(&self) -> Option<&Pool> {
        let serves_all = |pool: &&Pool| pool.models.iter().any(|model| model == "*");
        self.pools
            .iter()
            .find(serves_all)
            .or_else(|| self.pools.first())
    }
}

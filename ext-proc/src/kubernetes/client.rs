//! The connection to the API server.

use std::sync::Arc;
use std::time::Duration;

use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tokio::sync::OnceCell;

use super::problem::Problem;
use crate::backoff::Backoff;

/// Longest time that a connection to the API server may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest silence on a connection. A watch ends earlier by itself ([`super::watch`]).
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// First pause after an error, and longest pause. A server that comes back is followed again within the latter.
const RETRY_MIN: Duration = Duration::from_millis(200);
pub(super) const RETRY_MAX: Duration = Duration::from_millis(1_500);
/// The environment variable that Kubernetes sets in each container.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// The API server that all sources of the service share. It is looked up at the first use.
#[derive(Clone, Default)]
pub(crate) struct KubernetesClient(Arc<OnceCell<Connection>>);

/// A client with what it is configured for.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// Address of the API server.
    pub(super) server: String,
}

impl std::fmt::Debug for KubernetesClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubernetesClient")
    }
}

impl KubernetesClient {
    /// Returns the connection. In a pod it is that of the ServiceAccount, elsewhere that of KUBECONFIG.
    pub(super) async fn connection(&self) -> Result<Connection, Problem> {
        let connection = self.0.get_or_try_init(|| async {
            let config = match std::env::var_os(IN_CLUSTER) {
                Some(_) => Config::incluster().map_err(|error| Problem::no_server(&error))?,
                None => Config::from_kubeconfig(&KubeConfigOptions::default())
                    .await
                    .map_err(|error| Problem::no_server(&error))?,
            };
            Connection::open(config)
        });
        connection.await.cloned()
    }

    /// Waits for the configuration of an API server: KUBECONFIG may name a file that does not exist yet.
    pub(super) async fn connect(&self, mut on_problem: impl FnMut(Problem)) -> Connection {
        let mut backoff = retry_backoff();
        loop {
            match self.connection().await {
                Ok(connection) => return connection,
                Err(problem) => on_problem(problem),
            }
            backoff.wait().await;
        }
    }

    /// Returns a client of a server that a test runs.
    #[cfg(test)]
    pub(super) fn of(config: Config) -> Self {
        let connection = Connection::open(config).unwrap_or_else(|problem| panic!("{problem:?}"));
        Self(Arc::new(OnceCell::new_with(Some(connection))))
    }
}

/// The backoff between attempts to reach the API server.
pub(super) fn retry_backoff() -> Backoff {
    Backoff::new(RETRY_MIN, RETRY_MAX)
}

impl Connection {
    fn open(mut config: Config) -> Result<Self, Problem> {
        config.connect_timeout = Some(CONNECT_MAX);
        config.read_timeout = Some(SILENCE_MAX);
        config.reset_reader_on_write = true;
        // A watch has its own retries, with a shorter bound.
        config.default_retry = false;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| Problem::no_server(&error))?;
        Ok(Self { client, server })
    }

    /// Returns `namespace`, or the namespace of this pod or of the context of KUBECONFIG.
    pub(super) fn namespace(&self, namespace: Option<&str>) -> String {
        let own = || self.client.default_namespace();
        namespace.unwrap_or_else(own).to_owned()
    }
}

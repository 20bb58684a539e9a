//! Resolves the address of a peer.

use std::net::SocketAddr;
use std::time::Duration;

use crate::peering::LinkError;

/// The most addresses that one attempt tries.
const ADDRESSES_MAX: usize = 8;

/// Resolves one name, and keeps its last addresses.
///
/// A name that does not resolve says nothing about the peer: a name server may fail alone. So the resolver returns the last
/// addresses, and the attempts decide. Some name servers (a headless Kubernetes service) drop a name when all its servers
/// have died; the attempts at the last addresses then show that the peer is unreachable.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    last: Vec<SocketAddr>,
}

impl Resolver {
    pub(super) async fn resolve(
        &mut self,
        address: &str,
        within: Duration,
    ) -> Result<Vec<SocketAddr>, LinkError> {
        let lookup = tokio::time::timeout(within, tokio::net::lookup_host(address)).await;
        let reason = match lookup {
            Ok(Ok(found)) => {
                let found: Vec<_> = found.take(ADDRESSES_MAX).collect();
                if !found.is_empty() {
                    self.last.clone_from(&found);
                    return Ok(found);
                }
                "no addresses".to_owned()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer after {} ms", within.as_millis()),
        };
        if self.last.is_empty() {
            return Err(LinkError::resolve(address, &reason));
        }
        tracing::debug!(
            address,
            reason,
            "does not resolve; trying the last addresses"
        );
        Ok(self.last.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_never_resolved_is_a_local_error() {
        let within = Duration::from_secs(5);
        let mut resolver = Resolver::default();
        let failed = resolver.resolve("not.a.name.invalid:1", within).await;
        assert!(
            matches!(&failed, Err(LinkError::Local(reason)) if reason.starts_with("cannot resolve")),
            "{failed:?}"
        );
    }

    #[tokio::test]
    async fn a_name_that_no_longer_resolves_keeps_its_last_addresses() {
        let within = Duration::from_secs(5);
        let mut resolver = Resolver::default();
        let found = resolver.resolve("127.0.0.1:9", within).await.unwrap();
        let again = resolver.resolve("not.a.name.invalid:1", within).await;
        assert_eq!(again.unwrap(), found);
    }
}

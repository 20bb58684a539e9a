//! Where a name leads.

use std::net::SocketAddr;
use std::time::Duration;

use super::LinkError;
use crate::peering::link_error::LocalError;

/// The most addresses that one attempt tries.
const ADDRESSES_MAX: usize = 8;

/// Resolves one name, and remembers where it led.
///
/// A name that does not resolve says nothing about who is behind it, and a name server may fail alone; so the addresses
/// that it had are tried, and what they answer decides. Some name servers (a headless Kubernetes service) forget a name
/// when everybody behind it has died: then its last addresses are the way to see that nobody answers there.
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
        let looked_up = tokio::time::timeout(within, tokio::net::lookup_host(address)).await;
        let why = match looked_up {
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
            let name = address.to_owned();
            return Err(LinkError::Local(LocalError::Resolve { name, why }));
        }
        tracing::debug!(
            address,
            why,
            "does not resolve; trying where it led last time"
        );
        Ok(self.last.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_never_led_anywhere_tells_nothing_of_who_is_behind_it() {
        let within = Duration::from_secs(5);
        let mut resolver = Resolver::default();
        let failed = resolver.resolve("not.a.name.invalid:1", within).await;
        assert!(matches!(
            failed,
            Err(LinkError::Local(LocalError::Resolve { .. }))
        ));
    }

    #[tokio::test]
    async fn a_name_that_is_forgotten_leads_where_it_did() {
        let within = Duration::from_secs(5);
        let mut resolver = Resolver::default();
        let found = resolver.resolve("127.0.0.1:9", within).await.unwrap();
        let again = resolver.resolve("not.a.name.invalid:1", within).await;
        assert_eq!(again.unwrap(), found);
    }
}

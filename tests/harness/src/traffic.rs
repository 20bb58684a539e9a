//! Bytes that an Envoy sends to the service.

use std::ops::Sub;

use anyhow::Context as _;

use crate::service::{Service, admin_client};

/// Envoy's counter of the bytes that it sends to a cluster.
const SENT: &str = ".upstream_cx_tx_bytes_total: ";
/// The service's counters of the bodies that it receives.
const REQUEST_BODIES: &str = "isotherm_request_body_bytes_total ";
const RESPONSE_BODIES: &str = "isotherm_response_body_bytes_total ";

/// Bytes that Envoy sent to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTraffic {
    /// All bytes on the connections, as Envoy counts them.
    pub sent: u64,
    /// Bytes of request bodies among them, as the service counts them.
    pub request_bodies: u64,
    /// Bytes of response bodies among them, as the service counts them.
    pub response_bodies: u64,
}

impl ServiceTraffic {
    /// Reads the counters of the Envoy whose admin interface is at `envoy`, and of the service.
    pub(crate) async fn read(
        envoy: &str,
        cluster: &str,
        service: &Service,
    ) -> anyhow::Result<Self> {
        let path = "/stats?filter=upstream_cx_tx_bytes_total";
        let url = format!("{}{path}", envoy.trim_end_matches('/'));
        let stats = admin_client()?.get(url).send().await?.text().await?;
        let page = service.get("/metrics").await?;
        let page = page.as_str().unwrap_or_default();
        Ok(Self {
            sent: sent_to(&stats, cluster)
                .with_context(|| format!("Envoy has no cluster whose name ends in {cluster}"))?,
            request_bodies: counter(page, REQUEST_BODIES)?,
            response_bodies: counter(page, RESPONSE_BODIES)?,
        })
    }
}

impl Sub for ServiceTraffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            request_bodies: self.request_bodies.saturating_sub(before.request_bodies),
            response_bodies: self.response_bodies.saturating_sub(before.response_bodies),
        }
    }
}

/// Bytes sent to the clusters whose names end in `cluster`; `None` without one.
fn sent_to(stats: &str, cluster: &str) -> Option<u64> {
    let lines = stats.lines().filter_map(|line| {
        let (name, value) = line.split_once(SENT)?;
        let name = name.trim_end_matches(';'); // istiod ends the names of its clusters so
        name.ends_with(cluster).then(|| value.trim().parse().ok())?
    });
    lines.reduce(|sum, value: u64| sum + value)
}

fn counter(page: &str, name: &str) -> anyhow::Result<u64> {
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.with_context(|| format!("the service has no metric {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_summed_over_the_clusters_of_the_service() {
        let stats = "cluster.engines.upstream_cx_tx_bytes_total: 900\n\
                     cluster.outbound|9002||isotherm.upstream_cx_tx_bytes_total: 30\n\
                     cluster.eu|9002||isotherm;.upstream_cx_tx_bytes_total: 12\n";
        assert_eq!(sent_to(stats, "|9002||isotherm"), Some(42));
        assert_eq!(sent_to(stats, "absent"), None);
    }

    #[test]
    fn a_counter_is_read_by_its_whole_name() {
        let page = "# HELP a b\nisotherm_request_body_bytes_total 7\n";
        assert_eq!(counter(page, REQUEST_BODIES).unwrap(), 7);
        assert!(counter(page, RESPONSE_BODIES).is_err());
    }
}

//! Siblings that Kubernetes lists: `region.siblings_service`.

use crate::config::RegionConfig;
use crate::kubernetes::{self, Follower, KubernetesClient, SiblingReport, SiblingService};

/// The siblings behind the Service of the configuration, through reloads.
#[derive(Default)]
pub(super) struct SiblingDiscovery {
    client: KubernetesClient,
    service: Option<SiblingService>,
    follower: Option<Follower<SiblingReport>>,
    /// Last known siblings; `None` until Kubernetes has listed all of them.
    siblings: SiblingReport,
}

impl SiblingDiscovery {
    /// Follows the Service of `config` from now on, and reads its siblings. `running` has the port of the open socket.
    pub(super) fn update(&mut self, config: &RegionConfig, running: &RegionConfig) {
        let service = config.siblings_service.as_ref().map(|name| SiblingService {
            name: name.clone(),
            namespace: config.siblings_namespace.clone(),
            port: running.listen.port(),
        });
        if self.service != service {
            self.service.clone_from(&service);
            self.siblings = None;
            self.follower =
                service.map(|service| kubernetes::follow_siblings(&self.client, service));
        }
        if let Some(follower) = &mut self.follower {
            let known = follower.reports.borrow_and_update().clone();
            self.siblings = known.or(self.siblings.take());
        }
    }

    /// Returns `config` with the siblings that Kubernetes lists.
    pub(super) fn with_siblings(&self, config: &RegionConfig) -> RegionConfig {
        let mut config = config.clone();
        let found = self.siblings.iter().flatten();
        config
            .siblings
            .extend(found.map(|address| (*address).into()));
        config
    }

    /// Waits for a change of the siblings.
    pub(super) async fn changed(&mut self) {
        let is_followed = match &mut self.follower {
            Some(follower) => follower.reports.changed().await.is_ok(),
            None => false,
        };
        if !is_followed {
            std::future::pending::<()>().await;
        }
    }
}

//! The services of one region: one, or several that know of each other.

use std::path::Path;

use futures_util::future::try_join_all;

use crate::port::ReservedPort;
use crate::service::Service;

#[derive(Debug)]
pub(crate) struct Services {
    first: Service,
    others: Vec<Service>,
}

impl Services {
    /// So many with the configuration of the first, each in a directory of its own.
    pub(crate) fn new(first: Service, count: usize, directory: &Path) -> anyhow::Result<Self> {
        let others =
            (1..count).map(|number| first.sibling(&directory.join(format!("service-{number}"))));
        let others = others.collect::<anyhow::Result<_>>()?;
        Ok(Self { first, others })
    }

    /// Tells each where it listens for others, and where its siblings do.
    pub(crate) fn set_siblings(&mut self, peering: &[ReservedPort]) -> anyhow::Result<()> {
        for (service, own) in self.iter_mut().zip(peering) {
            let siblings = peering
                .iter()
                .map(ReservedPort::address)
                .filter(|address| *address != own.address())
                .map(|address| address.to_string());
            let siblings: Vec<String> = siblings.collect();
            let config = service.config();
            config.set("region/listen", own.address().to_string())?;
            config.set("region/siblings", siblings)?;
        }
        Ok(())
    }

    /// Starts all, and waits until all are ready.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        try_join_all(self.iter_mut().map(Service::start))
            .await
            .map(|_| ())
    }

    pub(crate) fn first(&self) -> &Service {
        &self.first
    }

    pub(crate) fn first_mut(&mut self) -> &mut Service {
        &mut self.first
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Service> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Service> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

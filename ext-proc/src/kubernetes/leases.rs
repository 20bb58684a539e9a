//! Records of regions as Lease objects: a store of `region.store`.
//!
//! The record is an annotation. The fields of the object (holder, transitions, time of renewal) show the same to `kubectl`; no
//! service reads them. The version of a record is the object's `resourceVersion`.

use std::time::Duration;

use isotherm_regions::{RegionEntry, StoreVersion};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, PostParams};

use super::client::KubernetesClient;
use super::problem::{Problem, Subject};
use crate::lease_store::{StoreError, StoredEntries};

/// Label of the objects, and annotation with the record.
const LABEL: &str = "isotherm.dev/region";
const ANNOTATION: &str = "isotherm.dev/region-record";
/// Name of an object before the name of its region.
const NAME_PREFIX: &str = "isotherm-region-";
/// Status code of a write whose object has changed, or exists.
const CONFLICT: u16 = 409;
/// Status code of a call that no Role allows.
const FORBIDDEN: u16 = 403;

/// The Lease objects of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct LeaseObjects {
    client: KubernetesClient,
    namespace: String,
    lease: Duration,
}

impl LeaseObjects {
    pub(crate) fn new(namespace: String, lease: Duration) -> Self {
        Self {
            client: KubernetesClient::default(),
            namespace,
            lease,
        }
    }

    async fn objects(&self) -> Result<(Api<Lease>, Subject), StoreError> {
        let connection = self.client.connection().await;
        let connection = connection.map_err(|problem| StoreError(problem.text))?;
        let subject = Subject {
            plural: "leases".to_owned(),
            group: "coordination.k8s.io".to_owned(),
            namespace: self.namespace.clone(),
            server: connection.server,
        };
        Ok((Api::namespaced(connection.client, &self.namespace), subject))
    }

    pub(crate) async fn list(&self) -> Result<StoredEntries, StoreError> {
        let (objects, subject) = self.objects().await?;
        let found = objects.list(&ListParams::default().labels(LABEL)).await;
        let found = found.map_err(|error| store_error(&error, &subject))?;
        let mut listing = StoredEntries::default();
        for object in found.items {
            let name = object.metadata.name.unwrap_or_default();
            let annotations = object.metadata.annotations.unwrap_or_default();
            if let Some(version) = object.metadata.resource_version
                && let Some(record) = annotations.get(ANNOTATION)
            {
                let version = StoreVersion(version.into());
                listing.add(record.as_bytes(), &name, NAME_PREFIX, version);
            }
        }
        Ok(listing)
    }

    pub(crate) async fn write(
        &self,
        entry: &RegionEntry,
        expected: Option<&StoreVersion>,
    ) -> Result<Option<StoreVersion>, StoreError> {
        let (objects, subject) = self.objects().await?;
        let record = serde_json::to_string(entry).map_err(|error| StoreError(error.to_string()))?;
        let name = format!("{NAME_PREFIX}{}", entry.region);
        let object = Lease {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                resource_version: expected.map(|version| version.0.to_string()),
                labels: Some([(LABEL.to_owned(), entry.region.to_string())].into()),
                annotations: Some([(ANNOTATION.to_owned(), record)].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(entry.holder.as_deref().unwrap_or_default().to_owned()),
                lease_duration_seconds: i32::try_from(self.lease.as_secs()).ok(),
                lease_transitions: i32::try_from(entry.revision).ok(),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        let written = match expected {
            None => objects.create(&PostParams::default(), &object).await,
            Some(_) => {
                objects
                    .replace(&name, &PostParams::default(), &object)
                    .await
            }
        };
        match written {
            Ok(object) => {
                let version = object.metadata.resource_version.unwrap_or_default();
                Ok(Some(StoreVersion(version.into())))
            }
            Err(kube::Error::Api(status)) if status.code == CONFLICT => Ok(None),
            Err(error) => Err(store_error(&error, &subject)),
        }
    }
}

fn store_error(error: &kube::Error, subject: &Subject) -> StoreError {
    if let kube::Error::Api(status) = error
        && status.code == FORBIDDEN
    {
        return StoreError(format!(
            "this service may not keep leases in namespace `{}`: bind a Role with the verbs list, create and update on leases of \
             coordination.k8s.io to its ServiceAccount (docs/kubernetes.md: {})",
            subject.namespace, status.message
        ));
    }
    let problem = Problem::of_request(error, subject);
    StoreError(problem.map_or_else(|| error.to_string(), |problem| problem.text))
}

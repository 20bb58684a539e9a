//! Bodies in OpenAI's form, so that clients' libraries show them as what they are.

use std::collections::BTreeSet;

use isotherm_router::RejectReason;
use serde_json::{Value, json};

use crate::pool::{ANY_MODEL, Pool};

/// The body for a model that no pool serves.
pub(crate) fn unknown_model(model: &str) -> Value {
    error(
        &format!("The model `{model}` does not exist. GET /v1/models lists those that do."),
        "invalid_request_error",
        Some("model"),
        "model_not_found",
    )
}

/// The body for a request that ought to name a model.
pub(crate) fn no_model() -> Value {
    error(
        "No model could be read from this request. Name one in the JSON body, uncompressed; \
         GET /v1/models lists them.",
        "invalid_request_error",
        Some("model"),
        "missing_model",
    )
}

/// The body for a request that the queue refused.
pub(crate) fn rejected(reason: RejectReason) -> Value {
    let message = match reason {
        RejectReason::QueueFull => {
            "Too many requests wait for this model already. Try again later."
        }
        RejectReason::WaitedTooLong => {
            "No replica of this model became free in time. Try again later."
        }
        RejectReason::EmptySubset => {
            "None of the replicas that the gateway allows for this request serves this model."
        }
        RejectReason::NoReplica => "This model has no replica at the moment. Try again later.",
        RejectReason::NoHealthyReplica => {
            "No replica of this model answers at the moment. Try again later."
        }
        RejectReason::RegionFull => {
            "This region has no room for requests of other regions at the moment."
        }
        RejectReason::ShuttingDown => "The service is being restarted. Try again.",
    };
    error(message, "server_error", None, reason.as_str())
}

/// The list of models; `created` is when this service started, in seconds since 1970.
pub(crate) fn models<'a>(
    pools: impl Iterator<Item = &'a std::sync::Arc<Pool>>,
    created: u64,
) -> Value {
    let mut ids = BTreeSet::new();
    for pool in pools {
        let config = pool.config();
        let config = config.borrow();
        ids.insert(config.model.clone());
        ids.extend(config.aliases.iter().cloned());
    }
    ids.remove(ANY_MODEL);
    let data: Vec<_> = ids.iter().map(|id| model(id, created)).collect();
    json!({ "object": "list", "data": data })
}

/// One model.
pub(crate) fn model(id: &str, created: u64) -> Value {
    json!({ "id": id, "object": "model", "created": created, "owned_by": "isotherm" })
}

fn error(message: &str, kind: &str, param: Option<&str>, code: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

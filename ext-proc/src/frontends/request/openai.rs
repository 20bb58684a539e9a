//! Response bodies in OpenAI's format. [`error_body::for_path`] turns errors into the format of another API.
//!
//! [`error_body::for_path`]: isotherm_wasm_filter_core::error_body::for_path

use std::collections::BTreeMap;

use isotherm_fingerprint::UnreadModel;
use isotherm_fingerprint::paths::{METHOD_MESSAGE, UNKNOWN_PATH_MESSAGE};
use isotherm_router::RejectReason;
use isotherm_wasm_filter_core::body_timer;
use isotherm_wasm_filter_core::error_body::openai as error;
use serde_json::{Value, json};

use crate::pool::{ANY_MODEL, Pool};

/// Returns the body for a path that clients may not use.
pub(crate) fn unknown_path() -> Value {
    error(
        UNKNOWN_PATH_MESSAGE,
        "invalid_request_error",
        None,
        "unknown_url",
    )
}

/// Returns the body for a method that a path does not take.
pub(crate) fn method_not_allowed() -> Value {
    error(
        METHOD_MESSAGE,
        "invalid_request_error",
        None,
        "method_not_allowed",
    )
}

/// Returns the body of the service's health.
pub(crate) fn health(is_healthy: bool) -> Value {
    if is_healthy {
        return json!({ "status": "ok" });
    }
    error(
        "No replica of any model is healthy at the moment.",
        "server_error",
        None,
        "no_healthy_replica",
    )
}

/// Returns the body for a model that no pool serves.
pub(crate) fn unknown_model(model: &str) -> Value {
    error(
        &format!("The model `{model}` does not exist. GET /v1/models lists the models that do."),
        "invalid_request_error",
        Some("model"),
        "model_not_found",
    )
}

/// Returns the body for a request that must name a model.
pub(crate) fn no_model() -> Value {
    error(
        "This request names no model. Name one in the member `model` of its JSON body; GET /v1/models lists them.",
        "invalid_request_error",
        Some("model"),
        "missing_model",
    )
}

/// Returns the body for a request whose model cannot be told.
pub(crate) fn unread_model(reason: UnreadModel) -> Value {
    error(
        reason.message(),
        "invalid_request_error",
        Some("model"),
        "unread_model",
    )
}

/// Returns the body for a request that the pool rejected.
pub(crate) fn rejected(reason: RejectReason) -> Value {
    let message = match reason {
        RejectReason::QueueFull => "Too many requests are queued for this model. Try again later.",
        RejectReason::WaitedTooLong => {
            "No replica of this model became available in time. Try again later."
        }
        RejectReason::EmptySubset => {
            "None of the replicas that the gateway allows for this request serves this model."
        }
        RejectReason::NoReplica => "This model has no replica at the moment. Try again later.",
        RejectReason::NoHealthyReplica => {
            "No replica of this model is healthy at the moment. Try again later."
        }
        RejectReason::RegionFull => {
            "This region has no free capacity for requests of other regions at the moment."
        }
        RejectReason::Quarantined => {
            "Two replicas of this model broke while they had this prompt, so no replica gets it for a while."
        }
        RejectReason::TenantLimit => {
            "Your tenant has as many requests for this model as it may have at a time. Try again later."
        }
        RejectReason::NoSpareCapacity => {
            "This model has no capacity to spare for batch work at the moment. Try again later."
        }
        RejectReason::ShuttingDown => "The service is being restarted. Try again.",
    };
    let kind = match reason {
        RejectReason::TenantLimit | RejectReason::NoSpareCapacity => "rate_limit_error",
        _ => "server_error",
    };
    error(message, kind, None, reason.as_ref())
}

/// Returns the body for a request whose own body is late.
pub(crate) fn body_timeout() -> Value {
    body_timer::body()
}

/// Returns the body for a request without a response from its replica.
pub(crate) fn hung() -> Value {
    error(
        "The replica of this request has stopped responding. Try again.",
        "server_error",
        None,
        "replica_hung",
    )
}

/// Returns the list of models, and of their adapters; `created` is the start of the service, in seconds since 1970.
pub(crate) fn models<'a>(
    pools: impl Iterator<Item = &'a std::sync::Arc<Pool>>,
    created: u64,
) -> Value {
    let mut ids = BTreeMap::new();
    let mut adapters = BTreeMap::new();
    for pool in pools {
        let config = pool.config();
        let config = config.borrow();
        let names = std::iter::once(&config.model).chain(&config.aliases);
        ids.extend(names.map(|name| (name.clone(), pool)));
        let of_pool = pool.adapters().into_iter();
        adapters.extend(of_pool.map(|name| (name, config.model.clone())));
    }
    ids.remove(ANY_MODEL);
    adapters.retain(|name, _| !ids.contains_key(&**name));
    let adapters = adapters.iter().map(|(name, base)| {
        let name = &**name;
        json!({ "id": name, "object": "model", "created": created, "owned_by": "isotherm", "parent": base })
    });
    let data: Vec<_> = ids
        .iter()
        .map(|(id, pool)| model(id, pool, created))
        .chain(adapters)
        .collect();
    json!({ "object": "list", "data": data })
}

/// Returns the entry of a model, with what all its replicas say of it, such as the length of its context.
pub(crate) fn model(id: &str, pool: &Pool, created: u64) -> Value {
    let mut card = pool.model_card();
    card.insert("id".into(), id.into());
    card.insert("object".into(), "model".into());
    card.insert("created".into(), created.into());
    card.insert("owned_by".into(), "isotherm".into());
    Value::Object(card)
}

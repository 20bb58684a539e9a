//! Models that the server offers, and the cache that a request selects.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::replica::{Replica, Settings};
use super::wall_clock::unix_seconds;
use crate::model::AdapterId;
use crate::text::Selector;

/// `GET /v1/models`
pub async fn list(State(replica): State<Arc<Replica>>) -> Json<Value> {
    let settings = &replica.settings;
    let created = unix_seconds();
    let model = |name: &str, parent: Option<&str>| {
        json!({
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "isotherm-engine",
            "root": name,
            "parent": parent,
            "max_model_len": settings.config.request_tokens_max(),
        })
    };
    let adapters = settings
        .adapters
        .iter()
        .map(|name| model(name, Some(&settings.model)));
    let data: Vec<Value> = core::iter::once(model(&settings.model, None))
        .chain(adapters)
        .collect();
    Json(json!({"object": "list", "data": data}))
}

/// Splits `base:adapter`, which SGLang takes as a model.
fn adapter_of_base<'n>(settings: &Settings, name: &'n str) -> Option<&'n str> {
    let (base, adapter) = name.rsplit_once(':')?;
    let is_known = settings.adapters.iter().any(|known| known == adapter);
    (base == settings.model && is_known).then_some(adapter)
}

/// The number of the adapter that a request uses.
pub fn adapter(settings: &Settings, selector: &Selector) -> Option<AdapterId> {
    let known = settings.adapters.iter();
    let at = known.into_iter().position(|name| *name == selector.model)?;
    u32::try_from(at).ok().map(AdapterId)
}

/// The model and the cache that a request asks for. A request that names no model gets the one there is.
/// 404 for a model that is not served here.
pub fn select(settings: &Settings, body: &Value) -> Result<Selector, ApiError> {
    let model = match body.get("model") {
        None | Some(Value::Null) => settings.model.clone(),
        Some(Value::String(name))
            if *name == settings.model || settings.adapters.contains(name) =>
        {
            name.clone()
        }
        Some(Value::String(name)) => match adapter_of_base(settings, name) {
            Some(adapter) => adapter.to_owned(),
            None => return Err(ApiError::unknown_model(name)),
        },
        Some(other) => {
            return Err(ApiError::bad_request(
                format!("`model` must be a string, not {other}"),
                Some("model"),
            ));
        }
    };
    // SGLang names the adapter beside the model.
    let adapter = body.get("lora_path").and_then(Value::as_str);
    let cache_salt = body
        .get("cache_salt")
        .and_then(Value::as_str)
        .unwrap_or_default();
    Ok(Selector {
        model: adapter.map_or(model, ToOwned::to_owned),
        cache_salt: cache_salt.to_owned(),
    })
}

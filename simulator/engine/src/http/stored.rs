//! Stored responses, as vLLM keeps them: in the memory of one engine, which no other engine knows.
//!
//! A request with `previous_response_id` continues the conversation of the stored response. An id that this engine does not have is a
//! 404, as is one that it has dropped to bound its memory.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::api_error::ApiError;

/// Responses that an engine keeps.
const RESPONSES_MAX: usize = 1_024;

/// A response, and the items of the conversation up to its end.
#[derive(Debug)]
struct StoredResponse {
    id: String,
    response: Value,
    items: Vec<Value>,
}

/// The latest responses of an engine.
#[derive(Debug, Default)]
pub struct StoredResponses(Mutex<VecDeque<StoredResponse>>);

impl StoredResponses {
    /// Puts the stored conversation in front of the input of a request that continues one.
    /// 404 where this engine does not have the response.
    pub fn continue_conversation(&self, body: &mut Value) -> Result<(), ApiError> {
        let previous = body.get("previous_response_id").and_then(Value::as_str);
        let Some(previous) = previous else {
            return Ok(());
        };
        let mut items = self.read(previous, |stored| stored.items.clone())?;
        items.extend(input_items(body));
        if let Some(body) = body.as_object_mut() {
            body.insert("input".to_owned(), Value::Array(items));
        }
        Ok(())
    }

    /// A stored response.
    /// 404 where this engine does not have the response.
    pub fn get(&self, id: &str) -> Result<Value, ApiError> {
        self.read(id, |stored| stored.response.clone())
    }

    /// Keeps a response to a request, unless the client wants it not to be stored.
    pub fn keep(&self, request: &Value, response: Value) {
        let id = response.get("id").and_then(Value::as_str);
        let is_wanted = request.get("store") != Some(&Value::Bool(false));
        let Some(id) = id.filter(|_| is_wanted).map(str::to_owned) else {
            return;
        };
        let mut items = input_items(request);
        let output = response.get("output").and_then(Value::as_array);
        items.extend(output.into_iter().flatten().cloned());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(StoredResponse {
            id,
            response,
            items,
        });
        if all.len() > RESPONSES_MAX {
            all.pop_front();
        }
    }

    fn read<T>(&self, id: &str, read: impl FnOnce(&StoredResponse) -> T) -> Result<T, ApiError> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = all.iter().rev().find(|stored| stored.id == id);
        stored.map(read).ok_or_else(|| {
            let message = format!("Response with id '{id}' not found.");
            ApiError::not_found(message, "response_id")
        })
    }
}

/// The items of a request's input, of which a text is one.
fn input_items(body: &Value) -> Vec<Value> {
    match body.get("input") {
        Some(Value::Array(items)) => items.clone(),
        Some(text @ Value::String(_)) => vec![json!({ "role": "user", "content": text })],
        _ => Vec::new(),
    }
}

//! The adapters that a replica can serve, and what it says of its model, from its list of models.
//!
//! vLLM and SGLang list each adapter beside the base model, with the base model as its `parent`. Adapters come and go
//! while an engine runs, and seldom: the service asks every few seconds, and keeps the last list when a request fails.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use isotherm_router::ADAPTERS_LISTED_MAX;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::adapter_series::NAME_BYTES_MAX;
use super::client::ReplicaClient;
use super::fetch::fetch_as;
use crate::config::Engine;

/// The longest list, in bytes.
const LIST_BYTES_MAX: usize = 1 << 20;
/// The time between two requests for the list.
const INTERVAL: Duration = Duration::from_secs(5);
/// The time until the next request to a replica that has no list.
const INTERVAL_WITHOUT_LIST: Duration = Duration::from_secs(30);

/// The most members of a model's entry that are kept, and the longest of them as JSON, in bytes.
const MEMBERS_MAX: usize = 16;
const MEMBER_BYTES_MAX: usize = 1_024;
/// Members of an entry that the service writes itself, or that differ from answer to answer.
const OWN_MEMBERS: [&str; 6] = [
    "id",
    "object",
    "created",
    "owned_by",
    "parent",
    "permission",
];

/// The part of a list of models that the service keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ListedModels {
    /// Names of the adapters.
    pub(crate) adapters: Vec<String>,
    /// Further members of the base model's entry, such as `max_model_len`.
    pub(crate) card: Map<String, Value>,
}

/// The list of one replica.
#[derive(Debug, Default)]
pub(super) struct AdapterList {
    known: Option<ListedModels>,
    /// When to ask next; `None` for now.
    next: Option<Instant>,
}

impl AdapterList {
    /// Whether the replica was never asked.
    pub(super) fn is_new(&self) -> bool {
        self.next.is_none() && self.known.is_none()
    }

    /// Asks at the next opportunity.
    pub(super) fn expire(&mut self) {
        self.next = None;
    }

    /// Asks the replica when it is time; returns the list if it has changed. `jitter` is about 1.
    pub(super) async fn update(
        &mut self,
        engine: Engine,
        (client, addr): (&ReplicaClient, SocketAddr),
        timeout: Duration,
        jitter: f64,
    ) -> Option<ListedModels> {
        let path = engine.table().models_path?;
        if self.next.is_some_and(|next| Instant::now() < next) {
            return None;
        }
        let accept = "application/json";
        let page = fetch_as(client, addr, path, accept, timeout, LIST_BYTES_MAX).await;
        let listed = page.ok().and_then(|page| parse(&page));
        let interval = match listed {
            Some(_) => INTERVAL,
            None => INTERVAL_WITHOUT_LIST,
        };
        self.next = Instant::now().checked_add(interval.mul_f64(jitter));
        let changed = listed.filter(|listed| self.known.as_ref() != Some(listed))?;
        self.known = Some(changed.clone());
        Some(changed)
    }
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ModelCard>,
}

#[derive(Deserialize)]
struct ModelCard {
    id: String,
    /// Base model of an adapter.
    #[serde(default)]
    parent: Value,
    #[serde(flatten)]
    members: Map<String, Value>,
}

impl ModelCard {
    fn is_adapter(&self) -> bool {
        let parent = self.parent.as_str();
        parent.is_some_and(|parent| !parent.is_empty())
    }
}

/// Returns the adapters and the entry of the first base model; `None` for another page.
pub(crate) fn parse(page: &[u8]) -> Option<ListedModels> {
    let list: ModelList = serde_json::from_slice(page).ok()?;
    let (adapters, bases): (Vec<_>, Vec<_>) =
        list.data.into_iter().partition(ModelCard::is_adapter);
    let members = bases.into_iter().next().map(|card| card.members);
    let is_kept = |(name, value): &(String, Value)| {
        let bytes = name.len() + value.to_string().len();
        !OWN_MEMBERS.contains(&name.as_str()) && !value.is_null() && bytes <= MEMBER_BYTES_MAX
    };
    let members = members.unwrap_or_default().into_iter().filter(is_kept);
    let adapters = adapters.into_iter().map(|card| card.id);
    let adapters = adapters.filter(|id| (1..=NAME_BYTES_MAX).contains(&id.len()));
    let mut names: Vec<String> = adapters.collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(ADAPTERS_LISTED_MAX);
    Some(ListedModels {
        adapters: names,
        card: members.take(MEMBERS_MAX).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_with_a_parent_is_an_adapter() {
        let page = br#"{"object":"list","data":[
            {"id":"meta-llama/Llama-3.1-8B","object":"model","root":"meta-llama/Llama-3.1-8B","parent":null,"max_model_len":8192},
            {"id":"sql","object":"model","root":"/adapters/sql","parent":"meta-llama/Llama-3.1-8B","max_model_len":null},
            {"id":"chat","root":"/adapters/chat","parent":"meta-llama/Llama-3.1-8B"},
            {"id":"other-base"}]}"#;
        let listed = parse(page).unwrap();
        assert_eq!(listed.adapters, ["chat", "sql"]);
        let card = serde_json::json!({"root": "meta-llama/Llama-3.1-8B", "max_model_len": 8192});
        assert_eq!(Value::Object(listed.card), card);
    }

    #[test]
    fn pages_of_other_engines_list_none() {
        let llamacpp =
            br#"{"models":[{"name":"m"}],"object":"list","data":[{"id":"m","meta":{}}]}"#;
        assert!(parse(llamacpp).is_some_and(|listed| listed.adapters.is_empty()));
        for page in ["", "[]", "{}", r#"{"data":[{"name":"x"}]}"#, "<html>"] {
            assert_eq!(parse(page.as_bytes()), None, "{page}");
        }
    }

    #[test]
    fn the_number_and_the_length_of_names_are_bounded() {
        let card = |id: String| serde_json::json!({ "id": id, "parent": "m" });
        let mut data: Vec<_> = (0..2_000).map(|n| card(format!("a{n}"))).collect();
        data.push(card("x".repeat(1_000)));
        data.push(card(String::new()));
        let page = serde_json::json!({ "data": data }).to_string();
        let names = parse(page.as_bytes()).unwrap().adapters;
        assert_eq!(names.len(), ADAPTERS_LISTED_MAX);
        assert!(names.iter().all(|name| (1..6).contains(&name.len())));
    }
}

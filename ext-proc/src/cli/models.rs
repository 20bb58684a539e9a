//! The models that a replica serves, as it says at `/v1/models`.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::Request;
use serde::Deserialize;

use crate::config::Address;
use crate::http_client::HttpClient;

/// The longest wait for a replica's answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);
/// The largest answer, in bytes: an engine lists its model and some adapters.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The answer of a replica to the question for its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModelsAnswer {
    /// The replica lists its models and adapters.
    Models(Vec<Model>),
    /// The replica answers something else, such as a status.
    Other(String),
    /// No answer comes, and why.
    Silent(String),
}

/// An entry of a replica's list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Model {
    pub(super) id: String,
    /// Model of which this entry is an adapter.
    #[serde(default)]
    parent: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ModelList {
    data: Vec<Model>,
}

impl ModelsAnswer {
    /// The names of the replica's model, without its adapters.
    pub(super) fn names(&self) -> Vec<&str> {
        let Self::Models(models) = self else {
            return Vec::new();
        };
        let own = models.iter().filter(|model| model.parent.is_none());
        own.map(|model| model.id.as_str()).collect()
    }
}

/// Asks each replica, all at the same time.
pub(super) async fn ask_all(http: &HttpClient, replicas: &[Address]) -> Vec<ModelsAnswer> {
    join_all(replicas.iter().map(|replica| ask(http, replica))).await
}

/// Asks a replica.
async fn ask(http: &HttpClient, replica: &Address) -> ModelsAnswer {
    let request = Request::get(format!("http://{replica}/v1/models")).body(Bytes::new());
    let request = match request {
        Ok(request) => request,
        Err(error) => return ModelsAnswer::Silent(error.to_string()),
    };
    let answer = http.fetch(request, ANSWER_TIME_MAX, ANSWER_BYTES_MAX).await;
    match answer {
        Err(error) => ModelsAnswer::Silent(error.to_string()),
        Ok(answer) if answer.status().is_success() => parse(answer.body()),
        Ok(answer) => ModelsAnswer::Other(format!("status {}", answer.status().as_u16())),
    }
}

fn parse(body: &[u8]) -> ModelsAnswer {
    match serde_json::from_slice::<ModelList>(body) {
        Ok(list) => ModelsAnswer::Models(list.data),
        Err(_) => ModelsAnswer::Other("no list of models".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_no_name_of_the_model() {
        let answer = parse(
            br#"{"object":"list","data":[{"id":"base","parent":null},{"id":"alias"},{"id":"lora","parent":"base"}]}"#,
        );
        assert_eq!(answer.names(), ["base", "alias"]);
    }

    #[test]
    fn another_server_has_no_models() {
        for body in ["", "ok", r#"{"data":"none"}"#] {
            let answer = parse(body.as_bytes());
            assert_eq!(answer, ModelsAnswer::Other("no list of models".to_owned()));
            assert!(answer.names().is_empty());
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_silent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let answers = ask_all(&HttpClient::new(), &[address.into()]).await;
        assert!(
            matches!(&*answers, [ModelsAnswer::Silent(reason)] if reason.contains("refused")),
            "{answers:?}"
        );
    }
}

//! Bodies of the sizes that matter to a filter that holds them, checked whole at the replica.

use crate::{Client, HttpResponse, MODEL, ScriptedReplica, send};
use serde_json::Value;

/// Sizes of bodies: a chat, a long prompt, Envoy's default buffer limit, and images.
pub const SIZES: [usize; 4] = [1 << 10, 220 << 10, 1 << 20, 30 << 20];

/// The body of a chat request of about `bytes` bytes. The text has escapes, as real prompts do.
#[must_use]
pub fn chat_of(bytes: usize) -> String {
    const SENTENCE: &str = "It was a \\\"warm\\\" day in the far north, and the snow melted.\\n";
    let text = SENTENCE.repeat(bytes / SENTENCE.len());
    format!(
        r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

/// Sends a body in a session, and reads the whole response.
pub async fn send_body(client: &Client, session: &str, body: &str) -> anyhow::Result<HttpResponse> {
    let request = client
        .post_chat(&Value::Null)
        .header("x-session-id", session);
    send(request.body(body.to_owned())).await
}

/// Sends a body of each of [`SIZES`], and checks that the replica receives exactly these.
pub async fn check_all_sizes(client: &Client, replica: &ScriptedReplica) -> anyhow::Result<()> {
    for bytes in SIZES {
        let body = chat_of(bytes);
        send_body(client, "s", &body).await?.success()?;
        let received = replica.received();
        let last = received.last().map(|request| &request.body);
        anyhow::ensure!(
            last.is_some_and(|last| *last == body),
            "a body of {bytes} bytes changed"
        );
    }
    Ok(())
}

//! Programs of other projects that route requests to engines: what a user would run instead of Isotherm.
//!
//! None of them is required. A start returns `None` for a program that is missing, after a line on standard error that names
//! the command that installs it.

mod python_router;
mod reference_picker;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

pub use python_router::{PythonRouter, RunningRouter};
pub use reference_picker::{ReferencePicker, behind_picker};

use crate::MODEL;
use crate::wait::wait_for;

/// Longest start of a program of another project.
const READY_MAX: Duration = Duration::from_secs(60);

/// Waits until a request to an address has a response.
///
/// # Errors
/// When there is none in time.
pub async fn wait_for_response(address: SocketAddr, name: &str, log: &Path) -> anyhow::Result<()> {
    let client = reqwest::Client::new();
    let question = json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "ready?" }],
        "max_tokens": 1,
    });
    let url = format!("http://{address}/v1/chat/completions");
    let what = format!("{name} to answer (its log: {})", log.display());
    wait_for(READY_MAX, &what, || async {
        let response = client.post(&url).json(&question).send().await;
        let is_ready = response.is_ok_and(|response| response.status().is_success());
        Ok(is_ready.then_some(()))
    })
    .await
}

//! Programs of other projects that route requests to engines: what a user would run instead of Isotherm.
//!
//! None of them is required. A start returns `None` for a program that is missing, after a line on standard error that names
//! the command that installs it.

mod python_router;
mod reference_picker;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

pub use python_router::{PythonRouter, RunningRouter};
pub use reference_picker::{ReferencePicker, behind_picker};

use crate::MODEL;
use crate::process::Process;

/// Longest start of a program of another project.
const READY_MAX: Duration = Duration::from_secs(60);

/// Waits until a program responds to a request at an address.
///
/// # Errors
/// When it ends before, or gives no response in time.
pub async fn wait_for_response(address: SocketAddr, process: &mut Process) -> anyhow::Result<()> {
    let client = reqwest::Client::new();
    let question = json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "ready?" }],
        "max_tokens": 1,
    });
    let url = format!("http://{address}/v1/chat/completions");
    let answered = |_| async {
        let response = client.post(&url).json(&question).send().await;
        response.ok()?.status().is_success().then_some(())
    };
    process.wait_until_ready(READY_MAX, answered).await
}

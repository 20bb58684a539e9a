//! Compatibility with OpenAI's clients.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use isotherm_e2e::{
    Client, MODEL, ScriptedReplica, chat, engines, permit, send, with_long_timeouts,
};
use isotherm_harness::{Pool, Stack};
use serde_json::{Value, json};

async fn start(name: &str) -> anyhow::Result<Stack> {
    engines(name, 2, 50.0).start().await
}

#[tokio::test]
async fn a_plain_http_client_gets_responses_in_openais_format() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("openai-http").await?;
    let client = Client::new(&stack.url(""))?;

    let response = send(client.post_chat(&chat("Say something.")))
        .await?
        .success()?;
    let body = response.json()?;
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["choices"][0]["message"]["role"], "assistant");
    assert!(body["usage"]["prompt_tokens"].as_u64() > Some(0), "{body}");

    let mut streaming = chat("Say something longer.");
    streaming["max_tokens"] = json!(20);
    streaming["stream"] = json!(true);
    streaming["stream_options"] = json!({ "include_usage": true });
    let response = send(client.post_chat(&streaming)).await?.success()?;
    let kind = response.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    let text = response.text();
    let events: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    assert_eq!(events.last(), Some(&"[DONE]"), "{text}");
    let usage: Value = serde_json::from_str(events[events.len() - 2])?;
    assert_eq!(usage["usage"]["completion_tokens"], 20, "{usage}");

    let completion = json!({ "model": MODEL, "prompt": "Once upon a time", "max_tokens": 5 });
    let response = send(client.post("/v1/completions", &completion)).await?;
    assert_eq!(response.json()?["object"], "text_completion");

    let embedding = json!({ "model": MODEL, "input": ["a warm place", "another"] });
    let response = send(client.post("/v1/embeddings", &embedding)).await?;
    let body = response.json()?;
    assert_eq!(body["data"].as_array().map(Vec::len), Some(2), "{body}");

    let response = send(client.get("/v1/models")).await?;
    let body = response.json()?;
    assert_eq!(body["object"], "list");
    assert_eq!(body["data"][0]["id"], MODEL);
    let response = send(client.get(&format!("/v1/models/{MODEL}"))).await?;
    assert_eq!(response.json()?["id"], MODEL);
    Ok(())
}

#[tokio::test]
async fn an_unknown_model_is_a_404_in_openais_format() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("openai-unknown").await?;
    let client = Client::new(&stack.url(""))?;
    let mut body = chat("Hello?");
    body["model"] = json!("no-such-model");

    let response = send(client.post_chat(&body)).await?;

    assert_eq!(response.status, 404);
    assert_eq!(response.header("content-type"), Some("application/json"));
    let error = &response.json()?["error"];
    assert_eq!(error["code"], "model_not_found");
    assert_eq!(error["type"], "invalid_request_error");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| message.contains("no-such-model")),
        "{error}"
    );
    let response = send(client.get("/v1/models/no-such-model")).await?;
    assert_eq!(response.status, 404);
    Ok(())
}

#[tokio::test]
async fn each_model_is_served_by_its_own_replicas() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [warm, cold] = ScriptedReplica::start_all(["warm", "cold"]).await?;
    let pool = |model: &str, replica: &ScriptedReplica| {
        Pool::new(model)
            .cluster(model)
            .with_addresses([replica.address()])
    };
    let stack = Stack::builder("two-models")
        .pool(pool("warm-model", &warm))
        .pool(pool("cold-model", &cold));
    let stack = with_long_timeouts(stack).start().await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..3 {
        for (model, replica) in [("warm-model", &warm), ("cold-model", &cold)] {
            let mut body = chat(&format!("number {number}"));
            body["model"] = json!(model);
            let response = client.chat("s", &body).await?.success()?;
            assert_eq!(response.served_by(), Some(replica.name()));
        }
    }
    let models = send(client.get("/v1/models")).await?.json()?;
    let ids: Vec<_> = (0..2).map(|index| &models["data"][index]["id"]).collect();
    assert_eq!(ids, ["cold-model", "warm-model"]);
    Ok(())
}

/// Needs a package index. Without one, the test is skipped, except in CI, where it fails.
#[tokio::test(flavor = "multi_thread")]
async fn the_openai_python_package_works() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("openai-python").await?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = match python_with_openai(stack.directory(), &here.join("requirements.txt")) {
        Ok(python) => python,
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: the openai package cannot be installed here: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let script = Command::new(python)
        .arg(here.join("openai_client.py"))
        .args([&stack.url("/v1"), MODEL])
        .output()?;
    check_success(&script)?;
    println!("{}", String::from_utf8_lossy(&script.stdout));
    Ok(())
}

/// Creates a virtual environment with the package; returns its interpreter.
pub(crate) fn python_with_openai(
    directory: &Path,
    requirements: &Path,
) -> anyhow::Result<std::path::PathBuf> {
    let environment = directory.join("python");
    let created = Command::new("python3")
        .args(["-m", "venv"])
        .arg(&environment)
        .output()
        .context("no python3")?;
    check_success(&created).context("no python3 -m venv")?;
    let python = environment.join("bin/python");
    let installed = Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(["--retries", "1", "--timeout", "20", "--requirement"])
        .arg(requirements)
        .output()?;
    check_success(&installed)?;
    Ok(python)
}

pub(crate) fn check_success(output: &Output) -> anyhow::Result<()> {
    ensure!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

//! A recording of live requests is a trace with their lengths, times and prefixes, and without their text.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::Context as _;
use isotherm_e2e::{Client, MODEL, WAIT_MAX, admin, engines, permit};
use serde_json::{Value, json};
use tokio::process::Command;

const CONVERSATIONS: usize = 3;
/// A word that no generated text contains.
const MARK: &str = "Xylophone";

#[tokio::test]
async fn a_recording_is_a_trace_without_text() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = engines("recording", 2, 50.0)
        .service(|config| config.set("recording", true))
        .start()
        .await?;
    let trace = stack.directory().join("trace.jsonl");
    let requests = (2 * CONVERSATIONS).to_string();
    let recording = Command::new(stack.service().program())
        .arg("record")
        .arg("--config")
        .arg(stack.service().config_path())
        .arg("--output")
        .arg(&trace)
        .args(["--requests", &requests])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    admin::wait_for_log(stack.service(), "recording begins").await?;

    let client = Client::new(&stack.url(""))?;
    let mut usages = Vec::new();
    for number in 0..CONVERSATIONS {
        let session = format!("{MARK}-{number}");
        let topic = format!("{MARK}: a long topic that all have in common. ").repeat(30);
        let mut messages = vec![
            json!({ "role": "system", "content": topic }),
            json!({ "role": "user", "content": format!("{MARK}: question {number}").repeat(20) }),
        ];
        for _ in 0..2 {
            let body = json!({ "model": MODEL, "messages": messages, "max_tokens": 90, "ignore_eos": true });
            let response = client.chat(&session, &body).await?.json()?;
            usages.push(response["usage"].clone());
            messages.push(response["choices"][0]["message"].clone());
            messages
                .push(json!({ "role": "user", "content": format!("{MARK}, go on. ").repeat(25) }));
        }
    }
    let output = tokio::time::timeout(WAIT_MAX, recording.wait_with_output()).await??;
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");

    let text = std::fs::read_to_string(&trace)?;
    assert!(!text.contains(MARK) && !text.contains("common"), "{text}");
    let lines: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    assert_eq!(lines.len(), usages.len());
    let number = |value: &Value| value.as_u64().context("a number");
    let (mut tokens, mut counted_tokens) = (0, 0);
    for (line, usage) in lines.iter().zip(&usages) {
        // The client sent one request at a time, so they ended in order of arrival.
        assert_eq!(line["output_length"], usage["completion_tokens"], "{line}");
        tokens += number(&line["input_length"])?;
        counted_tokens += number(&usage["prompt_tokens"])?;
        let blocks = line["hash_ids"].as_array().context("blocks")?.len() as u64;
        assert_eq!(blocks, number(&line["input_length"])?.div_ceil(512));
    }
    assert!(
        tokens.abs_diff(counted_tokens) <= lines.len() as u64,
        "{tokens} tokens, and the engines counted {counted_tokens}"
    );
    let sessions: BTreeSet<String> = lines
        .iter()
        .map(|line| line["session"].to_string())
        .collect();
    assert_eq!(sessions.len(), CONVERSATIONS);
    let pieces = |line: &Value| line["pieces"].as_array().cloned().unwrap_or_default();
    for turns in lines.chunks(2) {
        let (first, second) = (pieces(&turns[0]), pieces(&turns[1]));
        assert_eq!(first[..], second[..first.len()], "the second turn goes on");
        assert_eq!(second[first.len()], json!([turns[0]["answer"], 90]));
        assert_eq!(
            first[..4],
            pieces(&lines[0])[..4],
            "all have the same topic"
        );
    }
    Ok(())
}

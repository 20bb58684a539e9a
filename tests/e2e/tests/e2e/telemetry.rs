//! Engines that tell the service little, as people run them.

use anyhow::{Context as _, ensure};
use isotherm_e2e::{Client, MODEL, admin, permit, send, with_long_timeouts};
use isotherm_engine::model::{Preset, Work};
use isotherm_harness::{EngineOptions, Pool, Stack};
use serde_json::json;

const REQUESTS: usize = 100;
const SPEED: f64 = 8.0;
/// Words of the shortest prompt, and of the steps to longer ones.
const WORDS: usize = 300;
/// Lengths of prompts.
const LENGTHS: usize = 7;

/// Two vLLM servers without flags: usage in a stream only on request, and never cached tokens.
async fn start(name: &str) -> anyhow::Result<Stack> {
    let pool = Pool::new(MODEL).replicas(2).policy("isotherm");
    let pool = pool.engine(EngineOptions {
        speed: SPEED,
        arguments: ["--cached-tokens", "never"].map(str::to_owned).into(),
        ..EngineOptions::default()
    });
    with_long_timeouts(Stack::builder(name).pool(pool))
        .start()
        .await
}

/// A prompt that begins like no other.
fn prompt(number: usize) -> String {
    let words = WORDS * (1 + number * 3 % LENGTHS);
    format!("Question {number}. ") + &format!("word{number} ").repeat(words)
}

/// Seconds that the engine model takes for one more prompt token, between the shortest and the longest prompt.
fn model_seconds_per_token(shortest: u64, longest: u64) -> f64 {
    let timing = Preset::Llama31_8bL4.config().timing;
    let seconds = |tokens| {
        let mut work = Work::default();
        work.add_prefill(0, tokens);
        timing.step_ns(&work) as f64 / 1e9
    };
    (seconds(longest) - seconds(shortest)) / (longest - shortest) as f64 / SPEED
}

/// Prompt tokens by the counter of the engine at `address`.
async fn prompt_tokens(address: &str) -> anyhow::Result<f64> {
    let engine = Client::new(&format!("http://{address}"))?;
    let page = send(engine.get("/metrics")).await?.success()?;
    let page = page.text();
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with("vllm:prompt_tokens_total"));
    let value = line.and_then(|line| line.rsplit(' ').next());
    Ok(value.context("no prompt tokens")?.parse()?)
}

fn is_within(share: f64, value: f64, truth: f64) -> bool {
    (value / truth - 1.0).abs() <= share
}

#[tokio::test]
async fn a_stock_vllm_teaches_its_speed_and_the_length_of_its_tokens() -> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;
    let stack = start("stock-vllm").await?;
    let service = stack.service();
    let client = Client::new(&stack.url(""))?;

    let mut bytes = 0;
    for number in 0..REQUESTS {
        let prompt = prompt(number);
        bytes += prompt.len();
        let body = json!({
            "model": MODEL,
            "messages": [{ "role": "user", "content": prompt }],
            "max_tokens": 8,
            "stream": true,
        });
        let response = send(client.post_chat(&body)).await?.success()?;
        ensure!(!response.text().contains("usage"), "{}", response.text());
    }
    admin::wait_until_idle(service).await?;

    for quantity in [
        "prompt_speed",
        "decode_speed",
        "token_length",
        "answer_length",
    ] {
        let labels = [("quantity", quantity), ("source", "counters")];
        admin::wait_for_metric(service, "isotherm_signal", &labels, |value| value == 1.0).await?;
    }
    let mut tokens = 0.0;
    for number in 0..2 {
        tokens += prompt_tokens(&stack.engine(number)?.address().to_string()).await?;
    }
    let learned = async |name| {
        let value = admin::metric(service, name, &[]).await?;
        value.with_context(|| format!("no {name}"))
    };
    let bytes_per_token = learned("isotherm_learned_token_bytes").await?;
    let truth = bytes as f64 / tokens;
    ensure!(
        is_within(0.05, bytes_per_token, truth),
        "{bytes_per_token} bytes in a token, in truth {truth}"
    );
    let seconds = learned("isotherm_learned_prompt_token_seconds").await?;
    let shortest = prompt(0).len() as f64 / truth;
    let truth = model_seconds_per_token(shortest as u64, (shortest * LENGTHS as f64) as u64);
    ensure!(
        is_within(0.2, seconds, truth),
        "{seconds} s for a prompt token, in truth {truth}"
    );
    let cached = admin::metric(service, "isotherm_measured_cached_tokens_total", &[]).await?;
    ensure!(cached == Some(0.0), "{cached:?} cached tokens from usage");
    Ok(())
}

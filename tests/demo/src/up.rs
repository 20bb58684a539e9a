//! `up`: starts the system and prints how to use it.

use isotherm_harness::{EngineOptions, MODEL, Pool, Stack};

use crate::compare::stack_builder;
use crate::scenario::UpOptions;

/// Starts the system with recording enabled.
///
/// # Errors
/// When it does not become ready.
pub async fn start(options: &UpOptions) -> anyhow::Result<Stack> {
    let speed = options.speedup;
    let engine = EngineOptions {
        speed,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL)
        .replicas(usize::from(options.replicas.replicas))
        .engine(engine);
    stack_builder("up", pool, speed, options.scheme())
        .service(|config| config.set("recording", true))
        .start()
        .await
}

/// Instructions for a running stack.
#[must_use]
pub fn instructions(stack: &Stack) -> String {
    let service = stack.service();
    let engines: Vec<String> = stack
        .engines()
        .map(|engine| engine.address().to_string())
        .collect();
    format!(
        r#"
Ask:
  curl {base}/chat/completions -H 'content-type: application/json' \
    -d '{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hello"}}]}}'

From Python (pip install openai):
  from openai import OpenAI
  client = OpenAI(base_url="{base}", api_key="none")
  print(client.chat.completions.create(model="{MODEL}", messages=[{{"role": "user", "content": "Hello"}}]))

Watch (in another terminal):
  {isotherm} top --config {config}
  curl {metrics}

Record 100 requests without their text, and play them to every policy:
  {isotherm} record --config {config} --output my.jsonl --requests 100
  cargo xtask sim --trace my.jsonl --replicas {replicas}

Take a replica out, and look at the rest:
  {isotherm} replicas drain {first} --config {config}
  {isotherm} replicas list --config {config}

Envoy     {base}, admin {envoy}
service   admin {admin}
engines   {engines}
logs      {directory}

Ctrl-C stops all of it.
"#,
        base = stack.url("/v1"),
        isotherm = service.program().display(),
        config = service.config_path().display(),
        metrics = service.admin_url("/metrics"),
        replicas = engines.len(),
        first = engines.first().map_or("", String::as_str),
        envoy = stack.envoy().admin_url("/"),
        admin = service.admin_url("/"),
        engines = engines.join(" "),
        directory = stack.directory().display(),
    )
}

//! `up`: the whole thing, running, for someone to play with.

use isotherm_harness::Stack;

use crate::scenario::MODEL;

/// How to talk to a running stack.
#[must_use]
pub fn instructions(stack: &Stack) -> String {
    let base = stack.url("/v1");
    let admin = stack.service().admin_url("");
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

Watch:
  replicas, queue, hit ratio     isotherm top --admin {admin}
  the service's metrics          curl {admin}/metrics
  Envoy                          {envoy}
  engines                        {engines}
  logs and configurations        {directory}

Change something (token: {token}):
  curl -X POST {admin}/api/replicas/{first}/drain?pool={MODEL} -H 'authorization: Bearer {token}'

Ctrl-C stops all of it.
"#,
        envoy = stack.envoy().admin_url("/"),
        engines = engines.join(" "),
        directory = stack.directory().display(),
        token = stack.service().token(),
        first = engines.first().map_or("", String::as_str),
    )
}

//! The service recognises a prompt again, in every API that carries prompts.

use isotherm_e2e::{
    Client, HttpResponse, MODEL, admin, engines, permit, send, with_decision_header,
};
use isotherm_harness::Stack;
use serde_json::{Value, json};

async fn start(name: &str) -> anyhow::Result<Stack> {
    with_decision_header(engines(name, 3, 50.0)).start().await
}

#[tokio::test]
async fn the_second_turn_of_a_conversation_goes_to_the_replica_that_cached_the_first()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("conversation").await?;
    let client = Client::new(&stack.url(""))?;

    for number in 0..4 {
        let topic =
            format!("You are assistant {number}, and you know where it is warm. ").repeat(40);
        let mut messages = vec![
            json!({ "role": "system", "content": topic }),
            json!({ "role": "user", "content": "Where is it warm?" }),
        ];
        let first = send_messages(&client, &messages).await?;
        let reply = first.json()?["choices"][0]["message"]["content"].clone();
        messages.push(json!({ "role": "assistant", "content": reply }));
        messages.push(json!({ "role": "user", "content": "And where is it cold?" }));

        let second = send_messages(&client, &messages).await?;

        assert_eq!(second.decision("replica"), first.decision("replica"));
        let matched: f64 = second.decision("matched").unwrap_or_default().parse()?;
        assert!(matched > 0.5, "{:?}", second.headers);
        let usage = &second.json()?["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        let half = usage["prompt_tokens"].as_u64().map(|all| all / 2);
        assert!(cached > half, "{usage}");
    }

    for metric in [
        "isotherm_predicted_cached_tokens_total",
        "isotherm_measured_cached_tokens_total",
    ] {
        admin::wait_for_metric(stack.service(), metric, &[], |tokens| tokens > 0.0).await?;
    }
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 8).await
}

/// Sends a chat without a session key, so that only the prompt identifies the conversation.
async fn send_messages(client: &Client, messages: &[Value]) -> anyhow::Result<HttpResponse> {
    let body = json!({ "model": MODEL, "messages": messages, "max_tokens": 16 });
    let response = send(client.post_chat(&body)).await?.success()?;
    Ok(response)
}

#[tokio::test]
async fn a_prompt_is_recognised_in_every_api() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("apis").await?;
    let client = Client::new(&stack.url(""))?;
    let apis = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/generate",
    ];
    for api in apis {
        let text = format!("A long question for the API {api}. ").repeat(60);
        let messages = json!([{ "role": "user", "content": text }]);
        let body = match api {
            "/v1/chat/completions" | "/v1/messages" => {
                json!({ "model": MODEL, "max_tokens": 4, "messages": messages })
            }
            "/v1/completions" => json!({ "model": MODEL, "max_tokens": 4, "prompt": text }),
            "/v1/responses" => json!({ "model": MODEL, "max_output_tokens": 4, "input": text }),
            _ => json!({ "text": text, "sampling_params": { "max_new_tokens": 4 } }),
        };
        let first = send(client.post(api, &body)).await?;
        assert_eq!(first.status, 200, "{api}: {}", first.text());

        let second = send(client.post(api, &body)).await?;

        assert_eq!(
            second.decision("replica"),
            first.decision("replica"),
            "{api}"
        );
        let matched: f64 = second.decision("matched").unwrap_or_default().parse()?;
        assert!(matched > 0.8, "{api}: {matched}");
    }
    Ok(())
}

//! A prompt finds its cache again, in every form that a prompt can have.

use isotherm_e2e::{
    Client, HttpResponse, MODEL, WAIT_MAX, admin, permit, with_decision_header, with_long_timeouts,
};
use isotherm_harness::{EngineOptions, Pool, Stack, wait_for};
use serde_json::{Value, json};

async fn stack(name: &str) -> anyhow::Result<Stack> {
    let engine = EngineOptions {
        speed: 50.0,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(3).engine(engine);
    with_decision_header(with_long_timeouts(Stack::builder(name).pool(pool)))
        .start()
        .await
}

#[tokio::test]
async fn the_second_turn_of_a_conversation_lands_where_the_first_is_cached() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = stack("conversation").await?;
    let client = Client::new(&stack.url(""))?;

    for number in 0..4 {
        let topic =
            format!("You are assistant {number}, and you know where it is warm. ").repeat(40);
        let mut messages = vec![
            json!({ "role": "system", "content": topic }),
            json!({ "role": "user", "content": "Where is it warm?" }),
        ];
        let first = say(&client, &messages).await?;
        let said = first.json()?["choices"][0]["message"]["content"].clone();
        messages.push(json!({ "role": "assistant", "content": said }));
        messages.push(json!({ "role": "user", "content": "And where is it cold?" }));

        let second = say(&client, &messages).await?;

        assert_eq!(second.decision("replica"), first.decision("replica"));
        let matched: f64 = second.decision("matched").unwrap_or_default().parse()?;
        assert!(matched > 0.5, "{:?}", second.headers);
        let usage = &second.json()?["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert!(
            cached > usage["prompt_tokens"].as_u64().map(|all| all / 2),
            "{usage}"
        );
    }

    // What the service thought, and what the engines told it.
    for name in [
        "isotherm_predicted_cached_tokens_total",
        "isotherm_measured_cached_tokens_total",
    ] {
        wait_for(WAIT_MAX, name, || async {
            let tokens = admin::metric(stack.service(), name).await?;
            Ok((tokens > 0.0).then_some(()))
        })
        .await?;
    }
    admin::becomes(stack.service(), "counters/finished_ok", 8).await
}

/// Without a session key: the prompt alone must do.
async fn say(client: &Client, messages: &[Value]) -> anyhow::Result<HttpResponse> {
    let body = json!({ "model": MODEL, "messages": messages, "max_tokens": 16 });
    let answer = HttpResponse::to(client.post("/v1/chat/completions", &body)).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    Ok(answer)
}

#[tokio::test]
async fn a_prompt_is_recognised_in_every_api() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = stack("apis").await?;
    let client = Client::new(&stack.url(""))?;
    let apis = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/generate",
    ];
    for api in apis {
        let text = format!("A long question, asked by way of {api}. ").repeat(60);
        let messages = json!([{ "role": "user", "content": text }]);
        let body = match api {
            "/v1/chat/completions" | "/v1/messages" => {
                json!({ "model": MODEL, "max_tokens": 4, "messages": messages })
            }
            "/v1/completions" => json!({ "model": MODEL, "max_tokens": 4, "prompt": text }),
            "/v1/responses" => json!({ "model": MODEL, "max_output_tokens": 4, "input": text }),
            _ => json!({ "text": text, "sampling_params": { "max_new_tokens": 4 } }),
        };
        let first = HttpResponse::to(client.post(api, &body)).await?;
        assert_eq!(first.status, 200, "{api}: {}", first.text());

        let second = HttpResponse::to(client.post(api, &body)).await?;

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

//! A conversation finds its cache again.

use isotherm_e2e::{Answer, Client, MODEL, PATIENCE, admin, showing_decisions, turn};
use isotherm_harness::{EngineOptions, Pool, Stack, within};
use serde_json::{Value, json};

#[tokio::test]
async fn the_second_turn_of_a_conversation_lands_where_the_first_is_cached() -> anyhow::Result<()> {
    let _turn = turn::shared().await?;
    let engine = EngineOptions {
        speed: 50.0,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(3).engine(engine);
    let stack = showing_decisions(Stack::builder("conversation").pool(pool))
        .start()
        .await?;
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
        within(PATIENCE, name, || async {
            let tokens = admin::metric(stack.service(), name).await?;
            Ok((tokens > 0.0).then_some(()))
        })
        .await?;
    }
    admin::becomes(stack.service(), "counters/finished_ok", 8).await
}

/// Without a session key: the prompt alone must do.
async fn say(client: &Client, messages: &[Value]) -> anyhow::Result<Answer> {
    let body = json!({ "model": MODEL, "messages": messages, "max_tokens": 16 });
    let answer = Answer::to(client.post("/v1/chat/completions", &body)).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    Ok(answer)
}

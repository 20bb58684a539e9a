//! Engines that name cached tokens in the answers of one API alone, as vLLM without flags does.

use anyhow::ensure;
use isotherm_e2e::{
    Client, MODEL, ScriptedReplica, admin, permit, scripted, send, with_decision_header,
};
use serde_json::{Value, json};

const CONVERSATIONS: usize = 6;
const TURNS: usize = 4;

/// The messages of a conversation up to a turn.
fn messages(conversation: usize, turn: usize) -> Value {
    let topic = format!("You are assistant {conversation}, and know where it is warm. ").repeat(40);
    let mut messages = vec![json!({ "role": "system", "content": topic })];
    for number in 0..=turn {
        let question = format!("Question {number} of conversation {conversation}. ").repeat(20);
        messages.push(json!({ "role": "user", "content": question }));
    }
    Value::Array(messages)
}

/// Sends the next turn of each conversation as a chat. Returns the share of each prompt that the service found again.
async fn chat_turns(client: &Client, turn: usize) -> anyhow::Result<Vec<f64>> {
    let mut matched = Vec::new();
    for conversation in 0..CONVERSATIONS {
        let body = json!({ "model": MODEL, "messages": messages(conversation, turn) });
        let response = send(client.post_chat(&body)).await?.success()?;
        matched.push(response.decision("matched").unwrap_or_default().parse()?);
    }
    Ok(matched)
}

#[tokio::test]
async fn a_response_that_names_cached_tokens_makes_no_chat_a_miss() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    a.answer_as_stock_vllm();
    b.answer_as_stock_vllm();
    let stack = with_decision_header(scripted("stock-vllm", &[&a, &b], 8));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    chat_turns(&client, 0).await?;

    for number in 0..CONVERSATIONS {
        let input = format!("A response {number} among chats. ").repeat(60);
        let body = json!({ "model": MODEL, "input": input });
        for _ in 0..2 {
            send(client.post("/v1/responses", &body)).await?.success()?;
        }
        for turn in 1..TURNS {
            // No session and no id names the conversation.
            let matched = chat_turns(&client, turn).await?;
            ensure!(
                matched.iter().all(|share| *share > 0.4),
                "turn {turn} behind response {number}: {matched:?}"
            );
        }
    }

    let sent = CONVERSATIONS * (1 + 2 + (TURNS - 1) * CONVERSATIONS);
    let sent = u64::try_from(sent)?;
    admin::wait_for_pool(stack.service(), "counters/finished_ok", sent).await?;
    let false_hits = admin::counter(stack.service(), "isotherm_false_hits_total", &[]).await?;
    ensure!(false_hits == 0, "{false_hits} false hits");
    let measured = "isotherm_measured_cached_tokens_total";
    let measured = admin::counter(stack.service(), measured, &[]).await?;
    ensure!(measured > 0, "the responses name what was cached");
    Ok(())
}

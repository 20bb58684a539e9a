//! The real system: what the demo starts, asked what the simulator is asked.

use isotherm_harness::{EngineOptions, Pool};
use isotherm_simulator::workload::{Session, Step};
use serde_json::json;

use super::options::Plan;
use crate::client::Client;
use crate::compare::start;
use crate::drive::{Measured, Tally, play};
use crate::progress;
use crate::scenario::{MODEL, Scheme};
use crate::workload::{Answer, Content, Conversation, Pacing, Turn, Workload};

/// What was seen.
pub(super) struct Seen {
    /// Time to the first token of requests that were alone, in ms.
    pub(super) lone_ms: Vec<f64>,
    /// The workload.
    pub(super) measured: Measured,
}

pub(super) async fn run(plan: &Plan, scheme: Scheme, label: &str) -> anyhow::Result<Seen> {
    let engine = EngineOptions {
        preset: plan.engine.name().to_owned(),
        speed: plan.speed,
        arguments: Vec::new(),
    };
    let replicas = usize::from(plan.replicas);
    let pool = Pool::new(MODEL).replicas(replicas).engine(engine);
    let stack = start("validate", pool, plan.speed, scheme).await?;
    let client = Client::new(&stack.url(""), MODEL)?;

    let mut lone_ms = Vec::new();
    for session in &plan.lone {
        for step in &session.steps {
            let message = json!({ "role": "user", "content": content(step).render() });
            let name = name(session);
            let answered = client.ask(&name, &[message], answer(step)).await;
            let answered =
                answered.map_err(|failure| anyhow::anyhow!("a lone request: {failure}"))?;
            lone_ms.push(answered.ttft.as_secs_f64() * 1e3);
            tokio::time::sleep(super::lone::PAUSE.div_f64(plan.speed)).await;
        }
    }

    let workload = Workload {
        name: plan.workload.name.clone(),
        description: String::new(),
        pacing: Pacing::Open,
        conversations: plan.workload.sessions.iter().map(conversation).collect(),
    };
    let tally = Tally::default();
    let measured = tokio::select! {
        measured = play(&workload, &client, &tally) => measured,
        () = progress::follow(label, workload.requests(), &tally) => Measured::default(),
    };
    Ok(Seen { lone_ms, measured })
}

/// A session of a trace is one request.
fn conversation(session: &Session) -> Conversation {
    Conversation {
        session: name(session),
        at: session.starts,
        system: None,
        turns: session
            .steps
            .iter()
            .map(|step| Turn {
                think: step.think,
                content: content(step),
                answer: answer(step),
            })
            .collect(),
    }
}

fn name(session: &Session) -> String {
    format!("session-{:x}", session.key)
}

fn content(step: &Step) -> Content {
    let pieces = step.prompt.pieces().iter();
    Content::Pieces(pieces.map(|piece| (piece.id, piece.tokens)).collect())
}

fn answer(step: &Step) -> Answer {
    Answer::Exactly(step.output_tokens)
}

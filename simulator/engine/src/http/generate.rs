//! Generating APIs: read a request, run it, and respond whole or as a stream.

use core::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::Value;

use super::api_error::ApiError;
use super::dialect::{Dialect, Job, Meta, Part};
use super::replica::{End, GenerationProgress, InFlightGuard, Replica};
use super::request_id::request_id;
use super::wall_clock::unix_seconds;
use super::{models, orca};
use crate::model::{Rejection, Request};
use crate::text::{Prompt, Reply};

/// Prompts in one request at most.
pub const PROMPTS_MAX: usize = 256;

/// Handles one request of any generating API.
///
/// # Errors
/// In OpenAI's form: 400 for a body that is not understood or a prompt that is too long, 404 for another model, 503 when
/// too many requests wait.
pub async fn handle<D: Dialect>(
    State(replica): State<Arc<Replica>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body = read_json(&body)?;
    let selector = models::select(&replica.settings, &body)?;
    let job = D::read(&body, &selector)?;
    if job.prompts.is_empty() || job.prompts.len() > PROMPTS_MAX {
        return Err(ApiError::bad_request(
            format!("give 1 to {PROMPTS_MAX} prompts"),
            Some("prompt"),
        ));
    }
    let meta = Meta {
        id: request_id(&headers).to_owned(),
        created: unix_seconds(),
        model: selector.model,
        include_usage: job.include_usage,
    };
    let stream = job.stream;
    let generations = start(&replica, job)?;
    if stream {
        return Ok(streamed::<D>(meta, generations));
    }
    let mut parts = Vec::with_capacity(generations.len());
    for mut generation in generations {
        parts.push(generation.end().await?);
    }
    let mut response = Json(D::whole(&meta, &parts)).into_response();
    orca::report(&headers, &replica.stats(), response.headers_mut());
    Ok(response)
}

/// Reads a body.
///
/// # Errors
/// 400 when it is not a JSON object.
pub fn read_json(body: &[u8]) -> Result<Value, ApiError> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(ApiError::bad_request(
            "the body must be a JSON object",
            None,
        )),
        Err(error) => Err(ApiError::bad_request(
            format!("the body is not valid JSON: {error}"),
            None,
        )),
    }
}

/// A prompt in the engine.
struct Generation {
    guard: InFlightGuard,
    index: usize,
    reply: Reply,
    /// The reply ends by itself, not at a limit.
    stopped: bool,
    sent: u32,
}

/// Item of a streamed generation.
enum Step {
    Text(String),
    End(Part),
    Failed(ApiError),
}

fn start(replica: &Arc<Replica>, job: Job) -> Result<Vec<Generation>, ApiError> {
    let limits = Limits {
        max_tokens: job.max_tokens,
        min_tokens: job.min_tokens,
        ignore_eos: job.ignore_eos,
        context_tokens: replica.settings.config.request_tokens_max(),
    };
    let interval = job
        .stream
        .then_some(replica.settings.stream_interval_tokens);
    job.prompts
        .into_iter()
        .enumerate()
        .map(|(index, prompt)| begin(replica, index, prompt, &limits, interval))
        .collect()
}

/// Bounds on the length of a reply.
struct Limits {
    max_tokens: Option<u32>,
    min_tokens: u32,
    ignore_eos: bool,
    context_tokens: u32,
}

impl Limits {
    /// Tokens to generate, and whether the reply ends by itself there.
    fn output(&self, prompt_tokens: u32, reply: &Reply) -> (u32, bool) {
        let room = self.context_tokens.saturating_sub(prompt_tokens).max(1);
        let limit = self.max_tokens.unwrap_or(room);
        let natural = if self.ignore_eos {
            limit
        } else {
            reply.natural_tokens().max(self.min_tokens).min(limit)
        };
        (natural, natural < limit)
    }
}

fn begin(
    replica: &Arc<Replica>,
    index: usize,
    prompt: Prompt,
    limits: &Limits,
    stream_interval_tokens: Option<u32>,
) -> Result<Generation, ApiError> {
    let prompt_tokens = prompt.tokens();
    let reply = Reply::new(prompt.digest());
    let (output_tokens, stopped) = limits.output(prompt_tokens, &reply);
    let wanted = limits.max_tokens.unwrap_or(1);
    let tokens = u64::from(prompt_tokens) + u64::from(wanted);
    if tokens > u64::from(limits.context_tokens) {
        return Err(Rejection::TooLong {
            tokens,
            tokens_max: limits.context_tokens,
        }
        .into());
    }
    let blocks = prompt.blocks(&reply, output_tokens, replica.settings.config.block_tokens);
    let guard = replica.submit(|id| Request {
        id,
        prompt_tokens,
        output_tokens,
        blocks,
        stream_interval_tokens,
    });
    if let Some(End::Rejected(rejection)) = guard.now().end {
        return Err(rejection.into());
    }
    Ok(Generation {
        guard,
        index,
        reply,
        stopped,
        sent: 0,
    })
}

impl Generation {
    async fn end(&mut self) -> Result<Part, ApiError> {
        let progress = self.guard.after(u32::MAX).await;
        self.part(progress)
    }

    fn part(&self, progress: GenerationProgress) -> Result<Part, ApiError> {
        match progress.end {
            Some(End::Finished(usage)) => Ok(Part {
                index: self.index,
                text: self.reply.text(0, usage.completion_tokens),
                usage,
                stopped: self.stopped,
            }),
            Some(End::Rejected(rejection)) => Err(rejection.into()),
            None => Err(ApiError::gone()),
        }
    }

    /// Every chunk of this generation. Tokens that came out since the last chunk make one.
    fn steps(self) -> BoxStream<'static, (usize, Step)> {
        stream::unfold(Some(self), |generation| async {
            let mut generation = generation?;
            let index = generation.index;
            let progress = generation.guard.after(generation.sent).await;
            if progress.generated > generation.sent {
                let text = generation.reply.text(generation.sent, progress.generated);
                generation.sent = progress.generated;
                return Some(((index, Step::Text(text)), Some(generation)));
            }
            let last = match generation.part(progress) {
                Ok(part) => Step::End(part),
                Err(error) => Step::Failed(error),
            };
            Some(((index, last), None))
        })
        .boxed()
    }
}

/// The stages of a streamed answer.
enum Stage {
    Open,
    Body,
    Closed,
}

fn streamed<D: Dialect>(meta: Meta, generations: Vec<Generation>) -> Response {
    let steps = stream::select_all(generations.into_iter().map(Generation::steps));
    let state = (Stage::Open, steps, Vec::new());
    let chunks = stream::unfold(state, move |(mut stage, mut steps, mut parts)| {
        let meta = meta.clone();
        async move {
            let mut chunk = String::new();
            if matches!(stage, Stage::Closed) {
                return None;
            }
            let next = steps.next().await;
            if matches!(stage, Stage::Open) {
                chunk.push_str(&D::opening(&meta));
                stage = Stage::Body;
            }
            match next {
                Some((index, Step::Text(text))) => chunk.push_str(&D::delta(&meta, index, &text)),
                Some((_, Step::End(part))) => {
                    chunk.push_str(&D::ending(&meta, &part));
                    parts.push(part);
                }
                Some((_, Step::Failed(error))) => {
                    chunk.push_str(&format!("data: {}\n\n", error.body()));
                    stage = Stage::Closed;
                }
                None => {
                    chunk.push_str(&D::closing(&meta, &parts));
                    stage = Stage::Closed;
                }
            }
            Some((
                Ok::<_, Infallible>(Bytes::from(chunk)),
                (stage, steps, parts),
            ))
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

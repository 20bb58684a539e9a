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
use super::replica::{GenerationProgress, InFlightGuard, Replica};
use super::request_id::request_id;
use super::wall_clock::unix_seconds;
use super::{models, orca};
use crate::model::{AdapterId, Rejection, Request};
use crate::text::{Prompt, Reply};

/// Prompts in one request at most.
pub const PROMPTS_MAX: usize = 256;

/// Handles one request of any generating API.
/// In OpenAI's form: 400 for a body that is not understood or a prompt that is too long, 404 for another model, 503 when
/// too many requests wait.
pub async fn handle<D: Dialect>(
    State(replica): State<Arc<Replica>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let mut body = read_json(&body)?;
    D::complete(&replica.stored, &mut body)?;
    let selector = models::select(&replica.settings, &body)?;
    let job = D::read(&body, &selector)?;
    if job.prompts.is_empty() || job.prompts.len() > PROMPTS_MAX {
        let message = format!("give 1 to {PROMPTS_MAX} prompts");
        return Err(ApiError::bad_request(message, Some("prompt")));
    }
    let meta = Meta {
        id: request_id(&headers).to_owned(),
        created: unix_seconds(),
        model: selector.model.clone(),
        include_usage: job.include_usage,
        cached_tokens: replica.settings.cached_tokens,
    };
    let stream = job.stream;
    let adapter = models::adapter(&replica.settings, &selector);
    let generations = start(&replica, job, adapter)?;
    if stream {
        return Ok(streamed::<D>(replica, body, meta, generations));
    }
    let mut parts = Vec::with_capacity(generations.len());
    for mut generation in generations {
        parts.push(generation.end().await?);
    }
    D::keep(&replica.stored, &body, &meta, &parts);
    let mut response = Json(D::whole(&meta, &parts)).into_response();
    orca::report(&headers, &replica.stats(), response.headers_mut());
    Ok(response)
}

/// Reads a body.
/// 400 when it is not a JSON object.
pub fn read_json(body: &[u8]) -> Result<Value, ApiError> {
    let wrong = |message: String| ApiError::bad_request(message, None);
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(wrong("the body must be a JSON object".to_owned())),
        Err(error) => Err(wrong(format!("the body is not valid JSON: {error}"))),
    }
}

/// A prompt in the engine.
struct Generation {
    guard: InFlightGuard,
    index: usize,
    reply: Reply,
    /// Whether the reply ends by itself and not at a limit.
    stopped: bool,
    sent: u32,
}

/// Item of a streamed generation.
enum Step {
    Text(String),
    End(Part),
    Failed(ApiError),
}

fn start(
    replica: &Arc<Replica>,
    mut job: Job,
    adapter: Option<AdapterId>,
) -> Result<Vec<Generation>, ApiError> {
    let prompts = core::mem::take(&mut job.prompts).into_iter().enumerate();
    prompts
        .map(|(index, prompt)| begin(replica, index, prompt, (&job, adapter)))
        .collect()
}

/// Tokens to generate, and whether the reply ends by itself there.
fn output(job: &Job, context_tokens: u32, prompt_tokens: u32, reply: &Reply) -> (u32, bool) {
    let room = context_tokens.saturating_sub(prompt_tokens).max(1);
    let limit = job.max_tokens.unwrap_or(room);
    if job.ignore_eos {
        return (limit, false);
    }
    let natural = reply.natural_tokens().max(job.min_tokens).min(limit);
    (natural, natural < limit)
}

fn begin(
    replica: &Arc<Replica>,
    index: usize,
    prompt: Prompt,
    (job, adapter): (&Job, Option<AdapterId>),
) -> Result<Generation, ApiError> {
    let settings = &replica.settings;
    let tokens_max = settings.config.request_tokens_max();
    let prompt_tokens = prompt.tokens();
    let reply = Reply::new(prompt.digest());
    let (output_tokens, stopped) = output(job, tokens_max, prompt_tokens, &reply);
    let tokens = u64::from(prompt_tokens) + u64::from(job.max_tokens.unwrap_or(1));
    if tokens > u64::from(tokens_max) {
        return Err(Rejection::TooLong { tokens, tokens_max }.into());
    }
    let blocks = prompt.blocks(&reply, output_tokens, settings.config.block_tokens);
    let guard = replica.submit(|id| Request {
        id,
        prompt_tokens,
        output_tokens,
        blocks,
        adapter,
        stream_interval_tokens: job.stream.then_some(settings.stream_interval_tokens),
    });
    if let Some(Err(rejection)) = guard.now().end {
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
        let usage = progress.end.ok_or_else(ApiError::gone)??;
        Ok(Part {
            index: self.index,
            text: self.reply.text(0, usage.completion_tokens),
            usage,
            stopped: self.stopped,
        })
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

fn streamed<D: Dialect>(
    replica: Arc<Replica>,
    body: Value,
    meta: Meta,
    generations: Vec<Generation>,
) -> Response {
    let request = Arc::new((replica, body));
    let steps = stream::select_all(generations.into_iter().map(Generation::steps));
    // `None` closes the stream; the opening goes out with the first step.
    let state = Some((D::opening(&meta), steps, Vec::new()));
    let chunks = stream::unfold(state, move |state| {
        let (meta, request) = (meta.clone(), Arc::clone(&request));
        async move {
            let (mut chunk, mut steps, mut parts) = state?;
            let mut is_open = true;
            match steps.next().await {
                Some((index, Step::Text(text))) => chunk += &D::delta(&meta, index, &text),
                Some((_, Step::End(part))) => {
                    chunk += &D::ending(&meta, &part);
                    parts.push(part);
                }
                Some((_, Step::Failed(error))) => {
                    chunk += &format!("data: {}\n\n", error.body());
                    is_open = false;
                }
                None => {
                    let (replica, body) = &*request;
                    D::keep(&replica.stored, body, &meta, &parts);
                    chunk += &D::closing(&meta, &parts);
                    is_open = false;
                }
            }
            let next = is_open.then_some((String::new(), steps, parts));
            Some((Ok::<_, Infallible>(Bytes::from(chunk)), next))
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

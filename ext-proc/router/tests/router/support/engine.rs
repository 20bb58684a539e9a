//! An engine in virtual milliseconds, with what matters to pushing: continuous batching in steps, a token budget
//! per step, a KV cache that bounds the batch, and a queue where a request stays until the step that admits it.

use std::collections::VecDeque;

use isotherm_router::{Load, RequestId};

/// Capabilities of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Prompt and output tokens that its cache holds.
    pub kv_tokens: u32,
    /// Tokens that it computes in a step.
    pub step_tokens_max: u32,
    /// Duration of a step without its tokens.
    pub step_ms: u64,
    /// Prompt tokens computed in a millisecond.
    pub tokens_per_ms: u32,
    /// Whether it tells how many requests run, and how full its cache is.
    pub tells_all: bool,
}

/// About an 8B model on one small GPU.
pub const SMALL_GPU: Shape = Shape {
    kv_tokens: 30 * 1_200,
    step_tokens_max: 2_048,
    step_ms: 30,
    tokens_per_ms: 12,
    tells_all: true,
};

#[derive(Clone, Copy, Debug)]
struct Job {
    id: RequestId,
    prompt: u32,
    output: u32,
    computed: u32,
    produced: u32,
}

/// One engine.
#[derive(Debug)]
pub struct Engine {
    shape: Shape,
    waiting: VecDeque<Job>,
    running: Vec<Job>,
    step_ends_ms: Option<u64>,
    /// Tokens produced so far.
    pub produced: u64,
}

impl Engine {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_ends_ms: None,
            produced: 0,
        }
    }

    pub fn submit(&mut self, id: RequestId, prompt: u32, output: u32) {
        self.waiting.push_back(Job {
            id,
            prompt,
            output,
            computed: 0,
            produced: 0,
        });
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub fn load(&self) -> Load {
        let tells = self.shape.tells_all;
        Load {
            pending: u32::try_from(self.waiting.len()).unwrap(),
            running: tells.then(|| u32::try_from(self.running.len()).unwrap()),
            kv_usage: tells.then(|| self.kv_used() as f32 / self.shape.kv_tokens as f32),
            kv_capacity_tokens: tells.then(|| u64::from(self.shape.kv_tokens)),
        }
    }

    /// Time has come to `now_ms`; who has finished.
    pub fn advance(&mut self, now_ms: u64) -> Vec<RequestId> {
        let mut finished = Vec::new();
        while self.step_ends_ms.is_none_or(|ends| ends <= now_ms) {
            if self.step_ends_ms.take().is_some() {
                self.end_step(&mut finished);
            }
            if self.is_idle() {
                break;
            }
            self.start_step(now_ms);
        }
        finished
    }

    fn kv_used(&self) -> u32 {
        self.running.iter().map(|job| job.prompt + job.output).sum()
    }

    fn start_step(&mut self, now_ms: u64) {
        let mut budget = self.shape.step_tokens_max;
        let mut prefill = 0;
        for job in &mut self.running {
            let left = job.prompt - job.computed;
            let chunk = left.max(1).min(budget);
            job.computed += chunk.min(left);
            prefill += chunk.min(left);
            budget -= chunk;
        }
        while let Some(mut job) = self.waiting.front().copied() {
            if budget == 0 || self.kv_used() + job.prompt + job.output > self.shape.kv_tokens {
                break;
            }
            self.waiting.pop_front();
            job.computed = job.prompt.min(budget);
            prefill += job.computed;
            budget -= job.computed;
            self.running.push(job);
        }
        let ms = self.shape.step_ms + u64::from(prefill / self.shape.tokens_per_ms);
        self.step_ends_ms = Some(now_ms + ms);
    }

    fn end_step(&mut self, finished: &mut Vec<RequestId>) {
        for job in &mut self.running {
            if job.computed == job.prompt {
                job.produced += 1;
                self.produced += 1;
            }
        }
        self.running.retain(|job| {
            let done = job.produced >= job.output;
            if done {
                finished.push(job.id);
            }
            !done
        });
    }
}

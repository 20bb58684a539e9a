//! The command line.

use core::net::SocketAddr;
use core::num::NonZeroU16;

use clap::Parser;

use crate::http::dialect::CachedTokens;
use crate::http::fault::FaultOrder;
use crate::http::replica::{MetricsDialect, Settings};
use crate::model::{AdapterConfig, Config, Preset};

/// A simulated inference engine that behaves as vLLM does.
#[derive(Debug, Parser)]
#[command(name = "isotherm-engine", version)]
pub struct Cli {
    /// Address to listen on; port 0 takes a free one. Replica i listens on the port plus i, unless the port is 0
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Independent engines in this process
    #[arg(long, default_value = "1")]
    pub replicas: NonZeroU16,
    /// Name of the served model; the preset's by default
    #[arg(long)]
    pub model: Option<String>,
    /// Name of an adapter on top of the model, with a cache of its own (repeatable)
    #[arg(long)]
    pub adapter: Vec<String>,
    /// Adapters that run at once at most (vLLM: `--max-loras`)
    #[arg(long, default_value_t = 4)]
    pub adapter_slots: u32,
    /// Milliseconds that the real engine takes to load an adapter
    #[arg(long, default_value_t = 300)]
    pub adapter_load_ms: u32,
    /// Size and speed of the engine
    #[arg(long, default_value_t = Preset::Llama31_8bL4, value_enum)]
    pub preset: Preset,
    /// Speed, as a multiple of the real engine's
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// KV blocks, instead of the preset's
    #[arg(long)]
    pub kv_blocks: Option<u32>,
    /// Tokens computed in a step at most, instead of the preset's
    #[arg(long)]
    pub step_tokens_max: Option<u32>,
    /// Requests that run at once at most, instead of the preset's
    #[arg(long)]
    pub sequences_max: Option<u32>,
    /// Tokens of prompt and output of one request at most, instead of the preset's
    #[arg(long)]
    pub context_tokens_max: Option<u32>,
    /// Tokens in a streamed chunk. By default chunks come at the real engine's pace, whatever the speed
    #[arg(long)]
    pub stream_interval: Option<u32>,
    /// Engine whose metric names to publish
    #[arg(long, value_enum, default_value = "vllm")]
    pub metrics: MetricsDialect,
    /// When the usage of chat and completions has `cached_tokens`. `never`: as vLLM and SGLang without flags
    #[arg(long, value_enum, default_value = "always")]
    pub cached_tokens: CachedTokens,
    /// A fault from the start: slow=3, hang, metrics_hang, error_share=0.2, error_status=503, refuse_ms=.., crash_ms=.. (repeatable)
    #[arg(long)]
    pub fault: Vec<FaultOrder>,
    /// Collector of OpenTelemetry (OTLP by gRPC) that gets a span of each request which its caller traces (vLLM has the same option)
    #[arg(long)]
    pub otlp_traces_endpoint: Option<String>,
    /// Seed of injected errors
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Cli {
    /// Settings of replica `index`.
    pub fn settings(&self, index: u16) -> Settings {
        let preset = self.preset.config();
        let config = Config {
            blocks: self.kv_blocks.unwrap_or(preset.blocks),
            step_tokens_max: self.step_tokens_max.unwrap_or(preset.step_tokens_max),
            sequences_max: self.sequences_max.unwrap_or(preset.sequences_max),
            adapters: AdapterConfig {
                slots: self.adapter_slots,
                load_ns: u64::from(self.adapter_load_ms) * 1_000_000,
            },
            context_tokens_max: self.context_tokens_max.unwrap_or(preset.context_tokens_max),
            ..preset
        };
        let pace = self.speed.ceil() as u32;
        Settings {
            model: self
                .model
                .clone()
                .unwrap_or_else(|| self.preset.model().to_owned()),
            adapters: self.adapter.clone(),
            config,
            speed: self.speed,
            stream_interval_tokens: self.stream_interval.unwrap_or(pace).max(1),
            metrics: self.metrics,
            cached_tokens: self.cached_tokens,
            seed: self.seed.wrapping_add(u64::from(index)),
        }
    }

    /// Address of replica `index`.
    pub fn address(&self, index: u16) -> SocketAddr {
        let mut address = self.listen;
        if address.port() != 0 {
            address.set_port(address.port().saturating_add(index));
        }
        address
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.01..=10_000.0).contains(&speed) => Ok(speed),
        _ => Err("give a number between 0.01 and 10000".to_owned()),
    }
}

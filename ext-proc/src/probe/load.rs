//! Parses a metrics page: the load of a replica, the counters of its engine, and the adapters of its requests.

use std::collections::BTreeMap;

use isotherm_router::{EngineCounters, Load};

use super::adapter_series::{AdapterSeries, ReportedAdapters};
use super::counter_series::counter_series;
use super::counters::PageCounters;
use super::engine::{Merge, MetricTable, Quantity};
use super::exposition::{Labels, Sample, samples};
use crate::config::Engine;

/// The most data-parallel ranks of one replica.
const RANKS_MAX: usize = 1_024;

/// Error of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    /// The page has the metrics of no known engine.
    #[error("no metrics of a known engine: enable the engine's metrics")]
    Unknown,
    /// The page does not have the metrics of the pool's engine.
    #[error(
        "no usable value of {}: is it {engine}, are its metrics enabled, has it served a request?",
        engine.waiting_names().next().unwrap_or_default()
    )]
    Missing { engine: Engine },
    /// The engine sleeps: it has given up its memory, and requests wait until it is awake.
    #[error("the engine sleeps: wake it (vLLM: POST /wake_up)")]
    Asleep,
    /// The page has too many ranks for one replica.
    #[error("more than {RANKS_MAX} data-parallel ranks: is this the page of one replica?")]
    TooManyRanks,
}

pub(super) fn detect_engine(page: &[u8]) -> Result<Engine, PageError> {
    samples(page)
        .find_map(|sample| Engine::of_metric(sample.name))
        .ok_or(PageError::Unknown)
}

/// Load, counters and adapters that a metrics page reports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PageReport {
    pub(crate) load: Load,
    /// Counters of the engine, if the page has any.
    pub(crate) counters: Option<EngineCounters>,
    /// Adapters of requests, if the page names them.
    pub(super) adapters: Option<ReportedAdapters>,
}

/// Parses a metrics page.
pub(crate) fn parse_page(engine: Engine, page: &[u8]) -> Result<PageReport, PageError> {
    let table = engine.table();
    let counted = counter_series(engine);
    let lengths = name_lengths(engine);
    let mut ranks: BTreeMap<&[u8], Rank> = BTreeMap::new();
    let mut counters = PageCounters::default();
    let mut adapters = AdapterSeries::default();
    for sample in samples(page) {
        // Most samples are buckets of histograms. Few of them have a name as long as one that is read.
        if lengths & length_bit(sample.name) == 0 {
            continue;
        }
        if table
            .adapters
            .is_some_and(|name| name.as_bytes() == sample.name)
        {
            adapters.record(sample);
            continue;
        }
        if counters.record(counted, sample) {
            continue;
        }
        let Some((quantity, labels, value)) = parse_sample(table, sample) else {
            continue;
        };
        let key = labels.get(table.rank).unwrap_or_default();
        if !ranks.contains_key(key) && ranks.len() >= RANKS_MAX {
            return Err(PageError::TooManyRanks);
        }
        let rank = ranks.entry(key).or_default();
        rank.record(quantity, table.merge, labels, value);
    }
    if ranks.values().any(Rank::sleeps) {
        return Err(PageError::Asleep);
    }
    Ok(PageReport {
        load: total(&ranks).ok_or(PageError::Missing { engine })?,
        // SGLang adds the series of cache hits with the first hit.
        counters: counters.total(engine == Engine::Sglang),
        adapters: adapters.newest(),
    })
}

/// Returns the lengths of all names that are read, as a set of bits.
fn name_lengths(engine: Engine) -> u128 {
    let table = engine.table();
    let gauges = table.series.iter().map(|series| series.name);
    let counters = counter_series(engine).iter().map(|series| series.name);
    let names = gauges.chain(counters).chain(table.adapters);
    names.fold(0, |lengths, name| lengths | length_bit(name.as_bytes()))
}

/// Returns the bit of a name's length; none for a name that is longer than any known one.
fn length_bit(name: &[u8]) -> u128 {
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    1_u128.checked_shl(length).unwrap_or_default()
}

/// Returns the quantity, labels and value of a sample, if the table has it.
fn parse_sample<'a>(
    table: &MetricTable,
    sample: Sample<'a>,
) -> Option<(Quantity, Labels<'a>, f64)> {
    let named = |name: &str| name.as_bytes() == sample.name;
    if !table.series.iter().any(|series| named(series.name)) {
        return None;
    }
    let (labels, value) = sample.read()?;
    if let Some(label) = table.total_only
        && labels.get(label).is_some_and(|value| !value.is_empty())
    {
        return None;
    }
    let series = table.series.iter().find(|series| {
        let fits = |(label, value): (&str, &str)| labels.get(label) == Some(value.as_bytes());
        named(series.name) && series.only.is_none_or(fits)
    })?;
    // A starting engine may report NaN.
    (value.is_finite() && value >= 0.0).then_some((series.quantity, labels, value))
}

#[derive(Clone, Debug, Default)]
struct Rank(BTreeMap<Quantity, f64>);

impl Rank {
    fn record(&mut self, quantity: Quantity, merge: Merge, labels: Labels<'_>, value: f64) {
        let (quantity, value) = match quantity {
            Quantity::CacheInfo => {
                let size = |name| labels.number(name).map(|number| number as f64);
                let sizes = size("num_gpu_blocks").zip(size("block_size"));
                let Some((blocks, tokens)) = sizes else {
                    return;
                };
                (Quantity::CapacityTokens, blocks * tokens)
            }
            Quantity::Awake => (Quantity::Asleep, f64::from(value == 0.0)),
            other => (other, value),
        };
        let known = self.0.entry(quantity).or_default();
        *known = match (quantity, merge) {
            (Quantity::Waiting | Quantity::Running, Merge::Sum) => *known + value,
            _ => known.max(value),
        };
    }

    fn get(&self, quantity: Quantity) -> Option<f64> {
        self.0.get(&quantity).copied()
    }

    fn sleeps(&self) -> bool {
        self.get(Quantity::Asleep)
            .is_some_and(|asleep| asleep > 0.0)
    }

    fn capacity(&self) -> Option<f64> {
        let product =
            || Some(self.get(Quantity::CapacityBlocks)? * self.get(Quantity::BlockTokens)?);
        self.get(Quantity::CapacityTokens).or_else(product)
    }
}

fn total(ranks: &BTreeMap<&[u8], Rank>) -> Option<Load> {
    let sum = |of: fn(&Rank) -> Option<f64>| ranks.values().filter_map(of).reduce(|a, b| a + b);
    let usage = |rank: &Rank| rank.get(Quantity::Usage);
    let usages = ranks.values().filter_map(usage).count();
    // Casts from float saturate, and the values are finite and not negative.
    Some(Load {
        pending: sum(|rank| rank.get(Quantity::Waiting))?.round() as u32,
        running: sum(|rank| rank.get(Quantity::Running)).map(|running| running.round() as u32),
        kv_usage: sum(usage).map(|usage| (usage / usages as f64).clamp(0.0, 1.0) as f32),
        kv_capacity_tokens: sum(Rank::capacity)
            .map(|tokens| tokens as u64)
            .filter(|&tokens| tokens > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_load(engine: Engine, page: &[u8]) -> Result<Load, PageError> {
        parse_page(engine, page).map(|report| report.load)
    }

    fn read_as(engine: Engine, page: &str) -> Result<Load, PageError> {
        assert!(
            matches!(detect_engine(page.as_bytes()), Ok(found) if found == engine),
            "{page}"
        );
        parse_load(engine, page.as_bytes())
    }

    fn load(pending: u32, running: u32, usage: Option<f32>, tokens: Option<u64>) -> Load {
        Load {
            pending,
            running: Some(running),
            kv_usage: usage,
            kv_capacity_tokens: tokens,
        }
    }

    #[test]
    fn vllm_ranks_are_summed_and_longer_names_ignored() {
        let page = r#"
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 90
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100",num_gpu_blocks_override="None",mamba_block_size="8"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100"} 1.0
"#;
        let expected = load(3, 7, Some(0.5), Some(3_200));
        assert_eq!(read_as(Engine::Vllm, page), Ok(expected));
    }

    #[test]
    fn the_cache_usage_of_older_vllm_versions_is_read() {
        let page = "vllm:num_requests_waiting 0\nvllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n";
        assert_eq!(read_as(Engine::Vllm, page), Ok(load(0, 1, Some(0.5), None)));
    }

    #[test]
    fn sglang_series_of_single_priorities_are_not_added_to_their_total() {
        let page = r#"
sglang:num_queue_reqs{model_name="m",priority=""} 5
sglang:num_queue_reqs{model_name="m",priority="0"} 2
sglang:num_queue_reqs{model_name="m",priority="1"} 3
sglang:num_running_reqs{model_name="m",priority=""} 8
sglang:num_running_reqs{model_name="m",priority="1"} 8
sglang:token_usage{model_name="m"} 0.3
sglang:max_total_num_tokens{model_name="m"} 4096
"#;
        assert_eq!(
            read_as(Engine::Sglang, page),
            Ok(load(5, 8, Some(0.3), Some(4_096)))
        );
    }

    #[test]
    fn sglang_tensor_ranks_repeat_and_data_parallel_ranks_are_summed() {
        let page = r#"
sglang_num_queue_reqs{dp_rank="0",tp_rank="0"} 1
sglang_num_queue_reqs{dp_rank="0",tp_rank="1"} 1
sglang_num_queue_reqs{dp_rank="1",tp_rank="0"} 2
sglang_num_queue_reqs{dp_rank="1",tp_rank="1"} 2
sglang_num_running_reqs{dp_rank="0",tp_rank="0"} 4
sglang_num_running_reqs{dp_rank="1",tp_rank="0"} 5
sglang_max_total_num_tokens{dp_rank="0",tp_rank="0"} 100
sglang_max_total_num_tokens{dp_rank="1",tp_rank="0"} 100
"#;
        assert_eq!(
            read_as(Engine::Sglang, page),
            Ok(load(3, 9, None, Some(200)))
        );
    }

    #[test]
    fn tensorrt_llm_and_triton_report_their_capacity_in_blocks() {
        let page = "trtllm_num_requests_waiting 2\ntrtllm_num_requests_running 3\n\
            trtllm_kv_cache_utilization 0.5\ntrtllm_kv_cache_max_blocks 10\ntrtllm_kv_cache_tokens_per_block 32\n";
        assert_eq!(
            read_as(Engine::Trtllm, page),
            Ok(load(2, 3, Some(0.5), Some(320)))
        );
        let page = r#"
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 2
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 9
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 3
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 10
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"} 5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.5
"#;
        assert_eq!(
            read_as(Engine::Triton, page),
            Ok(load(2, 3, Some(0.5), Some(640)))
        );
    }

    #[test]
    fn llama_cpp_and_tgi_report_waiting_and_running_requests() {
        let page = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 1\n";
        assert_eq!(read_as(Engine::Llamacpp, page), Ok(load(1, 4, None, None)));
        let page = "tgi_batch_current_size 4\ntgi_queue_size 1\n";
        assert_eq!(read_as(Engine::Tgi, page), Ok(load(1, 4, None, None)));
    }

    #[test]
    fn a_page_without_the_number_of_waiting_requests_is_an_error() {
        assert_eq!(detect_engine(b"python_info 1\n"), Err(PageError::Unknown));
        assert_eq!(
            detect_engine(br#"[{"numQueuedRequests": 1}]"#),
            Err(PageError::Unknown)
        );
        let missing = Err(PageError::Missing {
            engine: Engine::Vllm,
        });
        assert_eq!(
            parse_load(Engine::Vllm, b"vllm:num_requests_running 1\n"),
            missing
        );
        assert_eq!(
            parse_load(Engine::Vllm, b"vllm:num_requests_waiting NaN\n"),
            missing
        );
        assert_eq!(
            parse_load(Engine::Vllm, b"vllm:num_requests_waiting -1\n"),
            missing
        );
        assert_eq!(
            parse_load(Engine::Vllm, b"sglang:num_queue_reqs 0\n"),
            missing
        );
    }

    #[test]
    fn a_rank_of_vllm_that_sleeps_is_no_load() {
        let page = |awake: u32| {
            format!(
                "vllm:num_requests_waiting{{engine=\"0\"}} 0\n\
                 vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} 1\n\
                 vllm:engine_sleep_state{{engine=\"1\",sleep_state=\"weights_offloaded\"}} 0\n\
                 vllm:engine_sleep_state{{engine=\"1\",sleep_state=\"awake\"}} {awake}\n"
            )
        };
        let read = |awake| parse_load(Engine::Vllm, page(awake).as_bytes());
        assert_eq!(read(0), Err(PageError::Asleep));
        assert_eq!(read(1).map(|load| load.pending), Ok(0));
    }

    #[test]
    fn a_page_with_too_many_ranks_is_rejected() {
        let page: String = (0..=RANKS_MAX)
            .map(|rank| format!("vllm:num_requests_waiting{{engine=\"{rank}\"}} 1\n"))
            .collect();
        assert_eq!(
            parse_load(Engine::Vllm, page.as_bytes()),
            Err(PageError::TooManyRanks)
        );
    }

    #[test]
    fn a_page_of_a_real_vllm_server_is_read() {
        let page = include_bytes!("../../tests/data/vllm-0.32.0-metrics-reduced.txt");
        assert_eq!(detect_engine(page), Ok(Engine::Vllm));
        assert_eq!(
            parse_load(Engine::Vllm, page),
            Ok(load(0, 0, Some(0.0), Some(262_144)))
        );
    }

    #[test]
    fn the_whole_page_of_a_real_vllm_server_is_read_if_it_is_at_hand() {
        let Some(data) = std::env::var_os("ISOTHERM_DATA") else {
            println!(
                "skipped: the whole page is not part of the project; ISOTHERM_DATA names its folder"
            );
            return;
        };
        let page = std::path::PathBuf::from(data).join("vllm-0.32.0-metrics.txt");
        let page = std::fs::read(page).unwrap();
        assert_eq!(detect_engine(&page), Ok(Engine::Vllm));
        assert_eq!(
            parse_load(Engine::Vllm, &page),
            Ok(load(0, 0, Some(0.0), Some(262_144)))
        );
    }
}

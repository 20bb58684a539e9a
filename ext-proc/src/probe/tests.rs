//! The counters of each engine, read from pages as its servers write them.

use isotherm_router::{EngineCounters, Total};

use super::load::parse_page;
use crate::config::Engine;

fn counters(engine: Engine, page: &str) -> EngineCounters {
    let report = parse_page(engine, page.as_bytes()).unwrap();
    report.counters.unwrap()
}

const fn total(seconds: f64, count: f64) -> Option<Total> {
    Some(Total { seconds, count })
}

#[test]
fn counters_of_a_real_vllm_server_are_read() {
    let page = include_str!("../../tests/data/vllm-0.32.0-metrics-reduced.txt");
    let expected = EngineCounters {
        started_ms: Some(1_795_221_067_650),
        prompt_tokens: Some(2_421.0),
        generation_tokens: Some(32.0),
        cache_queries: Some(2_421.0),
        cache_hits: Some(1_152.0),
        prefill: total(0.124_884_494_000_070_84, 2.0),
        decode: total(0.101_431_505_000_164_18, 2.0),
        queue: total(7.234_299_982_883_385e-5, 2.0),
        ttft: total(0.150_568_485_260_009_77, 2.0),
    };
    assert_eq!(counters(Engine::Vllm, page), expected);
}

#[test]
fn counters_of_vllms_data_parallel_ranks_are_summed() {
    let page = r#"
vllm:num_requests_waiting{engine="0"} 0
vllm:prompt_tokens_total{engine="0"} 100
vllm:prompt_tokens_total{engine="1"} 50
vllm:request_prefill_time_seconds_sum{engine="0"} 1.5
vllm:request_prefill_time_seconds_sum{engine="1"} 2.5
vllm:request_prefill_time_seconds_count{engine="0"} 3
vllm:request_prefill_time_seconds_count{engine="1"} 4
vllm:request_prefill_time_seconds_bucket{engine="1",le="0.3"} 9
"#;
    let counters = counters(Engine::Vllm, page);
    assert_eq!(counters.prompt_tokens, Some(150.0));
    assert_eq!(counters.prefill, total(4.0, 7.0));
    assert_eq!(counters.cache_hits, None);
}

#[test]
fn tokens_from_a_kv_connector_count_as_cache_hits_of_vllm() {
    let page = "vllm:num_requests_waiting 0\nvllm:prompt_tokens_total 90\nvllm:prefix_cache_queries_total 90\n\
        vllm:prefix_cache_hits_total 30\nvllm:external_prefix_cache_hits_total 20\n";
    let counters = counters(Engine::Vllm, page);
    assert_eq!(counters.cache_queries, Some(90.0));
    assert_eq!(counters.cache_hits, Some(50.0));
}

#[test]
fn counters_of_sglang_are_read() {
    let page = include_str!("../../tests/data/sglang-0.5-metrics-reduced.txt");
    let expected = EngineCounters {
        started_ms: None,
        prompt_tokens: Some(9_000.0),
        generation_tokens: Some(700.0),
        cache_queries: Some(9_000.0),
        cache_hits: Some(4_100.0),
        prefill: total(6.0, 14.0),
        decode: total(12.5, 10.0),
        queue: total(0.75, 14.0),
        ttft: total(7.5, 12.0),
    };
    assert_eq!(counters(Engine::Sglang, page), expected);
}

#[test]
fn sglang_has_no_hits_until_its_page_shows_some() {
    let page = "sglang:num_queue_reqs 0\nsglang:prompt_tokens_total 40\n";
    assert_eq!(counters(Engine::Sglang, page).cache_hits, Some(0.0));
}

#[test]
fn counters_of_tensorrt_llm_are_read() {
    let page = include_str!("../../tests/data/tensorrt-llm-1.3-metrics-reduced.txt");
    let expected = EngineCounters {
        started_ms: Some(1_795_221_000_000),
        prompt_tokens: Some(1_800.0),
        generation_tokens: Some(30.0),
        cache_queries: Some(1_800.0),
        cache_hits: Some(450.0),
        prefill: total(0.28, 4.0),
        decode: total(0.44, 4.0),
        queue: total(0.008, 4.0),
        ttft: total(0.3, 4.0),
    };
    assert_eq!(counters(Engine::Trtllm, page), expected);
}

#[test]
fn lengths_of_prompts_and_answers_are_what_triton_counts() {
    let page = r#"
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 0
nv_llm_input_token_len_sum{model="tensorrt_llm",response_metric_type="total_input_tokens",version="1"} 800
nv_llm_output_token_len_sum{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1"} 60
"#;
    let counters = counters(Engine::Triton, page);
    assert_eq!(counters.prompt_tokens, Some(800.0));
    assert_eq!(counters.generation_tokens, Some(60.0));
    assert_eq!(counters.cache_queries, None);
    assert_eq!(counters.prefill, None);
}

#[test]
fn prompts_of_llama_cpp_are_what_it_computed_and_what_it_found() {
    let page = include_str!("../../tests/data/llama.cpp-b11151-metrics.txt");
    let expected = EngineCounters {
        prompt_tokens: Some(500.0),
        generation_tokens: Some(64.0),
        cache_queries: Some(500.0),
        cache_hits: Some(120.0),
        prefill: total(4.25, 0.0),
        decode: total(2.5, 0.0),
        ..EngineCounters::default()
    };
    assert_eq!(counters(Engine::Llamacpp, page), expected);
}

#[test]
fn an_older_llama_cpp_does_not_say_how_long_prompts_are() {
    let page = "llamacpp:requests_deferred 0\nllamacpp:prompt_tokens_total 380\nllamacpp:prompt_seconds_total 4\n";
    let counters = counters(Engine::Llamacpp, page);
    assert_eq!(counters.prompt_tokens, None);
    assert_eq!(counters.cache_hits, None);
}

#[test]
fn counters_of_tgi_are_read() {
    let page = include_str!("../../tests/data/tgi-3.3-metrics-reduced.txt");
    let expected = EngineCounters {
        prompt_tokens: Some(5_120.0),
        generation_tokens: Some(640.0),
        prefill: total(1.75, 10.0),
        queue: total(0.04, 10.0),
        ..EngineCounters::default()
    };
    assert_eq!(counters(Engine::Tgi, page), expected);
}

#[test]
fn a_page_without_counters_reports_none() {
    let page = b"vllm:num_requests_waiting 0\nvllm:prompt_tokens_total NaN\n";
    let report = parse_page(Engine::Vllm, page).unwrap();
    assert_eq!(report.counters, None);
}

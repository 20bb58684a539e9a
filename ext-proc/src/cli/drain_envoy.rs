//! `isotherm drain-envoy`: lets an Envoy finish its requests before it is stopped, as the `preStop` hook of its container.
//!
//! Envoy ends at once at SIGTERM, and breaks every running answer. The command tells it to close connections after their
//! requests (`/healthcheck/fail`), and returns when it has no request. Envoy keeps its listeners meanwhile: clients that have
//! not heard of the stop are still served.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Request};
use tokio::time::{Instant, sleep, timeout};

use super::address::parse_admin;
use super::client::Unreachable;
use crate::config::Address;
use crate::http_client::HttpClient;

/// Interval at which Envoy is asked for its open requests.
const INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for one answer of Envoy's admin interface.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5);
/// The largest answer, in bytes: a line for each listener.
const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
/// Statistics of each listener: the requests that it serves now, and the bytes of answers that clients have yet to take.
const ACTIVE_REQUESTS: &str =
    "/stats?filter=^http\\..*\\.downstream_(rq_active|cx_tx_bytes_buffered)$";
/// End of the name of the second one.
const BUFFERED_BYTES: &str = ".downstream_cx_tx_bytes_buffered";
/// The statistics of the admin interface itself, which serves this command.
const OWN: &str = "http.admin.";

#[derive(Debug, Args)]
pub(super) struct DrainEnvoy {
    /// Address of Envoy's admin interface.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9901", value_parser = parse_admin)]
    admin: Address,
    /// Time for which Envoy still takes requests, until load balancers have heard of the stop, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    notice_s: u64,
    /// Longest wait for the last request, in seconds. The grace period of the pod must be longer.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait_s: u64,
}

pub(super) async fn run(args: DrainEnvoy) -> anyhow::Result<ExitCode> {
    let http = HttpClient::new();
    ask(&http, Method::POST, &args.admin, "/healthcheck/fail").await?;
    let [notice, wait] = [args.notice_s, args.wait_s].map(Duration::from_secs);
    wait_until_idle(&http, &args.admin, notice, wait).await?;
    Ok(ExitCode::SUCCESS)
}

/// Lets an Envoy finish its requests, without listeners: clients connect elsewhere meanwhile.
pub(super) async fn close(admin: &Address, wait: Duration) -> anyhow::Result<()> {
    let http = HttpClient::new();
    for path in ["/healthcheck/fail", "/drain_listeners"] {
        ask(&http, Method::POST, admin, path).await?;
    }
    wait_until_idle(&http, admin, Duration::ZERO, wait).await
}

/// Waits until Envoy serves no request, for `notice` at least and for `wait` at most. Asks twice: a client that has just read an
/// answer may send its next request on the same connection.
async fn wait_until_idle(
    http: &HttpClient,
    admin: &Address,
    notice: Duration,
    wait: Duration,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut was_idle = false;
    loop {
        let active = active_requests(http, admin).await?;
        let waited = start.elapsed();
        if active == 0 && was_idle && waited >= notice {
            return Ok(());
        }
        was_idle = active == 0;
        if waited >= wait {
            bail!(
                "{active} requests still run after {} s: --wait-s gives them longer",
                wait.as_secs()
            );
        }
        sleep(INTERVAL).await;
    }
}

/// Asks Envoy how many requests it serves now, without those of its admin interface.
async fn active_requests(http: &HttpClient, admin: &Address) -> anyhow::Result<u64> {
    let page = ask(http, Method::GET, admin, ACTIVE_REQUESTS).await?;
    count(&page).with_context(|| format!("the statistics of {admin} are not Envoy's"))
}

/// Adds up the requests of a page of statistics; `None` for a page that has none. A listener with bytes for a client counts one more.
fn count(page: &str) -> Option<u64> {
    let samples = page.lines().filter_map(|line| line.split_once(": "));
    let mut served = samples
        .filter(|(name, _)| !name.starts_with(OWN))
        .peekable();
    served.peek()?;
    let requests = served.map(|(name, value)| {
        let value: u64 = value.parse().ok()?;
        let is_bytes = name.ends_with(BUFFERED_BYTES);
        Some(if is_bytes { value.min(1) } else { value })
    });
    requests.sum()
}

async fn ask(
    http: &HttpClient,
    method: Method,
    admin: &Address,
    path: &str,
) -> anyhow::Result<String> {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{admin}{path}"))
        .body(Bytes::new())?;
    let answer = async {
        let response = http.send(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX);
        let body = body.collect().await.map_err(anyhow::Error::from_boxed)?;
        anyhow::Ok((status, body.to_bytes()))
    };
    let answer = timeout(RESPONSE_TIME_MAX, answer).await;
    let (status, body) = answer
        .context("no answer in time")
        .flatten()
        .with_context(|| {
            Unreachable(format!(
                "Envoy's admin interface at {admin} does not answer; --admin gives its address"
            ))
        })?;
    if !status.is_success() {
        bail!("{admin} answers {path} with status {status}: it is not Envoy's admin interface");
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_every_listener_count_and_those_of_the_admin_interface_do_not() {
        let page = "http.admin.downstream_rq_active: 1\nhttp.llm.downstream_rq_active: 2\nhttp.regions.downstream_rq_active: 3\n";
        assert_eq!(count(page), Some(5));
        let page =
            "http.llm.downstream_cx_tx_bytes_buffered: 900\nhttp.llm.downstream_rq_active: 0\n";
        assert_eq!(count(page), Some(1), "an answer is not with its client");
        assert_eq!(count("http.admin.downstream_rq_active: 1\n"), None);
        assert_eq!(count(""), None);
    }
}

//! `isotherm explain`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::value::{RawValue, to_raw_value};

use super::client::{AdminClient, Connection};
use super::output;
use super::table::{self, or_dash, percent};
use crate::admin::view::{ExplainRequest, ExplainResponse, OutcomeView};

/// The largest body that is read, in bytes.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    connection: Connection,
    /// The path of the request.
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// A header of the request; may be given several times.
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// A file with the filter's configuration, as the JSON that Envoy gives to the filter [default: the filter's
    /// defaults].
    #[arg(long, value_name = "FILE")]
    filter_config: Option<PathBuf>,
    /// The body of the request: JSON, the name of a file that holds it, or `-` for standard input.
    body: String,
}

pub(super) async fn run(args: Explain) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let body = body(&args.body)?;
    let filter = match &args.filter_config {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let json = RawValue::from_string(text);
            Some(json.with_context(|| format!("{} is not JSON", file.display()))?)
        }
        None => None,
    };
    let request = ExplainRequest {
        path: args.path,
        headers: BTreeMap::from_iter(args.headers),
        body: Some(to_raw_value(&body)?),
        filter,
    };
    let explained: ExplainResponse = client.post("/api/explain", &request).await?;
    output::print(&render(&explained))?;
    Ok(ExitCode::SUCCESS)
}

/// The body that an argument means. No file name begins as JSON's objects and lists do, unless one insists (`./{`).
fn body(argument: &str) -> anyhow::Result<String> {
    if argument.trim_start().starts_with(['{', '[']) {
        return Ok(argument.to_owned());
    }
    let input: Box<dyn Read> = match argument {
        "-" => Box::new(std::io::stdin().lock()),
        file => Box::new(
            File::open(file).with_context(|| format!("`{file}` is neither JSON nor a file"))?,
        ),
    };
    let mut body = String::new();
    input
        .take(BODY_BYTES_MAX + 1)
        .read_to_string(&mut body)
        .context("cannot read the body")?;
    ensure!(
        body.len() as u64 <= BODY_BYTES_MAX,
        "the body has more than {BODY_BYTES_MAX} bytes"
    );
    Ok(body)
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME:VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn render(explained: &ExplainResponse) -> String {
    let request = &explained.request;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9}{value}");
    };
    line("model", or_dash(request.model.as_ref()));
    line("session", or_dash(request.session.as_ref()));
    if let Some(tier) = &request.tier {
        line("tier", tier.clone());
    }
    let prompt = format!(
        "{} bytes, about {} tokens, {} blocks",
        request.prompt_bytes, request.prompt_tokens, request.blocks
    );
    line("prompt", prompt);
    if let Some(problem) = &request.problem {
        line("problem", problem.clone());
    }
    if let (Some(pool), Some(policy)) = (&explained.pool, &explained.policy) {
        line("pool", format!("{pool} ({policy})"));
    }
    line("outcome", outcome(&explained.outcome));
    if !explained.candidates.is_empty() {
        text = format!("{text}\n{}", replicas(explained));
    }
    if !explained.regions.is_empty() {
        text = format!("{text}\n{}", regions(explained));
    }
    text
}

/// Every replica as a row.
fn replicas(explained: &ExplainResponse) -> String {
    let chosen = match &explained.outcome {
        OutcomeView::Dispatch { replica, .. } => Some(replica),
        OutcomeView::Wait { replica, .. } => replica.as_ref(),
        OutcomeView::Forward { .. } | OutcomeView::Reject { .. } | OutcomeView::NoPool { .. } => {
            None
        }
    };
    let rows: Vec<_> = explained
        .candidates
        .iter()
        .map(|candidate| {
            [
                mark(chosen == Some(&candidate.replica)),
                candidate.replica.clone(),
                format!("{:.3}", candidate.score),
                percent(candidate.matched_share),
                candidate.matched_bytes.to_string(),
                candidate.outstanding.to_string(),
                or_dash(candidate.pending),
                candidate.availability.clone(),
            ]
        })
        .collect();
    let header = [
        "",
        "REPLICA",
        "SCORE",
        "MATCHED",
        "BYTES",
        "OUTSTANDING",
        "PENDING",
        "STATE",
    ];
    table::render(header, rows)
}

/// Every other region as a row.
fn regions(explained: &ExplainResponse) -> String {
    let chosen = match &explained.outcome {
        OutcomeView::Forward { region, .. } => Some(region),
        OutcomeView::Dispatch { .. }
        | OutcomeView::Wait { .. }
        | OutcomeView::Reject { .. }
        | OutcomeView::NoPool { .. } => None,
    };
    let rows: Vec<_> = explained
        .regions
        .iter()
        .map(|candidate| {
            let ttft = candidate.estimated_ttft_ms;
            [
                mark(chosen == Some(&candidate.region)),
                candidate.region.clone(),
                percent(candidate.matched_share),
                candidate.matched_bytes.to_string(),
                or_dash(ttft.map(|ms| format!("{ms} ms"))),
                candidate.availability.clone(),
            ]
        })
        .collect();
    let header = ["", "REGION", "MATCHED", "BYTES", "FIRST TOKEN", "STATE"];
    table::render(header, rows)
}

fn mark(chosen: bool) -> String {
    (if chosen { "->" } else { "" }).to_owned()
}

fn outcome(outcome: &OutcomeView) -> String {
    match outcome {
        OutcomeView::Dispatch { replica, reason } => format!("goes to {replica} ({reason})"),
        OutcomeView::Forward { region, reason } => format!("goes to region {region} ({reason})"),
        OutcomeView::Wait { replica, ahead } => {
            let preferred = replica.as_ref().map_or_else(
                || "any replica that can take it".to_owned(),
                |replica| format!("{replica}, which is worth it"),
            );
            format!("waits for {preferred}; {ahead} ahead of it")
        }
        OutcomeView::Reject { reason } => format!("refused ({reason})"),
        OutcomeView::NoPool { what } => what.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::view::{CandidateView, RegionCandidateView, RequestView};

    #[test]
    fn the_chosen_replica_is_marked_and_every_candidate_says_why() {
        let candidate = |replica: &str, score, state: &str| CandidateView {
            replica: replica.into(),
            score,
            matched_bytes: 512,
            matched_share: 0.5,
            outstanding: 3,
            pending: None,
            availability: state.into(),
        };
        let explained = ExplainResponse {
            request: RequestView {
                model: Some("llama".into()),
                prompt_bytes: 1024,
                prompt_tokens: 256,
                blocks: 4,
                ..RequestView::default()
            },
            outcome: OutcomeView::Dispatch {
                replica: "10.0.0.1:80".into(),
                reason: "prefix".into(),
            },
            pool: Some("llama".into()),
            policy: Some("prefix_tree".into()),
            candidates: vec![
                candidate("10.0.0.1:80", 0.5, "available"),
                candidate("10.0.0.2:80", 0.0, "stale"),
            ],
            regions: Vec::new(),
        };
        let text = render(&explained);
        assert!(
            text.contains("outcome  goes to 10.0.0.1:80 (prefix)"),
            "{text}"
        );
        assert!(text.contains("->  10.0.0.1:80  0.500  50%"), "{text}");
        assert!(text.contains("10.0.0.2:80  0.000"), "{text}");
        assert!(text.trim_end().ends_with("stale"), "{text}");
    }

    #[test]
    fn the_chosen_region_is_marked_and_every_other_says_why_not() {
        let region = |region: &str, state: &str| RegionCandidateView {
            region: region.into(),
            matched_bytes: 512,
            matched_share: 0.5,
            estimated_ttft_ms: Some(160),
            availability: state.into(),
        };
        let explained = ExplainResponse {
            request: RequestView::default(),
            outcome: OutcomeView::Forward {
                region: "eu".into(),
                reason: "prefix".into(),
            },
            pool: Some("llama".into()),
            policy: Some("prefix_tree".into()),
            candidates: Vec::new(),
            regions: vec![region("asia", "long_queue"), region("eu", "available")],
        };
        let text = render(&explained);
        assert!(
            text.contains("outcome  goes to region eu (prefix)"),
            "{text}"
        );
        assert!(
            text.contains("->  eu      50%      512    160 ms       available"),
            "{text}"
        );
        assert!(text.contains("\n    asia"), "{text}");
    }

    #[test]
    fn headers_are_names_and_values() {
        assert_eq!(
            header("X-Session-Id: a:b"),
            Ok(("X-Session-Id".into(), "a:b".into()))
        );
        assert!(header("nothing").is_err());
    }
}

//! `isotherm explain`: shows the decision on a request, and the reason.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use serde::de::IgnoredAny;
use serde_json::value::{RawValue, to_raw_value};

use super::client::{AdminClient, Connection};
use super::learned;
use super::output::{self, JsonFlag, or_dash, percent};
use crate::admin::view::{ExplainRequest, ExplainResponse, OutcomeView};

/// The largest body, in bytes.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    connection: Connection,
    /// Path of the request.
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// Header of the request; may be given several times.
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// File with the filter's configuration, as the JSON that Envoy gives to the filter [default: the filter's
    /// defaults].
    #[arg(long, value_name = "FILE")]
    filter_config: Option<PathBuf>,
    /// Tenant of the request, in place of the sources in the filter's configuration.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    json: JsonFlag,
    /// Body of the request: JSON, the name of a file with JSON, or `-` for standard input.
    body: String,
}

pub(super) async fn run(args: Explain) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let body = read_body(&args.body)?;
    check_body(&body)?;
    let filter = args.filter_config.as_deref().map(read_json).transpose()?;
    let request = ExplainRequest {
        path: args.path,
        headers: BTreeMap::from_iter(args.headers),
        body: Some(to_raw_value(&body)?),
        filter,
        tenant: args.tenant,
    };
    let explanation: ExplainResponse = client.post("/api/explain", &request).await?;
    args.json.print(&explanation, render)?;
    Ok(ExitCode::SUCCESS)
}

fn read_json(file: &Path) -> anyhow::Result<Box<RawValue>> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    let json = RawValue::from_string(text);
    json.with_context(|| format!("{} is not JSON", file.display()))
}

/// Returns the body that an argument names. An argument that begins like a JSON object or list is JSON; `./{` names a
/// file.
fn read_body(argument: &str) -> anyhow::Result<String> {
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

/// Fails for a body that is not one JSON value: the filter sends such a request on without a fingerprint. A request without a body,
/// such as one for the models, is complete.
fn check_body(body: &str) -> anyhow::Result<()> {
    if body.trim().is_empty() {
        return Ok(());
    }
    let parsed = serde_json::from_str::<IgnoredAny>(body);
    parsed.map(drop).map_err(|error| {
        let is_list = body.lines().filter(|line| !line.trim().is_empty()).count() > 1
            && body
                .lines()
                .next()
                .is_some_and(|line| serde_json::from_str::<IgnoredAny>(line).is_ok());
        let hint = match is_list {
            true => ": give one line of the file",
            false => ": the filter would send this request on without a fingerprint",
        };
        anyhow!("the body is not one JSON value ({error}){hint}")
    })
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME:VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn render(explanation: &ExplainResponse) -> String {
    let request = &explanation.request;
    let mut lines = vec![
        ("model", or_dash(request.model.as_ref())),
        ("session", or_dash(request.session.as_ref())),
    ];
    lines.extend(request.tenant.clone().map(|tenant| ("tenant", tenant)));
    lines.extend(request.tier.clone().map(|tier| ("tier", tier)));
    lines.extend(request.ttft_ms.map(|ms| ("budget", format!("{ms} ms"))));
    let left = |ms: u64| format!("in {:.1} s", ms as f64 / 1000.0);
    lines.extend(request.deadline_ms.map(|ms| ("deadline", left(ms))));
    let (bytes, tokens) = (request.prompt_bytes, request.prompt_tokens);
    let prompt = format!(
        "{bytes} bytes, about {tokens} tokens, {} blocks",
        request.blocks
    );
    lines.push(("prompt", prompt));
    lines.extend(request.problem.clone().map(|problem| ("problem", problem)));
    if let (Some(pool), Some(policy)) = (&explanation.pool, &explanation.policy) {
        lines.push(("pool", format!("{pool} ({policy})")));
    }
    lines.extend(
        explanation
            .learned
            .as_ref()
            .map(|l| ("learned", learned::line(l))),
    );
    lines.push(("outcome", describe(&explanation.outcome)));
    let mut text = String::new();
    for (name, value) in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<9}{value}");
    }
    if !explanation.candidates.is_empty() {
        let _ = write!(text, "\n{}", render_replicas(explanation));
    }
    if !explanation.regions.is_empty() {
        let _ = write!(text, "\n{}", render_regions(explanation));
    }
    text
}

/// Renders each candidate replica as a row, and marks the selected one.
fn render_replicas(explanation: &ExplainResponse) -> String {
    let selected = match &explanation.outcome {
        OutcomeView::Dispatch { replica, .. } => Some(replica),
        OutcomeView::Wait { replica, .. } => replica.as_ref(),
        _ => None,
    };
    let prefiller = match &explanation.outcome {
        OutcomeView::Dispatch { prefiller, .. } => prefiller.as_ref(),
        _ => None,
    };
    let rows = explanation.candidates.iter().map(|candidate| {
        let name = Some(&candidate.replica);
        vec![
            mark(selected == name || prefiller == name),
            candidate.replica.clone(),
            candidate.role.clone(),
            format!("{:.3}", candidate.score),
            percent(candidate.matched_share),
            candidate.matched_bytes.to_string(),
            candidate.outstanding.to_string(),
            or_dash(candidate.pending),
            or_dash(candidate.adapter.as_ref()),
            candidate.availability.clone(),
        ]
    });
    let header = [
        "",
        "REPLICA",
        "ROLE",
        "SCORE",
        "MATCHED",
        "BYTES",
        "OUTSTANDING",
        "PENDING",
        "ADAPTER",
        "STATE",
    ];
    output::table(&header, rows.collect())
}

/// Renders each other region as a row, and marks the selected one.
fn render_regions(explanation: &ExplainResponse) -> String {
    let selected = match &explanation.outcome {
        OutcomeView::Forward { region, .. } => Some(region),
        _ => None,
    };
    let rows = explanation.regions.iter().map(|candidate| {
        let ttft = candidate.estimated_ttft_ms;
        vec![
            mark(selected == Some(&candidate.region)),
            candidate.region.clone(),
            percent(candidate.matched_share),
            candidate.matched_bytes.to_string(),
            or_dash(ttft.map(|ms| format!("{ms} ms"))),
            candidate.availability.clone(),
        ]
    });
    let header = ["", "REGION", "MATCHED", "BYTES", "TTFT", "STATE"];
    output::table(&header, rows.collect())
}

fn mark(is_selected: bool) -> String {
    (if is_selected { "->" } else { "" }).to_owned()
}

fn describe(outcome: &OutcomeView) -> String {
    match outcome {
        OutcomeView::Dispatch {
            replica,
            prefiller: None,
            reason,
        } => format!("dispatch to {replica} ({reason})"),
        OutcomeView::Dispatch {
            replica,
            prefiller: Some(prefiller),
            reason,
        } => format!("dispatch to {replica} ({reason}), prefill on {prefiller}"),
        OutcomeView::Forward { region, reason } => format!("forward to region {region} ({reason})"),
        OutcomeView::Wait { replica, ahead } => {
            let replica = replica.as_ref();
            let replica = replica.map_or("any available replica", |replica| replica.as_str());
            format!("wait for {replica}, behind {ahead} requests")
        }
        OutcomeView::Reject { reason } => format!("reject ({reason})"),
        OutcomeView::NoPool { what } => what.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::view::{CandidateView, RegionCandidateView, RequestView};

    #[test]
    fn the_selected_replica_is_marked_and_every_candidate_has_its_state() {
        let candidate = |replica: &str, score, state: &str| CandidateView {
            replica: replica.into(),
            role: "both".into(),
            score,
            matched_bytes: 512,
            matched_share: 0.5,
            outstanding: 3,
            pending: None,
            adapter: None,
            availability: state.into(),
        };
        let explanation = ExplainResponse {
            request: RequestView {
                model: Some("llama".into()),
                prompt_bytes: 1024,
                prompt_tokens: 256,
                blocks: 4,
                ..RequestView::default()
            },
            outcome: OutcomeView::Dispatch {
                replica: "10.0.0.1:80".into(),
                prefiller: None,
                reason: "prefix".into(),
            },
            pool: Some("llama".into()),
            policy: Some("prefix_tree".into()),
            learned: None,
            candidates: vec![
                candidate("10.0.0.1:80", 0.5, "available"),
                candidate("10.0.0.2:80", 0.0, "stale"),
            ],
            regions: Vec::new(),
        };
        let text = render(&explanation);
        assert!(
            text.contains("outcome  dispatch to 10.0.0.1:80 (prefix)"),
            "{text}"
        );
        assert!(text.contains("->  10.0.0.1:80  both  0.500  50%"), "{text}");
        assert!(text.contains("10.0.0.2:80  both  0.000"), "{text}");
        assert!(text.trim_end().ends_with("stale"), "{text}");
    }

    #[test]
    fn the_selected_region_is_marked_and_every_other_has_its_state() {
        let region = |region: &str, state: &str| RegionCandidateView {
            region: region.into(),
            matched_bytes: 512,
            matched_share: 0.5,
            estimated_ttft_ms: Some(160),
            availability: state.into(),
        };
        let explanation = ExplainResponse {
            request: RequestView::default(),
            outcome: OutcomeView::Forward {
                region: "eu".into(),
                reason: "prefix".into(),
            },
            pool: Some("llama".into()),
            policy: Some("prefix_tree".into()),
            learned: None,
            candidates: Vec::new(),
            regions: vec![region("asia", "long_queue"), region("eu", "available")],
        };
        let text = render(&explanation);
        assert!(
            text.contains("outcome  forward to region eu (prefix)"),
            "{text}"
        );
        assert!(
            text.contains("->  eu      50%      512    160 ms  available"),
            "{text}"
        );
        assert!(text.contains("\n    asia"), "{text}");
    }

    #[test]
    fn headers_are_names_and_values() {
        assert_eq!(
            parse_header("X-Session-Id: a:b"),
            Ok(("X-Session-Id".into(), "a:b".into()))
        );
        assert!(parse_header("nothing").is_err());
    }
}

//! The comparison of gateways with the standalone Envoy, and its report.

use isotherm_harness::MeshGateway;
use isotherm_report::number::{hundredths, percent};
use isotherm_report::{Conclusion, Report, RunFacts, Section, Table};
use serde::Serialize;

use super::MeshRun;
use crate::metrics::round;
use crate::report::{Comparison, Run};

/// Least hit ratio of a gateway, as a share of the standalone one.
pub const HIT_RATIO_MIN: f64 = 0.97;

/// The measurements of every scheme on every system: `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct MeshComparison {
    /// Runs in order of execution; of each scheme the standalone one first.
    #[serde(flatten)]
    pub runs: Comparison,
    /// Bytes to the service in each run.
    pub traffic: Vec<Traffic>,
}

/// Bytes that Envoy sent to the service in a run.
#[derive(Clone, Debug, Serialize)]
pub struct Traffic {
    /// All bytes, as Envoy counts them.
    pub sent: u64,
    /// Bytes of request bodies, as the service counts them.
    pub request_bodies: u64,
    /// Bytes of response bodies, as the service counts them.
    pub response_bodies: u64,
    /// Bytes of the prompts' text.
    pub prompts: u64,
    /// Whether the prompts ought to stay in the proxy.
    pub keeps_prompts: bool,
    /// Whether this is the standalone system.
    pub is_standalone: bool,
}

impl Traffic {
    /// The traffic of a run on a gateway, or on the standalone Envoy.
    #[must_use]
    pub fn of(run: &MeshRun, gateway: Option<MeshGateway>) -> Self {
        let traffic = run.traffic;
        Self {
            sent: traffic.sent,
            request_bodies: traffic.request_bodies,
            response_bodies: traffic.response_bodies,
            prompts: run.run.metrics.prompt_bytes,
            keeps_prompts: gateway.is_none_or(MeshGateway::keeps_prompts),
            is_standalone: gateway.is_none(),
        }
    }

    /// Bytes to the service for each byte of a prompt.
    #[must_use]
    pub fn per_prompt_byte(&self) -> f64 {
        self.per(self.sent)
    }

    /// Bytes to the service for each byte of a prompt, without response bodies.
    #[must_use]
    pub fn per_prompt_byte_without_responses(&self) -> f64 {
        self.per(self.sent.saturating_sub(self.response_bodies))
    }

    fn per(&self, bytes: u64) -> f64 {
        round(bytes as f64 / self.prompts.max(1) as f64)
    }
}

impl MeshComparison {
    /// Adds a run on a gateway, or on the standalone Envoy.
    pub(super) fn push(&mut self, run: MeshRun, gateway: Option<MeshGateway>) {
        self.traffic.push(Traffic::of(&run, gateway));
        self.runs.runs.push(run.run);
    }

    /// Number of failed requests and of expectations that do not hold.
    #[must_use]
    pub fn failed(&self) -> usize {
        let runs = self.runs.runs.iter();
        let requests: usize = runs.map(|run| run.metrics.failed).sum();
        let conclusions = self.conclusions();
        let missed = conclusions
            .iter()
            .filter(|claim| claim.holds == Some(false));
        requests + missed.count()
    }

    /// The expectations about each gateway.
    fn conclusions(&self) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        let mut standalone = None;
        for (run, traffic) in self.runs.runs.iter().zip(&self.traffic) {
            if traffic.is_standalone {
                standalone = Some(run);
                continue;
            }
            if let Some(standalone) = standalone {
                conclusions.push(hit_ratio_claim(run, standalone));
            }
            conclusions.push(prompt_claim(run, traffic));
        }
        conclusions
    }

    fn traffic_table(&self) -> Table {
        let mut table = Table::new([
            "system: policy",
            "prompts, bytes",
            "to the service, bytes",
            "request bodies among them",
            "response bodies among them",
            "to the service per prompt byte",
            "without response bodies",
        ]);
        for (run, traffic) in self.runs.runs.iter().zip(&self.traffic) {
            table.push([
                run.label(),
                traffic.prompts.to_string(),
                traffic.sent.to_string(),
                traffic.request_bodies.to_string(),
                traffic.response_bodies.to_string(),
                hundredths(traffic.per_prompt_byte()),
                hundredths(traffic.per_prompt_byte_without_responses()),
            ]);
        }
        let shown = [
            "system: policy",
            "request bodies among them",
            "to the service per prompt byte",
        ];
        table.headline(&shown, |_| true)
    }

    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let scenario = &self.runs.scenario;
        let introduction = Section::new("").text(format!(
            "{}. Each run: {} fresh replicas ({}), the same requests. `standalone` is `envoy/standalone.yaml`; a real \
             control plane configures each gateway by its manifest in `deploy/mesh`. {}",
            scenario.description,
            scenario.replicas,
            scenario.engine,
            scenario.clock()
        ));
        let charts = self.runs.charts();
        let bytes = Section::new("Bytes to the service").text(
            "Envoy counts what it sends to the service's cluster, protocol included; the service counts the bodies in \
             it. A prompt that stays in the proxy leaves a fingerprint and a few headers.",
        );
        let sections = [
            introduction.conclusions(self.conclusions()),
            Section::new("").charts(charts).table(self.runs.table()),
            bytes.table(self.traffic_table()),
        ];
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            footer: format!(
                "Seed {}. queue: time in the service; empty where a gateway shows no decisions to clients.",
                scenario.seed
            ),
            ..Report::new(format!("Isotherm in a mesh: {}", scenario.name), sections)
        };
        report.with_data(self)
    }
}

fn hit_ratio_claim(run: &Run, standalone: &Run) -> Conclusion {
    let (ours, theirs) = (
        run.metrics.cache_hit_ratio,
        standalone.metrics.cache_hit_ratio,
    );
    let ratio = ours / theirs.max(f64::MIN_POSITIVE);
    let text =
        format!("finds at least {HIT_RATIO_MIN} of the cached tokens of the standalone Envoy");
    let figures = format!(
        "{} against {}, a ratio of {}",
        percent(ours),
        percent(theirs),
        round(ratio)
    );
    let claim = Conclusion::claim(text, ratio >= HIT_RATIO_MIN);
    claim.in_case(run.label()).measured(figures)
}

fn prompt_claim(run: &Run, traffic: &Traffic) -> Conclusion {
    let figures = format!(
        "{} bytes of request bodies, and {} bytes in all per prompt byte",
        traffic.request_bodies,
        hundredths(traffic.per_prompt_byte())
    );
    let claim = if traffic.keeps_prompts {
        let text = "sends no byte of a request body to the service";
        Conclusion::claim(text, traffic.request_bodies == 0)
    } else {
        let text = "sends every prompt to the service";
        Conclusion::claim(text, traffic.sent >= traffic.prompts)
    };
    claim.in_case(run.label()).measured(figures)
}

#[cfg(test)]
mod tests {
    use isotherm_harness::ServiceTraffic;

    use super::*;
    use crate::report::tests::example;

    /// A comparison in which a gateway has this hit ratio and sends these bytes of request bodies.
    fn comparison(gateway: MeshGateway, hit_ratio: f64, request_bodies: u64) -> MeshComparison {
        let Comparison { scenario, mut runs } = example();
        let mut run = runs.remove(0);
        run.metrics.prompt_bytes = 1_000;
        run.metrics.cache_hit_ratio = 0.8;
        let mut comparison = MeshComparison {
            runs: Comparison {
                scenario,
                runs: Vec::new(),
            },
            traffic: Vec::new(),
        };
        let traffic = |request_bodies| ServiceTraffic {
            sent: request_bodies + 100,
            request_bodies,
            response_bodies: 50,
        };
        let mut push = |run: Run, gateway, request_bodies: u64| {
            let traffic = traffic(request_bodies);
            comparison.push(MeshRun { run, traffic }, gateway);
        };
        push(run.clone().on("standalone"), None, 0);
        run.metrics.cache_hit_ratio = hit_ratio;
        push(run.on(gateway.name()), Some(gateway), request_bodies);
        comparison
    }

    #[test]
    fn a_gateway_holds_with_the_hit_ratio_and_the_prompts_in_the_proxy() {
        for (gateway, hit_ratio, request_bodies, failed) in [
            (MeshGateway::EnvoyGateway, 0.78, 0, 0),
            (MeshGateway::EnvoyGateway, 0.77, 0, 1),
            (MeshGateway::Istio, 0.8, 1, 1),
            (MeshGateway::InferencePool, 0.8, 1_000, 0),
            (MeshGateway::InferencePool, 0.8, 0, 1),
        ] {
            let comparison = comparison(gateway, hit_ratio, request_bodies);
            assert_eq!(comparison.failed(), failed, "{gateway:?} {hit_ratio}");
        }
    }

    #[test]
    fn the_report_names_the_systems_and_their_bytes() {
        let comparison = comparison(MeshGateway::Istio, 0.8, 0);
        let page = comparison.report().unwrap();
        let words = page.text();
        let page = words.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "istio: Prefix tree",
            "standalone: Prefix tree",
            "80.0 % against 80.0 %, a ratio of 1",
            "0.10 0.05",
        ] {
            assert!(page.contains(expected), "no {expected} in\n{page}");
        }
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(json["runs"][1]["system"], "istio");
        assert_eq!(json["traffic"][1]["sent"], 100);
    }
}

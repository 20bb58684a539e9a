//! The requests of a comparison: a recorded trace or a generated workload, with what the command line says about it.

use std::path::Path;

use anyhow::{anyhow, bail};

use crate::workload::replay::Replay;
use crate::workload::trace::Trace;
use crate::workload::{NAMES, Workload, by_name, catalogue};

/// The requests, and the names of the regions that they come from: none, if they do not tell.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The requests.
    pub workload: Workload,
    /// The regions' names.
    pub regions: Vec<String>,
}

impl Traffic {
    /// A recorded trace.
    pub fn recorded(path: &Path, replay: &Replay) -> anyhow::Result<Self> {
        let trace = Trace::open(path, replay.first)?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self {
            workload: replay.workload(&name.to_string_lossy(), &trace),
            regions: trace.regions(),
        })
    }

    /// A generated workload, by the name of a kind or of a standard one.
    pub fn generated(name: &str, seed: u64, scale: f64, rate: Option<f64>) -> anyhow::Result<Self> {
        let mut generator = by_name(name, scale).ok_or_else(|| unknown(name))?;
        if let Some(rate) = rate {
            generator = generator.at_rate(rate).ok_or_else(|| {
                anyhow!(
                    "\"{name}\" has no rate that could be set: its clients wait for their answers, or it is made of several \
                     rates; leave --rate out, or use \"conversation\" or \"tools\""
                )
            })?;
        }
        Ok(Self {
            workload: Workload {
                name: name.to_owned(),
                ..generator.generate(seed)
            },
            regions: match generator.regions() {
                0 | 1 => Vec::new(),
                several => region_names(several),
            },
        })
    }

    /// The workload with clients in this number of regions: all in a single region, or the clients of a single region spread by session.
    pub fn in_regions(mut self, wanted: usize) -> anyhow::Result<Self> {
        let has = self.regions.len().max(1);
        if wanted == has || wanted == 0 {
            return Ok(self);
        }
        if wanted > 1 && has > 1 {
            bail!(
                "its requests come from {has} regions, and --regions says {wanted}; use --regions {has}, or --regions 1 to put \
                 all clients in a single region"
            );
        }
        for session in &mut self.workload.sessions {
            session.region = (session.key % wanted as u64) as usize;
        }
        self.regions = region_names(wanted);
        Ok(self)
    }
}

fn unknown(name: &str) -> anyhow::Error {
    let lines = NAMES.map(|(name, what)| format!("  {name:<16} {what}\n"));
    let standards = catalogue::all();
    let standards: Vec<&str> = standards.iter().map(|standard| standard.name).collect();
    anyhow!(
        "there is no workload \"{name}\"; use one of:\n{}or one with its fleet and load: {}",
        lines.concat(),
        standards.join(", ")
    )
}

fn region_names(count: usize) -> Vec<String> {
    (1..=count)
        .map(|number| format!("region-{number}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_can_be_in_one_region_or_spread_over_several() {
        let chat = Traffic::generated("chat-wildchat", 1, 0.1, None).unwrap();
        let one = chat.clone().in_regions(1).unwrap();
        assert!(
            one.workload
                .sessions
                .iter()
                .all(|session| session.region == 0)
        );
        let error = chat.in_regions(2).unwrap_err().to_string();
        assert!(
            error.contains("from 3 regions, and --regions says 2"),
            "{error}"
        );
        let spread = Traffic::generated("tools", 1, 0.1, None)
            .unwrap()
            .in_regions(4)
            .unwrap();
        let second = spread
            .workload
            .sessions
            .iter()
            .filter(|session| session.region == 1)
            .count();
        let part = second as f64 / spread.workload.sessions.len() as f64;
        assert!((part - 0.25).abs() < 0.08, "{part}");
    }

    #[test]
    fn errors_say_what_to_do() {
        let unknown = Traffic::generated("chat", 1, 1.0, None)
            .unwrap_err()
            .to_string();
        assert!(
            unknown.contains("no workload \"chat\"") && unknown.contains("tools-high"),
            "{unknown}"
        );
        let rate = Traffic::generated("tot-2", 1, 1.0, Some(3.0))
            .unwrap_err()
            .to_string();
        assert!(rate.contains("leave --rate out"), "{rate}");
        let missing =
            Traffic::recorded(Path::new("no-such-file.jsonl"), &Replay::default()).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("cannot read the trace no-such-file.jsonl"),
            "{missing}"
        );
    }
}

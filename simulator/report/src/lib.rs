//! Reports of the demo, the benches and the experiments: one document model, one renderer.
//!
//! A tool describes its result as a [`Report`]: a title, the circumstances of the run ([`RunFacts`]) and sections of text,
//! conclusions, charts and tables. The report renders itself as HTML, Markdown, CSV, JSON and terminal text ([`Format`]).
//!
//! ```
//! use isotherm_report::chart::{Bar, BarGroup, Bars, Chart};
//! use isotherm_report::{Conclusion, Format, Report, RunFacts, Section, Table};
//!
//! #[derive(serde::Serialize)]
//! struct Measurements { ttft_ms: Vec<f64> }
//!
//! # fn main() -> anyhow::Result<()> {
//! let measurements = Measurements { ttft_ms: vec![12.5, 50.0] };
//! let bars = measurements.ttft_ms.iter().map(|&value| Bar { value, spread: None });
//! let plot = Bars {
//!     groups: vec![BarGroup { name: "p50".into(), bars: bars.collect() }],
//!     ..Bars::default() // `format` and a `reference` line across
//! };
//! let chart = Chart::new("TTFT, ms", "Less is better.", plot).with_series(["isotherm", "round_robin"]);
//! let table = Table::new(["policy", "TTFT p50, ms"]).with_rows([["isotherm", "12.5"], ["round_robin", "50.0"]]);
//!
//! let report = Report::new("Isotherm: multi-turn chat")
//!     .with_facts(RunFacts::collect("cargo xtask demo"))       // left out: the same input gives the same bytes
//!     .section(Section::new("")                                // no heading: the introduction
//!         .text("Eight replicas, 500 requests.")
//!         .conclusions(vec![Conclusion::claim("isotherm is at least twice as fast", true).measured("12.5 against 50.0 ms")]))
//!     .section(Section::new("Time to first token").charts(vec![chart]).table(table))
//!     .section(Section::detail("Every request").text("..."))   // on the page and in Markdown, not on the terminal
//!     .footer("Simulated engines.")
//!     .with_data(&measurements)?;                              // what `Format::Json` writes
//!
//! println!("{}", report.text());
//! # let directory = std::env::temp_dir().join(format!("isotherm-report-{}", std::process::id()));
//! let [page, ..] = report.write(&directory, [
//!     ("report.html", Format::Html),
//!     ("report.json", Format::Json),
//!     ("report.md", Format::Markdown),
//! ])?;
//! # assert!(page.ends_with("report.html"));
//! # std::fs::remove_dir_all(directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! A page needs nothing else: no script, no font, no network. Its charts are SVG in the page. Markdown has the values of a
//! chart as a table.

pub mod chart;
mod facts;
mod files;
pub mod number;
pub mod palette;
mod render;
mod report;
mod table;

pub use facts::RunFacts;
pub use report::{Conclusion, Content, Format, Report, Section};
pub use table::{Cell, Row, Table};

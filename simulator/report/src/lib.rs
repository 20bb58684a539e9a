//! Reports of the demo, the benches and the experiments: one document model, one renderer.
//!
//! A tool describes its result as a [`Report`]: a title, the circumstances of the run ([`RunFacts`]) and sections of text,
//! conclusions, charts and tables. The report renders itself as HTML, Markdown, CSV, JSON and terminal text ([`Format`]).
//!
//! ```
//! use isotherm_report::chart::{Bar, BarGroup, Bars, Chart, Plot};
//! use isotherm_report::{Conclusion, Format, Report, Section, Table};
//!
//! # fn main() -> anyhow::Result<()> {
//! let bars = [12.5, 50.0].map(|value| Bar { value, spread: None });
//! let group = BarGroup { name: "p50".into(), bars: bars.into() };
//! let plot = Plot::Bars(Bars { groups: vec![group], ..Bars::default() });
//! let chart = Chart::new("TTFT, ms", "Less is better.", ["isotherm", "round_robin"], plot);
//! let table = Table::new(["policy", "TTFT p50, ms"]).with_rows([["isotherm", "12.5"], ["round_robin", "50.0"]]);
//! let claim = Conclusion::claim("isotherm is at least twice as fast", true).measured("12.5 against 50.0 ms");
//! let sections = [
//!     Section::new("").text("Eight replicas, 500 requests.").conclusions(vec![claim]),
//!     Section::new("Time to first token").charts(vec![chart]).table(table),
//! ];
//! let report = Report::new("Isotherm: multi-turn chat", sections)
//!     .with_data(&[12.5, 50.0])?; // what `Format::Json` writes
//! assert!(report.render(Format::Html)?.contains("<svg"));
//! # Ok(())
//! # }
//! ```
//!
//! A page needs nothing else: no script, no font, no network. Its charts are SVG in the page. Markdown has the values of a
//! chart as a table.

pub mod chart;
mod facts;
pub mod number;
pub mod palette;
mod render;
mod report;
mod table;

pub use facts::RunFacts;
pub use report::{Conclusion, Content, Format, KeyFigure, Report, Section};
pub use table::{Cell, ColumnGroup, Row, Table};

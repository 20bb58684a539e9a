//! Reports of the demo, the benches and the experiments: one document model, one renderer.
//!
//! A tool describes its result as a [`Report`]: a title, the circumstances of the run ([`RunFacts`]) and sections of text,
//! conclusions, charts and tables. The report renders itself as HTML, CSV, JSON ([`Format`]), as terminal text, and as a
//! [`Page`] of results: a screen of Markdown, and CSV files beside it for what is too large for a screen.
//!
//! ```
//! use isotherm_report::{Conclusion, Format, Report, Section, Table};
//!
//! # fn main() -> anyhow::Result<()> {
//! let table = Table::new(["policy", "TTFT p50, ms"]).with_rows([["isotherm", "12.5"], ["round_robin", "50.0"]]);
//! let claim = Conclusion::claim("isotherm is at least twice as fast", true).measured("12.5 against 50.0 ms");
//! let sections = [
//!     Section::new("").text("Eight replicas, 500 requests.").conclusions(vec![claim]),
//!     Section::new("Time to first token").table(table),
//! ];
//! let report = Report::new("Isotherm: multi-turn chat", sections)
//!     .with_data(&[12.5, 50.0])?; // what `Format::Json` writes
//! assert!(report.render(Format::Html)?.contains("<td>50.0</td>"));
//! assert!(report.page("chat").markdown.contains("| round_robin | 50.0 |"));
//! # Ok(())
//! # }
//! ```
//!
//! An HTML page needs nothing else: no script, no font, no network. Its charts are SVG in the page.

pub mod chart;
mod facts;
pub mod number;
pub mod palette;
mod render;
mod report;
mod table;

pub use facts::RunFacts;
pub use render::page::{LINES_MAX, Page};
pub use report::{Conclusion, Content, Format, KeyFigure, Report, Section};
pub use table::{Cell, ColumnGroup, Row, Table};

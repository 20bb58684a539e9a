//! Charts and pages of reports: what the demo, the benches and the experiments draw alike.
//!
//! A report is one HTML file that needs nothing else: no script, no font, no network. Its charts are SVG in the page.
//! The same input gives the same bytes, so that two reports can be compared as files.

pub mod chart;
pub mod files;
pub mod number;
pub mod page;
pub mod palette;
pub mod table;

//! The metric of the log.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::page::Page;
use crate::log;

/// Reads how many lines of the log were lost.
#[derive(Debug)]
pub(super) struct LogCollector;

impl Collector for LogCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let help = "Lines of the log that were lost: the standard error could not be written, or not fast enough";
        Page::new(encoder).total("lost_log_lines", help, log::lost())
    }
}

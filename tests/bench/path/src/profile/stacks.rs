//! Samples of stacks, as `perf script` prints them.
//!
//! A sample is a line with the process, then a line for each frame, innermost first: address, function and, in brackets,
//! the file that it lies in. An empty line ends it.

use std::collections::BTreeMap;

/// What a function without a name is called, after the file that it lies in.
const UNNAMED: &str = "[unknown]";
/// The filter: code that V8 has compiled lies in no file.
const COMPILED: &str = "filter (WASM)";
const KERNEL: &str = "kernel";

/// The samples of one process, each stack outermost frame first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    counts: BTreeMap<Vec<Frame>, u64>,
    samples: u64,
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The file's name, or what stands for it.
    pub module: String,
    /// The function, where it has a name.
    pub function: Option<String>,
}

impl Frame {
    /// The function, or the module in brackets.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.function {
            Some(function) => function.clone(),
            None => format!("[{}]", self.module),
        }
    }

    /// Reads `ADDRESS FUNCTION (FILE)`.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.trim().split_once(' ')?;
        let (function, file) = rest.trim_end_matches(')').rsplit_once(" (")?;
        let file = file.rsplit('/').next().unwrap_or(file);
        let module = if file.starts_with("[kernel") || file == "[guest.kernel.kallsyms]" {
            KERNEL
        } else if file.starts_with("perf-") || file.starts_with("[JIT]") || file == "anon" {
            COMPILED
        } else {
            file
        };
        // Offsets into a function say where in it, which is more than is wanted here.
        let function = function.split("+0x").next().unwrap_or(function);
        Some(Self {
            module: module.to_owned(),
            function: (function != UNNAMED).then(|| function.to_owned()),
        })
    }
}

impl Stacks {
    /// Reads the samples of these processes, by their labels.
    #[must_use]
    pub fn parse<'a>(text: &str, processes: &BTreeMap<u32, &'a str>) -> BTreeMap<&'a str, Self> {
        let mut all: BTreeMap<&str, Self> = BTreeMap::new();
        for sample in text.split("\n\n") {
            let mut lines = sample.lines().filter(|line| !line.is_empty());
            let label = lines
                .next()
                .and_then(|head| head.split_whitespace().next()?.parse().ok())
                .and_then(|process: u32| processes.get(&process).copied());
            if let Some(label) = label {
                all.entry(label).or_default().add(lines);
            }
        }
        all
    }

    fn add<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        let mut frames: Vec<Frame> = lines.filter_map(Frame::parse).collect();
        frames.reverse();
        // What has no name is one frame for each way through its module, not one for each address.
        frames.dedup_by(|inner, outer| inner.function.is_none() && inner == outer);
        *self.counts.entry(frames).or_default() += 1;
        self.samples += 1;
    }

    /// How many samples there are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Each stack, and how often it was seen.
    pub fn iter(&self) -> impl Iterator<Item = (&[Frame], u64)> {
        self.counts
            .iter()
            .map(|(frames, count)| (frames.as_slice(), *count))
    }

    /// Samples by the module that they were in, most first.
    #[must_use]
    pub fn by_module(&self) -> Vec<(String, u64)> {
        self.by(|frame| Some(frame.module.clone()))
    }

    /// Samples by the function that they were in, most first; without those that have no name.
    #[must_use]
    pub fn by_function(&self) -> Vec<(String, u64)> {
        self.by(|frame| frame.function.clone())
    }

    fn by(&self, key: impl Fn(&Frame) -> Option<String>) -> Vec<(String, u64)> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (frames, count) in self.iter() {
            if let Some(key) = frames.last().and_then(&key) {
                *counts.entry(key).or_default() += count;
            }
        }
        let mut sorted: Vec<_> = counts.into_iter().collect();
        sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7 
\tffffffff81 tcp_sendmsg ([kernel.kallsyms])
\t  7f0001 writev (/usr/lib/libc.so.6)
\t  560002 [unknown] (/opt/envoy)
\t  560001 [unknown] (/opt/envoy)

8
\t  550003 isotherm_router::index::PrefixIndex::record+0x12 (/opt/isotherm)
\t  550001 main (/opt/isotherm)

7
\t  3fb061 [unknown] (/tmp/perf-7.map)
\t  560001 [unknown] (/opt/envoy)

9
\t  1 other (/bin/other)
";

    fn parsed() -> BTreeMap<&'static str, Stacks> {
        Stacks::parse(TEXT, &BTreeMap::from([(7, "Envoy"), (8, "service")]))
    }

    #[test]
    fn samples_are_told_apart_by_process_and_module() {
        let all = parsed();
        assert_eq!(all.len(), 2, "{all:?}");
        let envoy = &all["Envoy"];
        assert_eq!(envoy.samples(), 2);
        assert_eq!(
            envoy.by_module(),
            [("filter (WASM)".to_owned(), 1), ("kernel".to_owned(), 1)]
        );
        assert_eq!(envoy.by_function(), [("tcp_sendmsg".to_owned(), 1)]);
    }

    #[test]
    fn stacks_begin_with_the_outermost_frame_and_join_what_has_no_name() {
        let all = parsed();
        let names = |label: &str| -> Vec<Vec<String>> {
            let stacks = all[label].iter();
            stacks
                .map(|(frames, _)| frames.iter().map(Frame::name).collect())
                .collect()
        };
        assert!(names("Envoy").contains(&vec![
            "[envoy]".to_owned(),
            "writev".to_owned(),
            "tcp_sendmsg".to_owned()
        ]));
        assert_eq!(
            names("service"),
            [["main", "isotherm_router::index::PrefixIndex::record"]]
        );
    }
}

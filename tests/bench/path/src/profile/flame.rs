//! A flame graph: one box for each call path, as wide as the time that was spent below it.
//!
//! A file of its own kind and no more: SVG without scripts, each box with a title that a browser shows on hovering.
//! The crate that everybody uses for this was rejected for its licence (CDDL).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::stacks::{Frame, Stacks};

const WIDTH: f64 = 1_600.0;
const ROW: f64 = 17.0;
const HEAD: f64 = 30.0;
/// Narrower boxes are left out.
const BOX_WIDTH_MIN: f64 = 0.5;
/// About what a letter takes.
const LETTER: f64 = 6.4;
/// Narrower boxes have no room for a name.
const NAMED_WIDTH_MIN: f64 = 4.0 * LETTER;

/// The calls below one call path.
#[derive(Debug, Default)]
struct Calls {
    samples: u64,
    below: BTreeMap<Frame, Calls>,
}

impl Calls {
    fn of(stacks: &Stacks) -> Self {
        let mut root = Self::default();
        for (frames, count) in stacks.iter() {
            root.samples += count;
            let mut here = &mut root;
            for frame in frames {
                here = here.below.entry(frame.clone()).or_default();
                here.samples += count;
            }
        }
        root
    }

    /// How many rows it takes, as far as boxes are drawn.
    fn depth(&self, samples_min: f64) -> usize {
        let below = self.below.values();
        let drawn = below.filter(|calls| calls.samples as f64 >= samples_min);
        drawn
            .map(|calls| 1 + calls.depth(samples_min))
            .max()
            .unwrap_or(0)
    }
}

/// The flame graph of one process, outermost calls at the bottom.
#[must_use]
pub fn svg(title: &str, stacks: &Stacks) -> String {
    let root = Calls::of(stacks);
    let scale = WIDTH / root.samples.max(1) as f64;
    let rows = root.depth(BOX_WIDTH_MIN / scale);
    let height = HEAD + ROW * (rows + 1) as f64;
    let mut graph = Graph {
        text: String::new(),
        scale,
        whole: root.samples.max(1) as f64,
    };
    graph.draw(&root, 0.0, height - ROW);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text x=\"4\" y=\"18\" font-size=\"14\">{} ({} samples)</text>{}</svg>\n",
        escaped(title),
        root.samples,
        graph.text
    )
}

struct Graph {
    text: String,
    /// Width of one sample.
    scale: f64,
    whole: f64,
}

impl Graph {
    /// Draws what is below, from this left edge on, in the row at `y` and those above it.
    fn draw(&mut self, calls: &Calls, mut x: f64, y: f64) {
        for (frame, below) in &calls.below {
            let width = below.samples as f64 * self.scale;
            if width >= BOX_WIDTH_MIN {
                self.frame(frame, below.samples, (x, y), width);
                self.draw(below, x, y - ROW);
            }
            x += width;
        }
    }

    fn frame(&mut self, frame: &Frame, samples: u64, (x, y): (f64, f64), width: f64) {
        let name = frame.name();
        let share = 100.0 * samples as f64 / self.whole;
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "<g><title>{} ({}), {share:.1} %</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>",
            escaped(&name),
            escaped(&frame.module),
            (width - 0.3).max(0.2),
            ROW - 1.0,
            colour(&frame.module),
        );
        if width >= NAMED_WIDTH_MIN {
            let letters = (width / LETTER) as usize - 1;
            let short: String = name.chars().take(letters).collect();
            let _ = write!(
                self.text,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 3.0,
                y + 12.0,
                escaped(&short)
            );
        }
        self.text.push_str("</g>");
    }
}

/// One colour for each module.
fn colour(module: &str) -> &'static str {
    match module {
        "kernel" => "#f2b27c",
        "envoy" => "#b9a4dc",
        "filter (WASM)" => "#e58f8f",
        "isotherm" => "#8fbce0",
        _ => "#c9d3a1",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_wide_as_their_share() {
        let text = "1\n\t 2 inner<u8> (/bin/a)\n\t 1 outer (/bin/a)\n\n1\n\t 1 outer (/bin/a)\n";
        let all = Stacks::parse(text, &BTreeMap::from([(1, "a")]));
        let graph = svg("a & b", &all["a"]);
        assert!(graph.contains("a &amp; b (2 samples)"), "{graph}");
        assert!(
            graph.contains("<title>outer (a), 100.0 %</title>"),
            "{graph}"
        );
        assert!(
            graph.contains("<title>inner&lt;u8&gt; (a), 50.0 %</title>"),
            "{graph}"
        );
        assert!(graph.contains("width=\"799.7\""), "{graph}");
    }
}

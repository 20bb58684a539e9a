//! Load and forwarding over the time of a run: for each region, how many of its clients' requests were under way, and
//! how many of these elsewhere.

use std::time::Duration;

use serde::Serialize;

use super::record::Record;
use crate::stats::round;

/// Points of a curve.
const POINTS: u32 = 80;

/// The curves of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// The middle of each piece of time, in seconds of the engines.
    pub at_s: Vec<f64>,
    /// One for each region.
    pub regions: Vec<Curves>,
}

/// The curves of one region.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Curves {
    /// Requests of this region's clients that were under way, on average over each piece.
    pub in_flight: Vec<f64>,
    /// Those of them that another region answered.
    pub elsewhere: Vec<f64>,
}

impl Timeline {
    /// Of a run that took so long, over so many regions, with engines `speed` times faster than life.
    #[must_use]
    pub fn of(records: &[Record], length: Duration, regions: usize, speed: f64) -> Self {
        let piece = length.as_secs_f64() / f64::from(POINTS);
        let mut timeline = Self {
            at_s: (0..POINTS)
                .map(|point| round((f64::from(point) + 0.5) * piece * speed))
                .collect(),
            regions: (0..regions)
                .map(|_| Curves {
                    in_flight: vec![0.0; POINTS as usize],
                    elsewhere: vec![0.0; POINTS as usize],
                })
                .collect(),
        };
        if piece <= 0.0 {
            return timeline;
        }
        for record in records {
            if let Some(curves) = timeline.regions.get_mut(record.home) {
                add(&mut curves.in_flight, record, piece);
                if record.elsewhere() {
                    add(&mut curves.elsewhere, record, piece);
                }
            }
        }
        for curves in &mut timeline.regions {
            for value in curves.in_flight.iter_mut().chain(&mut curves.elsewhere) {
                *value = round(*value);
            }
        }
        timeline
    }
}

/// Adds to each piece the share of it during which the request was under way.
fn add(curve: &mut [f64], record: &Record, piece: f64) {
    let (from, to) = (record.sent.as_secs_f64(), record.ended.as_secs_f64());
    for (index, value) in curve.iter_mut().enumerate() {
        let (start, end) = (index as f64 * piece, (index as f64 + 1.0) * piece);
        *value += (to.min(end) - from.max(start)).max(0.0) / piece;
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::record;
    use super::*;

    #[test]
    fn a_request_is_under_way_from_its_beginning_to_its_end() {
        let records = [record(0, 0, 10, 20), record(1, 0, 15, 40)];
        let timeline = Timeline::of(&records, Duration::from_secs(80), 2, 10.0);
        let [us, eu] = &timeline.regions[..] else {
            panic!("two regions");
        };
        assert_eq!(
            us.in_flight[9..21],
            [[0.0; 1].as_slice(), &[1.0; 10], &[0.0]].concat()
        );
        assert!(us.elsewhere.iter().all(|value| *value == 0.0));
        assert_eq!(eu.in_flight, eu.elsewhere);
        assert!((eu.elsewhere.iter().sum::<f64>() - 25.0).abs() < 1e-6);
        assert!(
            (timeline.at_s[0] - 5.0).abs() < 1e-9,
            "half of ten engine seconds"
        );
    }
}

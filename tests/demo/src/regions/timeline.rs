//! Load over the time of a run: for each region, its clients' requests in flight, and the forwarded ones among them.

use std::time::Duration;

use serde::Serialize;

use crate::metrics::round;
use crate::record::RequestRecord;

/// Points of a curve.
const POINTS: u32 = 80;

/// The curves of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Middle of each interval, in seconds of the engines.
    pub at_s: Vec<f64>,
    /// Curves of each region.
    pub regions: Vec<Curves>,
}

/// The curves of one region.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Curves {
    /// Requests of this region's clients in flight, averaged over each interval.
    pub in_flight: Vec<f64>,
    /// Requests among these that another region served.
    pub forwarded: Vec<f64>,
}

impl Timeline {
    /// The highest number of requests in flight; at least one.
    #[must_use]
    pub fn highest(&self) -> f64 {
        let curves = self.regions.iter().flat_map(|curves| &curves.in_flight);
        curves.copied().fold(1.0, f64::max)
    }

    /// The curves of a run of `length` over `regions` regions, with engines `speed` times faster than real time.
    #[must_use]
    pub fn of(records: &[RequestRecord], length: Duration, regions: usize, speed: f64) -> Self {
        let interval = length.as_secs_f64() / f64::from(POINTS);
        let in_flight = |region: usize, is_wanted: fn(&RequestRecord) -> bool| -> Vec<f64> {
            let mut curve = vec![0.0; POINTS as usize];
            let of_region = records.iter().filter(|record| record.region == region);
            for record in of_region.filter(|record| is_wanted(record)) {
                add(&mut curve, record, interval);
            }
            curve.into_iter().map(round).collect()
        };
        let curves = |region| Curves {
            in_flight: in_flight(region, |_| true),
            forwarded: in_flight(region, RequestRecord::is_forwarded),
        };
        let middle = |point| round((f64::from(point) + 0.5) * interval * speed);
        Self {
            at_s: (0..POINTS).map(middle).collect(),
            regions: (0..regions).map(curves).collect(),
        }
    }
}

/// Adds to each interval the share of it during which the request was in flight.
fn add(curve: &mut [f64], record: &RequestRecord, interval: f64) {
    let (from, to) = (record.sent.as_secs_f64(), record.ended.as_secs_f64());
    for (index, value) in curve.iter_mut().enumerate() {
        let (start, end) = (index as f64 * interval, (index as f64 + 1.0) * interval);
        *value += (to.min(end) - from.max(start)).max(0.0) / interval.max(f64::EPSILON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::record;

    #[test]
    fn a_request_is_in_flight_from_its_start_to_its_end() {
        let records = [record(0, 0, 10, 20), record(1, 0, 15, 40)];
        let timeline = Timeline::of(&records, Duration::from_secs(80), 2, 10.0);
        let [us, eu] = &timeline.regions[..] else {
            panic!("two regions");
        };
        assert_eq!(
            us.in_flight[9..21],
            [[0.0; 1].as_slice(), &[1.0; 10], &[0.0]].concat()
        );
        assert!(us.forwarded.iter().all(|value| *value == 0.0));
        assert_eq!(eu.in_flight, eu.forwarded);
        assert!((eu.forwarded.iter().sum::<f64>() - 25.0).abs() < 1e-6);
        assert!(
            (timeline.at_s[0] - 5.0).abs() < 1e-9,
            "half of ten engine seconds"
        );
    }
}

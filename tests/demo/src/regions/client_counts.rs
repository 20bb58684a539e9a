//! Number of clients in each region over the time of a run.
//!
//! Two shapes. [`ClientCounts::Skewed`]: SkyLB's section 5.2, 120 clients in one region and 40 in each of the others, all the
//! time. [`ClientCounts::Day`]: a day in which each region peaks in turn. A region's level follows a raised cosine, cubed: a
//! third of the day after its own peak it has hardly more than at night. That is the point of SkyLB's figure 3: regions
//! vary by a factor of 3 to 33, their sum only by 1.3.

use std::f64::consts::TAU;

/// The clients of each region.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientCounts {
    /// Always the same.
    Skewed(Vec<usize>),
    /// Each region's peak follows the last one's, evenly over the day.
    Day {
        /// Regions.
        regions: usize,
        /// Clients of a region in the middle of its night.
        night: usize,
        /// Clients at its peak.
        peak: usize,
    },
}

/// As finely as a client looks for its next time of activity.
const STEPS_PER_DAY: u32 = 500;

impl ClientCounts {
    /// The paper's clients, for as many regions.
    #[must_use]
    pub fn skewed(regions: usize) -> Self {
        Self::Skewed(
            (0..regions)
                .map(|region| if region == 0 { 120 } else { 40 })
                .collect(),
        )
    }

    /// A day for as many regions: 6 clients at night and 96 at the peak, a factor within what SkyLB found.
    #[must_use]
    pub fn day(regions: usize) -> Self {
        Self::Day {
            regions,
            night: 6,
            peak: 96,
        }
    }

    /// Clients of `region` at `time`, where 0 is the beginning of the run and 1 its end.
    #[must_use]
    pub fn at(&self, region: usize, time: f64) -> usize {
        match self {
            Self::Skewed(clients) => clients.get(region).copied().unwrap_or(0),
            Self::Day {
                regions,
                night,
                peak,
            } => {
                // The first region's peak lies half a turn in, so that the day begins between two peaks.
                let turn = 1.0 / (*regions).max(1) as f64;
                let from_peak = time - turn * (region as f64 + 0.5);
                let bump = ((1.0 + (TAU * from_peak).cos()) / 2.0).powi(3);
                let more = peak.saturating_sub(*night) as f64 * bump;
                night + rounded(more)
            }
        }
    }

    /// The most that a region ever has.
    #[must_use]
    pub fn most(&self, region: usize) -> usize {
        match self {
            Self::Skewed(clients) => clients.get(region).copied().unwrap_or(0),
            Self::Day { regions, peak, .. } if region < *regions => *peak,
            Self::Day { .. } => 0,
        }
    }

    /// When a client of that number is there next, from `time` on; nothing if not before the end.
    #[must_use]
    pub fn next(&self, region: usize, client: usize, time: f64) -> Option<f64> {
        let step = 1.0 / f64::from(STEPS_PER_DAY);
        let mut at = time;
        while at < 1.0 {
            if client < self.at(region, at) {
                return Some(at);
            }
            at += step;
        }
        None
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of clients, not below zero"
)]
fn rounded(value: f64) -> usize {
    value.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: ClientCounts = ClientCounts::Day {
        regions: 3,
        night: 10,
        peak: 130,
    };

    #[test]
    fn the_paper_has_120_clients_in_one_region_and_40_in_the_others() {
        let counts = ClientCounts::skewed(3);
        let clients: Vec<usize> = (0..4).map(|region| counts.at(region, 0.7)).collect();
        assert_eq!(clients, [120, 40, 40, 0]);
    }

    #[test]
    fn regions_peak_in_turn() {
        for region in 0..3 {
            let peak = (region as f64 + 0.5) / 3.0;
            assert_eq!(DAY.at(region, peak), 130);
            for other in (0..3).filter(|other| *other != region) {
                let clients = DAY.at(other, peak);
                assert!((11..=12).contains(&clients), "{clients}"); // 10 + 120 / 64
            }
        }
    }

    #[test]
    fn their_sum_varies_little() {
        let sums: Vec<usize> = (0..24)
            .map(|hour| {
                (0..3)
                    .map(|region| DAY.at(region, f64::from(hour) / 24.0))
                    .sum()
            })
            .collect();
        let (least, most) = (sums.iter().min().unwrap(), sums.iter().max().unwrap());
        assert!(*most as f64 / (*least as f64) < 1.3, "{sums:?}");
    }

    #[test]
    fn a_client_of_the_peak_comes_when_the_peak_comes() {
        assert_eq!(DAY.next(1, 0, 0.0), Some(0.0));
        let busy = DAY.next(1, 120, 0.0).unwrap();
        assert!((0.4..0.5).contains(&busy), "{busy}");
        assert_eq!(DAY.next(1, 120, 0.6), None);
        assert_eq!(DAY.next(1, 500, 0.0), None);
    }
}

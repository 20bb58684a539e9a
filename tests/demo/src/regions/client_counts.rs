//! Number of clients in each region over the time of a run.
//!
//! [`ClientCounts::Skewed`] has SkyLB's clients (section 5.2). In [`ClientCounts::Day`] each region peaks in turn, along a
//! raised cosine, cubed: a third of the day after its peak a region has hardly more clients than at night. SkyLB's figure 3
//! shows this shape: regions vary by a factor of 3 to 33, their sum only by 1.3.

use std::f64::consts::TAU;

/// The clients of each region.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientCounts {
    /// Constant numbers.
    Skewed(Vec<usize>),
    /// A day in which the peaks of the regions follow each other evenly.
    Day {
        /// Regions.
        regions: usize,
        /// Clients of a region at night.
        night: usize,
        /// Clients at its peak.
        peak: usize,
    },
}

/// Resolution at which a client looks for its next time of activity.
const STEPS_PER_DAY: u32 = 500;

impl ClientCounts {
    /// The paper's clients: 120 in the first region, 40 in each other one.
    #[must_use]
    pub fn skewed(regions: usize) -> Self {
        let clients = (0..regions).map(|region| if region == 0 { 120 } else { 40 });
        Self::Skewed(clients.collect())
    }

    /// A day with 6 clients at night and 96 at the peak, a factor that SkyLB's traces show.
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
                night + (peak.saturating_sub(*night) as f64 * bump).round() as usize
            }
        }
    }

    /// The largest number of clients of a region.
    #[must_use]
    pub fn max(&self, region: usize) -> usize {
        match self {
            Self::Skewed(clients) => clients.get(region).copied().unwrap_or(0),
            Self::Day { regions, peak, .. } if region < *regions => *peak,
            Self::Day { .. } => 0,
        }
    }

    /// The next time, from `time` on, at which the client with this index is active; `None` until the end of the run.
    #[must_use]
    pub fn next(&self, region: usize, client: usize, time: f64) -> Option<f64> {
        let times = (0..).map(|step| time + f64::from(step) / f64::from(STEPS_PER_DAY));
        let mut times = times.take_while(|at| *at < 1.0);
        times.find(|at| client < self.at(region, *at))
    }
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
    fn the_sum_of_all_regions_varies_little() {
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
    fn a_client_of_the_peak_is_active_around_the_peak() {
        assert_eq!(DAY.next(1, 0, 0.0), Some(0.0));
        let busy = DAY.next(1, 120, 0.0).unwrap();
        assert!((0.4..0.5).contains(&busy), "{busy}");
        assert_eq!(DAY.next(1, 120, 0.6), None);
        assert_eq!(DAY.next(1, 500, 0.0), None);
    }
}

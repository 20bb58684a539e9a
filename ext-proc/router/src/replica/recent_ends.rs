//! How a replica's last requests ended: answered, or refused by the engine.
//!
//! A refusal (a status of 400 to 499) says nothing about a replica by itself: a client may send bad requests. But one replica may refuse what
//! its peers answer: it serves the model by another name, it alone wants a key, or a front of it limits requests. It refuses at
//! once, so it has the fewest requests, and draws the next one. So a refusal counts against a replica while a peer refuses at most
//! half as large a share of its last requests. Bad requests of one client are refused by all replicas alike.

/// Ends of a replica's last requests, at most 16 of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentEnds {
    /// One bit for each request, the newest first: whether it was refused.
    refused: u16,
    count: u8,
}

impl RecentEnds {
    /// Adds the end of a request.
    pub(super) const fn add(&mut self, is_refused: bool) {
        self.refused = self.refused << 1 | is_refused as u16;
        if self.count < 16 {
            self.count += 1;
        }
    }

    /// Whether no request has ended.
    pub(super) const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Whether the share of refused requests is at most half of another replica's.
    pub(super) fn refuses_less_than(self, other: Self) -> bool {
        let refused = |ends: Self| ends.refused.count_ones();
        2 * refused(self) * u32::from(other.count) <= refused(other) * u32::from(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(refused: &[bool]) -> RecentEnds {
        let mut ends = RecentEnds::default();
        refused.iter().for_each(|refused| ends.add(*refused));
        ends
    }

    #[test]
    fn shares_of_the_last_requests_are_compared() {
        let (good, bad, mixed) = (ends(&[false; 40]), ends(&[true; 3]), ends(&[true, false]));
        assert!(good.refuses_less_than(bad));
        assert!(mixed.refuses_less_than(bad));
        assert!(!bad.refuses_less_than(mixed));
        assert!(!bad.refuses_less_than(bad));
        let healed = [vec![true; 16], vec![false; 16]].concat();
        assert!(ends(&healed).refuses_less_than(bad));
    }
}

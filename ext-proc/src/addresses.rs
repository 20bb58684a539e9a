//! Addresses in one line of the log: the first few, and the number of the others.

use std::fmt;
use std::net::SocketAddr;

/// Addresses that a line spells out.
const SPELLED_OUT: usize = 3;

/// A bounded list of addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    first: Vec<SocketAddr>,
    more: usize,
}

impl Addresses {
    pub(crate) fn add(&mut self, address: SocketAddr) {
        match self.first.len() < SPELLED_OUT {
            true => self.first.push(address),
            false => self.more += 1,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, address) in self.first.iter().enumerate() {
            let before = if number == 0 { "" } else { ", " };
            write!(f, "{before}{address}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_addresses_are_one_short_line() {
        let mut addresses = Addresses::default();
        assert!(addresses.is_empty());
        for port in 1..=1_000 {
            addresses.add(([10, 0, 0, 1], port).into());
        }
        assert_eq!(
            addresses.to_string(),
            "10.0.0.1:1, 10.0.0.1:2, 10.0.0.1:3 and 997 more"
        );
    }
}

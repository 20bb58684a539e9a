//! The section about tenants: as written, and as resolved.

use std::collections::BTreeMap;

use isotherm_router::TenantLimits;

use super::decimal::{Decimal, decimal};
use super::errors::Reader;
use super::kind::{map_of, number, optional};
use super::section::section;
use super::text::tenant_name;
use crate::pool::tenant_id;

/// The most tenants with a weight of their own.
const WEIGHTS_MAX: usize = 10_000;

section! {
    /// `pools[].tenants`.
    pub(super) struct RawTenants {
        /// The most requests of a tenant that wait or are in flight; the service rejects further ones with status 429.
        in_flight_max as "in_flight_max": Option<usize> = None, optional(number("number", 1..=1_000_000));
        /// The largest share of the pool's requests, and of their tokens, that a tenant may have, waiting and in flight. It holds while half of the memory for KV caches is in use, or while no replica takes a request where engines do not show it; the service rejects further requests with status 429. A tenant may have the part of its weight in those of the active tenants in any case.
        share_max as "share_max": Option<Decimal> = None, optional(decimal(0.01..=1.0));
        /// Weights of tenants by name, for `share_max`: a tenant with weight 2 may have twice the share of a tenant with weight 1, which every other tenant has.
        weights as "weights": BTreeMap<String, Decimal> = BTreeMap::new(), map_of(tenant_name(), decimal(0.01..=1_000.0), WEIGHTS_MAX);
    }
}

/// Resolves `pools[].tenants`. Weights without a share have no effect, which is a mistake.
pub(super) fn resolve(raw: &RawTenants, option: &str, reader: &mut Reader) -> TenantLimits {
    let [weights, share_max] =
        ["weights", "share_max"].map(|name| format!("{option}.tenants.{name}"));
    if !raw.weights.is_empty() && raw.share_max.is_none() && reader.is_valid(&share_max) {
        let message = "has no effect without `share_max`: add it, or remove the weights";
        reader.error(&weights, message.to_owned());
    }
    let share_max = raw.share_max.map(|share| share.to_f64());
    let weights = raw.weights.iter();
    TenantLimits {
        in_flight_max: raw.in_flight_max,
        share_max,
        token_share_max: share_max,
        weights: weights
            .map(|(name, weight)| (tenant_id(name), weight.to_f64()))
            .collect(),
        tracked_max: TenantLimits::TRACKED_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn every_option_arrives_where_it_belongs() {
        let text = "pools: [{ model: m, tenants: { in_flight_max: 2, share_max: 0.5, \
             weights: { team-a: 2, \"7\": 0.5 } } }]";
        let config = config::parse(text).unwrap();
        let limits = TenantLimits {
            in_flight_max: Some(2),
            share_max: Some(0.5),
            token_share_max: Some(0.5),
            weights: [(tenant_id("team-a"), 2.0), (tenant_id("7"), 0.5)].into(),
            tracked_max: TenantLimits::TRACKED_MAX,
        };
        assert_eq!(config.pools[0].router.tenants, Some(limits));
    }

    #[test]
    fn every_mistake_has_its_line() {
        for (tenants, part) in [
            (
                "share_max: 0.5, weights: { team a: 1 }",
                "line 3, column 41: pools[0].tenants.weights.team a: `team a` names no tenant",
            ),
            (
                "share_max: 0.5, weights: { b: 0 }",
                "pools[0].tenants.weights.b: expected number, 0.01 to 1000",
            ),
            (
                "share_max: 0.5, weights: [a]",
                "expected section of name of a tenant",
            ),
            (
                "weights: { a: 2 }",
                "pools[0].tenants.weights: has no effect without `share_max`",
            ),
        ] {
            let text = format!("pools:\n- model: m\n  tenants: {{ {tenants} }}\n");
            let errors = config::parse(&text).unwrap_err().to_string();
            assert!(errors.contains(part), "{part} in {errors}");
        }
    }
}

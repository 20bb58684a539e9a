//! The tables of tiers and tenants in `isotherm top`.

use super::output::{self, or_dash, percent};
use crate::admin::view::{BatchView, PoolTenantsView, PoolView, TenantView, TierView};

/// The most tenants that the table shows.
const TENANTS_MAX: usize = 20;

const TIER_HEADER: [&str; 8] = [
    "POOL",
    "TIER",
    "QUEUE",
    "OLDEST",
    "ARRIVED",
    "DISPATCHED",
    "REJECTED",
    "IN BUDGET",
];

const TENANT_HEADER: [&str; 8] = [
    "POOL",
    "TENANT",
    "QUEUE",
    "IN FLIGHT",
    "REQUESTS",
    "REFUSED",
    "TOKENS",
    "HIT RATIO",
];

/// Renders the tiers of every pool that has them, with a line for each gate; `None` where no pool has tiers.
pub(super) fn tiers(pools: &[PoolView], gates: &[BatchView]) -> Option<String> {
    let rows = pools.iter().flat_map(|pool| {
        let tiers = pool.tiers.iter();
        tiers.map(|tier| tier_row(&pool.pool, tier))
    });
    let rows = Vec::from_iter(rows);
    let gates = gates.iter().filter(|gate| gate.has_gate).map(gate_line);
    (!rows.is_empty()).then(|| output::table(&TIER_HEADER, rows) + &gates.collect::<String>())
}

fn tier_row(pool: &str, tier: &TierView) -> Vec<String> {
    let first_tokens = tier.within_slo + tier.past_slo;
    let in_budget = (first_tokens > 0).then(|| tier.within_slo as f64 / first_tokens as f64);
    vec![
        pool.to_owned(),
        tier.tier.clone(),
        tier.waiting.to_string(),
        format!("{:.1} s", tier.oldest_wait_ms as f64 / 1000.0),
        tier.arrived.to_string(),
        tier.dispatched.to_string(),
        tier.rejected.to_string(),
        // A budget is for the first token, which only a streamed answer shows.
        in_budget.map_or_else(|| "no streams".to_owned(), percent),
    ]
}

/// Describes a gate in one line.
fn gate_line(gate: &BatchView) -> String {
    let utilisation = or_dash(gate.utilisation.map(percent));
    let released = gate.released.iter().filter(|(_, count)| **count > 0);
    let released = Vec::from_iter(released.map(|(reason, count)| format!("{reason} {count}")));
    let released = match released.is_empty() {
        true => "none".to_owned(),
        false => released.join(", "),
    };
    format!(
        "{} gate: utilisation {utilisation}, credit {}, held {} of {}, released: {released}\n",
        gate.pool, gate.credit, gate.held, gate.held_max
    )
}

/// Renders the tenants with the most tokens waiting and in flight, then the most requests; `None` where there is only the common tenant.
pub(super) fn tenants(pools: &[PoolTenantsView]) -> Option<String> {
    let all = pools.iter().flat_map(|pool| {
        let tenants = pool.tenants.iter();
        tenants.map(|tenant| (pool.pool.as_str(), tenant))
    });
    let mut all = Vec::from_iter(all);
    let is_named = |(_, tenant): &(&str, &TenantView)| !tenant.tenant.contains(' ');
    if !all.iter().any(is_named) {
        return None;
    }
    all.sort_by(|(_, a), (_, b)| {
        let by_tokens = b.tokens.cmp(&a.tokens);
        by_tokens.then(b.requests.cmp(&a.requests))
    });
    let more = all.len().saturating_sub(TENANTS_MAX);
    let rows = all.iter().take(TENANTS_MAX);
    let rows = rows.map(|(pool, tenant)| tenant_row(pool, tenant));
    let mut text = output::table(&TENANT_HEADER, rows.collect());
    if more > 0 {
        text += &format!("and {more} more: GET /api/tenants\n");
    }
    Some(text)
}

fn tenant_row(pool: &str, tenant: &TenantView) -> Vec<String> {
    let prompt = tenant.prompt_tokens;
    let hit_ratio = (prompt > 0).then(|| tenant.cached_tokens as f64 / prompt as f64);
    vec![
        pool.to_owned(),
        tenant.tenant.clone(),
        tenant.waiting.to_string(),
        tenant.in_flight.to_string(),
        tenant.requests.to_string(),
        tenant.refused.to_string(),
        tenant.tokens.to_string(),
        or_dash(hit_ratio.map(percent)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_has_one_line_below_the_tiers() {
        let gate = BatchView {
            pool: "llama".into(),
            has_gate: true,
            utilisation: Some(0.55),
            credit: 1,
            held: 3,
            held_max: 1000,
            released: [("below_high".to_owned(), 7), ("promoted".to_owned(), 0)].into(),
            ..BatchView::default()
        };
        let expected =
            "llama gate: utilisation 55%, credit 1, held 3 of 1000, released: below_high 7\n";
        assert_eq!(gate_line(&gate), expected);
        assert_eq!(tiers(&[], &[gate]), None);
        let row = tier_row(
            "llama",
            &TierView {
                tier: "interactive-fast".into(),
                within_slo: 3,
                past_slo: 1,
                ..TierView::default()
            },
        );
        assert_eq!(row.last().map(String::as_str), Some("75%"));
        let row = tier_row("llama", &TierView::default());
        assert_eq!(row.last().map(String::as_str), Some("no streams"));
    }

    #[test]
    fn tenants_are_shown_once_one_has_a_name() {
        let tenant = |name: &str, tokens| TenantView {
            tenant: name.into(),
            tokens,
            ..TenantView::default()
        };
        let pool = |tenants| PoolTenantsView {
            pool: "llama".into(),
            tenants,
        };
        assert_eq!(tenants(&[pool(vec![tenant("common tenant", 0)])]), None);
        let text = tenants(&[pool(vec![tenant("a", 1_000), tenant("b", 2_500)])]).unwrap();
        let (first, second) = (text.find("2500").unwrap(), text.find("1000").unwrap());
        assert!(first < second, "{text}");
        let many = (0..25).map(|number| tenant(&format!("t{number}"), 0));
        let text = tenants(&[pool(many.collect())]).unwrap();
        assert!(text.contains("and 5 more: GET /api/tenants"), "{text}");
    }
}

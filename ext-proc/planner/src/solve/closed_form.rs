//! Optimal solution for models that share no GPUs, each on one kind, at one price and throughput.
//!
//! Every region first gets what its own share needs. If the regions together carry too little, replicas that are there are kept,
//! since keeping one costs α and starting one α + σ. Then replicas are started where the unmet demand is largest. Which region gets
//! them does not change the cost.

use super::{Cell, Program, replicas_for};

/// Replicas of each cell; `None` where the closed form does not apply.
pub(super) fn solve(program: &Program) -> Option<Vec<u32>> {
    let mut replicas = vec![0; program.cells.len()];
    let mut models: Vec<usize> = program.cells.iter().map(|cell| cell.model).collect();
    models.sort_unstable();
    models.dedup();
    for model in models {
        let cells = program
            .cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| cell.model == model);
        let mut regions: Vec<Region<'_>> = cells
            .map(|(at, cell)| Region::new(program, at, cell))
            .collect();
        if !is_uniform(&regions) {
            return None;
        }
        fill(&mut regions);
        for region in regions {
            *replicas.get_mut(region.at)? = region.replicas;
        }
    }
    Some(replicas)
}

/// A region's cell of one model.
struct Region<'a> {
    at: usize,
    cell: &'a Cell,
    /// Demand, in replicas.
    demand: f64,
    replicas: u32,
}

impl<'a> Region<'a> {
    fn new(program: &Program, at: usize, cell: &'a Cell) -> Self {
        let demand = program.demand(cell.model, cell.region);
        let own = replicas_for(demand * program.local_share(cell.model), cell.capacity);
        Self {
            at,
            cell,
            demand: if demand > 0.0 {
                demand / cell.capacity
            } else {
                0.0
            },
            replicas: own.clamp(cell.min, cell.max),
        }
    }

    fn unmet(&self) -> f64 {
        self.demand - f64::from(self.replicas)
    }

    /// Bound of the replicas, with or without starting new ones.
    fn bound(&self, can_start: bool) -> u32 {
        if can_start {
            self.cell.max
        } else {
            self.cell.replicas.min(self.cell.max)
        }
    }
}

/// Whether each region has one cell, and all have one throughput and one price.
fn is_uniform(regions: &[Region<'_>]) -> bool {
    let Some(first) = regions.first() else {
        return true;
    };
    let is_alike = |region: &Region<'_>| {
        region.cell.capacity.total_cmp(&first.cell.capacity).is_eq()
            && region.cell.price.total_cmp(&first.cell.price).is_eq()
            && region
                .cell
                .startup_price
                .total_cmp(&first.cell.startup_price)
                .is_eq()
    };
    let mut names: Vec<usize> = regions.iter().map(|region| region.cell.region).collect();
    names.sort_unstable();
    names.dedup();
    names.len() == regions.len() && regions.iter().all(is_alike)
}

/// Adds replicas until the regions together carry the demand of all, or until every region has its most.
fn fill(regions: &mut [Region<'_>]) {
    let total: f64 = regions.iter().map(|region| region.demand).sum();
    let needed = u64::from(replicas_for(total, 1.0));
    let mut have: u64 = regions
        .iter()
        .map(|region| u64::from(region.replicas))
        .sum();
    for can_start in [false, true] {
        while have < needed {
            let widest = regions
                .iter_mut()
                .filter(|region| region.replicas < region.bound(can_start))
                .min_by(|one, two| two.unmet().total_cmp(&one.unmet()));
            let Some(region) = widest else {
                break;
            };
            let room = u64::from(region.bound(can_start) - region.replicas);
            // One at a time while demand is unmet; the rest of a surplus at once.
            let step = if region.unmet() > 0.0 {
                1
            } else {
                room.min(needed - have)
            };
            region.replicas += u32::try_from(step).unwrap_or(u32::MAX);
            have += step;
        }
    }
}

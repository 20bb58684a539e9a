//! Numbers for programs without a solution: what is needed, then less until it fits the shared GPUs.

use super::{Program, replicas_for};

/// Replicas for each model and region on the kinds with the least price per throughput, without regard to shared GPUs.
pub(super) fn greedy(program: &Program) -> Vec<u32> {
    let mut replicas: Vec<u32> = program.cells.iter().map(|cell| cell.min).collect();
    for ((model, region), demand) in &program.demand {
        let mut cells: Vec<usize> = (0..program.cells.len())
            .filter(|at| {
                let cell = program.cells.get(*at);
                cell.is_some_and(|cell| {
                    (cell.model, cell.region) == (*model, *region) && cell.capacity > 0.0
                })
            })
            .collect();
        let price = |at: usize| {
            program
                .cells
                .get(at)
                .map_or(f64::MAX, |cell| cell.price / cell.capacity)
        };
        cells.sort_by(|one, two| price(*one).total_cmp(&price(*two)));
        let mut left = *demand;
        for (cell, count) in program.cells.iter().zip(&replicas) {
            if (cell.model, cell.region) == (*model, *region) {
                left -= cell.capacity * f64::from(*count);
            }
        }
        for at in cells {
            let (Some(cell), Some(count)) = (program.cells.get(at), replicas.get_mut(at)) else {
                continue;
            };
            let more = replicas_for(left, cell.capacity).min(cell.max - *count);
            *count += more;
            left -= cell.capacity * f64::from(more);
        }
    }
    replicas
}

/// Fewer replicas, until the shared GPUs suffice: replicas beyond the demand go first, then those of the model with the lowest
/// weight, and among models of one weight those of the one with the least unmet demand. No model falls below its fewest replicas: if those do not fit, the
/// configuration promises too much, and the numbers exceed the GPUs.
pub(super) fn to_gpus(program: &Program, mut replicas: Vec<u32>) -> Vec<u32> {
    for (key, most) in &program.gpus_max {
        while program.gpus(*key, &replicas) > u64::from(*most) {
            let victim = (0..program.cells.len())
                .filter(|at| can_shrink(program, *key, &replicas, *at))
                .min_by(|one, two| {
                    let rank = |at: usize| rank(program, &replicas, at);
                    let (one, two) = (rank(*one), rank(*two));
                    one.0.total_cmp(&two.0).then(two.1.total_cmp(&one.1))
                });
            let Some(count) = victim.and_then(|at| replicas.get_mut(at)) else {
                break;
            };
            *count -= 1;
        }
    }
    replicas
}

fn can_shrink(program: &Program, key: (usize, usize), replicas: &[u32], at: usize) -> bool {
    let (Some(cell), Some(count)) = (program.cells.get(at), replicas.get(at)) else {
        return false;
    };
    (cell.region, cell.kind) == key && cell.gpus > 0 && *count > cell.min
}

/// Weight of a replica of a cell, and the cell's replicas beyond the demand of its region. A replica beyond the demand has no weight.
fn rank(program: &Program, replicas: &[u32], at: usize) -> (f64, f64) {
    let (Some(cell), Some(count)) = (program.cells.get(at), replicas.get(at)) else {
        return (f64::MAX, 0.0);
    };
    let demand = program.demand(cell.model, cell.region);
    let needed = if cell.capacity > 0.0 {
        demand / cell.capacity
    } else {
        0.0
    };
    let surplus = f64::from(*count) - needed;
    let weight = if surplus >= 1.0 {
        f64::NEG_INFINITY
    } else {
        program.weight(cell.model)
    };
    (weight, surplus)
}

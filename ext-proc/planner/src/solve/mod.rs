//! The integer program of section 5: the cheapest numbers of replicas that carry the forecast demand.
//!
//! A *cell* is one model in one region on one kind of GPU, with `x = n + δ` replicas:
//!
//! ```text
//! min  Σ α δ + Σ σ max(0, δ)
//! Σk x θ ≥ ε ρ[i,j]      for each model i and region j
//! Σjk x θ ≥ Σj ρ[i,j]    for each model i
//! Σi gpus x ≤ G[j,k]     for each region j and kind k (ours: GPUs that models share)
//! min ≤ x ≤ max
//! ```
//!
//! Where no GPUs run out, each model stands alone, and with one kind of GPU a closed form is optimal. It is tried first. If it
//! exceeds the shared GPUs, or if throughputs differ, the integer program is solved. The solver does not promise optimal answers, so
//! every constraint of its answer is checked. Without a valid answer the closed form is cut to the shared GPUs.

mod closed_form;
mod cut;
mod integer;

use std::collections::BTreeMap;

use crate::SolveMethod;
use crate::demand::finite;

/// The most cells of a program that the integer solver gets. It takes two seconds at most for any of them.
const CELLS_MAX: usize = 2_000;
/// Relative tolerance of the checks: a thousandth of a replica.
const TOLERANCE: f64 = 1e-6;

/// One model in one region on one kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Model, by its index (i).
    pub model: usize,
    /// Region, by its index (j).
    pub region: usize,
    /// Kind of GPU, by its index (k).
    pub kind: usize,
    /// Replicas now (n).
    pub replicas: u32,
    /// Demand that one replica carries (θ).
    pub capacity: f64,
    /// Cost of a replica (α).
    pub price: f64,
    /// Cost of starting a replica (σ): the price of the time in which it cannot serve.
    pub startup_price: f64,
    /// The fewest replicas.
    pub min: u32,
    /// The most replicas.
    pub max: u32,
    /// GPUs of a replica.
    pub gpus: u32,
}

/// Integer program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Cells.
    pub cells: Vec<Cell>,
    /// Peak demand of each model in each region (ρ).
    pub demand: BTreeMap<(usize, usize), f64>,
    /// Share of its demand that a region serves itself, by model (ε); 1 without an entry.
    pub local_share: BTreeMap<usize, f64>,
    /// GPUs by region and kind (G); without an entry there is no bound.
    pub gpus_max: BTreeMap<(usize, usize), u32>,
    /// Weight of each model where GPUs do not suffice; 1 without an entry.
    pub weights: BTreeMap<usize, f64>,
}

/// Solution of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Replicas of each cell, in the order of the program's.
    pub replicas: Vec<u32>,
    /// Value of the objective.
    pub objective: f64,
    /// Method that found it.
    pub method: SolveMethod,
    /// Demand of each model that the solution does not carry.
    pub unmet: BTreeMap<usize, f64>,
}

impl Program {
    /// Solves the program. Where it has no solution, the result is within the bounds and tells the demand that is not met.
    #[must_use]
    pub fn solve(&self) -> Solution {
        let program = self.sanitized();
        let closed_form = closed_form::solve(&program);
        if let Some(replicas) = closed_form
            .as_ref()
            .filter(|replicas| program.fits_gpus(replicas))
        {
            return program.solution(replicas.clone(), SolveMethod::ClosedForm);
        }
        if let Some(replicas) = integer::solve(&program) {
            return program.solution(replicas, SolveMethod::Integer);
        }
        let start = closed_form.unwrap_or_else(|| cut::greedy(&program));
        program.solution(cut::to_gpus(&program, start), SolveMethod::Cut)
    }

    /// Solution of the integer solver alone; `None` without a valid one within two seconds.
    #[must_use]
    pub fn solve_integer(&self) -> Option<Solution> {
        let program = self.sanitized();
        let replicas = integer::solve(&program)?;
        Some(program.solution(replicas, SolveMethod::Integer))
    }

    /// Solution of the closed form; `None` where it does not apply: several kinds of GPU, or different throughputs or prices of
    /// one model. It knows no shared GPUs.
    #[must_use]
    pub fn solve_closed_form(&self) -> Option<Solution> {
        let program = self.sanitized();
        let replicas = closed_form::solve(&program)?;
        Some(program.solution(replicas, SolveMethod::ClosedForm))
    }

    /// Whether numbers of replicas meet every constraint.
    #[must_use]
    pub fn is_feasible(&self, replicas: &[u32]) -> bool {
        let is_within_bounds = self.cells.len() == replicas.len()
            && self
                .cells
                .iter()
                .zip(replicas)
                .all(|(cell, count)| (cell.min..=cell.max).contains(count));
        is_within_bounds && self.fits_gpus(replicas) && self.unmet(replicas).is_empty()
    }

    fn fits_gpus(&self, replicas: &[u32]) -> bool {
        self.gpus_max
            .iter()
            .all(|(key, most)| self.gpus(*key, replicas) <= u64::from(*most))
    }

    /// GPUs of a region and kind that numbers of replicas take.
    fn gpus(&self, key: (usize, usize), replicas: &[u32]) -> u64 {
        let cells = self.cells.iter().zip(replicas);
        cells
            .filter(|(cell, _)| (cell.region, cell.kind) == key)
            .map(|(cell, count)| u64::from(cell.gpus) * u64::from(*count))
            .sum()
    }

    /// Demand of each model that numbers of replicas do not carry: in its worst region, or in all regions together.
    fn unmet(&self, replicas: &[u32]) -> BTreeMap<usize, f64> {
        let mut capacity: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (cell, count) in self.cells.iter().zip(replicas) {
            *capacity.entry((cell.model, cell.region)).or_default() +=
                cell.capacity * f64::from(*count);
        }
        let mut unmet: BTreeMap<usize, f64> = BTreeMap::new();
        let mut totals: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for (key, demand) in &self.demand {
            let carried = capacity.get(key).copied().unwrap_or_default();
            let local = demand * self.local_share(key.0) - carried;
            if local > TOLERANCE * demand {
                let worst = unmet.entry(key.0).or_default();
                *worst = worst.max(local);
            }
            let total = totals.entry(key.0).or_default();
            *total = (total.0 + demand, total.1 + carried);
        }
        for (model, (demand, carried)) in totals {
            if demand - carried > TOLERANCE * demand {
                let worst = unmet.entry(model).or_default();
                *worst = worst.max(demand - carried);
            }
        }
        unmet
    }

    fn objective(&self, replicas: &[u32]) -> f64 {
        let cost = |(cell, count): (&Cell, &u32)| {
            let change = f64::from(*count) - f64::from(cell.replicas);
            cell.price * change + cell.startup_price * change.max(0.0)
        };
        self.cells.iter().zip(replicas).map(cost).sum()
    }

    fn solution(&self, replicas: Vec<u32>, method: SolveMethod) -> Solution {
        Solution {
            objective: self.objective(&replicas),
            unmet: self.unmet(&replicas),
            replicas,
            method,
        }
    }

    fn demand(&self, model: usize, region: usize) -> f64 {
        self.demand
            .get(&(model, region))
            .copied()
            .unwrap_or_default()
    }

    fn local_share(&self, model: usize) -> f64 {
        self.local_share.get(&model).copied().unwrap_or(1.0)
    }

    fn weight(&self, model: usize) -> f64 {
        self.weights.get(&model).copied().unwrap_or(1.0)
    }

    /// Program whose values are numbers within their bounds.
    fn sanitized(&self) -> Self {
        let mut program = self.clone();
        for cell in &mut program.cells {
            cell.max = cell.max.max(cell.min);
            cell.capacity = finite(cell.capacity);
            cell.price = finite(cell.price).max(f64::MIN_POSITIVE);
            cell.startup_price = finite(cell.startup_price);
        }
        for demand in program.demand.values_mut() {
            *demand = finite(*demand);
        }
        for share in program.local_share.values_mut() {
            *share = finite(*share).min(1.0);
        }
        program
    }
}

/// Replicas of a capacity that carry a demand.
fn replicas_for(demand: f64, capacity: f64) -> u32 {
    if demand <= 0.0 {
        return 0;
    }
    let replicas = (demand / capacity - TOLERANCE).ceil();
    // A float that exceeds the range becomes its largest number.
    if replicas.is_finite() {
        replicas.max(0.0) as u32
    } else {
        u32::MAX
    }
}

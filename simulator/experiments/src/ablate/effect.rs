//! The effect of a change: ratios to the unchanged policy, and their means.

use isotherm_simulator::Summary;

/// The largest ratio that counts; its inverse is the smallest. A refusal, whose time is infinite, then counts as this much.
pub(super) const RATIO_MAX: f64 = 4.0;
/// Ratio from which an effect is more than nothing.
pub(super) const EFFECT_MIN: f64 = 1.02;

/// Figures of a run over those of the unchanged run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratios {
    /// Goodput at 1 s.
    pub(super) goodput: f64,
    /// The p90 of the time to first token.
    pub(super) ttft: f64,
    /// The p90 of the time to the end of an answer.
    pub(super) end: f64,
}

/// The effect of a change on a cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CellEffect<'a> {
    pub(super) cell: &'a str,
    pub(super) ratios: Ratios,
}

/// The effect of a change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    /// A run panicked or did not end.
    Failure,
    /// Ratios of every cell and seed, in the order of the cells.
    Of(Vec<((String, u64), Ratios)>),
}

impl Ratios {
    pub(super) const NONE: Self = Self {
        goodput: 1.0,
        ttft: 1.0,
        end: 1.0,
    };

    pub(super) fn new(changed: &Summary, unchanged: &Summary) -> Self {
        let of = |figure: fn(&Summary) -> f64| ratio(figure(changed), figure(unchanged));
        Self {
            goodput: of(|run| run.goodput_1s_per_s),
            ttft: of(|run| run.ttft_p90_s),
            end: of(|run| run.e2e_p90_s),
        }
    }

    /// Geometric mean.
    fn mean<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let all: Vec<&Self> = all.collect();
        let mean = |of: fn(&Self) -> f64| {
            let sum: f64 = all.iter().map(|one| of(one).ln()).sum();
            (sum / all.len().max(1) as f64).exp()
        };
        Self {
            goodput: mean(|one| one.goodput),
            ttft: mean(|one| one.ttft),
            end: mean(|one| one.end),
        }
    }

    /// The ratio by which the worst of the three figures is worse.
    fn harm(self) -> f64 {
        self.cell_harm().max(self.end)
    }

    /// The ratio by which goodput or the time to first token is worse.
    pub(super) fn cell_harm(self) -> f64 {
        self.ttft.max(1.0 / self.goodput)
    }

    /// The ratio by which goodput or the time to first token is better.
    pub(super) fn cell_gain(self) -> f64 {
        self.goodput.max(1.0 / self.ttft)
    }
}

impl Effect {
    fn all(&self) -> &[((String, u64), Ratios)] {
        match self {
            Self::Failure => &[],
            Self::Of(all) => all,
        }
    }

    /// Whether the change changes nothing in any run.
    pub(super) fn is_none(&self) -> bool {
        *self != Self::Failure && self.all().iter().all(|(_, one)| *one == Ratios::NONE)
    }

    /// Geometric means over the runs; none of a change that fails.
    pub(super) fn mean(&self) -> Option<Ratios> {
        (*self != Self::Failure).then(|| Ratios::mean(self.all().iter().map(|(_, one)| one)))
    }

    /// The ratio by which the worst figure is worse on average.
    pub(super) fn harm(&self) -> f64 {
        self.mean().map_or(0.0, Ratios::harm)
    }

    /// The effect on each cell: geometric means over its seeds.
    pub(super) fn cells(&self) -> Vec<CellEffect<'_>> {
        let all = self
            .all()
            .chunk_by(|((one, _), _), ((other, _), _)| one == other);
        let cells = all.filter_map(|seeds| {
            let ((cell, _), _) = seeds.first()?;
            let ratios = Ratios::mean(seeds.iter().map(|(_, one)| one));
            Some(CellEffect { cell, ratios })
        });
        cells.collect()
    }
}

/// The ratio of two figures, within bounds; 1 where both are zero or both are infinite.
fn ratio(changed: f64, unchanged: f64) -> f64 {
    if changed == unchanged {
        return 1.0;
    }
    (changed / unchanged).clamp(1.0 / RATIO_MAX, RATIO_MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn effect(cells: &[(&str, f64, f64)]) -> Effect {
        let ratios = |&(cell, goodput, ttft): &(&str, f64, f64)| {
            let ratios = Ratios {
                goodput,
                ttft,
                end: 1.0,
            };
            ((cell.to_owned(), 1), ratios)
        };
        Effect::Of(cells.iter().map(ratios).collect())
    }

    #[test]
    fn a_refusal_counts_as_the_largest_ratio() {
        let never = f64::INFINITY;
        assert_eq!(ratio(never, 1.0), RATIO_MAX);
        assert_eq!(ratio(1.0, never), 1.0 / RATIO_MAX);
        assert_eq!(ratio(never, never), 1.0);
        assert_eq!((ratio(0.0, 0.0), ratio(0.0, 2.0)), (1.0, 0.25));
    }

    #[test]
    fn means_are_geometric_over_the_seeds_and_over_the_cells() {
        let effect = effect(&[("a", 1.0, 2.0), ("a", 1.0, 0.5), ("b", 0.5, 1.0)]);
        let cells = effect.cells();
        assert_eq!(cells.len(), 2);
        assert!((cells[0].ratios.ttft - 1.0).abs() < 1e-12);
        assert!((cells[1].ratios.cell_harm() - 2.0).abs() < 1e-12);
        let mean = effect.mean().unwrap();
        assert!((mean.goodput - 0.5_f64.powf(1.0 / 3.0)).abs() < 1e-12);
        assert!(!effect.is_none() && !Effect::Failure.is_none());
    }
}

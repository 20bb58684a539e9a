//! The integer program: the closed form against the solver, constraints, caps, and what happens without a solution.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::collections::BTreeMap;

use isotherm_planner::{Cell, Program, SolveMethod};
use proptest::prelude::*;

/// A program of some models and regions on one kind of GPU.
fn program(models: usize, regions: usize) -> impl Strategy<Value = Program> {
    let cell = (0_u32..25, 0_u32..4, 4_u32..40, 0.0_f64..30.0);
    let cells = proptest::collection::vec(cell, models * regions);
    let model = (0.5_f64..4.0, 0.5_f64..3.0, 0.0_f64..2.0, 0.3_f64..=1.0);
    let models = proptest::collection::vec(model, models);
    (cells, models).prop_map(move |(cells, models)| {
        let mut program = Program::default();
        for (model, (capacity, price, startup_price, local_share)) in models.iter().enumerate() {
            program.local_share.insert(model, *local_share);
            for region in 0..regions {
                let (replicas, min, room, demand) = cells[model * regions + region];
                program.demand.insert((model, region), demand);
                program.cells.push(Cell {
                    model,
                    region,
                    kind: 0,
                    replicas,
                    capacity: *capacity,
                    price: *price,
                    startup_price: *startup_price,
                    min,
                    max: min + room,
                    gpus: 1 + model as u32 % 2,
                });
            }
        }
        program
    })
}

/// A program with a bound on the GPUs of each region, which some programs exceed.
fn capped_program() -> impl Strategy<Value = Program> {
    (program(3, 2), proptest::collection::vec(4_u32..90, 2)).prop_map(|(mut program, caps)| {
        program.gpus_max = caps
            .into_iter()
            .enumerate()
            .map(|(region, most)| ((region, 0), most))
            .collect();
        program
    })
}

fn gpus(program: &Program, replicas: &[u32], region: usize) -> u32 {
    let cells = program.cells.iter().zip(replicas);
    cells
        .filter(|(cell, _)| cell.region == region)
        .map(|(cell, count)| cell.gpus * count)
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_closed_form_costs_what_the_integer_program_costs(program in program(4, 3)) {
        let closed = program.solve_closed_form().expect("one kind of GPU");
        match program.solve_integer() {
            Some(integer) => {
                prop_assert!(closed.unmet.is_empty(), "{closed:?}");
                prop_assert!((closed.objective - integer.objective).abs() < 1e-6, "{closed:?} {integer:?}");
            }
            // Some region reaches its most, and then no number carries the demand.
            None => prop_assert!(!closed.unmet.is_empty(), "{closed:?}"),
        }
    }

    #[test]
    fn a_solution_keeps_its_bounds_and_reports_what_it_does_not_carry(program in capped_program()) {
        let solution = program.solve();
        let fewest: Vec<u32> = program.cells.iter().map(|cell| cell.min).collect();
        for (cell, count) in program.cells.iter().zip(&solution.replicas) {
            prop_assert!((cell.min..=cell.max).contains(count), "{cell:?} {count}");
        }
        for ((region, _), most) in &program.gpus_max {
            // The configuration may promise more than there is.
            let most = (*most).max(gpus(&program, &fewest, *region));
            prop_assert!(gpus(&program, &solution.replicas, *region) <= most);
        }
        if solution.unmet.is_empty() && solution.method != SolveMethod::Cut {
            prop_assert!(program.is_feasible(&solution.replicas));
        }
        prop_assert_eq!(&program.solve(), &solution, "two runs differ");
    }

    #[test]
    fn a_cheaper_solution_than_the_closed_form_does_not_exist_within_caps(program in capped_program()) {
        let solution = program.solve();
        if let Some(integer) = program.solve_integer() {
            prop_assert!(solution.unmet.is_empty());
            prop_assert!((solution.objective - integer.objective).abs() < 1e-6, "{solution:?} {integer:?}");
        }
    }

    #[test]
    fn more_demand_never_takes_replicas_away(program in program(2, 3), model in 0_usize..2, region in 0_usize..3, more in 0.0_f64..20.0) {
        let total = |program: &Program| -> u32 {
            let replicas = program.solve().replicas;
            program.cells.iter().zip(replicas).filter(|(cell, _)| cell.model == model).map(|(_, count)| count).sum()
        };
        let before = total(&program);
        let mut raised = program.clone();
        *raised.demand.entry((model, region)).or_default() += more;
        prop_assert!(total(&raised) >= before);
    }

    #[test]
    fn values_that_are_no_numbers_give_a_solution_within_bounds(
        program in capped_program(),
        strange in proptest::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -3.0, 0.0, f64::MAX]),
        at in 0_usize..6,
        what in 0_usize..4,
    ) {
        let mut program = program;
        let key = (program.cells[at].model, program.cells[at].region);
        match what {
            0 => { program.demand.insert(key, strange); }
            1 => program.cells[at].capacity = strange,
            2 => program.cells[at].price = strange,
            _ => { program.local_share.insert(key.0, strange); }
        }
        let solution = program.solve();
        for (cell, count) in program.cells.iter().zip(&solution.replicas) {
            prop_assert!((cell.min..=cell.max).contains(count), "{cell:?} {count}");
        }
    }
}

fn cell(model: usize, replicas: u32, gpus: u32) -> Cell {
    Cell {
        model,
        region: 0,
        kind: 0,
        replicas,
        capacity: 0.7,
        price: f64::from(gpus),
        startup_price: 0.2,
        min: 1,
        max: 50,
        gpus,
    }
}

#[test]
fn the_model_of_the_lower_weight_gives_up_gpus_first() {
    let program = Program {
        cells: vec![cell(0, 5, 1), cell(1, 5, 1)],
        demand: BTreeMap::from([((0, 0), 7.0), ((1, 0), 7.0)]),
        gpus_max: BTreeMap::from([((0, 0), 14)]),
        weights: BTreeMap::from([(0, 4.0), (1, 1.0)]),
        ..Program::default()
    };
    let solution = program.solve();
    assert_eq!(solution.method, SolveMethod::Cut);
    assert_eq!(solution.replicas, [10, 4]);
    assert!(
        solution.unmet.contains_key(&1) && !solution.unmet.contains_key(&0),
        "{solution:?}"
    );
}

#[test]
fn a_faster_kind_is_used_where_it_costs_less_for_its_throughput() {
    let kinds = [(0.7, 1.0), (2.1, 2.0)];
    let cells = kinds
        .iter()
        .enumerate()
        .map(|(kind, (capacity, price))| Cell {
            kind,
            capacity: *capacity,
            price: *price,
            min: 0,
            ..cell(0, 0, 1)
        });
    let program = Program {
        cells: cells.collect(),
        demand: BTreeMap::from([((0, 0), 7.0)]),
        ..Program::default()
    };
    let solution = program.solve();
    assert_eq!(solution.method, SolveMethod::Integer);
    // Three fast replicas carry 6.3, one slow replica the rest.
    assert_eq!(solution.replicas, [1, 3]);
}

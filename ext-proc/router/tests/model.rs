//! Random operations on the router and on a naive model of it, which checks after each of them what must hold
//! whatever happens: nothing lost, nothing sent twice, order, bounds, and nobody idle while somebody waits.

mod support;

use proptest::prelude::*;
use support::naive::{Naive, Op, ops};

fn run(ops: &[Op]) {
    let mut naive = Naive::new();
    for op in ops {
        naive.apply(op);
    }
    naive.finish();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_router_keeps_its_promises(ops in ops(250)) {
        run(&ops);
    }

    #[test]
    fn the_same_operations_give_the_same_effects(ops in ops(120)) {
        let twice = [(); 2].map(|()| {
            let mut naive = Naive::new();
            for op in &ops {
                naive.apply(op);
            }
            naive.log
        });
        prop_assert_eq!(&twice[0], &twice[1]);
    }
}

//! `isotherm-bench-unit NAME`: gets one unit of work ready and runs it once more, inside [`counted`], for a tool that
//! counts instructions in there. Without a name it prints the names.

use std::process::ExitCode;

use isotherm_bench_core::Work;
use isotherm_bench_core::units::{UNITS, Unit};

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for unit in UNITS {
            println!("{}", unit.name);
        }
        return ExitCode::SUCCESS;
    };
    let Some(unit) = Unit::named(&name) else {
        eprintln!("error: no unit `{name}`");
        return ExitCode::FAILURE;
    };
    counted(unit.ready());
    ExitCode::SUCCESS
}

/// A function of its own, so that a tool finds its beginning and its end.
#[inline(never)]
fn counted(mut work: Work) {
    work();
}

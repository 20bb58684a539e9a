//! The `isotherm` binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A request allocates and frees some hundred small pieces of memory within microseconds, on several threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    isotherm_ext_proc::cli::main()
}

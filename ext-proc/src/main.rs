//! The `isotherm` binary.
fn main() {}

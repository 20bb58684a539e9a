//! Policies: who goes where.

mod name;

pub use name::{PolicyName, UnknownPolicy};

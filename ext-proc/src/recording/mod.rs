//! Recording live traffic as a trace that a simulator can replay: `isotherm record`.

pub mod line;

//! A release as its users get it: from its folder alone, on a machine without Rust and without this repository.
//!
//! `cargo xtask install --dir DIR` runs these tests. `ISOTHERM_RELEASE` names the folder, `ISOTHERM_WHEELS` one with the
//! wheels that the release's needs, `ISOTHERM_WHEEL_PYTHON` a Python with the package `wheel`, `ISOTHERM_XTASK` the chores,
//! `ISOTHERM_ENVOY` an Envoy. `ISOTHERM_ROOT` names the root folder of a bare Debian; without it the tests hide Rust and
//! the repository from this machine's own root. Where a test leaves a part out, for example because qemu is not
//! installed, it says so.

mod arm;
mod bare_root;
mod chart;
mod files;
mod images;
mod packages;
mod publish;
mod reproducible;

//! The files of a release in one folder, from finished programs.
//!
//! `cargo xtask release` builds the programs and the filter, and starts `isotherm-release`. What a package manager, a registry or a
//! mesh needs is written here: archives, Debian packages, wheels, images, the chart, the bill of materials, licences and
//! checksums. Nothing in them depends on the machine or on the clock: times are those of the commit, archives are sorted,
//! owners are numbers. So two runs over the same programs write the same bytes.
//!
//! Rejected: `maturin`, `cargo-deb`, `cargo-about` and `cargo-cyclonedx`, which compile the programs themselves or take minutes to install;
//! Docker and Buildah, whose result depends on a base image; `helm package`, which writes the time of packing; programs linked to
//! glibc, which need a C library at least as new as the build's.

mod archive;
mod bill;
mod chart;
mod debian;
pub mod folder;
pub mod image;
mod inventory;
mod layout;
mod licences;
mod platform;
pub mod release;
mod wheel;

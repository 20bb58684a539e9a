//! Envoy configurations with Isotherm in them: `isotherm envoy new`, `add` and `check`.
//!
//! **One source.** Every piece comes out of the shipped `envoy/standalone.yaml` ([`shipped`]): its filters, its clusters, its
//! retry policy, its limits. The pieces are found by name and type, so a change of the shipped file is a change of what these
//! commands write. A missing piece fails a test.
//!
//! **New.** The shipped file itself, with the pools, the addresses and the path of the filter replaced where they stand
//! ([`create`]). Without an option its bytes are the shipped ones.
//!
//! **Add.** The owner's file keeps its text, its comments and its anchors: [`yaml`] parses it with positions, and [`add`]
//! inserts or replaces text at them. The filters stand directly in front of the router, behind everything that may reject a
//! request or rewrite its body. They are disabled in the chain, and the named routes enable them. Such a route leads to the
//! pool's cluster, and keeps its other settings. With several pools it leads to the cluster that a header names. The listener
//! then sets that header to the default pool's cluster, and the route configuration removes it from every request that leaves.
//!
//! Three settings of the shipped listener are per route here, so that other routes keep theirs: the limit of a body, the time
//! of silence, and the retry policy. The settings for paths stay out, because the filter itself knows the allowed paths. The
//! routes that answer 404 and 405 stay out for the same reason. Of the early header mutation, only the removal of internal
//! headers comes in. The filter removes the headers that steer engines, on its own routes.
//!
//! **Verification.** After the edits the text is parsed again. Each route that was not named must be what it was, and
//! [`check`] must find no error. Otherwise `add` refuses, and the owner's file stays as it is.
//!
//! **Check.** Rules over the parsed tree; each finding has a line and a remedy.
//!
//! Rejected: `yamlpatch` and `yamlpath`, which need a C compiler for tree-sitter and do not follow aliases; an output that a
//! serialiser writes anew, which loses the owner's comments; copies of the pieces as templates of this crate, which would
//! drift from the file that the tests run.
//!
//! | modules | purpose |
//! | --- | --- |
//! | [`yaml`] | a tree with positions, edits of the text, rendering |
//! | [`envoy`] | what stands where in Envoy's configuration: connection managers, virtual hosts, routes, filters |
//! | [`shipped`], [`pool`] | the pieces, for the operator's pools |
//! | [`create`], [`add`], [`check`] | the commands |

pub mod add;
pub mod check;
pub mod create;
mod envoy;
mod limits;
pub mod pool;
mod published;
mod shipped;
mod yaml;

pub use shipped::MissingPiece;
pub use yaml::{ParseError, camel_case};

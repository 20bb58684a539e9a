//! The interfaces that ask for routing decisions.
//!
//! | module | client |
//! | --- | --- |
//! | [`ext_proc`] | Envoy's external processing filter: one gRPC stream for each request |
//! | [`decision_stream`] | Isotherm's own filter: one gRPC stream for all requests of an Envoy worker |
//! | `request` | what both share: the life of one request, in no protocol |

pub(crate) mod decision_stream;
pub(crate) mod ext_proc;
pub(crate) mod request;

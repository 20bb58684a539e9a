//! Recording live traffic as a trace that a simulator can replay: `isotherm record`.
//!
//! What is recorded of a request is when it came, how long prompt and answer were, and the hashes that stand for its
//! prompt's prefixes: the service has no text to record. The hashes could still be matched against guessed prompts, so
//! each recording puts a key of its own over them ([`salt`]), which is random and kept nowhere: within one recording
//! equal prefixes have equal ids, between two recordings, or between a recording and a guess, nothing can be compared.
//!
//! | part | does |
//! | --- | --- |
//! | [`recorder`] | taps a pool: what comes, and how it ends, into a bounded channel |
//! | [`salt`] | puts ids in the place of hashes |
//! | [`event`] | what the admin interface says to `isotherm record` |
//! | [`trace`] | makes a trace of that, once all of it is there |
//! | [`trace_line`] | the format of the trace |
//!
//! A request that nobody records costs the load of one flag. One that is recorded costs the copy of a few numbers and of a
//! pointer to its fingerprint; hashing and writing happen where the recording is read. When the reader is too slow
//! records are dropped and counted, never waited for.

pub mod event;
pub mod recorder;
pub mod salt;
pub mod trace;
pub mod trace_line;

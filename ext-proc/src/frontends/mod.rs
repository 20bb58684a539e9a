//! What Envoy's external processing filter talks to (ext_proc v3).
//!
//! Only request headers and response trailers cross: Envoy is configured to send nothing else, since prompts and
//! answers are none of this service's business once the filter has read them. Should it send more all the same, it
//! gets the answer that lets everything pass.
//!
//! Holding back the answer to the request's headers *is* the queue. Envoy waits a short `message_timeout`, so that a
//! service that hangs is noticed at once; for a request that has to wait the service first extends that time
//! (`override_message_timeout`), then answers when it is decided. The extension must lie within Envoy's
//! `max_message_timeout`, or Envoy ignores it: that has to be longer than the pools' `wait_ms_max` and five seconds.

pub mod decision_stream;
pub mod ext_proc;
pub(crate) mod request;

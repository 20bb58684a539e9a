//! Roles of replicas: a pool may compute its prompts on other replicas than it writes its answers on (prefill/decode
//! disaggregation).

use strum::{AsRefStr, EnumString, IntoStaticStr, VariantArray};

/// The part of a request that a replica serves.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// The replica computes prompts and writes answers, as a plain engine does.
    #[default]
    Both,
    /// The replica computes prompts for other replicas, and gets no request of its own.
    Prefill,
    /// The replica writes answers. It computes the prompts that no prefill replica computes for it.
    Decode,
}

impl Role {
    /// Whether requests are dispatched to replicas of this role.
    #[must_use]
    pub const fn has_requests(self) -> bool {
        matches!(self, Self::Both | Self::Decode)
    }
}

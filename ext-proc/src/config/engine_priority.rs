//! The priority that a request has in its engine's own queue.
//!
//! vLLM 0.32.0 reads `x-vllm-priority` with `--scheduling-policy priority`: a lower number comes first, 0 is the default.
//! SGLang 0.5.23 reads `x-override-priority` with `--enable-priority-scheduling`: a higher number comes first, and a request without the
//! header comes last, so every request gets it. SGLang preempts only at a difference above 10, so a batch request at -1 waits and is never
//! interrupted.

use isotherm_fingerprint::names;
use isotherm_router::WorkClass;
use strum::{AsRefStr, VariantArray};

/// The engine whose priority header the service sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AsRefStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EnginePriority {
    /// None.
    #[default]
    Off,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

/// A priority header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriorityHeader {
    pub(crate) engine: EnginePriority,
    pub(crate) value: i32,
}

impl EnginePriority {
    /// The header of a request of this class.
    pub(crate) fn header(self, class: WorkClass) -> Option<PriorityHeader> {
        let value = match (self, class) {
            (Self::Off, _) => return None,
            (Self::Vllm | Self::Sglang, WorkClass::Interactive) => 0,
            (Self::Vllm, WorkClass::Batch) => 1,
            (Self::Sglang, WorkClass::Batch) => -1,
        };
        Some(PriorityHeader {
            engine: self,
            value,
        })
    }
}

impl PriorityHeader {
    /// The name of the header.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self.engine {
            EnginePriority::Off => None,
            EnginePriority::Vllm => Some(names::VLLM_PRIORITY),
            EnginePriority::Sglang => Some(names::SGLANG_PRIORITY),
        }
    }

    /// The value, if the header is the one of `engine`.
    pub(crate) fn value_for(self, engine: EnginePriority) -> Option<i32> {
        (self.engine == engine).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_request_comes_after_an_interactive_one_in_each_engine() {
        let headers = |engine: EnginePriority| {
            [WorkClass::Interactive, WorkClass::Batch].map(|class| {
                let header = engine.header(class)?;
                Some((header.name()?, header.value))
            })
        };
        assert_eq!(
            headers(EnginePriority::Vllm),
            [0, 1].map(|value| Some(("x-vllm-priority", value)))
        );
        assert_eq!(
            headers(EnginePriority::Sglang),
            [0, -1].map(|value| Some(("x-override-priority", value)))
        );
        assert_eq!(headers(EnginePriority::Off), [None, None]);
    }
}

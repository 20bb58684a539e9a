//! Inference engines.

use std::fmt;

use strum::{IntoStaticStr, VariantArray};

/// An inference engine whose metrics the service can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM's own server.
    Trtllm,
    /// Triton with the TensorRT-LLM backend.
    Triton,
    /// llama.cpp.
    Llamacpp,
    /// Text Generation Inference.
    Tgi,
}

impl Engine {
    /// Every engine, in the order in which a metrics page is compared with them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the engine's name in a configuration file.
    pub fn option(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::Trtllm => "TensorRT-LLM",
            Self::Triton => "Triton",
            Self::Llamacpp => "llama.cpp",
            Self::Tgi => "TGI",
        })
    }
}

//! Names that appear in a configuration file, each checked for where it will be used.

use std::fmt;

use isotherm_router::{Eviction, PolicyName};

use super::value::{Choice, Parsed};

/// The longest name of a model or of a cluster, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest name that the domain name system has, in bytes.
const HOST_BYTES_MAX: usize = 253;

/// The longest part of such a name.
const LABEL_BYTES_MAX: usize = 63;

/// Declares a checked name: its type, what it accepts, and its check.
macro_rules! name {
    ($(#[doc = $about:literal])* $name:ident, $accepts:literal, $check:expr) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(super) struct $name(pub(super) String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Parsed for $name {
            fn accepts() -> String {
                $accepts.into()
            }

            fn parse(text: &str) -> Result<Self, String> {
                let check: fn(&str) -> Result<(), String> = $check;
                check(text).map(|()| Self(text.to_owned()))
            }
        }
    };
}

name!(
    /// A model's name, as requests write it; `*` for any.
    ModelName,
    "text",
    |text| {
        if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(format!(
                "a model's name has 1 to {NAME_BYTES_MAX} bytes and no control characters"
            ));
        }
        Ok(())
    }
);

impl ModelName {
    /// The name that stands for every model that no pool names.
    pub(super) fn any() -> Self {
        Self("*".into())
    }

    pub(super) fn is_any(&self) -> bool {
        self.0 == "*"
    }
}

name!(
    /// The name of an Envoy cluster; it travels in a header.
    ClusterName,
    "text of visible ASCII characters",
    |text| {
        if text.is_empty()
            || text.len() > NAME_BYTES_MAX
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(format!(
                "`{text}` cannot travel in a header: a cluster's name has 1 to {NAME_BYTES_MAX} visible ASCII characters"
            ));
        }
        Ok(())
    }
);

name!(
    /// A host's name.
    HostName,
    "host name",
    |text| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if text.is_empty() || text.len() > HOST_BYTES_MAX || !text.bytes().all(fits) {
            return Err(format!(
                "`{text}` is not a host name, such as engines.example (the port is an option of its own)"
            ));
        }
        Ok(())
    }
);

name!(
    /// The path of a metrics page.
    ProbePath,
    "path that begins with /",
    |text| {
        if !text.starts_with('/') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "`{text}` is not the path of a page, such as /metrics (replicas are asked at their own address)"
            ));
        }
        Ok(())
    }
);

name!(
    /// The name of a region: a DNS label, since certificates carry it.
    RegionName,
    "lower-case letters, digits and hyphens",
    |text| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let edge = text.starts_with('-') || text.ends_with('-');
        if text.is_empty() || text.len() > LABEL_BYTES_MAX || edge || !text.bytes().all(fits) {
            return Err(format!(
                "`{text}` is not the name of a region, such as eu or us-east-1: 1 to {LABEL_BYTES_MAX} lower-case letters, digits and hyphens, with no hyphen at either end"
            ));
        }
        Ok(())
    }
);

/// Declares a closed set of names.
macro_rules! choices {
    ($(#[doc = $about:literal])* $vis:vis enum $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[doc = $doc])* $variant),* }

        impl Choice for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

choices! {
    /// Whose metric names a pool's replicas use.
    pub enum EngineKind {
        /// Recognised by what it reports.
        Auto = "auto",
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
        /// TensorRT-LLM's own server.
        Trtllm = "trtllm",
        /// Triton with the TensorRT-LLM backend.
        Triton = "triton",
        /// llama.cpp.
        Llamacpp = "llamacpp",
        /// Text Generation Inference.
        Tgi = "tgi",
    }
}

choices! {
    /// The pushing mode's name; its limit is an option of its own.
    pub(super) enum PushName {
        /// See [`isotherm_router::Push::Pending`].
        Pending = "pending",
        /// See [`isotherm_router::Push::Outstanding`].
        Outstanding = "outstanding",
        /// See [`isotherm_router::Push::Blind`].
        Blind = "blind",
    }
}

impl From<isotherm_router::Push> for PushName {
    fn from(push: isotherm_router::Push) -> Self {
        match push {
            isotherm_router::Push::Pending => Self::Pending,
            isotherm_router::Push::Outstanding { .. } => Self::Outstanding,
            isotherm_router::Push::Blind => Self::Blind,
        }
    }
}

impl Choice for PolicyName {
    const ALL: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        self.as_str()
    }
}

impl Choice for Eviction {
    const ALL: &'static [Self] = &[Self::Lru, Self::Fifo];

    fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
        }
    }
}

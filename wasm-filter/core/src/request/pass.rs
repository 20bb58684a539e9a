//! Why a request goes on without a fingerprint.

use isotherm_fingerprint::BodyError;

/// Why a request goes on without a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Its path takes no prompt that is known here.
    UnknownPath,
    /// It has no body.
    NoBody,
    /// Its body is compressed.
    ContentEncoding,
    /// Its body says that it is not JSON.
    ContentType,
    /// Its body turned out not to be JSON.
    NotJson,
    /// Its body begins as JSON and breaks the grammar later.
    Malformed,
    /// Its body is nested too deeply.
    TooDeep,
}

impl Pass {
    /// Every reason, so that each has a counter from the start.
    pub const ALL: [Self; 7] = [
        Self::UnknownPath,
        Self::NoBody,
        Self::ContentEncoding,
        Self::ContentType,
        Self::NotJson,
        Self::Malformed,
        Self::TooDeep,
    ];

    /// The name of this reason in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownPath => "unknown_path",
            Self::NoBody => "no_body",
            Self::ContentEncoding => "content_encoding",
            Self::ContentType => "content_type",
            Self::NotJson => BodyError::NotJson.as_str(),
            Self::Malformed => BodyError::Malformed.as_str(),
            Self::TooDeep => BodyError::TooDeep.as_str(),
        }
    }
}

impl From<BodyError> for Pass {
    fn from(problem: BodyError) -> Self {
        match problem {
            BodyError::NotJson => Self::NotJson,
            BodyError::Malformed => Self::Malformed,
            BodyError::TooDeep => Self::TooDeep,
        }
    }
}

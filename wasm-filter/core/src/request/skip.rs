//! The reasons why a request continues without a fingerprint.

use isotherm_fingerprint::BodyError;

/// The reason why a request continues without a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The path belongs to no known API with a prompt. Only the other members of the body are read.
    UnknownPath,
    /// The path is one at which engines compute no prompt, such as the count of its tokens.
    NoPrompt,
    /// The request has no body.
    NoBody,
    /// The body is compressed.
    ContentEncoding,
    /// The body is a form, which may name a model and has no prompt.
    ContentType,
    /// The host withholds the body from the filter.
    BodyWithheld,
    /// The body cannot be read as JSON, or says two things.
    Body(BodyError),
}

impl SkipReason {
    /// Every reason, so that each has a counter from the start.
    pub const ALL: [Self; 10] = [
        Self::UnknownPath,
        Self::NoPrompt,
        Self::NoBody,
        Self::ContentEncoding,
        Self::ContentType,
        Self::BodyWithheld,
        Self::Body(BodyError::NotJson),
        Self::Body(BodyError::Malformed),
        Self::Body(BodyError::TooDeep),
        Self::Body(BodyError::RepeatedMember),
    ];

    /// The name of the reason in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownPath => "unknown_path",
            Self::NoPrompt => "no_prompt",
            Self::NoBody => "no_body",
            Self::ContentEncoding => "content_encoding",
            Self::ContentType => "content_type",
            Self::BodyWithheld => "body_withheld",
            Self::Body(error) => error.as_str(),
        }
    }
}

//! The reasons why the model of a request cannot be told, as a header value.
//!
//! A request that names no model may go to a default pool. One whose model cannot be read must not: an engine that ignores the
//! name would answer for another model without a sign.

use crate::BodyError;

/// The reason why the model of a request cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadModel {
    /// The body has a content encoding.
    Encoding,
    /// The body is no JSON object in UTF-8.
    NotJson,
    /// The body begins as a JSON object and breaks the grammar before its model, or ends.
    Malformed,
    /// The body has too many levels of nesting before its model.
    TooDeep,
    /// The part of the body that was read has no model.
    TooFar,
    /// The name is longer than any model's.
    TooLong,
    /// The body names two models.
    Contradictory,
    /// The host withholds the body from the filter.
    Withheld,
}

impl UnreadModel {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Encoding,
        Self::NotJson,
        Self::Malformed,
        Self::TooDeep,
        Self::TooFar,
        Self::TooLong,
        Self::Contradictory,
        Self::Withheld,
    ];

    /// The reason in a body that was not read to its end.
    pub(crate) fn of_error(error: BodyError) -> Self {
        match error {
            BodyError::NotJson => Self::NotJson,
            BodyError::Malformed => Self::Malformed,
            BodyError::TooDeep => Self::TooDeep,
            BodyError::RepeatedMember => Self::Contradictory,
        }
    }

    /// The value of the header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Encoding => "encoding",
            Self::NotJson => "not_json",
            Self::Malformed => "malformed",
            Self::TooDeep => "too_deep",
            Self::TooFar => "too_far",
            Self::TooLong => "too_long",
            Self::Contradictory => "contradictory",
            Self::Withheld => "withheld",
        }
    }

    /// The reason that [`Self::as_str`] wrote; `None` for any other value.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|reason| reason.as_str().as_bytes() == value)
    }

    /// The status of the response to the client.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::TooFar => 413,
            _ => 400,
        }
    }

    /// The message to the client, which says what to change.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Encoding => {
                "The model of this request cannot be read, because its body has a content encoding. Send the body uncompressed."
            }
            Self::NotJson => {
                "The model of this request cannot be read, because its body is not a JSON object in UTF-8. Send one that names a model."
            }
            Self::Malformed => {
                "The model of this request cannot be read, because its body is malformed before `model`, or ends. Send a whole JSON object."
            }
            Self::TooDeep => {
                "The model of this request cannot be read, because its JSON has more than 128 levels of nesting. Send fewer levels, or \
                 put `model` before them."
            }
            Self::TooFar => {
                "The model of this request cannot be read, because it stands too far from the beginning of the body. Put `model` before \
                 the other members."
            }
            Self::TooLong => {
                "The model of this request cannot be read, because its name has more than 256 bytes. GET /v1/models lists the models."
            }
            Self::Contradictory => {
                "The model of this request cannot be told, because `model` stands twice with different values. Name one model."
            }
            Self::Withheld => {
                "The model of this request cannot be read, because the gateway withholds the body from the filter. The gateway's log \
                 names the setting that its operator must change."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_parses_to_itself() {
        for reason in UnreadModel::ALL {
            assert_eq!(UnreadModel::parse(reason.as_str().as_bytes()), Some(reason));
        }
        assert_eq!(UnreadModel::parse(b""), None);
    }
}

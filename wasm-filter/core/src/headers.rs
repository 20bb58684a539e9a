//! Headers as the proxy passes them, and the changes that the filter makes to them.

use isotherm_fingerprint::names;

/// The headers of a message in the order of the wire, names in lower case. A value may contain any bytes.
pub type Headers = [(String, Vec<u8>)];

/// A change to headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderEdit {
    /// Remove every header of this name.
    Remove(String),
    /// Replace every header of this name by one with this value.
    Set(&'static str, Vec<u8>),
}

impl HeaderEdit {
    pub(crate) fn set(name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        Self::Set(name, value.into())
    }

    /// The name of the header and its new value; `None` removes the header.
    pub fn parts(&self) -> (&str, Option<&[u8]>) {
        match self {
            Self::Remove(name) => (name, None),
            Self::Set(name, value) => (name, Some(value)),
        }
    }
}

pub(crate) fn get<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    all(headers, name).next()
}

pub(crate) fn all<'a>(headers: &'a Headers, name: &str) -> impl Iterator<Item = &'a [u8]> {
    headers
        .iter()
        .filter(move |(candidate, _)| candidate == name)
        .map(|(_, value)| value.as_slice())
}

/// Whether a header of this name is Isotherm's own.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with(names::PREFIX)
        || [names::DESTINATION, names::DESTINATION_SERVED].contains(&name)
}

/// Whether no client may set a request header of this name: it is Isotherm's own, or steers a sidecar or an engine.
pub(crate) fn is_internal(name: &str) -> bool {
    name.starts_with("x-")
        && (is_own(name)
            || names::SIDECAR.contains(&name)
            || names::ENGINE_CONTROL.contains(&name)
            || names::ENGINE_CONTROL_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix)))
}

/// Whether a request asks for another protocol, as Envoy finds out. Envoy refuses the request unless its configuration allows
/// the protocol.
pub(crate) fn is_upgrade(headers: &Headers) -> bool {
    let is_upgrade = |option: &[u8]| option.trim_ascii().eq_ignore_ascii_case(b"upgrade");
    let mut connection = all(headers, "connection");
    let asks = connection.any(|value| value.split(|byte| *byte == b',').any(is_upgrade));
    asks && get(headers, "upgrade").is_some()
        || get(headers, ":method").is_some_and(|method| method == b"CONNECT")
}

/// The type and subtype of a `content-type`, in lower case and without parameters.
pub(crate) fn media_type(headers: &Headers) -> Option<String> {
    let value = get(headers, "content-type")?;
    let essence = value.split(|byte| *byte == b';').next()?;
    Some(String::from_utf8_lossy(essence.trim_ascii()).to_ascii_lowercase())
}

/// The boundary of a form (`multipart/form-data`).
pub(crate) fn form_boundary(headers: &Headers) -> Option<&[u8]> {
    const PARAMETER: &[u8] = b"boundary=";
    media_type(headers).filter(|media_type| media_type == "multipart/form-data")?;
    let value = get(headers, "content-type")?;
    let mut parameters = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let boundary = parameters.find_map(|parameter| {
        let (name, boundary) = parameter.split_at_checked(PARAMETER.len())?;
        name.eq_ignore_ascii_case(PARAMETER).then_some(boundary)
    })?;
    let unquoted = boundary
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(boundary)).filter(|boundary| !boundary.is_empty())
}

/// Whether the body has a content encoding, usually compression, so that its bytes cannot be read.
pub(crate) fn is_encoded(headers: &Headers) -> bool {
    all(headers, "content-encoding")
        .map(<[u8]>::trim_ascii)
        .any(|value| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity"))
}

/// Whether a media type is `application/json` or a type built on it.
pub(crate) fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || media_type.ends_with("+json")
}

#[cfg(test)]
pub(crate) fn from_pairs(pairs: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_lower_case_without_parameters() {
        let headers = from_pairs(&[("content-type", "Application/JSON ; charset=utf-8")]);
        let media_type = media_type(&headers).unwrap();
        assert_eq!(media_type, "application/json");
        assert!(is_json(&media_type));
        assert!(is_json("application/vnd.api+json"));
        assert!(!is_json("text/plain"));
    }

    #[test]
    fn the_boundary_of_a_form_is_found() {
        let boundary = |content_type: &str| {
            let headers = from_pairs(&[("content-type", content_type)]);
            form_boundary(&headers).map(<[u8]>::to_vec)
        };
        let plain = boundary("multipart/form-data; charset=utf-8; Boundary=----x7");
        assert_eq!(plain.as_deref(), Some(b"----x7".as_slice()));
        let quoted = boundary("Multipart/Form-Data;boundary=\"a b\"");
        assert_eq!(quoted.as_deref(), Some(b"a b".as_slice()));
        assert_eq!(boundary("multipart/form-data"), None);
        assert_eq!(boundary("multipart/mixed; boundary=x"), None);
    }

    #[test]
    fn every_header_that_steers_a_sidecar_or_an_engine_is_internal() {
        for name in names::SIDECAR {
            assert!(is_internal(name), "{name}");
        }
        for name in ["x-data-parallel-rank", "x-override-rid", "x-dp-rank"] {
            assert!(is_internal(name), "{name}");
        }
        assert!(!is_internal("x-session-id") && !is_internal("x-tier"));
        assert!(is_internal(names::FINGERPRINT) && is_internal(names::DESTINATION));
        assert!(!is_internal("x-request-id") && !is_internal(":path"));
    }

    #[test]
    fn identity_is_not_an_encoding() {
        assert!(!is_encoded(&from_pairs(&[])));
        assert!(!is_encoded(&from_pairs(&[(
            "content-encoding",
            "Identity"
        )])));
        assert!(is_encoded(&from_pairs(&[("content-encoding", "gzip")])));
    }
}

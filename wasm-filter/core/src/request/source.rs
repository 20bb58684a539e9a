//! The source of a session key or an objective: the first in an ordered list that has a readable value.
//!
//! Headers and cookies precede the body, so the filter keeps their best value with its rank until the body has been read.

use crate::config::Source;
use crate::headers::{self, Headers};

/// Envoy's header with the address of a client outside its own network, without a port.
const ADDRESS_HEADER: &str = "x-envoy-external-address";

#[derive(Clone, Debug)]
pub(super) struct RankedValue<T>(Option<(usize, T)>);

impl<T> Default for RankedValue<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// The best value among headers and cookies. `read` yields `None` for a value that cannot be read, which counts as absent.
pub(super) fn best<T>(
    sources: &[Source],
    headers: &Headers,
    read: impl Fn(&[u8]) -> Option<T>,
) -> RankedValue<T> {
    let found = sources.iter().enumerate().find_map(|(rank, source)| {
        let value = match source {
            Source::Header(name) => headers::get(headers, name).map(<[u8]>::trim_ascii),
            Source::Cookie(name) => cookie(headers, name),
            Source::Body(_) | Source::ClientAddress => None,
        };
        let value = value.filter(|value| !value.is_empty())?;
        Some((rank, read(value)?))
    });
    RankedValue(found)
}

/// The rank of the body source with this index among the body sources of a list.
pub(super) fn rank_of_body(sources: &[Source], member: usize) -> Option<usize> {
    let sources = sources.iter().enumerate();
    let mut in_body = sources.filter(|(_, source)| matches!(source, Source::Body(_)));
    in_body.nth(member).map(|(rank, _)| rank)
}

impl<T> RankedValue<T> {
    /// Puts a value, if there is one, before every source.
    pub(super) fn prefer(&mut self, value: Option<T>) {
        if let Some(value) = value {
            self.0 = Some((0, value));
        }
    }

    /// The better one of this value and the value in the body.
    pub(super) fn or_in_body(self, in_body: Option<(usize, T)>) -> Option<T> {
        // Two sources never have the same rank; a preferred value wins against rank 0 of the body.
        let best = match (self.0, in_body) {
            (Some(early), Some(late)) if late.0 < early.0 => Some(late),
            (Some(early), _) => Some(early),
            (None, late) => late,
        };
        best.map(|(_, value)| value)
    }
}

/// The value of a cookie. Browsers may send several `cookie` headers over HTTP/2.
fn cookie<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    headers::all(headers, "cookie")
        .flat_map(|value| value.split(|byte| *byte == b';'))
        .find_map(|pair| {
            let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        })
}

/// The client's address in Envoy's header, if the address is among the sources. An Envoy at the edge of the network
/// (`use_remote_address`) overwrites the header of the client.
pub(super) fn client_address(sources: &[Source], headers: &Headers) -> Option<String> {
    let is_source = sources.contains(&Source::ClientAddress);
    let address = is_source.then(|| headers::get(headers, ADDRESS_HEADER))??;
    let address = str::from_utf8(address).ok()?;
    (!address.is_empty()).then(|| address.to_owned())
}

/// The host of `ip:port` or `[ip]:port`; any other text unchanged.
pub(super) fn without_port(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            host.trim_start_matches('[').trim_end_matches(']')
        }
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::from_pairs;

    fn text(value: &[u8]) -> Option<String> {
        String::from_utf8(value.to_vec()).ok()
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let headers = from_pairs(&[("cookie", "xsession=1; session=a=b"), ("cookie", "other=2")]);
        assert_eq!(cookie(&headers, "session"), Some(b"a=b".as_slice()));
        assert_eq!(cookie(&headers, "other"), Some(b"2".as_slice()));
        assert_eq!(cookie(&headers, "ses"), None);
    }

    #[test]
    fn the_port_of_an_address_is_removed() {
        assert_eq!(without_port("10.0.0.1:4242"), "10.0.0.1");
        assert_eq!(without_port("[::1]:4242"), "::1");
        assert_eq!(without_port("/run/socket"), "/run/socket");
    }

    #[test]
    fn the_first_source_with_a_value_wins() {
        let sources = [
            Source::Body("a".to_owned()),
            Source::Header("x-a".to_owned()),
        ];
        let early = best(&sources, &from_pairs(&[("x-a", "early")]), text);
        let late = || Some((0, "late".to_owned()));
        assert_eq!(early.clone().or_in_body(late()).as_deref(), Some("late"));
        assert_eq!(early.or_in_body(None).as_deref(), Some("early"));
        assert_eq!(
            RankedValue::default().or_in_body(late()).as_deref(),
            Some("late")
        );
    }

    #[test]
    fn a_source_in_the_body_keeps_its_rank_among_all_sources() {
        let body = |member: &str| Source::Body(member.to_owned());
        let sources = [body("a"), Source::Cookie("c".to_owned()), body("b.c")];
        assert_eq!(rank_of_body(&sources, 0), Some(0));
        assert_eq!(rank_of_body(&sources, 1), Some(2));
        assert_eq!(rank_of_body(&sources, 2), None);
    }

    #[test]
    fn empty_values_are_skipped() {
        let sources = [
            Source::Header("x-a".to_owned()),
            Source::Cookie("c".to_owned()),
        ];
        let headers = from_pairs(&[("x-a", " "), ("cookie", "c=v")]);
        let found = best(&sources, &headers, text);
        assert_eq!(found.or_in_body(None).as_deref(), Some("v"));
    }

    #[test]
    fn values_that_cannot_be_read_are_skipped() {
        let sources = ["x-a", "x-b"].map(|name| Source::Header(name.to_owned()));
        let headers = from_pairs(&[("x-a", "many"), ("x-b", "7")]);
        let number = |value: &[u8]| str::from_utf8(value).ok()?.parse::<u32>().ok();
        assert_eq!(best(&sources, &headers, number).or_in_body(None), Some(7));
    }
}

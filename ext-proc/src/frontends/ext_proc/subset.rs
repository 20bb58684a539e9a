//! The gateway's restriction of a request to some replicas (endpoint picker protocol of the Gateway API Inference
//! Extension): dynamic metadata `envoy.lb.subset_hint`, key `x-gateway-destination-endpoint-subset`.
//!
//! The first version of the protocol has a comma-separated string there, and later ones a list. Both are read. An entry is
//! `ip:port`, or `ip` for every replica at that address (the data-parallel ranks of a pod).

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::google::protobuf::value::Kind;

use crate::pool::EndpointMatch;

const NAMESPACE: &str = "envoy.lb.subset_hint";
const KEY: &str = "x-gateway-destination-endpoint-subset";

/// Limit of replicas in one restriction; further ones are ignored.
const SUBSET_MAX: usize = 1_000;

/// Returns the replicas that may serve the request; `None` without a restriction. Entries that are no addresses name no
/// replica. A restriction without any address therefore leaves no replica, and the protocol has the request rejected.
pub(super) fn read(metadata: &Metadata) -> Option<Vec<EndpointMatch>> {
    let hint = metadata.filter_metadata.get(NAMESPACE)?;
    let kind = hint.fields.get(KEY)?.kind.as_ref()?;
    let texts: Vec<&str> = match kind {
        Kind::StringValue(text) => text.split(',').collect(),
        Kind::ListValue(list) => list
            .values
            .iter()
            .filter_map(|value| match &value.kind {
                Some(Kind::StringValue(text)) => Some(text.as_str()),
                _ => None,
            })
            .collect(),
        Kind::NullValue(_) => return None,
        Kind::NumberValue(_) | Kind::BoolValue(_) | Kind::StructValue(_) => Vec::new(),
    };
    Some(parse(texts.into_iter()))
}

/// Parses a list of endpoints.
fn parse<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<EndpointMatch> {
    let parsed = texts
        .take(SUBSET_MAX)
        .map(|text| EndpointMatch::parse(text.trim()));
    parsed.flatten().collect()
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};

    use super::*;

    fn metadata(kind: Kind) -> Metadata {
        let value = Value { kind: Some(kind) };
        let hint = Struct {
            fields: [(KEY.to_owned(), value)].into(),
        };
        Metadata {
            filter_metadata: [(NAMESPACE.to_owned(), hint)].into(),
            ..Metadata::default()
        }
    }

    #[test]
    fn a_string_and_a_list_name_the_same_replicas() {
        let text = |text: &str| Kind::StringValue(text.to_owned());
        let expected: Vec<_> = ["10.0.0.1:8000", "[::1]:8000"]
            .map(|text| EndpointMatch::parse(text).unwrap())
            .into();
        let list = ListValue {
            values: vec![
                Value {
                    kind: Some(text("10.0.0.1:8000")),
                },
                Value {
                    kind: Some(text("[::1]:8000")),
                },
            ],
        };
        assert_eq!(
            read(&metadata(text("10.0.0.1:8000, [::1]:8000"))),
            Some(expected.clone())
        );
        assert_eq!(read(&metadata(Kind::ListValue(list))), Some(expected));
    }

    #[test]
    fn no_hint_is_no_restriction_and_a_hint_without_addresses_leaves_no_replica() {
        assert_eq!(read(&Metadata::default()), None);
        assert_eq!(
            read(&metadata(Kind::StringValue("unknown".into()))),
            Some(vec![])
        );
        assert_eq!(read(&metadata(Kind::BoolValue(true))), Some(vec![]));
    }
}

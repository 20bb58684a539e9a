//! The messages are those of the `.proto`: both files are read, and every field of the one must be in the other.

use std::collections::{BTreeMap, BTreeSet};

/// `Message.field: type = number`, with `repeated` or the name of its `oneof` before the type.
type Fields = BTreeSet<String>;

fn of_proto(text: &str) -> Fields {
    let mut fields = Fields::new();
    let (mut message, mut oneof) = ("", None);
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line
            .trim_end_matches([';', '{'])
            .split_whitespace()
            .collect();
        match *words.as_slice() {
            ["message", name] => message = name,
            ["oneof", name] => oneof = Some(name),
            ["}"] => oneof = None,
            ["repeated", kind, name, "=", number] => {
                fields.insert(format!("{message}.{name}: repeated {kind} = {number}"));
            }
            [kind, name, "=", number] if !message.is_empty() => {
                let of = oneof.map(|oneof| format!("{oneof} ")).unwrap_or_default();
                fields.insert(format!("{message}.{name}: {of}{kind} = {number}"));
            }
            _ => {}
        }
    }
    fields
}

/// What `#[prost(...)]` says of a field.
struct Attribute<'a> {
    kind: &'a str,
    repeated: bool,
    /// One number, or those of all variants.
    numbers: &'a str,
}

fn attribute(line: &str) -> Option<Attribute<'_>> {
    let inside = line.strip_prefix("#[prost(")?.strip_suffix(")]")?;
    let (options, numbers) = inside.split_once(", tag")?;
    let mut options = options.split(", ");
    Some(Attribute {
        kind: options.next()?,
        repeated: options.any(|option| option == "repeated"),
        numbers: numbers.split('"').nth(1)?,
    })
}

/// The name of a message in a field's type.
fn bare(kind: &str) -> &str {
    let kind = kind.trim_end_matches([',', ')']);
    kind.strip_prefix("Vec<")
        .or(kind.strip_prefix("Option<"))
        .map_or(kind, |inside| inside.trim_end_matches('>'))
}

fn of_rust(text: &str) -> Fields {
    let mut fields = Fields::new();
    let (mut holder, mut last) = ("", None);
    // Of each enum of variants: its message, its name there, and the numbers.
    let mut oneofs: BTreeMap<&str, (&str, &str, &str)> = BTreeMap::new();
    let mut variants = Vec::new();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["pub", "struct" | "enum", name, "{"] => holder = name,
            ["pub", name, kind] => {
                let Some(Attribute {
                    kind: said,
                    repeated,
                    numbers,
                }) = last.take()
                else {
                    continue;
                };
                let name = name.trim_end_matches(':');
                if let Some(oneof) = said.strip_prefix("oneof = ") {
                    oneofs.insert(oneof.trim_matches('"'), (holder, name, numbers));
                    continue;
                }
                let kind = if said == "message" { bare(kind) } else { said };
                let repeated = if repeated { "repeated " } else { "" };
                fields.insert(format!("{holder}.{name}: {repeated}{kind} = {numbers}"));
            }
            [variant] if variant.contains('(') => {
                if let Some(said) = last.take() {
                    let (name, kind) = variant.split_once('(').unwrap();
                    let kind = if said.kind == "message" {
                        bare(kind)
                    } else {
                        said.kind
                    };
                    variants.push((holder, name.to_lowercase(), kind, said.numbers));
                }
            }
            _ => {}
        }
        last = attribute(line).or(last);
    }
    let mut numbered: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (holder, name, kind, number) in variants {
        let (message, oneof, _) = oneofs[holder];
        fields.insert(format!("{message}.{name}: {oneof} {kind} = {number}"));
        numbered.entry(holder).or_default().push(number);
    }
    for (holder, (_, _, numbers)) in oneofs {
        assert_eq!(numbered[holder].join(", "), numbers, "the tags of {holder}");
    }
    fields
}

#[test]
fn the_messages_are_those_of_the_proto() {
    let proto = of_proto(include_str!("../peering.proto"));
    let rust = of_rust(include_str!("../wire.rs"));
    assert!(proto.contains("Envelope.session: uint64 = 1"), "{proto:?}");
    assert!(
        proto.contains("Envelope.ping: payload Ping = 3"),
        "{proto:?}"
    );
    assert!(
        proto.contains("Placement.hashes: repeated fixed64 = 5"),
        "{proto:?}"
    );
    assert_eq!(rust, proto);
}

#[test]
fn a_difference_is_found() {
    let proto = "message A {\n  uint64 a = 1;\n}";
    let rust = |attribute: &str| {
        of_rust(&format!(
            "pub struct A {{\n#[prost({attribute})]\npub a: u64,\n}}"
        ))
    };
    assert_eq!(rust(r#"uint64, tag = "1""#), of_proto(proto));
    assert_ne!(rust(r#"uint64, tag = "2""#), of_proto(proto));
    assert_ne!(rust(r#"uint32, tag = "1""#), of_proto(proto));
    assert_ne!(rust(r#"uint64, repeated, tag = "1""#), of_proto(proto));
}

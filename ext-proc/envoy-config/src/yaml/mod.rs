//! A YAML document as a tree in which every node knows where its text stands.
//!
//! JSON is YAML in flow style, so the same tree holds both.

mod edit;
mod parse;
mod render;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub(crate) use edit::Edits;
pub use parse::ParseError;
pub(crate) use parse::parse;
pub(crate) use render::{Style, block, flow};

/// A value of a document.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Data,
    /// Bytes of the text that hold the content. For an alias these are the bytes of the anchored node.
    pub(crate) span: Range<usize>,
    /// Bytes of the text where the node is used: the bytes of the token for an alias, otherwise those of `span`.
    pub(crate) site: Range<usize>,
    /// Line of `site`, from 1.
    pub(crate) line: usize,
    /// Column of the content, from 0.
    pub(crate) column: usize,
    /// Anchor that the rendered node defines. A parsed node has none: its aliases are resolved.
    pub(crate) anchor: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Data {
    Scalar(Scalar),
    List { items: Vec<Node>, is_flow: bool },
    Map { members: Vec<Member>, is_flow: bool },
}

/// A text, a number, a boolean or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// Whether the text stands without quotes, so that it may be a number, a boolean or nothing.
    pub(crate) is_plain: bool,
}

/// A member of a map.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Bytes of the text that hold the name.
    pub(crate) name_span: Range<usize>,
    /// Line of the name, from 1.
    pub(crate) line: usize,
    pub(crate) value: Node,
}

impl Member {
    /// End of the member's text.
    pub(crate) fn end(&self) -> usize {
        self.value.end().max(self.name_span.end)
    }
}

/// Two nodes are equal when their values are, wherever they stand.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (&self.data, &other.data) {
            (Data::Scalar(one), Data::Scalar(two)) => one == two,
            (Data::List { items: one, .. }, Data::List { items: two, .. }) => one == two,
            (Data::Map { members: one, .. }, Data::Map { members: two, .. }) => {
                let is_equal = |(a, b): (&Member, &Member)| a.name == b.name && a.value == b.value;
                one.len() == two.len() && one.iter().zip(two).all(is_equal)
            }
            _ => false,
        }
    }
}

impl Node {
    /// Makes a text that stands nowhere yet.
    #[must_use]
    pub(crate) fn text(text: &str) -> Self {
        Self::new(Data::Scalar(Scalar {
            text: text.to_owned(),
            is_plain: true,
        }))
    }

    /// Makes a text that stands nowhere yet, in quotes: never a number or a boolean.
    #[must_use]
    pub(crate) fn quoted(text: &str) -> Self {
        Self::new(Data::Scalar(Scalar {
            text: text.to_owned(),
            is_plain: false,
        }))
    }

    /// Makes a list that stands nowhere yet.
    #[must_use]
    pub(crate) fn list(items: Vec<Self>) -> Self {
        let is_flow = false;
        Self::new(Data::List { items, is_flow })
    }

    /// Makes a map that stands nowhere yet.
    #[must_use]
    pub(crate) fn map<const N: usize>(members: [(&str, Self); N]) -> Self {
        let mut map = Self::new(Data::Map {
            members: Vec::new(),
            is_flow: false,
        });
        for (name, value) in members {
            map.set(name, value);
        }
        map
    }

    fn new(data: Data) -> Self {
        Self {
            data,
            span: 0..0,
            site: 0..0,
            line: 0,
            column: 0,
            anchor: None,
        }
    }

    /// This node with an anchor, or an alias of the anchor.
    pub(crate) fn with_anchor(mut self, name: &str, is_definition: bool) -> Self {
        if is_definition {
            self.anchor = Some(name.to_owned());
            return self;
        }
        Self::text(&format!("*{name}"))
    }

    /// A member of a map, by its name in `snake_case`. Protobuf's JSON allows camel case as well.
    #[must_use]
    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        let members = self.members();
        let found = members.iter().find(|member| member.name == name);
        found.or_else(|| {
            let camel = camel_case(name);
            members.iter().find(|member| member.name == camel)
        })
    }

    /// The value of a member.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.member(name)
            .map(|member| &member.value)
            .filter(|value| !value.is_null())
    }

    /// The value at a dotted path of members.
    #[must_use]
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, name| node.get(name))
    }

    /// The text of a scalar.
    #[must_use]
    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.data {
            Data::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The text at a dotted path of members.
    #[must_use]
    pub(crate) fn str_at(&self, path: &str) -> Option<&str> {
        self.at(path)?.as_str()
    }

    /// Whether the node is the boolean `true`.
    #[must_use]
    pub(crate) fn is_true(&self) -> bool {
        self.as_str() == Some("true")
    }

    fn is_null(&self) -> bool {
        let Data::Scalar(scalar) = &self.data else {
            return false;
        };
        scalar.is_plain && ["", "~", "null"].contains(&scalar.text.as_str())
    }

    /// Whether the node's text is in flow style, as in JSON.
    #[must_use]
    pub(crate) fn is_flow(&self) -> bool {
        match self.data {
            Data::Scalar(_) => false,
            Data::List { is_flow, .. } | Data::Map { is_flow, .. } => is_flow,
        }
    }

    /// The items of a list; none of anything else.
    #[must_use]
    pub(crate) fn items(&self) -> &[Self] {
        match &self.data {
            Data::List { items, .. } => items,
            _ => &[],
        }
    }

    /// The items of the list at a dotted path.
    pub(crate) fn items_at(&self, path: &str) -> impl Iterator<Item = &Self> {
        self.at(path).into_iter().flat_map(Self::items)
    }

    /// The members of a map; none of anything else.
    #[must_use]
    pub(crate) fn members(&self) -> &[Member] {
        match &self.data {
            Data::Map { members, .. } => members,
            _ => &[],
        }
    }

    /// The name of the message that `@type` states, without its domain.
    #[must_use]
    pub(crate) fn message(&self) -> Option<&str> {
        self.members()
            .iter()
            .find(|member| member.name == "@type")
            .and_then(|member| member.value.as_str()?.rsplit('/').next())
    }

    /// Every node below this one and the node itself, in the order of the text.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<&Self> {
        let mut found = Vec::new();
        let mut rest = vec![self];
        while let Some(node) = rest.pop() {
            found.push(node);
            match &node.data {
                Data::Scalar(_) => {}
                Data::List { items, .. } => rest.extend(items.iter().rev()),
                Data::Map { members, .. } => {
                    rest.extend(members.iter().rev().map(|member| &member.value));
                }
            }
        }
        found
    }

    /// Sets a member of a map, or adds it at the end.
    pub(crate) fn set(&mut self, name: &str, value: Self) {
        let Data::Map { members, .. } = &mut self.data else {
            return;
        };
        match members.iter_mut().find(|member| member.name == name) {
            Some(member) => member.value = value,
            None => members.push(Member {
                name: name.to_owned(),
                name_span: 0..0,
                line: 0,
                value,
            }),
        }
    }

    /// Removes a member of a map.
    pub(crate) fn remove(&mut self, name: &str) {
        let camel = camel_case(name);
        if let Data::Map { members, .. } = &mut self.data {
            members.retain(|member| member.name != name && member.name != camel);
        }
    }

    /// The value at a dotted path of members, for a change.
    pub(crate) fn at_mut(&mut self, path: &str) -> Option<&mut Self> {
        path.split('.').try_fold(self, |node, name| {
            let Data::Map { members, .. } = &mut node.data else {
                return None;
            };
            let member = members.iter_mut().find(|member| member.name == name)?;
            Some(&mut member.value)
        })
    }

    /// Applies a change to every node, the deepest first.
    pub(crate) fn change_all(&mut self, change: &mut impl FnMut(&mut Self)) {
        match &mut self.data {
            Data::Scalar(_) => {}
            Data::List { items, .. } => {
                for item in items {
                    item.change_all(change);
                }
            }
            Data::Map { members, .. } => {
                for member in members {
                    member.value.change_all(change);
                }
            }
        }
        change(self);
    }

    /// End of the node's text where it is used.
    pub(crate) fn end(&self) -> usize {
        if self.site != self.span {
            return self.site.end;
        }
        match &self.data {
            Data::List { items, is_flow } if !is_flow => {
                items.last().map_or(self.span.end, Self::end)
            }
            Data::Map { members, is_flow } if !is_flow => {
                members.last().map_or(self.span.end, Member::end)
            }
            _ => self.span.end,
        }
    }
}

/// `messageTimeout` of `message_timeout`: protobuf messages in JSON and YAML may have either name.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut joined, word| {
        let mut letters = word.chars();
        joined.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        joined.push_str(letters.as_str());
        joined
    })
}

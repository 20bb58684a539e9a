//! Parsing: the parser's events become a tree.
//!
//! The parser is the one below `serde-saphyr`, which reads the service's own configuration. It is used itself, because
//! `serde-saphyr` gives no position of an anchored node, and no end of a node.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, StructureStyle};

use super::{Data, Member, Node, Scalar};

/// The largest text, in bytes. A bootstrap has some kilobytes, and a configuration dump some megabytes.
const TEXT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most nodes of a tree, with each alias counted as the nodes that it stands for.
const NODES_MAX: usize = 4_000_000;
/// The deepest nesting.
const DEPTH_MAX: usize = 200;

/// A text that is no YAML document.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    line: usize,
    reason: String,
}

impl ParseError {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { line, reason }
    }
}

/// Parses a text with one document.
pub(crate) fn parse(text: &str) -> Result<Node, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        let reason = format!("the text has more than {TEXT_BYTES_MAX} bytes");
        return Err(ParseError::new(1, reason));
    }
    let mut builder = Builder {
        text,
        offsets: (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect()),
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        nodes: 0,
    };
    let root = builder.document()?;
    match root.data {
        Data::Map { .. } => Ok(root),
        _ => Err(ParseError::new(1, "a configuration is a map of members")),
    }
}

struct Builder<'a> {
    text: &'a str,
    /// Byte offset of each character; `None` where all characters have one byte.
    offsets: Option<Vec<usize>>,
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Node, ParseError> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd, _) => {
                    return Err(ParseError::new(1, "the file is empty"));
                }
                (event, span) => {
                    let root = self.node(event, span, 0)?;
                    self.expect_end()?;
                    return Ok(root);
                }
            }
        }
    }

    fn expect_end(&mut self) -> Result<(), ParseError> {
        loop {
            match self.next()? {
                (Event::DocumentEnd, _) => {}
                (Event::StreamEnd, _) => return Ok(()),
                (_, span) => {
                    let reason = "a second document begins here; Envoy reads one";
                    return Err(ParseError::new(span.start.line(), reason));
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), ParseError> {
        loop {
            match self.parser.next_event() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => {
                    return Err(ParseError::new(error.marker().line(), error.info()));
                }
                None => return Err(ParseError::new(1, "the text ends inside of a value")),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, ParseError> {
        let line = span.start.line();
        self.nodes += 1;
        if self.nodes > NODES_MAX || depth > DEPTH_MAX {
            let reason = "the document has too many values, or nests too deeply";
            return Err(ParseError::new(line, reason));
        }
        let start = self.offset(span.start.index());
        let mut range = start..self.offset(span.end.index());
        let mut column = span.start.col();
        let (data, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                range.end = self.end_of_scalar(&range);
                let is_plain = style == ScalarStyle::Plain;
                let text = text.into_owned();
                (Data::Scalar(Scalar { text, is_plain }), anchor)
            }
            Event::SequenceStart(style, anchor, _) => {
                let (items, end) = self.items(depth)?;
                range.end = end;
                let is_flow = style == StructureStyle::Flow;
                if !is_flow {
                    column = self.column_of_dash(start, column, &items);
                }
                (Data::List { items, is_flow }, anchor)
            }
            Event::MappingStart(style, anchor, _) => {
                let (members, end) = self.members(depth)?;
                range.end = end;
                let is_flow = style == StructureStyle::Flow;
                (Data::Map { members, is_flow }, anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, range, line),
            _ => return Err(ParseError::new(line, "a value is missing here")),
        };
        let site = range.clone();
        let node = Node {
            data,
            span: range,
            site,
            line,
            column,
            anchor: None,
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(
        &mut self,
        anchor: usize,
        site: Range<usize>,
        line: usize,
    ) -> Result<Node, ParseError> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(ParseError::new(line, "an alias of itself"));
        };
        self.nodes += anchored.all().len();
        if self.nodes > NODES_MAX {
            return Err(ParseError::new(line, "aliases stand for too many values"));
        }
        let mut node = anchored.clone();
        (node.site, node.line) = (site, line);
        Ok(node)
    }

    fn items(&mut self, depth: usize) -> Result<(Vec<Node>, usize), ParseError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, span) => return Ok((items, self.offset(span.end.index()))),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    /// The members of a map. Envoy ignores a member whose name has the tag `!ignore`; its anchors stay known.
    fn members(&mut self, depth: usize) -> Result<(Vec<Member>, usize), ParseError> {
        let mut members = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, span) => return Ok((members, self.offset(span.end.index()))),
                next => next,
            };
            let is_ignored = event.tag().is_some_and(|tag| tag.suffix() == "ignore");
            let name = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            let Some(text) = name.as_str() else {
                return Err(ParseError::new(name.line, "a name is a text"));
            };
            let name_text = if is_ignored {
                format!("!ignore {text}")
            } else {
                text.to_owned()
            };
            members.push(Member {
                name: name_text,
                name_span: name.site,
                line: name.line,
                value,
            });
        }
    }

    /// Column of the dashes of a list. Where they stand as deep as the name above, the parser gives the column of the first item.
    fn column_of_dash(&self, start: usize, column: usize, items: &[Node]) -> usize {
        let rest = self.text.get(start..).unwrap_or_default();
        let is_dash = rest
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with([' ', '\n', '\r', '\t']));
        if is_dash {
            return column;
        }
        let first = items.first().map_or(start, |item| item.site.start);
        let before = self.text.get(..first).unwrap_or_default();
        let tail = self.text.get(first..).unwrap_or_default();
        let line = tail.split('\n').next().unwrap_or_default();
        let mut lines: Vec<&str> = before.split('\n').collect();
        let lead = lines.pop().unwrap_or_default();
        let own = format!("{lead}{line}");
        let above = lines.into_iter().rev().map(str::to_owned);
        let mut with_dash = std::iter::once(own).chain(above);
        let found = with_dash.find(|line| line.trim_start().starts_with('-'));
        found.map_or(column, |line| line.len() - line.trim_start().len())
    }

    /// End of a scalar without the line breaks that the parser counts to a block scalar.
    fn end_of_scalar(&self, range: &Range<usize>) -> usize {
        let text = self.text.get(range.clone()).unwrap_or_default();
        range.start + text.trim_end().len()
    }

    fn offset(&self, index: usize) -> usize {
        match &self.offsets {
            None => index.min(self.text.len()),
            Some(offsets) => offsets.get(index).copied().unwrap_or(self.text.len()),
        }
    }
}

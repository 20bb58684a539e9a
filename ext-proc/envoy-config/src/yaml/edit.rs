//! Edits of a text at the positions of its nodes. Everything that no edit touches keeps its bytes.

use std::cmp::Reverse;
use std::ops::Range;

use super::render::{Style, block, flow, flow_lines, name};
use super::{Member, Node};

/// The longest entry that stands on the line of its collection, in characters.
const SHORT: usize = 60;

/// Edits of one text, applied together.
#[derive(Debug)]
pub(crate) struct Edits<'a> {
    text: &'a str,
    style: Style,
    /// Replaced bytes and their replacement, in the order of the calls.
    list: Vec<(Range<usize>, String)>,
}

impl<'a> Edits<'a> {
    /// Starts without an edit.
    #[must_use]
    pub(crate) fn new(text: &'a str) -> Self {
        let is_json = text.trim_start().starts_with(['{', '[']);
        let style = if is_json { Style::Json } else { Style::Yaml };
        let list = Vec::new();
        Self { text, style, list }
    }

    /// How this text writes names.
    #[must_use]
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Replaces the text of a node.
    pub(crate) fn replace(&mut self, node: &Node, value: &Node) {
        let text = flow(value, self.style);
        self.push(node.site.clone(), text);
    }

    /// Replaces bytes.
    pub(crate) fn replace_bytes(&mut self, bytes: Range<usize>, text: impl Into<String>) {
        self.push(bytes, text.into());
    }

    /// Sets a member of a map: replaces the value, or adds the member at the end.
    pub(crate) fn set(&mut self, map: &Node, name: &str, value: &Node) {
        match map.member(name) {
            Some(member) => self.replace_member(map, member, name, value),
            None => self.add_member(map, name, value),
        }
    }

    /// Replaces a member, its name included.
    pub(crate) fn replace_member(&mut self, map: &Node, member: &Member, name: &str, value: &Node) {
        let bytes = member.name_span.start..member.end();
        let text = if map.is_flow() {
            self.flow_member(bytes.start, name, value)
        } else {
            indented(&block_member(name, value), map.column)
        };
        self.push(bytes, text);
    }

    /// Adds a member at the end of a map.
    pub(crate) fn add_member(&mut self, map: &Node, name: &str, value: &Node) {
        if map.is_flow() {
            let text = self.flow_member(map.span.end, name, value);
            self.add_in_flow(map, map.members().is_empty(), &text);
            return;
        }
        let text = indented(&block_member(name, value), map.column);
        let end = self.end_of_line(map.members().last().map_or(map.span.end, Member::end));
        let pad = " ".repeat(map.column);
        self.push(end..end, format!("\n{pad}{text}"));
    }

    /// Removes a member of a map.
    pub(crate) fn remove_member(&mut self, map: &Node, member: &Member) {
        let (start, end) = (member.name_span.start, member.end());
        let is_alone = map.members().len() == 1;
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let has_line = before
            .get(line_start..)
            .is_some_and(|lead| lead.trim().is_empty());
        if !map.is_flow() && has_line && !is_alone {
            let end = self.end_of_line(end);
            self.push(line_start.saturating_sub(1)..end, String::new());
        } else if !map.is_flow() && !is_alone {
            // The first member of an item stands behind its dash: the next member moves there.
            let next = map
                .members()
                .iter()
                .find(|next| next.name_span.start > start);
            let next = next.map_or(end, |next| next.name_span.start);
            self.push(start..next, String::new());
        } else {
            let rest = self.text.get(end..).unwrap_or_default();
            let comma = rest.len() - rest.trim_start().len();
            let has_comma = rest.trim_start().starts_with(',');
            let lead = before.trim_end();
            match (has_comma, lead.strip_suffix(',')) {
                (true, _) => self.push(start..end + comma + 1, String::new()),
                (false, Some(lead)) => self.push(lead.len()..end, String::new()),
                (false, None) if map.is_flow() => self.push(start..end, String::new()),
                (false, None) => self.push(start..end, "{}".to_owned()),
            }
        }
    }

    /// Inserts items in front of the item at an index, or at the end of the list.
    pub(crate) fn insert_items(
        &mut self,
        list: &Node,
        index: usize,
        items: &[Node],
        comment: &str,
    ) {
        if items.is_empty() {
            return;
        }
        if list.is_flow() {
            self.insert_in_flow(list, index, items);
            return;
        }
        let mut text: Vec<String> = items
            .iter()
            .map(|item| block(&Node::list(vec![item.clone()])))
            .collect();
        if !comment.is_empty() {
            text.insert(0, format!("# {comment}"));
        }
        let text = indented(&text.join("\n"), list.column);
        match list.items().get(index) {
            Some(item) => {
                let start = self.start_of_item(list, item);
                let pad = " ".repeat(list.column);
                self.push(start..start, format!("{pad}{text}\n"));
            }
            None => {
                let end = self.end_of_line(list.end());
                let pad = " ".repeat(list.column);
                self.push(end..end, format!("\n{pad}{text}"));
            }
        }
    }

    /// The text with every edit. Fails where two edits overlap, as two settings of one value do.
    pub(crate) fn apply(mut self) -> Result<String, String> {
        // At the end of one line the members of the innermost map come first.
        self.list
            .sort_by_key(|(bytes, text)| (bytes.start, bytes.end, Reverse(indentation(text))));
        let mut edited = String::with_capacity(self.text.len());
        let mut done = 0;
        for (bytes, text) in &self.list {
            let Some(kept) = self.text.get(done..bytes.start) else {
                let line = self
                    .text
                    .get(..bytes.start)
                    .map_or(0, |text| text.matches('\n').count());
                return Err(format!("line {}: two changes of one value", line + 1));
            };
            edited.push_str(kept);
            edited.push_str(text);
            done = bytes.end;
        }
        edited.push_str(self.text.get(done..).unwrap_or_default());
        Ok(edited)
    }

    fn push(&mut self, bytes: Range<usize>, text: String) {
        let edit = (bytes, text);
        // An anchored node that is used twice gets the same edit twice.
        if !self.list.contains(&edit) {
            self.list.push(edit);
        }
    }

    /// A member in flow style, for a place in the text.
    fn flow_member(&self, at: usize, member: &str, value: &Node) -> String {
        let value = flow_lines(value, self.style, self.indent_at(at));
        format!("{}: {value}", name(member, self.style))
    }

    fn insert_in_flow(&mut self, list: &Node, index: usize, items: &[Node]) {
        let Some(item) = list.items().get(index) else {
            let indent = self.indent_at(list.span.end);
            for (added, item) in items.iter().enumerate() {
                let is_first = added == 0 && list.items().is_empty();
                self.add_in_flow(list, is_first, &flow_lines(item, self.style, indent));
            }
            return;
        };
        let start = item.site.start;
        let indent = self.indent_at(start);
        let texts = items
            .iter()
            .map(|item| flow_lines(item, self.style, indent));
        let separator = format!(",\n{}", " ".repeat(indent));
        let texts: Vec<String> = texts.collect();
        let is_short = texts.iter().all(|text| text.len() <= SHORT);
        let separator = if is_short { ", " } else { &separator };
        self.push(
            start..start,
            format!("{}{separator}", texts.join(separator)),
        );
    }

    /// Adds text in front of the closing bracket of a collection in flow style, on a line of its own where it is long.
    fn add_in_flow(&mut self, collection: &Node, is_empty: bool, text: &str) {
        let inner_end = collection.span.end.saturating_sub(1);
        let inner = self.text.get(..inner_end).unwrap_or_default().trim_end();
        let at = inner.len();
        let comma = if is_empty || inner.ends_with(',') {
            ""
        } else {
            ","
        };
        let gap = if text.len() <= SHORT {
            " ".to_owned()
        } else {
            format!("\n{}", " ".repeat(self.indent_at(collection.span.end)))
        };
        self.push(at..at, format!("{comma}{gap}{text}"));
    }

    /// Indentation of a new line inside of the collection at a place.
    fn indent_at(&self, at: usize) -> usize {
        let line = self.text.get(self.start_of_line(at)..).unwrap_or_default();
        let lead = line.trim_start_matches([' ', '-']);
        line.len() - lead.len() + 2
    }

    fn end_of_line(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        let length = rest.find('\n').unwrap_or(rest.len());
        let line = rest.get(..length).unwrap_or_default();
        at + line.trim_end_matches('\r').len()
    }

    /// Start of the line of an item's dash, or of the comments directly above it.
    fn start_of_item(&self, list: &Node, item: &Node) -> usize {
        let mut start = self.start_of_line(item.site.start);
        while start > 0 && !self.has_dash(start, list.column) {
            start = self.start_of_line(start - 1);
        }
        while start > 0 {
            let above = self.start_of_line(start - 1);
            let line = self.text.get(above..start).unwrap_or_default();
            if !line.trim_start().starts_with('#') {
                break;
            }
            start = above;
        }
        start
    }

    fn has_dash(&self, start: usize, column: usize) -> bool {
        let line = self.text.get(start..).unwrap_or_default();
        line.chars().nth(column) == Some('-')
    }

    fn start_of_line(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        before.rfind('\n').map_or(0, |at| at + 1)
    }
}

/// A member in block style, its further lines without the map's indentation.
fn block_member(name: &str, value: &Node) -> String {
    let mut single = Node::map([]);
    single.set(name, value.clone());
    block(&single)
}

/// Spaces in front of the first line that an edit adds.
fn indentation(text: &str) -> usize {
    let line = text.trim_start_matches('\n');
    line.len() - line.trim_start_matches(' ').len()
}

/// Indents every line but the first.
fn indented(text: &str, column: usize) -> String {
    let pad = " ".repeat(column);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |mut joined, line| {
        joined.push('\n');
        if !line.is_empty() {
            joined.push_str(&pad);
            joined.push_str(line);
        }
        joined
    })
}

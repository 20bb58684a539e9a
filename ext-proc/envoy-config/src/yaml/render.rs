//! Rendering: nodes become text, in as few lines as stay readable.
//!
//! A value stands in flow style where its line has room for it, otherwise in block style.

use super::{Data, Node, Scalar};

/// The longest line, in characters.
const WIDTH: usize = 170;
/// The longest entry of a collection in flow style that takes several lines.
const ENTRY_WIDTH: usize = 160;

/// How names and texts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// YAML: quotes only where they are needed.
    Yaml,
    /// JSON: every name and every text in quotes.
    Json,
}

/// Renders a value on one line.
#[must_use]
pub(crate) fn flow(node: &Node, style: Style) -> String {
    match &node.data {
        Data::Scalar(scalar) => inline(scalar, style),
        Data::List { items, .. } => {
            let items: Vec<String> = items.iter().map(|item| flow(item, style)).collect();
            format!("[{}]", items.join(", "))
        }
        Data::Map { members, .. } if members.is_empty() => "{}".to_owned(),
        Data::Map { members, .. } => {
            let members: Vec<String> = members
                .iter()
                .map(|member| flow_member(&member.name, &member.value, style))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
    }
}

/// Renders a member on one line.
fn flow_member(member: &str, value: &Node, style: Style) -> String {
    format!("{}: {}", name(member, style), flow(value, style))
}

/// Renders a value in flow style, on several lines where one has no room for it. Further lines are indented by `indent`.
pub(super) fn flow_lines(node: &Node, style: Style, indent: usize) -> String {
    let single = flow(node, style);
    if indent + single.chars().count() <= WIDTH {
        return single;
    }
    let inner = indent + 2;
    let (brackets, entries): (_, Vec<String>) = match &node.data {
        Data::Scalar(_) => return single,
        Data::List { items, .. } => {
            let entries = items.iter().map(|item| flow_lines(item, style, inner));
            (["[", "]"], entries.collect())
        }
        Data::Map { members, .. } => {
            let entries = members.iter().map(|member| {
                let value = flow_lines(&member.value, style, inner);
                format!("{}: {value}", name(&member.name, style))
            });
            (["{", "}"], entries.collect())
        }
    };
    let [open, close] = brackets;
    let pad = " ".repeat(inner);
    let entries = entries.join(&format!(",\n{pad}"));
    format!("{open}\n{pad}{entries}\n{}{close}", " ".repeat(indent))
}

/// Renders a value as lines in block style, without indentation and without a line break at the end.
#[must_use]
pub(crate) fn block(node: &Node) -> String {
    let mut lines = Vec::new();
    value_lines(node, 0, &mut lines);
    lines.join("\n")
}

fn value_lines(node: &Node, indent: usize, lines: &mut Vec<String>) {
    match &node.data {
        Data::Scalar(scalar) => lines.push(inline(scalar, Style::Yaml)),
        Data::List { items, .. } => {
            for item in items {
                item_lines(item, indent, lines);
            }
        }
        Data::Map { members, .. } => {
            for member in members {
                member_lines(&member.name, &member.value, indent, lines);
            }
        }
    }
}

/// Lines of an item: `- ` in front of the first, two spaces in front of the others.
fn item_lines(item: &Node, indent: usize, lines: &mut Vec<String>) {
    let pad = " ".repeat(indent);
    if let Some(anchor) = &item.anchor {
        lines.push(format!("{pad}- &{anchor}"));
        value_lines(item, indent + 2, lines);
        return;
    }
    if fits(item, indent + 2) {
        lines.push(format!("{pad}- {}", flow(item, Style::Yaml)));
        return;
    }
    let mut own = Vec::new();
    match wrapped(item, indent + 4, indent + 2) {
        Some(mut wrapped) => {
            if let Some(first) = wrapped.first_mut() {
                first.insert_str(0, &" ".repeat(indent + 2));
            }
            own = wrapped;
        }
        None => value_lines(item, indent + 2, &mut own),
    }
    for (index, line) in own.into_iter().enumerate() {
        let rest = line.get(indent + 2..).filter(|_| index == 0);
        lines.push(rest.map_or_else(|| line.clone(), |rest| format!("{pad}- {rest}")));
    }
}

fn member_lines(member: &str, value: &Node, indent: usize, lines: &mut Vec<String>) {
    let pad = " ".repeat(indent);
    let shown = name(member, Style::Yaml);
    if let Some(text) = literal(value) {
        lines.push(format!("{pad}{shown}: |"));
        lines.extend(text.lines().map(|line| match line {
            "" => String::new(),
            line => format!("{pad}  {line}"),
        }));
        return;
    }
    let is_empty = match &value.data {
        Data::Scalar(_) => true,
        Data::List { items, .. } => items.is_empty(),
        Data::Map { members, .. } => members.is_empty(),
    };
    if is_empty || fits(value, indent + shown.len() + 2) {
        lines.push(format!("{pad}{shown}: {}", flow(value, Style::Yaml)));
        return;
    }
    if let Some(wrapped) = wrapped(value, indent + 2, indent + shown.len() + 2) {
        let mut wrapped = wrapped.into_iter();
        let first = wrapped.next().unwrap_or_default();
        lines.push(format!("{pad}{shown}: {first}"));
        lines.extend(wrapped);
        return;
    }
    lines.push(format!("{pad}{shown}:"));
    value_lines(value, indent + 2, lines);
}

/// Whether a value may stand in flow style behind so many characters.
fn fits(value: &Node, used: usize) -> bool {
    let has_text_block = value.all().into_iter().any(|node| literal(node).is_some());
    let length = flow(value, Style::Yaml).chars().count();
    !has_text_block && used + length <= WIDTH
}

/// A collection of several small entries in flow style on several lines; `None` where an entry is large. `used` counts the
/// characters in front of the first line.
fn wrapped(value: &Node, indent: usize, used: usize) -> Option<Vec<String>> {
    let (brackets, entries): (_, Vec<String>) = match &value.data {
        Data::Scalar(_) => return None,
        Data::List { items, .. } => {
            let entries = items.iter().map(|item| flow(item, Style::Yaml));
            (["[", "]"], entries.collect())
        }
        Data::Map { members, .. } => {
            let entries = members
                .iter()
                .map(|member| flow_member(&member.name, &member.value, Style::Yaml));
            (["{", "}"], entries.collect())
        }
    };
    let is_small = |entry: &String| entry.chars().count() <= ENTRY_WIDTH;
    let has_type = value.message().is_some();
    if entries.len() < 3 || has_type || !entries.iter().all(is_small) {
        return None;
    }
    let count = entries.len();
    let pad = " ".repeat(indent);
    let [open, close] = brackets;
    let mut lines = vec![format!("{}{open} ", " ".repeat(used))];
    let last = count - 1;
    for (index, entry) in entries.into_iter().enumerate() {
        let piece = if index == last {
            entry
        } else {
            format!("{entry}, ")
        };
        let is_full = lines
            .last()
            .is_some_and(|line| line.len() + piece.trim_end().len() > WIDTH);
        match lines.last_mut().filter(|_| !is_full) {
            Some(line) => line.push_str(&piece),
            None => lines.push(format!("{pad}{piece}")),
        }
    }
    let mut lines: Vec<String> = lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect();
    if let Some(first) = lines.first_mut() {
        first.drain(..used);
    }
    if let Some(line) = lines.last_mut() {
        line.push_str(&format!(" {close}"));
    }
    // Where this saves no lines, block style is easier to read.
    (lines.len() < count).then_some(lines)
}

/// The text of a scalar of several lines.
fn literal(node: &Node) -> Option<&str> {
    node.as_str().filter(|text| text.contains('\n'))
}

pub(super) fn name(text: &str, style: Style) -> String {
    let scalar = Scalar {
        text: text.to_owned(),
        is_plain: style == Style::Yaml && !text.is_empty(),
    };
    inline(&scalar, style)
}

/// A scalar on one line: without quotes where it is so in its source and means the same.
fn inline(scalar: &Scalar, style: Style) -> String {
    let text = scalar.text.as_str();
    let is_plain = match style {
        Style::Yaml => scalar.is_plain && is_plain(text),
        Style::Json => scalar.is_plain && is_literal_of_json(text),
    };
    match (is_plain, style) {
        (true, _) if text.is_empty() => "null".to_owned(),
        (true, _) => text.to_owned(),
        (false, Style::Yaml) if text.contains('\\') && !text.contains(['\'', '\n']) => {
            format!("'{text}'")
        }
        (false, _) => quoted(text),
    }
}

/// Whether a text needs no quotes, in flow style either.
fn is_plain(text: &str) -> bool {
    let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "_-./@*%+|()".contains(letter);
    let begins_well = text
        .chars()
        .next()
        .is_none_or(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    // No text of a document begins so without quotes: it is an alias.
    let is_alias = text.starts_with('*') && text.len() > 1;
    let is_dash = text.starts_with("- ") || text == "-";
    (begins_well || is_alias) && !is_dash && text.chars().all(is_safe)
}

/// Whether JSON writes a scalar without quotes: a number, a boolean or nothing.
fn is_literal_of_json(text: &str) -> bool {
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite)
        && text
            .chars()
            .all(|letter| letter.is_ascii_digit() || "-+.eE".contains(letter))
        && !text.starts_with(['+', '.']);
    is_number || ["", "true", "false", "null"].contains(&text)
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            letter if letter.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

use super::*;

/// The text after one edit of a parsed document.
fn edited(text: &str, edit: impl FnOnce(&Node, &mut Edits<'_>)) -> String {
    let root = parse(text).unwrap();
    let mut edits = Edits::new(text);
    edit(&root, &mut edits);
    let edited = edits.apply().unwrap();
    parse(&edited).unwrap();
    edited
}

#[test]
fn an_item_stands_above_the_comments_of_the_next_one_and_everything_else_keeps_its_bytes() {
    let text =
        "a:\n  # über b\n  list: # here\n  - x: 1\n\n  # the last\n  - &y { y: 2 } # two\nb: *y\n";
    let after = edited(text, |root, edits| {
        let list = root.at("a.list").unwrap();
        edits.insert_items(list, 1, &[Node::map([("z", Node::text("3"))])], "new");
    });
    let expected = text.replace("  # the last\n", "  # new\n  - { z: 3 }\n  # the last\n");
    assert_eq!(after, expected);
}

#[test]
fn a_member_is_added_behind_the_last_one_also_behind_a_text_block() {
    let text = "a:\n- b: |\n    one\n\n    two\n\n# end\nc: 1\n";
    let after = edited(text, |root, edits| {
        let item = root.items_at("a").next().unwrap();
        edits.add_member(item, "d", &Node::text("4"));
    });
    assert_eq!(after, text.replace("    two\n", "    two\n  d: 4\n"));
}

#[test]
fn members_of_nested_maps_that_end_together_keep_their_depth() {
    let after = edited("a:\n  b:\n    c: 1\n", |root, edits| {
        edits.add_member(root, "z", &Node::text("3"));
        edits.add_member(root.get("a").unwrap(), "y", &Node::text("2"));
        edits.add_member(root.at("a.b").unwrap(), "x", &Node::text("1"));
    });
    assert_eq!(after, "a:\n  b:\n    c: 1\n    x: 1\n  y: 2\nz: 3\n");
}

#[test]
fn maps_and_lists_in_flow_style_grow_in_flow_style() {
    let after = edited("a: { b: [], c: { d: 1, } }\n", |root, edits| {
        edits.insert_items(root.at("a.b").unwrap(), 0, &[Node::text("x")], "");
        edits.add_member(root.at("a.c").unwrap(), "e", &Node::text("2"));
    });
    assert_eq!(after, "a: { b: [ x], c: { d: 1, e: 2 } }\n");
}

#[test]
fn json_stays_json() {
    let after = edited("{\"a\": {\"b\": [1]}}", |root, edits| {
        edits.insert_items(
            root.at("a.b").unwrap(),
            0,
            &[Node::text("x"), Node::text("true")],
            "",
        );
        edits.set(root.get("a").unwrap(), "c", &Node::quoted("2"));
    });
    let value: serde_json::Value = serde_json::from_str(&after).unwrap();
    assert_eq!(
        value,
        serde_json::json!({"a": {"b": ["x", true, 1], "c": "2"}})
    );
}

#[test]
fn a_removed_member_takes_its_line_with_it() {
    for (text, expected) in [
        ("a:\n  b: 1 # one\n  c: 2\n", "a:\n  c: 2\n"),
        ("a:\n- b: 1\n  c: 2\n", "a:\n- c: 2\n"),
        ("a: { b: 1, c: 2 }\n", "a: { c: 2 }\n"),
        ("a: { c: 2, b: 1 }\n", "a: { c: 2 }\n"),
        ("a:\n  b: 1\n", "a:\n  {}\n"),
    ] {
        let after = edited(text, |root, edits| {
            let map = root.at("a").unwrap();
            let map = map.items().first().unwrap_or(map);
            edits.remove_member(map, map.member("b").unwrap());
        });
        assert_eq!(
            parse(&after).unwrap(),
            parse(expected).unwrap(),
            "{text} became {after}"
        );
        assert!(!after.contains('1'), "{after}");
    }
}

#[test]
fn an_anchored_map_that_is_used_twice_is_edited_once() {
    let text = "a: &x\n  b: 1\nc: *x\n";
    let after = edited(text, |root, edits| {
        edits.set(root.get("a").unwrap(), "d", &Node::text("2"));
        edits.set(root.get("c").unwrap(), "d", &Node::text("2"));
    });
    assert_eq!(after, "a: &x\n  b: 1\n  d: 2\nc: *x\n");
}

#[test]
fn two_settings_of_one_value_are_an_error() {
    let text = "a: 1\n";
    let root = parse(text).unwrap();
    let mut edits = Edits::new(text);
    edits.set(&root, "a", &Node::text("2"));
    edits.set(&root, "a", &Node::text("3"));
    assert_eq!(
        edits.apply().unwrap_err(),
        "line 1: two changes of one value"
    );
}

#[test]
fn a_name_may_be_in_camel_case_and_an_ignored_member_is_none() {
    let root = parse("httpFilters: 1\n!ignore node: { id: x }\n").unwrap();
    assert_eq!(root.str_at("http_filters"), Some("1"));
    assert!(root.get("node").is_none());
}

#[test]
fn broken_texts_and_alias_bombs_are_errors_with_a_line() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let inner = format!("*a{}", level - 1);
        let items = vec![inner; 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    for (text, message) in [
        ("a: [1\nb: }\n", "line 2"),
        ("- a\n", "a configuration is a map"),
        ("", "the file is empty"),
        ("a: 1\n---\nb: 2\n", "line 2: a second document"),
        (bomb.as_str(), "aliases stand for too many values"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn rendered_texts_mean_the_same_when_they_are_read_again() {
    for text in [
        "true", "a: b", "*x", "", "#", "x\\d+", "it's", "a\nb\n", "~", "- a", "ü", "%X%",
    ] {
        let node = Node::map([
            ("a", Node::quoted(text)),
            ("b", Node::list(vec![Node::quoted(text)])),
        ]);
        let read = parse(&block(&node)).unwrap();
        assert_eq!(read.str_at("a"), Some(text), "{}", block(&node));
        let read = parse(&flow(&node, Style::Json)).unwrap();
        assert_eq!(read.str_at("a"), Some(text));
        assert_eq!(read.items_at("b").next().unwrap().as_str(), Some(text));
    }
}

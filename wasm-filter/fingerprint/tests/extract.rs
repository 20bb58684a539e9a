//! The extractor on requests as clients send them.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that fails may panic"
)]

use isotherm_fingerprint::{Api, BodyError, Extraction, Extractor, MemberPaths, UnreadModel};

fn wanted() -> MemberPaths {
    MemberPaths {
        session: [
            "session_id",
            "prompt_cache_key",
            "conversation",
            "user",
            "metadata.session_id",
        ]
        .map(String::from)
        .to_vec(),
        tier: vec!["metadata.tier".into(), "service_tier".into()],
        ttft_ms: vec!["metadata.ttft_ms".into()],
        deadline: vec!["metadata.deadline".into(), "deadline".into()],
    }
}

fn extract(api: Api, body: &str) -> Extraction {
    let mut extractor = Extractor::new(api, &wanted());
    extractor.feed(body.as_bytes());
    let found = extractor.finish();
    let mut bytewise = Extractor::new(api, &wanted());
    for byte in body.as_bytes() {
        bytewise.feed(&[*byte]);
    }
    assert_eq!(bytewise.finish(), found, "a byte at a time");
    found
}

fn chat(body: &str) -> Extraction {
    extract(Api::ChatCompletions, body)
}

/// A text of this many bytes, different for each seed.
fn text(seed: usize, bytes: usize) -> String {
    let words = [
        "warm", "cold", "cache", "prefix", "replica", "queue", "token",
    ];
    let mut text = String::new();
    for index in 0.. {
        text.push_str(words[(index * 31 + seed * 7 + index / 7) % words.len()]);
        text.push_str(&format!(" {} ", index * seed));
        if text.len() >= bytes {
            break;
        }
    }
    text.truncate(bytes);
    text
}

/// The number of blocks that two requests share.
fn shared(one: &Extraction, other: &Extraction) -> usize {
    let pairs = one
        .fingerprint
        .blocks()
        .iter()
        .zip(other.fingerprint.blocks());
    pairs.take_while(|(one, other)| one == other).count()
}

#[test]
fn an_api_that_answers_as_a_whole_has_no_streams() {
    let body = r#"{"model":"llama","input":"hi","stream":true}"#;
    assert!(extract(Api::Responses, body).is_stream);
    assert!(!extract(Api::Embeddings, body).is_stream);
}

#[test]
fn a_chat_request_is_extracted() {
    let found = chat(
        r#"{"model":"llama","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":100,
            "user":"u1","metadata":{"session_id":"s1","tier":"non-interactive"}}"#,
    );
    assert_eq!(found.model.as_deref(), Some("llama"));
    assert_eq!(
        found.session,
        Some((3, "u1".into())),
        "`user` stands before `metadata.session_id`"
    );
    assert_eq!(found.tier, Some((0, "non-interactive")));
    assert!(found.is_stream && found.is_complete);
    assert_eq!(found.output_tokens_max, Some(100));
    assert_eq!(found.error, None);
}

#[test]
fn the_best_session_key_wins_in_any_position() {
    let forth = chat(r#"{"user":"u","session_id":"s","messages":[]}"#);
    let back = chat(r#"{"session_id":"s","user":"u","messages":[]}"#);
    assert_eq!(forth.session, Some((0, "s".into())));
    assert_eq!(back.session, forth.session);
}

#[test]
fn an_objective_that_cannot_be_read_counts_as_absent() {
    let found = chat(
        r#"{"service_tier":"flex","metadata":{"tier":"urgent","ttft_ms":"soon","deadline":true},"deadline":1764085164.5}"#,
    );
    assert_eq!(found.tier, Some((1, "non-interactive")));
    assert_eq!(found.ttft_ms, None);
    assert_eq!(found.deadline_unix_ms, Some((1, 1_764_085_164_500)));
    let found = chat(
        r#"{"service_tier":"priority","metadata":{"tier":"default","ttft_ms":800},"deadline":1e9}"#,
    );
    assert_eq!(found.tier, Some((0, "interactive-normal")));
    assert_eq!(found.ttft_ms, Some((0, 800)));
    assert_eq!(found.deadline_unix_ms, None);
}

#[test]
fn a_conversation_is_its_name_or_its_id() {
    for body in [
        r#"{"conversation":"c7"}"#,
        r#"{"conversation":{"id":"c7","x":["id"]}}"#,
    ] {
        assert_eq!(
            extract(Api::Responses, body).session,
            Some((2, "c7".into())),
            "{body}"
        );
    }
    assert_eq!(
        extract(Api::Responses, r#"{"conversation":null,"user":""}"#).session,
        None
    );
    assert_eq!(
        extract(Api::Responses, r#"{"user":42}"#).session,
        Some((3, "42".into()))
    );
    assert_eq!(
        extract(Api::Responses, r#"{"x":{"user":"deep"},"metadata":["a"]}"#).session,
        None
    );
}

#[test]
fn long_names_are_bounded() {
    let long = "k".repeat(1000);
    let found = chat(&format!(
        r#"{{"model":"{long}","user":"{long}","metadata":{{"tier":"{long}"}}}}"#
    ));
    assert_eq!(found.model, None);
    assert_eq!(found.tier, None);
    let (_, key) = found.session.unwrap();
    assert_eq!(
        key,
        isotherm_fingerprint::session::encode(long.as_bytes()),
        "a digest, the same as for a header"
    );
}

#[test]
fn the_next_turn_of_a_conversation_continues_the_chain() {
    let system = text(1, 3000);
    let (question, answer) = (text(2, 2000), text(3, 2000));
    let first = format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{question}"}}]}}"#
    );
    let second = format!(
        r#"{{"messages":[{{"content":"{system}","role":"system"}},{{"role":"user","content":[{{"type":"text","text":"{question}"}}]}},
            {{"role":"assistant","content":"{answer}","refusal":null,"tool_calls":null}},{{"role":"user","content":"and?"}}],"model":"m"}}"#
    );
    let (first, second) = (chat(&first), chat(&second));
    assert!(first.fingerprint.blocks().len() >= 15);
    assert_eq!(shared(&first, &second), first.fingerprint.blocks().len());
    assert!(second.fingerprint.total_bytes() > first.fingerprint.total_bytes() + 2000);
}

#[test]
fn cache_breakpoints_do_not_change_the_fingerprint() {
    let text = text(4, 3000);
    let with = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"{text}","cache_control":{{"type":"ephemeral"}}}}]}}]}}"#
    );
    let without = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    assert_eq!(
        extract(Api::Messages, &with).fingerprint,
        extract(Api::Messages, &without).fingerprint
    );
}

#[test]
fn requests_with_different_cache_keys_share_no_block() {
    let text = text(5, 4000);
    let body = |extra: &str| {
        chat(&format!(
            r#"{{{extra}"messages":[{{"role":"user","content":"{text}"}}]}}"#
        ))
    };
    let bodies = [
        body(""),
        body(r#""model":"a","#),
        body(r#""model":"b","#),
        body(r#""model":"a","lora_path":"x","#),
        body(r#""model":"a","cache_salt":"x","#),
        body(r#""model":"a","cache_salt":"y","#),
    ];
    for (index, one) in bodies.iter().enumerate() {
        for other in &bodies[index + 1..] {
            assert_eq!(shared(one, other), 0);
            assert_eq!(
                one.fingerprint.total_bytes(),
                other.fingerprint.total_bytes()
            );
        }
    }
}

#[test]
fn tools_precede_the_messages_in_any_position() {
    let tools = format!(
        r#""tools":[{{"type":"function","function":{{"name":"f","description":"{}"}}}}]"#,
        text(6, 2000)
    );
    let messages = |seed| {
        format!(
            r#""messages":[{{"role":"user","content":"{}"}}]"#,
            text(seed, 2000)
        )
    };
    let before = chat(&format!("{{{tools},{}}}", messages(7)));
    let behind = chat(&format!("{{{},{tools}}}", messages(7)));
    let other = chat(&format!("{{{},{tools}}}", messages(8)));
    assert_eq!(before.fingerprint, behind.fingerprint);
    assert!(
        (7..=9).contains(&shared(&before, &other)),
        "the tools and nothing else: {}",
        shared(&before, &other)
    );
}

#[test]
fn images_count_by_their_hash() {
    let body = |data: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}","detail":"low"}}}},
                {{"type":"text","text":"{}"}}]}}]}}"#,
            text(9, 1000)
        ))
    };
    let (one, other) = (body(&"A".repeat(50_000)), body(&"B".repeat(50_000)));
    assert!(one.fingerprint.total_bytes() < 1100);
    assert_eq!(
        one.prompt_tokens,
        576 + one.fingerprint.total_bytes().div_ceil(4)
    );
    assert_eq!(shared(&one, &other), 0);
}

#[test]
fn token_ids_count_four_bytes_and_one_token_each() {
    let ids: Vec<u32> = (0..1000).collect();
    let flat = extract(Api::Completions, &format!(r#"{{"prompt":{ids:?}}}"#));
    let nested = extract(Api::Completions, &format!(r#"{{"prompt":[{ids:?}]}}"#));
    assert_eq!(flat.fingerprint.total_bytes(), 4001);
    assert_eq!(flat.prompt_tokens, 1001, "and one for the mark");
    assert_eq!(flat.fingerprint, nested.fingerprint);
    let sglang = extract(
        Api::Generate,
        &format!(r#"{{"input_ids":{ids:?},"sampling_params":{{"max_new_tokens":7}}}}"#),
    );
    assert_eq!(sglang.fingerprint, flat.fingerprint);
    assert_eq!(sglang.output_tokens_max, Some(7));
}

#[test]
fn a_string_equals_a_list_of_one() {
    let text = text(10, 1000);
    let string = extract(Api::Completions, &format!(r#"{{"prompt":"{text}"}}"#));
    let list = extract(Api::Completions, &format!(r#"{{"prompt":["{text}"]}}"#));
    assert_eq!(string.fingerprint, list.fingerprint);
    let input = extract(Api::Responses, &format!(r#"{{"input":"{text}"}}"#));
    let message = extract(
        Api::Responses,
        &format!(
            r#"{{"input":[{{"type":"message","content":[{{"text":"{text}","type":"input_text"}}],"role":"user"}}]}}"#
        ),
    );
    assert_eq!(input.fingerprint, message.fingerprint);
}

#[test]
fn a_truncated_body_yields_its_beginning() {
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#,
        text(11, 8000)
    );
    let whole = chat(&body);
    let cut = chat(&body[..5000]);
    assert!(!cut.is_complete && cut.error.is_none());
    assert_eq!(cut.model.as_deref(), Some("m"));
    assert!(shared(&cut, &whole) >= 18);
    assert_eq!(shared(&cut, &whole), cut.fingerprint.blocks().len());
}

#[test]
fn a_malformed_body_yields_its_beginning_and_the_error() {
    for (body, problem) in [
        ("", None),
        ("   ", None),
        ("hello", Some(BodyError::NotJson)),
        ("[1]", Some(BodyError::NotJson)),
        ("\u{1f}\u{8b}", Some(BodyError::NotJson)),
        (r#"{"model":"m","x":tru}"#, Some(BodyError::Malformed)),
        (r#"{"model":"m",}"#, Some(BodyError::Malformed)),
        (r#"{"model":"m"]"#, Some(BodyError::Malformed)),
        (r#"{"model":"m"} x"#, Some(BodyError::Malformed)),
        (r#"{"model":"m","x":"\q"}"#, Some(BodyError::Malformed)),
    ] {
        let found = chat(body);
        assert_eq!(found.error, problem, "{body}");
        assert!(!found.is_complete);
        assert_eq!(found.model.is_some(), body.contains("model"), "{body}");
    }
    let deep = format!(r#"{{"model":"m","x":{}"#, "[".repeat(1000));
    assert_eq!(chat(&deep).error, Some(BodyError::TooDeep));
}

#[test]
fn the_larger_of_two_limits_of_output_tokens_counts() {
    let found = chat(r#"{"max_completion_tokens":9,"max_tokens":5}"#);
    assert_eq!(
        found.output_tokens_max,
        Some(9),
        "nothing may be planned too small"
    );
}

#[test]
fn a_body_with_a_repeated_member_has_no_fingerprint() {
    let claim = text(13, 1000);
    for (api, body) in [
        (
            Api::Completions,
            format!(r#"{{"prompt":"{claim}","max_tokens":1,"prompt":"hi"}}"#),
        ),
        (
            Api::Completions,
            format!(r#"{{"prompt":"{claim}","pro\u006dpt":"hi"}}"#),
        ),
        (
            Api::Completions,
            format!(r#"{{"prompt":null,"prompt":"{claim}"}}"#),
        ),
        (
            Api::ChatCompletions,
            format!(r#"{{"messages":[{{"role":"user","content":"{claim}","content":"hi"}}]}}"#),
        ),
        (
            Api::ChatCompletions,
            format!(
                r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"{claim}","\u0074ext":"hi"}}]}}]}}"#
            ),
        ),
        (
            Api::ChatCompletions,
            format!(
                r#"{{"tools":[{{"function":{{"name":"f","parameters":{{"description":"{claim}","a":1,"description":""}}}}}}]}}"#
            ),
        ),
        (
            Api::Generate,
            format!(r#"{{"text":"{claim}","input_ids":[1,2,3]}}"#),
        ),
        (
            Api::Generate,
            format!(
                r#"{{"text":"{claim}","sampling_params":{{"max_new_tokens":1,"max_new_tokens":2}}}}"#
            ),
        ),
        (
            Api::Generate,
            format!(r#"{{"text":"{claim}","cache_salt":"a","cache_salt":"b"}}"#),
        ),
        (
            Api::Completions,
            format!(r#"{{"prompt":"{claim}","stream":true,"stream":false}}"#),
        ),
        (
            Api::Completions,
            format!(r#"{{"prompt":"{claim}","user":"a","user":"b"}}"#),
        ),
        (
            Api::Completions,
            format!(
                r#"{{"prompt":"{claim}","metadata":{{"session_id":"a"}},"metadata":{{"session_id":"b"}}}}"#
            ),
        ),
        (
            Api::Completions,
            format!(r#"{{"prompt":"{claim}","conversation":{{"id":"a","id":"b"}}}}"#),
        ),
    ] {
        let found = extract(api, &body);
        assert_eq!(found.error, Some(BodyError::RepeatedMember), "{body}");
        assert_eq!(found.fingerprint.blocks(), [], "{body}");
        assert!(!found.is_complete);
        assert!(found.prompt_tokens > 0, "{body}");
    }
    let two_models = chat(r#"{"model":"a","model":"b","user":"u"}"#);
    assert_eq!(
        (two_models.model, two_models.session),
        (None, Some((3, "u".into())))
    );
}

#[test]
fn a_model_that_stands_twice_with_one_value_is_one_model() {
    let once = chat(r#"{"model":"a","messages":[{"role":"user","content":"hi"}]}"#);
    for body in [
        r#"{"model":"a","model":"a","messages":[{"role":"user","content":"hi"}]}"#,
        r#"{"model":"a","messages":[{"role":"user","content":"hi"}],"mod\u0065l":"\u0061","model":"a"}"#,
    ] {
        assert_eq!(chat(body), once, "{body}");
    }
    for body in [
        r#"{"model":"a","model":"b"}"#,
        r#"{"model":"a","model":"b","model":"a"}"#,
        r#"{"model":"a","model":null}"#,
        r#"{"model":null,"model":"a"}"#,
        r#"{"model":"a","model":["a"]}"#,
        r#"{"model":{"id":"a","id":"b"}}"#,
    ] {
        let found = chat(body);
        assert_eq!(found.model, None, "{body}");
        assert_eq!(
            found.unread_model,
            Some(UnreadModel::Contradictory),
            "{body}"
        );
        assert_eq!(found.error, Some(BodyError::RepeatedMember), "{body}");
    }
}

#[test]
fn the_reason_why_a_model_cannot_be_told_is_found() {
    let deep = format!(
        r#"{{"x":{}{},"model":"m"}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(300));
    for (body, reason) in [
        ("{}", None),
        (r#"{"model":null}"#, None),
        (r#"{"model":""}"#, None),
        (r#"{"prompt":"a","prompt":"b"}"#, None),
        (r#"{"model":"m","x":tru}"#, None),
        ("m", Some(UnreadModel::NotJson)),
        ("\u{feff}[]", Some(UnreadModel::NotJson)),
        (r#"{"x":tru,"model":"m"}"#, Some(UnreadModel::Malformed)),
        ("", None),
        (r#"{"x":1,"x":"#, Some(UnreadModel::TooFar)),
        (
            r#"{"prompt":"a","prompt":"b","x":"#,
            Some(UnreadModel::TooFar),
        ),
        (&deep, Some(UnreadModel::TooDeep)),
        (&long, Some(UnreadModel::TooLong)),
    ] {
        assert_eq!(chat(body).unread_model, reason, "{body}");
    }
}

#[test]
fn what_engines_read_besides_json_is_read() {
    let plain = chat(r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#);
    for body in [
        "\u{feff}{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
        r#"{"top_p":NaN,"x":[Infinity,-Infinity],"model":"m","messages":[{"role":"user","content":"hi"}]}"#,
    ] {
        assert_eq!(chat(body), plain, "{body}");
    }
    let half_a_mark = [&b"\xef\xbb"[..], b"{\"model\":\"m\"}"].concat();
    let mut extractor = Extractor::new(Api::ChatCompletions, &wanted());
    extractor.feed(&half_a_mark);
    assert_eq!(extractor.finish().error, Some(BodyError::NotJson));
}

#[test]
fn a_body_of_another_path_has_a_model_and_a_session_and_no_prompt() {
    let mut extractor = Extractor::without_prompt(&wanted());
    extractor.feed(
        br#"{"query":"why","documents":["a"],"prompt":"a","prompt":"b","user":"u","model":"m"}"#,
    );
    let found = extractor.finish();
    assert_eq!(found.model.as_deref(), Some("m"));
    assert_eq!(found.session, Some((3, "u".into())));
    assert_eq!((found.error, found.prompt_tokens), (None, 0));
    assert_eq!(found.fingerprint.total_bytes(), 0);
}

#[test]
fn a_repeated_member_that_does_not_matter_keeps_the_fingerprint() {
    for body in [
        r#"{"prompt":"hi","temperature":0,"temperature":1}"#,
        r#"{"prompt":"hi","logit_bias":{"5":1,"5":2},"metadata":{"a":1,"a":2}}"#,
        r#"{"prompt":"hi","metadata":[{"session_id":"a"},{"session_id":"b"}]}"#,
    ] {
        assert_eq!(extract(Api::Completions, body).error, None, "{body}");
    }
    let both = r#"{"text":"hi","inputs":"","input_ids":[],"sampling_params":{"n":1}}"#;
    assert_eq!(extract(Api::Generate, both).error, None);
}

#[test]
fn a_cut_body_tells_what_repeats_before_the_cut() {
    let found = chat(r#"{"messages":[{"role":"user","content":"hi","role":"system","#);
    assert_eq!(found.error, Some(BodyError::RepeatedMember));
}

#[test]
fn options_of_rendering_separate_prompts() {
    let text = text(14, 2000);
    let body = |options: &str| {
        let found = chat(&format!(
            r#"{{{options}"messages":[{{"role":"user","content":"{text}"}}]}}"#
        ));
        assert_eq!(found.error, None, "{options}");
        found
    };
    let different = [
        body(""),
        body(r#""chat_template_kwargs":{"enable_thinking":false},"#),
        body(r#""chat_template_kwargs":{"thinking":false},"#),
        body(r#""chat_template_kwargs":{"enable_thinking":"false"},"#),
        body(r#""reasoning_effort":"high","#),
        body(r#""reasoning_effort":"low","#),
        body(r#""truncate_prompt_tokens":100,"#),
        body(r#""mm_processor_kwargs":{"max_pixels":100},"#),
        body(r#""thinking":{"type":"enabled"},"#),
    ];
    for (index, one) in different.iter().enumerate() {
        for other in &different[index + 1..] {
            assert_eq!(shared(one, other), 0);
        }
    }
    for same in [
        r#""add_generation_prompt":false,"continue_final_message":true,"#,
        r#""tool_choice":"auto","#,
        r#""tool_choice":"none","#,
        r#""tool_choice":"required","#,
        r#""tool_choice":{"type":"function","function":{"name":"f"}},"#,
        r#""tool_choice":null,"reasoning_effort":null,"#,
    ] {
        assert_eq!(body(same), different[0], "{same}");
    }
    assert_eq!(
        body(r#""reasoning_effort":"high","thinking":true,"#),
        body(r#""thinking":true,"reasoning_effort":"high","#)
    );
}

#[test]
fn what_engines_do_not_render_is_not_hashed() {
    let text = text(15, 2000);
    let chat_of = |members: &str, of_message: &str| {
        let found = chat(&format!(
            r#"{{{members}"messages":[{{"role":"user","content":"{text}"}},{{"role":"assistant"{of_message},"tool_calls":[{{"id":"c","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"c","content":"{text}"}}]}}"#
        ));
        assert_eq!(found.error, None, "{members} {of_message}");
        found
    };
    let plain = chat_of("", "");
    for empty in ["null", r#""""#, "[]", "{}"] {
        for name in [
            "tools",
            "functions",
            "documents",
            "chat_template_kwargs",
            "mm_processor_kwargs",
            "reasoning",
        ] {
            let spelled_out = chat_of(&format!(r#""{name}":{empty},"#), "");
            assert_eq!(spelled_out, plain, "{name}: {empty}");
        }
        for name in [
            "content",
            "refusal",
            "reasoning_content",
            "function_call",
            "x_note",
            "name",
        ] {
            let spelled_out = chat_of("", &format!(r#","{name}":{empty}"#));
            assert_eq!(spelled_out, plain, "{name}: {empty}");
        }
    }
    for name in ["cache_salt", "lora_path", "chat_template"] {
        assert_eq!(chat_of(&format!(r#""{name}":"","#), ""), plain, "{name}");
    }
    let part = r#","content":[{"type":"text","text":""}]"#;
    assert_eq!(chat_of("", part), plain);

    // A value within a value renders.
    let tools = |parameters: &str| {
        chat_of(
            &format!(r#""tools":[{{"name":"f","parameters":{parameters}}}],"#),
            "",
        )
    };
    assert_eq!(shared(&tools("{}"), &tools("[]")), 0);
    let answers = [
        chat_of("", r#","x_note":[[]]"#),
        chat_of("", r#","x_note":[null]"#),
    ];
    assert!(shared(&answers[0], &plain) < plain.fingerprint.blocks().len());
    assert_ne!(answers[0].fingerprint, answers[1].fingerprint);
}

#[test]
fn the_billing_header_of_an_agent_is_no_part_of_the_prompt() {
    let text = text(16, 3000);
    let body = |blocks: &str| {
        extract(
            Api::Messages,
            &format!(
                r#"{{"system":[{blocks}{{"type":"text","text":"{text}"}}],"messages":[{{"role":"user","content":"{text}"}}]}}"#
            ),
        )
    };
    let plain = body("");
    for header in [
        "x-anthropic-billing-header: cc_version=2.1.37; cch=4e20a;",
        "x-anthropic-billing-header: cch=eb6c6;",
        "x-anthropic-billing-header",
        r"\u0078-anthropic-billing-header: cch=1;\n",
    ] {
        let billed = body(&format!(r#"{{"type":"text","text":"{header}"}},"#));
        assert_eq!(billed, plain, "{header}");
        let billed = body(&format!(r#"{{"text":"{header}","type":"text"}},"#));
        assert_eq!(billed, plain, "{header}");
    }
    for other in ["x-anthropic-billing", "x-anthropic-billing-footer", "X"] {
        let found = body(&format!(r#"{{"type":"text","text":"{other}"}},"#));
        assert_eq!(shared(&found, &plain), 0, "{other}");
        let length = found.fingerprint.total_bytes() - plain.fingerprint.total_bytes();
        assert_eq!(length as usize, other.len() + 1, "the text and its mark");
    }
    let question = |text: &str| {
        extract(
            Api::Messages,
            &format!(
                r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}]}}"#
            ),
        )
    };
    let quoted = question("x-anthropic-billing-header is new to me");
    assert_ne!(quoted.fingerprint, question("").fingerprint);
}

#[test]
fn member_names_of_any_length_differ() {
    let tools = |name: &str| {
        chat(&format!(
            r#"{{"tools":[{{"{name}":"{}"}}]}}"#,
            text(12, 1000)
        ))
    };
    let long = "p".repeat(1000);
    let (one, other) = (tools(&format!("{long}a")), tools(&format!("{long}b")));
    assert_eq!(shared(&one, &other), 0);
    assert_eq!(
        shared(&one, &tools(&format!("{long}\\u0061"))),
        one.fingerprint.blocks().len()
    );
}

#[test]
fn the_header_of_a_prompt_of_one_megabyte_fits_into_two_kilobytes() {
    for tools_bytes in [0, 1000, 100_000, 333_333, 900_000] {
        let tools = "t".repeat(tools_bytes);
        let content = "c".repeat((1 << 20) - tools_bytes);
        let found = chat(&format!(
            r#"{{"tools":["{tools}"],"messages":[{{"role":"user","content":"{content}"}}]}}"#
        ));
        assert!(found.fingerprint.blocks().len() > 100);
        assert!(
            found.fingerprint.encode().len() <= 2048,
            "{}",
            found.fingerprint.encode().len()
        );
    }
}

#[test]
fn white_space_between_token_ids_does_not_matter() {
    let tight = extract(Api::Completions, r#"{"prompt":[1,22,333],"user":7}"#);
    let pretty = extract(
        Api::Completions,
        "{\"prompt\" : [ 1 , 22\n,\t333 ] , \"user\" : 7 }",
    );
    assert_eq!(tight, pretty);
    assert_eq!(tight.prompt_tokens, 4, "three ids, and their mark");
    assert_eq!(tight.session, Some((3, "7".into())));
}

#[test]
fn null_members_count_as_absent() {
    let text = text(5, 2000);
    let plain = chat(&format!(
        r#"{{"messages":[{{"role":"user","content":"{text}"}}],"tools":[{{"name":"add"}}]}}"#
    ));
    let spelled_out = chat(&format!(
        r#"{{"functions":null,"documents":null,"messages":[{{"role":"user","content":"{text}","name":null}}],
            "tools":[{{"name":"add"}}],"cache_salt":null,"max_tokens":null}}"#
    ));
    assert_eq!(plain, spelled_out);

    let ids = extract(Api::Generate, r#"{"input_ids":[1,2,3]}"#);
    let spelled_out = extract(
        Api::Generate,
        r#"{"text":null,"input_ids":[1,2,3],"image_data":null,"lora_path":null}"#,
    );
    assert_eq!(ids.prompt_tokens, 4);
    assert_eq!(ids, spelled_out);
}

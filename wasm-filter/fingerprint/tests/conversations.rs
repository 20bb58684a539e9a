//! Conversations as the Python clients of OpenAI and Anthropic, LangChain and agents send them: each request holds the one
//! before, spelled a little differently, and its chain must go on where that one's ended.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_fingerprint::{Api, Extraction, Extractor, MemberPaths};

fn extract(api: Api, body: &str) -> Extraction {
    let mut extractor = Extractor::new(api, &MemberPaths::default());
    extractor.feed(body.as_bytes());
    let found = extractor.finish();
    assert!(found.is_complete, "{body}");
    found
}

/// Asserts that each request's chain begins with all of the chain before it.
fn assert_each_extends_the_last(api: Api, bodies: &[String]) {
    let found: Vec<_> = bodies.iter().map(|body| extract(api, body)).collect();
    for (turn, pair) in found.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let (before, after) = (before.fingerprint.blocks(), after.fingerprint.blocks());
        assert!(before.len() >= 8, "turn {turn} is too short to tell");
        assert!(after.starts_with(before), "turn {turn} to the next");
    }
}

/// A text of 2,000 bytes or so without anything to escape, another one for each seed.
fn text(seed: usize) -> String {
    (0..250)
        .map(|index| format!("{:x} ", index * seed + 17 * seed))
        .collect::<String>()
        + "and so on, as prompts do, ".repeat(40).as_str()
}

#[test]
fn chat_with_tools_as_openais_python_client_sends_it() {
    // `messages` first, `model` and `tools` behind; answers go back as they came, with every member that is null.
    let body = |messages: &[String]| {
        format!(
            r#"{{"messages":[{}],"model":"llama","stream":true,"stream_options":{{"include_usage":true}},"tools":[{{"type":"function","function":{{"name":"look_up","description":"{}","parameters":{{"type":"object","properties":{{"q":{{"type":"string"}}}},"required":["q"]}}}}}}]}}"#,
            messages.join(","),
            text(1)
        )
    };
    let messages = [
        format!(r#"{{"role":"system","content":"{}"}}"#, text(2)),
        format!(
            r#"{{"role":"user","content":[{{"type":"text","text":"{}"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"}}}},{{"type":"input_audio","input_audio":{{"data":"UklGRg==","format":"wav"}}}}]}}"#,
            text(3)
        ),
        r#"{"content":null,"refusal":null,"role":"assistant","annotations":[],"audio":null,"function_call":null,"tool_calls":[{"id":"call_1","function":{"arguments":"{\"q\":\"rain\"}","name":"look_up"},"type":"function"}]}"#.to_owned(),
        format!(r#"{{"role":"tool","tool_call_id":"call_1","content":"{}"}}"#, text(4)),
        format!(
            r#"{{"content":"{}","refusal":null,"role":"assistant","annotations":null,"audio":null,"function_call":null,"tool_calls":null,"reasoning_content":"so"}}"#,
            text(5)
        ),
        format!(r#"{{"role":"user","content":"{}"}}"#, text(6)),
    ];
    let turns = [2, 4, 6].map(|count| body(messages.get(..count).unwrap()));
    assert_each_extends_the_last(Api::ChatCompletions, &turns);

    // LangChain puts the model first and leaves out what is null.
    let other = turns
        .last()
        .unwrap()
        .replace(r#","function_call":null"#, "")
        .replace(r#""refusal":null,"#, "")
        .replace(r#","model":"llama""#, "")
        .replacen('{', r#"{"model":"llama","#, 1);
    assert_eq!(
        extract(Api::ChatCompletions, &other),
        extract(Api::ChatCompletions, turns.last().unwrap())
    );
}

#[test]
fn messages_whose_cache_breakpoints_move_as_agents_send_them() {
    const BREAKPOINT: &str = r#","cache_control":{"type":"ephemeral"}"#;
    // The last block of the last message carries the breakpoint, so a block loses it when the conversation goes on.
    let body = |messages: &[String]| {
        let messages: Vec<_> = messages
            .iter()
            .enumerate()
            .map(|(index, message)| {
                let last = index + 1 == messages.len();
                message.replace("@", if last { BREAKPOINT } else { "" })
            })
            .collect();
        format!(
            r#"{{"max_tokens":4096,"messages":[{}],"model":"llama","system":[{{"type":"text","text":"{}"}},{{"type":"text","text":"{}"{BREAKPOINT}}}],"tools":[{{"name":"bash","input_schema":{{"type":"object"}},"description":"{}"{BREAKPOINT}}}],"stream":true}}"#,
            messages.join(","),
            text(1),
            text(2),
            text(3)
        )
    };
    let messages = [
        format!(
            r#"{{"role":"user","content":[{{"type":"text","text":"{}"@}}]}}"#,
            text(4)
        ),
        format!(
            r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"{}","signature":"c2ln"}},{{"type":"tool_use","id":"toolu_1","name":"bash","input":{{"command":"ls"}}}}]}}"#,
            text(5)
        ),
        format!(
            r#"{{"role":"user","content":[{{"tool_use_id":"toolu_1","type":"tool_result","content":"{}","is_error":false@}}]}}"#,
            text(6)
        ),
        format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"{}"}}]}}"#,
            text(7)
        ),
        r#"{"role":"user","content":[{"type":"text","text":"Go on."@}]}"#.to_owned(),
    ];
    let turns = [1, 3, 5].map(|count| body(messages.get(..count).unwrap()));
    assert_each_extends_the_last(Api::Messages, &turns);
}

#[test]
fn responses_whose_items_come_back_with_what_the_server_added() {
    let body = |input: &str| {
        format!(
            r#"{{"input":{input},"instructions":"{}","model":"llama","store":false,"tools":[{{"type":"function","name":"look_up","parameters":{{}}}}]}}"#,
            text(1)
        )
    };
    let question = text(2);
    let calls = format!(
        r#"{{"role":"user","content":"{question}"}},{{"id":"rs_1","summary":[],"type":"reasoning","encrypted_content":"gAAAAB"}},{{"arguments":"{{\"q\":\"rain\"}}","call_id":"call_1","name":"look_up","type":"function_call","id":"fc_1","status":"completed"}},{{"type":"function_call_output","call_id":"call_1","output":"{}"}}"#,
        text(3)
    );
    let answer = format!(
        r#"{{"id":"msg_1","content":[{{"annotations":[],"text":"{}","type":"output_text","logprobs":[]}}],"role":"assistant","status":"completed","type":"message"}}"#,
        text(4)
    );
    let next = r#"{"role":"user","content":[{"type":"input_text","text":"And tomorrow?"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}]}"#;
    let turns = [
        body(&format!(r#""{question}""#)),
        body(&format!("[{calls}]")),
        body(&format!("[{calls},{answer},{next}]")),
    ];
    assert_each_extends_the_last(Api::Responses, &turns);
}

#[test]
fn token_ids_that_go_on() {
    let ids = |count: usize| {
        let ids: Vec<_> = (0..count)
            .map(|id| (id * 37 % 50_000).to_string())
            .collect();
        format!(r#"{{"prompt":[{}],"model":"llama"}}"#, ids.join(", "))
    };
    assert_each_extends_the_last(Api::Completions, &[700, 1500, 9000].map(ids));
}

#[test]
fn an_agent_that_varies_its_tool_choice_keeps_its_prefix() {
    let choices = [
        "",
        r#","tool_choice":"auto""#,
        r#","tool_choice":"none""#,
        r#","tool_choice":"required""#,
        r#","tool_choice":{"type":"function","function":{"name":"look_up"}}"#,
        r#","tool_choice":{"type":"function","name":"look_up"}"#,
        r#","tool_choice":{"type":"tool","name":"look_up"}"#,
        r#","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"look_up"}]}"#,
    ];
    for api in [Api::ChatCompletions, Api::Responses, Api::Messages] {
        let content = match api {
            Api::Responses => "input",
            _ => "messages",
        };
        let turns = choices.iter().enumerate().map(|(turn, choice)| {
            let messages: Vec<_> = (0..=turn)
                .map(|turn| format!(r#"{{"role":"user","content":"{}"}}"#, text(turn + 2)))
                .collect();
            format!(
                r#"{{"model":"llama","tools":[{{"name":"look_up","description":"{}"}}]{choice},"{content}":[{}]}}"#,
                text(1),
                messages.join(",")
            )
        });
        assert_each_extends_the_last(api, &Vec::from_iter(turns));
    }
}

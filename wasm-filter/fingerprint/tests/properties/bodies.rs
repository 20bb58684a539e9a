//! Requests of every shape, with what clients put into them and a little more.

use isotherm_fingerprint::Api;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::json::Value;

/// A shape and a request of that shape, members in any order, none of them twice.
pub fn request() -> impl Strategy<Value = (Api, Value)> {
    api().prop_flat_map(|api| {
        members(api)
            .prop_shuffle()
            .prop_map(move |members| (api, Value::Object(members).last_values()))
    })
}

/// A request with members that may stand twice, at any place, and with members that state one thing in two ways.
pub fn request_with_repeats() -> impl Strategy<Value = (Api, Value)> {
    api().prop_flat_map(|api| {
        (members(api), members(api), any::<u8>(), more_members())
            .prop_map(move |(one, other, kept, more)| {
                let repeated = other.into_iter().zip(0u32..);
                let repeated = repeated.filter(|(_, bit)| kept.rotate_right(*bit) & 3 == 0);
                let repeated = repeated.map(|(member, _)| member);
                one.into_iter()
                    .chain(repeated)
                    .chain(more)
                    .collect::<Members>()
            })
            .prop_shuffle()
            .prop_map(move |members| (api, Value::Object(members)))
    })
}

fn more_members() -> impl Strategy<Value = Members> {
    let name = select(vec![
        "session_id",
        "metadata",
        "functions",
        "inputs",
        "input_ids",
        "max_tokens",
        "stream",
        "messages",
    ]);
    let metadata =
        vec((select(vec!["session_id", "tier"]), name_or_json()), 0..3).prop_map(|members| {
            Value::Object(
                members
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            )
        });
    let value = prop_oneof![name_or_json(), metadata, texts()];
    vec((name.prop_map(str::to_owned), value), 0..3)
}

fn name_or_json() -> impl Strategy<Value = Value> {
    prop_oneof![name(), any_json(1)]
}

fn api() -> impl Strategy<Value = Api> {
    select(Vec::from_iter(Api::all()))
}

type Members = Vec<(String, Value)>;

fn members(api: Api) -> BoxedStrategy<Members> {
    let common = (
        maybe("model", name()),
        maybe("cache_salt", name()),
        maybe("user", name()),
        maybe("stream", any_json(1)),
        maybe("chat_template_kwargs", any_json(2)),
        maybe("tool_choice", tool_choice()),
    );
    let own = match api {
        Api::ChatCompletions => (
            maybe("messages", messages()),
            maybe("tools", any_json(4)),
            maybe("documents", any_json(2)),
        )
            .boxed(),
        Api::Completions => (
            maybe("prompt", texts()),
            maybe("suffix", text().prop_map(Value::String)),
            nothing(),
        )
            .boxed(),
        Api::Responses => (
            maybe("input", messages()),
            maybe("instructions", text().prop_map(Value::String)),
            maybe("tools", any_json(4)),
        )
            .boxed(),
        Api::Embeddings => (maybe("input", texts()), nothing(), nothing()).boxed(),
        Api::Messages => (
            maybe("messages", messages()),
            maybe("system", parts()),
            maybe("tools", any_json(4)),
        )
            .boxed(),
        Api::Generate => (
            maybe("text", texts()),
            maybe("image_data", media()),
            maybe("lora_path", any_json(1)),
        )
            .boxed(),
    };
    (common, own)
        .prop_map(|((a, b, c, d, e, f), (g, h, i))| {
            [a, b, c, d, e, f, g, h, i].into_iter().flatten().collect()
        })
        .boxed()
}

fn maybe(
    name: &'static str,
    value: impl Strategy<Value = Value> + 'static,
) -> BoxedStrategy<Option<(String, Value)>> {
    prop_oneof![1 => Just(None), 5 => value.prop_map(move |value| Some((name.to_owned(), value)))]
        .boxed()
}

fn nothing() -> BoxedStrategy<Option<(String, Value)>> {
    Just(None).boxed()
}

fn tool_choice() -> impl Strategy<Value = Value> {
    let texts = select(vec!["auto", "required", "none"]);
    prop_oneof![texts.prop_map(Value::text), any_json(2)]
}

fn name() -> impl Strategy<Value = Value> {
    "[a-z0-9./ -]{1,12}".prop_map(Value::String)
}

/// Text from none to some kilobytes, with what needs escapes and what takes several bytes.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => ".{0,20}",
        2 => (".{1,8}|[a-z \n\"\\\\/é€😀]{1,40}", 1..120usize).prop_map(|(text, times)| text.repeat(times)),
        1 => "[ -~\n\t\u{8}é漢😀]{0,900}",
    ]
}

/// Any JSON, a few levels deep.
fn any_json(depth: u32) -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-9_999_999i64..9_999_999).prop_map(Value::Number),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(depth, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Array),
            vec((member_name(), inner), 0..5).prop_map(Value::Object),
        ]
    })
    .boxed()
}

/// Names that matter, names that do not, and the longest that is kept as it is.
fn member_name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(vec![
            "content", "text", "type", "role", "name", "id", "cache_control", "image_url", "url", "detail", "source", "data",
            "media_type", "tool_calls", "tool_call_id", "call_id", "output", "thinking", "summary", "arguments", "reasoning",
            "refusal", "index", "input", "signature", "model", "user", "metadata",
        ])
        .prop_map(str::to_owned),
        1 => "[a-zé\"\\\\]{0,12}",
        1 => Just("n".repeat(126) + "é"),
    ]
}

fn texts() -> BoxedStrategy<Value> {
    let ids = vec((0..200_000i64).prop_map(Value::Number), 0..300).prop_map(Value::Array);
    let one = prop_oneof![text().prop_map(Value::String), ids];
    prop_oneof![
        one.clone(),
        vec(one, 0..4).prop_map(Value::Array),
        any_json(2)
    ]
    .boxed()
}

fn media() -> BoxedStrategy<Value> {
    prop_oneof![text().prop_map(Value::String), any_json(3)].boxed()
}

fn parts() -> BoxedStrategy<Value> {
    let part = (text(), any::<bool>()).prop_map(|(text, first)| {
        let kind = ("type".to_owned(), Value::text("text"));
        let text = ("text".to_owned(), Value::String(text));
        Value::Object(if first {
            vec![kind, text]
        } else {
            vec![text, kind]
        })
    });
    let image = text().prop_map(|url| {
        Value::object([("image_url", Value::object([("url", Value::String(url))]))])
    });
    prop_oneof![
        3 => text().prop_map(Value::String),
        3 => vec(prop_oneof![4 => part, 1 => image, 1 => any_json(3)], 0..4).prop_map(Value::Array),
        1 => any_json(3),
    ]
    .boxed()
}

/// A message as clients write it.
pub fn message() -> BoxedStrategy<Value> {
    (
        select(vec!["system", "user", "assistant", "tool"]),
        parts(),
        vec((member_name(), any_json(2)), 0..2),
    )
        .prop_map(|(role, content, more)| {
            let mut members = more;
            members.push(("role".to_owned(), Value::text(role)));
            members.push(("content".to_owned(), content));
            members
        })
        .prop_shuffle()
        .prop_map(|members| Value::Object(members).last_values())
        .boxed()
}

fn messages() -> BoxedStrategy<Value> {
    prop_oneof![
        6 => vec(message(), 0..6).prop_map(Value::Array),
        1 => text().prop_map(Value::String),
        1 => any_json(4),
    ]
    .boxed()
}

//! `docs/filter-configuration.md` lists the keys that the parser accepts, with their defaults; `UPDATE_DOCS=1` writes it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that fails may panic"
)]

use std::fmt::Write as _;
use std::fs;

use isotherm_wasm_filter_core::PluginConfig;

/// A key: its name, type, default as JSON (empty where the key is required) and meaning.
type Key = (&'static str, &'static str, &'static str, &'static str);

const ROLE: Key = (
    "role",
    "`request`, `response` or `gate`",
    r#""request""#,
    "The role of this instance: before or after the external processor, or [the gate](#the-gate). Without it, a plugin whose name or root id ends in `response` has that role.",
);

const RESPONSE_ROLE: Key = (ROLE.0, ROLE.1, "", ROLE.3);

const REQUEST: [Key; 20] = [
    ROLE,
    (
        "pools",
        "list of `{models, cluster}`",
        "[]",
        "The cluster of each model. A model belongs to one entry.",
    ),
    (
        "default_cluster",
        "name",
        "null",
        "The cluster for every other model, and for requests that name none. Without it the filter sets no cluster. The service rejects a request whose model cannot be read, where it has several pools and none for any model.",
    ),
    (
        "paths",
        "list of paths",
        r#"["/v1/chat/completions","/v1/completions","/v1/responses","/v1/responses/*","/v1/embeddings","/v1/messages","/v1/messages/count_tokens","/v1/models","/v1/models/*","/health","/generate","/generate_stream"]"#,
        "The paths that clients may use. Every other path gets a 404 in OpenAI's format. `/v1/models/*` stands for every path below `/v1/models`. With the entry `*`, the requests of other applications [pass untouched](security.md#beside-other-applications).",
    ),
    (
        "apis",
        "list of `{path, api}`",
        "[]",
        "The APIs of paths that a route rewrites, such as `{\"path\": \"/llm/openai\", \"api\": \"chat_completions\"}`. Clients may use these paths. An API is one of `chat_completions`, `completions`, `responses`, `embeddings`, `messages`, `generate`. The filter knows an API's own path under any prefix, and Azure's paths (`/openai/deployments/MODEL/chat/completions`).",
    ),
    (
        "buffer_bytes_max",
        "bytes",
        "716800",
        "The most bytes of a body that the filter holds before it releases the request.",
    ),
    (
        "request_body_buffer_limit",
        "bytes",
        "0",
        "The most bytes of a body that Envoy buffers: the limit of the same name in Envoy's route, or else `per_connection_buffer_limit_bytes` of the listener. 0 stands for Envoy's default of 1 MiB. At least 1 MiB above `buffer_bytes_max` it allows large reads over HTTP/1.",
    ),
    (
        "body_timeout_ms",
        "milliseconds",
        "30000",
        "The longest time from the headers of a request to the end of its body, as far as the filter holds it. The client then gets a 408. The time that the bytes take at `body_bytes_per_s_min` comes on top, and the time in the queue does not count. 0 turns the limit off.",
    ),
    (
        "body_bytes_per_s_min",
        "bytes a second",
        "16384",
        "The lowest rate at which the bytes of a large body may arrive: each byte extends `body_timeout_ms`.",
    ),
    (
        "session",
        "list of sources",
        r#"[{"header":"x-session-id"},{"header":"x-claude-code-agent-id"},{"header":"x-claude-code-session-id"},{"header":"session-id"},{"header":"x-dynamo-session-id"},{"body":"session_id"},{"body":"prompt_cache_key"},{"body":"conversation"},{"body":"user"},{"body":"metadata.session_id"},{"body":"metadata.user_id"},"client_address"]"#,
        "The sources of the session key, best first. The headers are those of OpenCode, Claude Code (its sub-agents have sessions of their own), Codex and Dynamo.",
    ),
    (
        "session_secret",
        "text of at least 16 bytes, or `{\"env\":\"NAME\"}`",
        "null",
        "The secret with which the filter hashes session keys, or the variable of Envoy's environment that has it. `environment_variables: { host_env_keys: [NAME] }` of the filter's `vm_config` passes the variable to the filter. Every Envoy in front of the same service needs the same one. Without it the filter hashes with a constant: a session key that can be guessed, such as a name, can then be recognised in `x-isotherm-session`.",
    ),
    (
        "tier",
        "list of sources",
        r#"[{"header":"x-tier"},{"body":"metadata.tier"},{"body":"service_tier"}]"#,
        "The sources of the workload tier, best first: `interactive-fast`, `interactive-normal`, `non-interactive`, or a value of OpenAI's `service_tier` (`priority`, `default` or `auto`, `flex`). An unknown name counts as absent. `client_address` is no source of an objective. See [tiers](tiers.md).",
    ),
    (
        "ttft_ms",
        "list of sources",
        r#"[{"header":"x-llm-d-slo-ttft-ms"},{"header":"x-slo-ttft-ms"}]"#,
        "The sources of the budget for the first token in milliseconds, best first. A value that is no decimal number, and 0, count as absent; more than one hour counts as one hour.",
    ),
    (
        "deadline",
        "list of sources",
        r#"[{"header":"x-deadline"}]"#,
        "The sources of the deadline in Unix seconds, best first. A value that is no decimal number, and 0, count as absent; more than 30 days from now counts as 30 days.",
    ),
    (
        "tenant_sources",
        "list of sources of a tenant",
        "[]",
        "The sources of the tenant, best first: see [tenants](#tenants). Without a source, all requests belong to the common tenant.",
    ),
    (
        "hide_cache",
        "boolean",
        "false",
        "Whether clients learn nothing of caches: the filter removes the decision header and the engine's load report, and replaces `cached_tokens` and its relatives in responses by 0. In Anthropic's API it adds what was cached to `input_tokens`. The service reads the true numbers first. The filter removes `accept-encoding` and `endpoint-load-metrics-format` from requests, since it cannot read compressed responses, and `content-length` from responses.",
    ),
    (
        "keep_accept_encoding",
        "boolean",
        "false",
        "Whether requests keep `accept-encoding`. Otherwise the filter removes it from the requests that it reads: it cannot read usage in a compressed response. A compressor in front of the filter has read the header before. Excludes `hide_cache`.",
    ),
    (
        "trusted_origin",
        "boolean",
        "false",
        "Whether requests come from the filters of other regions, whose internal headers are kept. The decision stream then names the listener for regions in its metadata.",
    ),
    (
        "gate",
        "boolean",
        "false",
        "Whether an instance with the role `gate` follows at once, which holds the headers.",
    ),
    (
        "decision_stream",
        "object",
        "null",
        "The decision stream to the service.",
    ),
];

const DECISION_STREAM: [Key; 3] = [
    ("cluster", "name", "", "Envoy's cluster of the service."),
    (
        "timeout_ms",
        "milliseconds",
        "500",
        "The longest that the filter holds a request without a message from the service.",
    ),
    (
        "decision",
        "boolean",
        "false",
        "Whether clients see the header `x-isotherm-decision`.",
    ),
];

const RESPONSE: [Key; 2] = [
    RESPONSE_ROLE,
    (
        "decision",
        "boolean",
        "false",
        "Whether clients see the header `x-isotherm-decision`.",
    ),
];

const HEAD: &str = r#"# Configuration of the filter

Envoy passes this configuration to the filter as JSON (`google.protobuf.StringValue`). The filter refuses an unknown key, and its
error lists every mistake. An empty configuration is the role `request` with every default.

This page is checked against the parser: `UPDATE_DOCS=1 cargo test -p isotherm-wasm-filter-core --test configuration_reference`.

A source is one of `{"header": NAME}`, `{"cookie": NAME}`, `{"body": PATH}` and `"client_address"`. A path is a dotted path of
members such as `metadata.session_id`; a path to an object means its member `id`. A name consists of visible ASCII characters.
"#;

const TAIL: &str = r#"
## Tenants

A source of a tenant is one of

- `{"header": NAME}`: a header that authentication sets. Authentication must remove the client's own header of this name.
- `{"metadata": {"filter": NAMESPACE, "path": [MEMBER, ...]}}`: text in dynamic metadata that an HTTP filter in front writes. The claim `sub` of a
  JWT is `{"filter": "envoy.filters.http.jwt_authn", "path": ["payload", "sub"]}`, where the provider sets `payload_in_metadata: payload`.

The filter keeps a name of at most 64 visible ASCII characters without `"`, `\`, `,` and `;`. It replaces any other name by its hash under
`session_secret`. A request for which no source has a value belongs to the common tenant. Two tenants share no prefix of a prompt and no
session. A header that is a source goes on to the engine, unless it [steers engines](headers.md#headers-that-steer-engines). `{"header": "x-llm-d-inference-fairness-id"}`, llm-d's own, is a source where authentication in the same
Envoy sets it: Envoy removes the client's before any filter sees it.
[Security](security.md#tenants) says what this separates.

## What the host must set

The filter finds out by its first requests where its host sets less than it needs. It then serves every request with less knowledge, and writes
one error for each worker into Envoy's log.

| where | needed | without it | how |
| --- | --- | --- | --- |
| the filter's `PluginConfig` | `allow_on_headers_stop_iteration: true` | Envoy withholds the body of a request that the filter holds, so the filter reads no prompt. Session, objectives and `default_cluster` come from headers and cookies alone. With several pools, the service answers 400, since it knows no model. | Istio: an `EnvoyFilter`. Envoy Gateway: an `EnvoyPatchPolicy`. Anywhere: [the gate](#the-gate). |
| `request_body_buffer_limit` of this page | the buffer limit of Envoy, where it is below 1 MiB | Envoy answers 413 to the first body that is too long for its buffer. The filter then assumes a lower limit. | Envoy Gateway sets 32768 on its listeners; `connection.bufferLimit` of a `ClientTrafficPolicy` raises it. |

**A missing `allow_on_headers_stop_iteration`.** On each worker, the first two requests with a body wait about 10 ms. From then on the filter holds no
request for its body, and headers alone decide, unless external processing reads the body. `isotherm_filter_skipped_body_withheld` counts the requests that continue without their bodies.

## The gate

Where the field cannot be set, two instances of the filter read whole prompts without it:

1. `{"role": "request", "gate": true, ...}` lets the headers pass and reads the body on its way to the second instance.
2. `{"role": "gate"}` directly behind it holds the headers, and with them the body, until the first instance has the fingerprint or the decision.

In Envoy Gateway they are two entries of `wasm` in one `EnvoyExtensionPolicy`. Envoy holds the body by
flow control, so it answers no 413, and the decision stream decides on bodies of any size. Where the buffer is smaller than the filter knows,
Envoy stops reading. The gate then opens after 1 s without the prompt, and the log names `request_body_buffer_limit`. Without a gate behind
the first instance, requests continue without a fingerprint, and the log says so.

## A small buffer

The filter holds a body that fits into the buffer. Of a longer body it reads the first piece over HTTP/1, and all but the last
16 KiB of the buffer over HTTP/2. External processing then decides by the beginning of the prompt.
`isotherm_filter_buffer_exceeded` counts the requests that Envoy answered with 413 while the filter held their bodies.
"#;

#[test]
fn the_configuration_reference_lists_every_key_with_its_default() {
    let mut text = HEAD.to_owned();
    for (title, context, keys) in [
        ("Role `request`", "{@}", REQUEST.as_slice()),
        (
            "`decision_stream`",
            r#"{"role":"request","decision_stream":{"cluster":"c",@}}"#,
            &DECISION_STREAM,
        ),
        ("Role `response`", r#"{"role":"response",@}"#, &RESPONSE),
    ] {
        let parse = |member: &str| PluginConfig::parse(context.replace('@', member).as_bytes());
        let error = parse(r#""?":1"#).unwrap_err().to_string();
        let names: Vec<String> = keys.iter().map(|key| format!("`{}`", key.0)).collect();
        assert!(
            error.contains(&names.join(", ")) || error.contains(&names.join(" or ")),
            "{title}: {error}"
        );
        let default =
            PluginConfig::parse(context.replace(",@", "").replace('@', "").as_bytes()).unwrap();
        write!(
            text,
            "\n## {title}\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
        )
        .unwrap();
        for (name, kind, value, meaning) in keys {
            let shown = if value.is_empty() {
                "required".to_owned()
            } else {
                let explicit = parse(&format!(r#""{name}":{value}"#)).unwrap();
                assert_eq!(format!("{explicit:?}"), format!("{default:?}"), "{name}");
                format!("`{value}`")
            };
            writeln!(text, "| `{name}` | {kind} | {shown} | {meaning} |").unwrap();
        }
    }
    text.push_str(TAIL);
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/filter-configuration.md"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, &text).unwrap();
    }
    let written = fs::read_to_string(path).unwrap();
    assert!(
        written == text,
        "docs/filter-configuration.md is out of date: run this test with UPDATE_DOCS=1"
    );
}

//! `docs/headers.md` is the table of headers; `UPDATE_DOCS=1` writes it.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fmt::Write as _;
use std::fs;

use isotherm_fingerprint::names;

const HEAD: &str = "# Headers

Envoy's early header mutation, and then the filter, remove from the requests of clients every header that begins with `x-isotherm-`, the headers of
the Gateway API Inference Extension, and [the headers that steer engines](#headers-that-steer-engines). The cluster of a pool removes Isotherm's
own headers again before a request goes to a replica: of this table, replicas get `x-prefiller-host-port` and their engine's priority alone.

This page is generated from the table in `wasm-filter/fingerprint/src/names.rs`:
`UPDATE_DOCS=1 cargo test -p isotherm-fingerprint --test headers_reference`.

| header | from | to | bound | content |
| --- | --- | --- | --- | --- |
";

const CONTROL: &str = "
## Headers of clients

The filter, or the service where no filter is in front, reads these headers of clients by default. [Its configuration](filter-configuration.md) names others.
[Tiers](tiers.md) says what they do.

| header | content |
| --- | --- |
| `x-session-id`, `x-claude-code-agent-id`, `x-claude-code-session-id`, `session-id`, `x-dynamo-session-id` | The session key, as agents send it. |
| `x-tier` | The workload tier: `interactive-fast`, `interactive-normal` or `non-interactive`. |
| `x-llm-d-slo-ttft-ms`, `x-slo-ttft-ms` | The budget for the first token, in milliseconds. |
| `x-deadline` | The deadline, in Unix seconds. |

## Headers that steer engines

A gateway, a router or a sidecar steers engines by these headers: the rank that computes a request, its priority, its id, the address of another
engine. No client may set them. The filter reads `x-llm-d-slo-ttft-ms`, and removes it then.

";

#[test]
fn the_header_reference_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/headers.md");
    let mut text = HEAD.to_owned();
    for header in names::ALL {
        let names::Header {
            name,
            sender,
            receiver,
            bound,
            content,
        } = header;
        writeln!(
            text,
            "| `{name}` | {sender} | {receiver} | {bound} | {content} |"
        )
        .unwrap();
    }
    text.push_str(CONTROL);
    let prefixes = names::ENGINE_CONTROL_PREFIXES.map(|prefix| format!("`{prefix}*`"));
    let whole = names::SIDECAR.iter().chain(&names::ENGINE_CONTROL);
    for name in prefixes
        .into_iter()
        .chain(whole.map(|name| format!("`{name}`")))
    {
        writeln!(text, "- {name}").unwrap();
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, &text).unwrap();
    }
    let written = fs::read_to_string(path).unwrap();
    assert!(
        written == text,
        "docs/headers.md is out of date: run this test with UPDATE_DOCS=1"
    );
}

//! A filter that crashes, or that Envoy runs without: requests are answered, and the filter comes back by itself.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{Client, MODEL, ScriptedReplica, admin, chat, permit, scripted, send};
use isotherm_harness::tools::Tools;
use isotherm_harness::{Document, Pool, Stack, StackBuilder, envoy};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wasmparser::{ExternalKind, Parser, Payload, TypeRef};

const MANAGER: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config";
/// The filters that the route to the pools enables.
const ON_THE_ROUTE: &str =
    "route_config/virtual_hosts/name=llm/routes/name=pool/typed_per_filter_config";
const MODULE: &str = "config/vm_config/code/local/filename";
/// The callback of the filter that crashes in these tests: only a request with trailers reaches it.
const CRASHING: &str = "proxy_on_request_trailers";
const RELOADED: &str = "wasm.isotherm.request.vm_reload_success";
const PROMPTS: &str = "wasmcustom.isotherm_filter_prompts_complete";

/// The module with an exported function that traps.
fn with_trap(module: &[u8], name: &str) -> anyhow::Result<Vec<u8>> {
    let mut imported = 0;
    let mut function = None;
    let mut bodies = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    if export.name == name && export.kind == ExternalKind::Func {
                        function = Some(export.index);
                    }
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body.range()),
            _ => {}
        }
    }
    let function = function.context("the module has no such export")?;
    let index = usize::try_from(function - imported)?;
    let range = bodies
        .get(index)
        .context("the function is imported")?
        .clone();
    let mut module = module.to_vec();
    // No locals, `unreachable`, and `nop` up to the `end`.
    let body = &mut module[range];
    body.fill(0x01);
    body[..2].fill(0x00);
    *body.last_mut().context("an empty function")? = 0x0b;
    Ok(module)
}

/// A stack whose filter crashes at a request with trailers. One worker, so that every request meets the crashed one.
fn with_crashing_filter(stack: StackBuilder, name: &str) -> anyhow::Result<StackBuilder> {
    let tools = Tools::find()?;
    let module = with_trap(&fs::read(&tools.filter)?, CRASHING)?;
    let path = tools.output.join(format!("{name}.wasm"));
    fs::write(&path, module)?;
    let path = Value::from(path.to_string_lossy());
    Ok(stack.workers(1).envoy(move |document| {
        envoy::set_in_filter(document, "isotherm.request", MODULE, &path)?;
        let trailers = json!({ "enable_trailers": true });
        document.set(&format!("{MANAGER}/http_protocol_options"), trailers)
    }))
}

/// Sends a chat with trailers. Returns the first line of the response.
async fn chat_with_trailers(address: SocketAddr) -> anyhow::Result<String> {
    let body = chat("hello").to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: llm\r\nconnection: close\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\ntrailer: x-last\r\n\r\n{:x}\r\n{body}\r\n0\r\nx-last: 1\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    let response = String::from_utf8_lossy(&response);
    Ok(response.lines().next().unwrap_or_default().to_owned())
}

async fn check_chats(stack: &Stack, count: usize) -> anyhow::Result<()> {
    let client = Client::new(&stack.url(""))?;
    for number in 0..count {
        let body = chat(&format!("question {number}"));
        client.chat("s", &body).await?.success()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_filter_that_crashes_comes_back_and_requests_are_answered() -> anyhow::Result<()> {
    const CHATS: usize = 5;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_crashing_filter(scripted("crash", &[&replica], 8), "crash")?;
    let stack = stack.start().await?;
    check_chats(&stack, CHATS).await?;
    for crash in 1..=2 {
        let prompts = stack.envoy().stat(PROMPTS).await?;
        let response = chat_with_trailers(stack.envoy().address()).await?;
        ensure!(
            response.contains(" 503 "),
            "the filter did not crash: {response}"
        );

        check_chats(&stack, CHATS).await?;

        ensure!(stack.envoy().stat(RELOADED).await? == crash);
        let read = stack.envoy().stat(PROMPTS).await? - prompts;
        ensure!(read == CHATS as u64, "{read} of {CHATS} prompts were read");
    }
    // The streams of the crashed instances ended, and the new instance has one: on the worker, beside the main thread's.
    let streams = "isotherm_decision_streams";
    admin::wait_for_metric(stack.service(), streams, &[], |streams| streams == 2.0).await?;
    admin::wait_until_idle(stack.service()).await
}

/// Switches the request role off, as an Envoy does that cannot load the module and fails open.
fn without_filter(document: &mut Document) -> anyhow::Result<()> {
    document
        .remove(&format!("{MANAGER}/{ON_THE_ROUTE}/isotherm.request"))
        .map(drop)
}

#[tokio::test]
async fn without_the_filter_requests_go_to_the_default_pool_of_several() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    let second = Pool::new("second");
    let second = second.cluster("second").with_addresses([b.address()]);
    let stack = scripted("no-filter", &[&a], 8).pool(second);
    let stack = stack.envoy(without_filter).start().await?;
    let client = Client::new(&stack.url(""))?;
    for model in [MODEL, "second"] {
        let mut body = chat("hello");
        body["model"] = json!(model);
        let response = send(client.post_chat(&body)).await?.success()?;
        // The engine behind the default cluster judges the model.
        ensure!(response.served_by() == Some("a"), "{:?}", response.headers);
    }
    Ok(())
}

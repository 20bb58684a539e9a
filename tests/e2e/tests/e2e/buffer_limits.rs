//! A listener that buffers 32 KiB, as Envoy Gateway configures it, in front of a filter that holds bodies.

use isotherm_e2e::bodies::{SIZES, chat_of, check_all_sizes, send_body};
use isotherm_e2e::{Client, Http2Client, ScriptedReplica, permit, scripted};
use isotherm_harness::{StackBuilder, envoy};

const LISTENER: &str = "static_resources/listeners/name=llm";
/// The shipped file sets more than Envoy's default of 1 MiB.
const BODY_LIMIT: &str = "filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/name=llm/request_body_buffer_limit";
const LIMIT_BYTES: usize = 32_768;
const EXCEEDED: &str = "wasmcustom.isotherm_filter_buffer_exceeded";
const KEY: &str = "request_body_buffer_limit";

/// Sets the limit of the listener, and the one that the filter is told; 0 stands for none.
fn with_small_buffer(stack: StackBuilder, told_bytes: usize) -> StackBuilder {
    stack.workers(1).envoy(move |document| {
        document.remove(&format!("{LISTENER}/{BODY_LIMIT}"))?;
        let limit = format!("{LISTENER}/per_connection_buffer_limit_bytes");
        document.set(&limit, LIMIT_BYTES)?;
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.remove("buffer_bytes_max")?;
            filter.set(KEY, told_bytes)
        })
    })
}

#[tokio::test]
async fn with_the_key_bodies_of_every_size_pass() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("buffer-told", &[&replica], 8);
    let stack = with_small_buffer(stack, LIMIT_BYTES).start().await?;
    let client = Client::new(&stack.url(""))?;
    check_all_sizes(&client, &replica).await?;
    for bytes in [
        LIMIT_BYTES / 2,
        LIMIT_BYTES - 100,
        LIMIT_BYTES + 100,
        50_000,
    ] {
        let body = chat_of(bytes);
        send_body(&client, "s", &body).await?.success()?;
        assert!(
            replica
                .received()
                .last()
                .is_some_and(|last| last.body == body)
        );
    }
    assert_eq!(stack.envoy().stat(EXCEEDED).await?, 0);
    let partial = stack
        .envoy()
        .stat("wasmcustom.isotherm_filter_prompts_partial");
    assert!(
        partial.await? >= 2,
        "the beginning of a long prompt is read"
    );
    Ok(())
}

#[tokio::test]
async fn with_the_key_bodies_of_every_size_pass_over_http2() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("buffer-told-http2", &[&replica], 8);
    let stack = with_small_buffer(stack, LIMIT_BYTES).start().await?;
    let mut client = Http2Client::connect(stack.envoy().address()).await?;
    for bytes in SIZES {
        let body = chat_of(bytes);
        let response = client
            .post("/v1/chat/completions", &[], body.clone())?
            .await?;
        assert_eq!(response.status, 200);
        assert!(
            replica
                .received()
                .last()
                .is_some_and(|last| last.body == body)
        );
    }
    assert_eq!(stack.envoy().stat(EXCEEDED).await?, 0);
    Ok(())
}

#[tokio::test]
async fn without_the_key_the_first_413_is_explained_and_no_second_follows() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("buffer-untold", &[&replica], 8);
    let stack = with_small_buffer(stack, 0).start().await?;
    let client = Client::new(&stack.url(""))?;
    send_body(&client, "s", &chat_of(1_000)).await?.success()?;

    let refused = send_body(&client, "s", &chat_of(220 << 10)).await?;

    assert_eq!(refused.status, 413);
    assert_eq!(stack.envoy().stat(EXCEEDED).await?, 1);
    assert_eq!(stack.envoy().process().log().matches(KEY).count(), 1);
    check_all_sizes(&client, &replica).await?;
    assert_eq!(stack.envoy().stat(EXCEEDED).await?, 1);
    Ok(())
}

#[tokio::test]
async fn without_the_field_no_body_is_refused() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("buffer-withheld", &[&replica], 8).envoy(|document| {
        let field = "config/allow_on_headers_stop_iteration";
        envoy::set_in_filter(document, "isotherm.request", field, &false.into())
    });
    let stack = with_small_buffer(stack, 0).start().await?;
    let client = Client::new(&stack.url(""))?;
    check_all_sizes(&client, &replica).await?;
    assert_eq!(stack.envoy().stat(EXCEEDED).await?, 0);
    Ok(())
}

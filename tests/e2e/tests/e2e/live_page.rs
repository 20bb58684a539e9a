//! The live page of the admin interface, in a headless Chromium where one is installed.

use std::path::Path;
use std::process::Output;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use isotherm_e2e::{Client, MODEL, WAIT_MAX, admin, engines, permit, send};
use isotherm_harness::Stack;
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

const BROWSERS: [&str; 2] = ["chromium", "chromium-browser"];
const PICTURE: &str = "docs/images/live-page.png";
/// Time that the page gets by the browser's own clock, which stands still while a request is on its way.
const PAGE_TIME_MS: &str = "--virtual-time-budget=5000";
const CONVERSATIONS: usize = 6;
const TURNS: usize = 5;
const SPEED: f64 = 4.0;

/// Conversations whose prompts grow turn by turn, all at once.
async fn converse(stack: &Stack) -> anyhow::Result<()> {
    let client = Client::new(&stack.url(""))?;
    let conversation = async |number: usize| -> anyhow::Result<()> {
        let mut prompt = format!("Conversation {number}. ");
        for turn in 0..TURNS {
            prompt += &format!("Turn {turn} of conversation {number}. ").repeat(120);
            let body = json!({
                "model": MODEL,
                "messages": [{ "role": "user", "content": prompt }],
                "max_tokens": 8,
                "stream": true,
                "stream_options": { "include_usage": true },
            });
            let session = format!("s{number}");
            let request = client.post_chat(&body).header("x-session-id", session);
            send(request).await?.success()?;
        }
        Ok(())
    };
    try_join_all((0..CONVERSATIONS).map(conversation)).await?;
    admin::wait_until_idle(stack.service()).await
}

/// Runs the browser; `None` where there is none.
async fn browse(directory: &Path, arguments: &[&str]) -> anyhow::Result<Option<Output>> {
    for browser in BROWSERS {
        let mut command = Command::new(browser);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", PAGE_TIME_MS])
            .arg(format!(
                "--user-data-dir={}",
                directory.join("browser").display()
            ))
            .args(arguments)
            .kill_on_drop(true);
        match timeout(WAIT_MAX, command.output())
            .await
            .context("the browser hangs")?
        {
            Ok(output) => return Ok(Some(output)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    println!("skipped: no {} is installed", BROWSERS.join(" or "));
    Ok(None)
}

#[tokio::test]
async fn the_live_page_shows_replicas_and_why_decisions_were_made() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = engines("live-page", 3, SPEED).start().await?;
    let service = stack.service();
    assert_eq!(service.get("/api/decisions").await?, json!([]));
    converse(&stack).await?;
    let decisions = service.get("/api/decisions").await?;
    let decisions = decisions.as_array().context("no list")?;
    assert_eq!(decisions.len(), CONVERSATIONS * TURNS);
    assert!(
        decisions[0]["response"]["ttft_ms"].is_number(),
        "{decisions:?}"
    );

    let url = service.admin_url("/");
    let Some(output) = browse(stack.directory(), &["--dump-dom", &url]).await? else {
        return Ok(());
    };
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    for decision in decisions {
        for text in ["id", "target", "reason"] {
            let text = decision[text].as_str().context("no text")?;
            assert!(
                page.contains(&format!(">{text}</td>")),
                "no {text} in {page}"
            );
        }
    }
    for engine in stack.engines() {
        assert!(
            page.contains(&format!("<td>{}</td>", engine.address())),
            "{page}"
        );
    }
    assert!(page.contains("live, every 2 s"), "{page}");
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let picture = format!("--screenshot={}", root.join(PICTURE).display());
        let arguments = [
            &*picture,
            "--window-size=1200,1000",
            "--hide-scrollbars",
            &url,
        ];
        browse(stack.directory(), &arguments).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_live_page_may_load_nothing_from_elsewhere() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = engines("live-page-policy", 1, SPEED).start().await?;
    let page = Client::new(&stack.service().admin_url(""))?.get("/");
    let page = send(page).await?.success()?;
    let policy = page
        .header("content-security-policy")
        .context("no policy")?;
    for rule in [
        "default-src 'none'",
        "script-src 'sha256-",
        "connect-src 'self'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    Ok(())
}

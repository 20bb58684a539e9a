//! The pages for eyes, the live page and the report of the demo, in a headless Chromium where one is installed. The pictures
//! are in `target/pictures`.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use isotherm_demo::compare::compare;
use isotherm_demo::scenario::{DemoOptions, ReplicaOptions};
use isotherm_e2e::browser::{Page, VIEWS};
use isotherm_e2e::{Client, MODEL, WAIT_MAX, admin, engines, permit, send};
use isotherm_harness::tools::output_directory;
use isotherm_harness::{Stack, wait_for};
use isotherm_policies::PolicyName;
use isotherm_report::Format;
use serde_json::{Value, json};
use tokio::time::sleep;

/// The page has drawn the decisions of a look.
const SHOWS_DECISIONS: &str = "document.querySelector('#decisions tr')";
const REPORT_REQUESTS: u32 = 40;
const REPORT_SPEEDUP: f64 = 40.0;
const PICTURE: &str = "docs/images/live-page.png";
/// The picture of the documents has a history of about a minute, and ends in the list of decisions.
const HISTORY_SHOWN: Duration = Duration::from_secs(60);
const PICTURE_HEIGHT: u32 = 1_320;
const CONVERSATIONS: usize = 6;
const TURNS: usize = 5;
const SPEED: f64 = 4.0;

/// Conversations whose prompts grow turn by turn, all at once.
async fn converse(stack: &Stack, name: &str, output_tokens: u32) -> anyhow::Result<()> {
    let client = Client::new(&stack.url(""))?;
    let conversation = async |number: usize| -> anyhow::Result<()> {
        let mut prompt = format!("Conversation {name}, {number}. ");
        for turn in 0..TURNS {
            prompt += &format!("Turn {turn} of conversation {number}. ").repeat(120);
            let body = json!({
                "model": MODEL,
                "messages": [{ "role": "user", "content": prompt }],
                "max_tokens": output_tokens,
                "stream": true,
                "stream_options": { "include_usage": true },
            });
            let session = format!("{name}-{number}");
            let request = client.post_chat(&body).header("x-session-id", session);
            send(request).await?.success()?;
        }
        Ok(())
    };
    try_join_all((0..CONVERSATIONS).map(conversation)).await?;
    Ok(())
}

/// One set of conversations after the other, so that pictures show a pool at work.
async fn keep_conversing(stack: &Stack) -> anyhow::Result<()> {
    for round in 0.. {
        converse(stack, &format!("round {round}"), 100).await?;
    }
    Ok(())
}

async fn take_pictures(page: &mut Page, url: &str) -> anyhow::Result<()> {
    let folder = output_directory().join("pictures");
    for view in VIEWS {
        page.visit(url, view, SHOWS_DECISIONS).await?;
        page.check().await.with_context(|| view.name())?;
        let picture = folder.join(format!("live-page-{}.png", view.name()));
        page.picture(&picture, None).await?;
    }
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        sleep(HISTORY_SHOWN).await;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        page.visit(url, VIEWS[0], SHOWS_DECISIONS).await?;
        page.picture(&root.join(PICTURE), Some(PICTURE_HEIGHT))
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_live_page_shows_replicas_and_why_decisions_were_made() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = engines("live-page", 3, SPEED).start().await?;
    let service = stack.service();
    assert_eq!(service.get("/api/decisions").await?, json!([]));
    converse(&stack, "first", 8).await?;
    admin::wait_until_idle(service).await?;
    let decisions = service.get("/api/decisions").await?;
    let decisions = decisions.as_array().context("no list")?;
    assert_eq!(decisions.len(), CONVERSATIONS * TURNS);
    assert!(
        decisions[0]["response"]["ttft_ms"].is_number(),
        "{decisions:?}"
    );
    let samples = || async {
        let history = service.get("/api/history").await?;
        let samples = history[0]["samples"].as_array().context("no samples")?;
        let requests = samples.iter().flat_map(|sample| {
            let reasons = sample["decisions"].as_object();
            reasons.into_iter().flat_map(|reasons| reasons.values())
        });
        let requests: u64 = requests.filter_map(Value::as_u64).sum();
        Ok((requests == (CONVERSATIONS * TURNS) as u64).then_some(()))
    };
    wait_for(WAIT_MAX, "a history with every request", samples).await?;

    let Some(mut page) = Page::open(stack.directory()).await? else {
        return Ok(());
    };
    let url = service.admin_url("/");
    page.visit(&url, VIEWS[0], SHOWS_DECISIONS).await?;
    let text = page.evaluate("document.body.outerHTML").await?;
    let text = text.as_str().context("no text")?;
    for decision in decisions {
        let (id, target) = (decision["id"].as_str(), decision["target"].as_str());
        let (id, target) = id.zip(target).context("no text")?;
        let shown = [
            format!(">{}</button>", &id[..8]),
            format!("<td>{target}</td>"),
        ];
        for shown in shown {
            assert!(text.contains(&shown), "no {shown} in {text}");
        }
    }
    for engine in stack.engines() {
        let address = format!("<td>{}</td>", engine.address());
        assert!(text.contains(&address), "{text}");
    }
    for shown in [
        "live, every 2 s",
        "prompt in the cache",
        "Where requests go",
    ] {
        assert!(text.contains(shown), "no {shown} in {text}");
    }
    assert_eq!(
        page.evaluate("document.querySelectorAll('.card > svg').length")
            .await?,
        json!(4)
    );
    tokio::select! {
        traffic = keep_conversing(&stack) => traffic,
        pictures = take_pictures(&mut page, &url) => pictures,
    }
}

#[tokio::test]
async fn the_live_page_says_since_when_and_why_a_replica_fails() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut stack = engines("live-page-failure", 2, SPEED).start().await?;
    let address = stack.engine(1)?.address();
    stack.engine_mut(1)?.kill()?;
    let service = stack.service();
    let failure = || async {
        let replicas = service.get("/api/replicas").await?;
        let mut replicas = replicas.as_array().context("no list")?.iter();
        let failed = replicas.find(|replica| replica["address"] == json!(address.to_string()));
        let failure = &failed.context("no replica")?["failure"];
        let reason = failure["reason"].as_str().unwrap_or_default();
        let is_told = !reason.is_empty() && failure["since_unix_ms"].is_u64();
        Ok(is_told.then_some(()))
    };
    wait_for(WAIT_MAX, "a failure with its reason", failure).await?;
    let Some(mut page) = Page::open(stack.directory()).await? else {
        return Ok(());
    };
    let row = "document.querySelector('#replicas tr.failed td.why')?.textContent";
    page.visit(&service.admin_url("/"), VIEWS[0], row).await?;
    let text = page.evaluate(row).await?;
    let text = text.as_str().unwrap_or_default();
    assert!(text.contains(" UTC, for "), "{text}");
    page.check().await
}

#[tokio::test]
async fn the_report_of_the_demo_fits_every_reader() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let options = DemoOptions {
        trace: None,
        requests: Some(REPORT_REQUESTS),
        speedup: REPORT_SPEEDUP,
        seed: 1,
        policy: vec![PolicyName::Isotherm, PolicyName::RoundRobin],
        replicas: ReplicaOptions {
            push: None,
            replicas: 2,
        },
    };
    let comparison = compare(&options.scenario()?, &options.schemes()).await?;
    let folder = output_directory().join("pictures");
    let names = [("report.html", Format::Html)];
    let [path] = comparison.report()?.write(&folder, names)?;
    let directory = tempfile::tempdir()?;
    let Some(mut page) = Page::open(directory.path()).await? else {
        return Ok(());
    };
    let url = format!("file://{}", path.canonicalize()?.display());
    for view in VIEWS {
        page.visit(&url, view, "document.querySelectorAll('svg').length === 4")
            .await?;
        page.check().await.with_context(|| view.name())?;
        let picture = folder.join(format!("report-{}.png", view.name()));
        page.picture(&picture, None).await?;
        let empty = "document.querySelectorAll('body :is(p, strong, figure, ul, dl, section):empty').length";
        assert_eq!(page.evaluate(empty).await?, json!(0), "empty elements");
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

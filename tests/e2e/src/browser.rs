//! A headless Chromium, driven by its own protocol over a pipe: pictures of pages, their texts, and what they complain about.
//!
//! The protocol (Chrome DevTools Protocol) sets the width, the colours and the moment of a picture, and tells the errors of the
//! console. The browser's command line has none of these: its windows are at least 500 pixels wide.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout_at};

use crate::WAIT_MAX;

/// Names of the program on `PATH`.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// The browser reads the protocol from descriptor 3 and writes it to descriptor 4; both end at the pipes of this process.
const START: &str = r#"exec "$@" 3<&0 4>&1 >/dev/null 2>/dev/null </dev/null"#;
/// Time between two looks at a condition.
const POLL: Duration = Duration::from_millis(100);

/// How a reader looks at a page.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Width in pixels.
    pub width: u32,
    /// Whether the reader's system is dark.
    pub is_dark: bool,
}

/// The views of which pictures are taken: a desk and a phone, light and dark.
pub const VIEWS: [View; 4] = [
    View {
        width: 1_400,
        is_dark: false,
    },
    View {
        width: 1_400,
        is_dark: true,
    },
    View {
        width: 420,
        is_dark: false,
    },
    View {
        width: 420,
        is_dark: true,
    },
];

impl View {
    /// The end of a picture's name.
    #[must_use]
    pub fn name(self) -> String {
        let colours = if self.is_dark { "dark" } else { "light" };
        format!("{}-{colours}", self.width)
    }
}

/// A page in a browser. Dropping it ends the browser.
#[derive(Debug)]
pub struct Page {
    _browser: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    last_id: u64,
    errors: Vec<String>,
}

impl Page {
    /// Starts a browser with its files in `directory`; `None` where none is installed.
    ///
    /// # Errors
    /// When a browser is there and does not work.
    pub async fn open(directory: &Path) -> anyhow::Result<Option<Self>> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = BROWSERS.iter().flat_map(|name| {
            let folders = std::env::split_paths(&path);
            folders.map(move |folder| folder.join(name))
        });
        let Some(program) = programs.find(|program| program.is_file()) else {
            println!("skipped: no {} is on PATH", BROWSERS.join(" or "));
            return Ok(None);
        };
        let mut command = Command::new("sh");
        command.args(["-c", START, "browser"]).arg(program).args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
        ]);
        let profile = format!("--user-data-dir={}", directory.join("browser").display());
        command.arg(profile).kill_on_drop(true);
        let mut browser = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut page = Self {
            input: browser.stdin.take().context("no input")?,
            output: BufReader::new(browser.stdout.take().context("no output")?),
            _browser: browser,
            session: None,
            last_id: 0,
            errors: Vec::new(),
        };
        page.attach().await?;
        Ok(Some(page))
    }

    async fn attach(&mut self) -> anyhow::Result<()> {
        let target = self
            .call("Target.createTarget", json!({ "url": "about:blank" }))
            .await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", attach).await?;
        let session = attached["sessionId"].as_str().context("no session")?;
        self.session = Some(session.to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.call(domain, json!({})).await?;
        }
        Ok(())
    }

    /// Opens an address for a reader, and waits until `condition`, an expression of the page, holds.
    ///
    /// # Errors
    /// When it does not hold in time.
    pub async fn visit(&mut self, url: &str, view: View, condition: &str) -> anyhow::Result<()> {
        let scheme = if view.is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", media).await?;
        let size = json!({
            "width": view.width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size)
            .await?;
        let opened = self.call("Page.navigate", json!({ "url": url })).await?;
        ensure!(opened["errorText"].is_null(), "{url}: {opened}");
        let loaded = format!("document.readyState === 'complete' && Boolean({condition})");
        let deadline = Instant::now() + WAIT_MAX;
        while self.evaluate(&loaded).await? != json!(true) {
            let now = Instant::now();
            ensure!(
                now < deadline,
                "{url}: never {condition}; {:?}",
                self.errors
            );
            sleep(POLL).await;
        }
        Ok(())
    }

    /// The value of an expression of the page.
    ///
    /// # Errors
    /// When the expression throws.
    pub async fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let ask = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", ask).await?;
        let thrown = &answer["exceptionDetails"];
        ensure!(thrown.is_null(), "{expression}: {thrown}");
        Ok(answer["result"]["value"].clone())
    }

    /// Fails when the page has logged an error, or scrolls sideways.
    ///
    /// # Errors
    /// For each of the two.
    pub async fn check(&mut self) -> anyhow::Result<()> {
        let widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]";
        let widths = self.evaluate(widths).await?;
        let is_wider = widths[0].as_f64() > widths[1].as_f64();
        ensure!(!is_wider, "the page scrolls sideways: {widths}");
        ensure!(self.errors.is_empty(), "console: {:?}", self.errors);
        Ok(())
    }

    /// Writes a picture of the whole page, or of its top.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn picture(&mut self, path: &Path, height_max: Option<u32>) -> anyhow::Result<()> {
        let size = self.call("Page.getLayoutMetrics", json!({})).await?["cssContentSize"].clone();
        let height = size["height"].as_f64().context("no height")?;
        let height = height.min(height_max.map_or(f64::INFINITY, f64::from));
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1 });
        let whole = json!({ "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", whole).await?;
        let data = picture["data"].as_str().context("no picture")?;
        let folder = path.parent().context("no folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(path, STANDARD.decode(data)?)?;
        Ok(())
    }

    /// Calls a method, and keeps the errors of the console that come before its answer.
    async fn call(&mut self, method: &str, parameters: Value) -> anyhow::Result<Value> {
        self.last_id += 1;
        let mut request = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&request)?;
        bytes.push(0);
        self.input.write_all(&bytes).await?;
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let mut message = Vec::new();
            let read = self.output.read_until(0, &mut message);
            let read = timeout_at(deadline, read).await;
            ensure!(
                read.with_context(|| format!("no answer to {method}"))?? > 0,
                "the browser has ended"
            );
            message.pop();
            let message: Value = serde_json::from_slice(&message)?;
            if message["id"] != json!(self.last_id) {
                self.errors.extend(console_error(&message));
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(message["result"].clone());
        }
    }
}

/// The error of the console that an event of the browser tells.
fn console_error(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    let (level, text) = match event["method"].as_str()? {
        "Runtime.exceptionThrown" => ("error", &parameters["exceptionDetails"]),
        "Runtime.consoleAPICalled" => (parameters["type"].as_str()?, &parameters["args"]),
        "Log.entryAdded" => (parameters["entry"]["level"].as_str()?, &parameters["entry"]),
        _ => return None,
    };
    (level == "error").then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_console_are_told_apart_from_its_notes() {
        let entry = |level| {
            let entry = json!({ "level": level, "text": "404 (Not Found)" });
            json!({ "method": "Log.entryAdded", "params": { "entry": entry } })
        };
        let error = console_error(&entry("error")).unwrap_or_default();
        assert!(error.contains("404 (Not Found)"), "{error}");
        assert_eq!(console_error(&entry("warning")), None);
        let thrown = json!({ "method": "Runtime.exceptionThrown", "params": { "exceptionDetails": { "text": "Uncaught" } } });
        assert!(console_error(&thrown).is_some());
        assert_eq!(
            console_error(&json!({ "method": "Page.loadEventFired" })),
            None
        );
    }
}

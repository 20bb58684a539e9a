//! The documents' commands: every `sh` block runs against a running stack, every `python` block with the `openai` package.
//! Commands of `cargo xtask` run inside sentences and tables too.
//!
//! `documents.sh` stands between the blocks and the programs; it lists the programs that run with `--help` only.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use isotherm_e2e::fixture::with_long_timeouts;
use isotherm_e2e::permit;
use isotherm_harness::port::{self, ReservedPort};
use isotherm_harness::process::Process;
use isotherm_harness::{MODEL, Pool, Stack, Tools, WAIT_MAX};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::openai::python_with_openai;

/// The gateway's address in the documents.
const GATEWAY: &str = "127.0.0.1:10000";
/// The address of the service's admin interface in the documents.
const ADMIN: &str = "http://127.0.0.1:9003";
/// The batch API's address in the documents.
const BATCH_API: &str = "127.0.0.1:9006";

/// A piece of code in a document.
pub(super) struct Block {
    page: String,
    pub(super) language: String,
    pub(super) code: String,
    /// Whether it stands alone, and not in a sentence.
    pub(super) is_fenced: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_documents_work() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = stack().await?;
    let folder = playground(&stack)?;
    let (batch_api, _server) = serve_batches(&stack).await?;
    let mut failures = Vec::new();
    for block in blocks()?.iter().filter(|block| block.language == "sh") {
        let code = block
            .code
            .replace(GATEWAY, &stack.envoy().address().to_string())
            .replace(ADMIN, &stack.service().admin_url(""))
            .replace(BATCH_API, &batch_api.address().to_string());
        let code = code
            .replace("target/release/", "")
            .replace("target/dist/", "");
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c"])
            .arg(format!("source \"$ROOT/tests/e2e/documents.sh\"\n{code}"))
            .current_dir(&folder)
            .env("ROOT", root())
            .env("BIN", bin()?)
            .env("ENVOY", Tools::find()?.envoy)
            .env("ENVOY_ADMIN", stack.envoy().admin_url(""))
            .env("CONFIG", stack.service().config_path())
            .output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            failures.push(format!(
                "{}: {}\n{}{stderr}",
                block.page, output.status, block.code
            ));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Needs a package index. Without one, the test is skipped, except in CI, where it fails.
#[tokio::test(flavor = "multi_thread")]
async fn python_of_the_documents_works() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = stack().await?;
    let requirements = root().join("tests/e2e/requirements.txt");
    let python = match python_with_openai(stack.directory(), &requirements) {
        Ok(python) => python,
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: the openai package cannot be installed here: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let (batch_api, _server) = serve_batches(&stack).await?;
    for block in blocks()?.iter().filter(|block| block.language == "python") {
        let code = block
            .code
            .replace(GATEWAY, &stack.envoy().address().to_string())
            .replace(BATCH_API, &batch_api.address().to_string());
        let output = Command::new(&python).args(["-c", &code]).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {stderr}\n{code}", block.page);
    }
    Ok(())
}

/// Serves OpenAI's batch API in front of the stack.
async fn serve_batches(stack: &Stack) -> anyhow::Result<(ReservedPort, Process)> {
    let port = port::reserve()?;
    let listen = port.address().to_string();
    let mut command = Command::new(stack.service().program());
    command
        .args(["batch", "serve", "--listen", &listen])
        .args(["--url", &stack.url(""), "--database"])
        .arg(stack.directory().join("batch.db"));
    let log = stack.directory().join("batch.log");
    let mut process = Process::start("batch", &mut command, &log)?;
    let is_ready =
        |log: String| std::future::ready(log.contains("the batch API is ready").then_some(()));
    process.wait_until_ready(WAIT_MAX, is_ready).await?;
    Ok((port, process))
}

async fn stack() -> anyhow::Result<Stack> {
    let stack = Stack::builder("documents").pool(Pool::new(MODEL).replicas(2));
    with_long_timeouts(stack)
        .service(|config| config.set("recording", true))
        .start()
        .await
}

/// A folder with everything of the repository, and with the files that the documents presume.
fn playground(stack: &Stack) -> anyhow::Result<PathBuf> {
    let folder = stack.directory().join("playground");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(root())? {
        let entry = entry?;
        symlink(entry.path(), folder.join(entry.file_name()))?;
    }
    fs::copy(
        root().join("examples/quickstart/isotherm.yaml"),
        folder.join("isotherm.yaml"),
    )?;
    fs::write(folder.join("token"), stack.service().token())?;
    let body = format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hello"}}]}}"#);
    fs::write(folder.join("body.json"), body)?;
    Ok(folder)
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The folder of the built programs.
fn bin() -> anyhow::Result<PathBuf> {
    let isotherm = Tools::find()?.isotherm;
    Ok(isotherm.parent().context("no folder")?.to_path_buf())
}

/// Every code block of the documents for users, and every command of `cargo xtask` in their text.
fn blocks() -> anyhow::Result<Vec<Block>> {
    let mut pages = vec![
        "README.md".to_owned(),
        "CONTRIBUTING.md".to_owned(),
        "envoy/README.md".to_owned(),
        "examples/quickstart/README.md".to_owned(),
        "examples/three-regions/README.md".to_owned(),
        "simulator/engine/README.md".to_owned(),
    ];
    for folder in ["docs", "docs/design", "docs/decisions", "docs/results"] {
        for entry in fs::read_dir(root().join(folder))? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    let mut blocks = Vec::new();
    for page in pages {
        let text = fs::read_to_string(root().join(&page)).with_context(|| page.clone())?;
        blocks.extend(blocks_of(&page, &text));
    }
    Ok(blocks)
}

/// The code blocks of a document, and the commands of `cargo xtask` in its text.
pub(super) fn blocks_of(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                open = Some(Block {
                    page: page.to_owned(),
                    language: language.into_string(),
                    code: String::new(),
                    is_fenced: true,
                });
            }
            Event::Text(part) => {
                if let Some(block) = &mut open {
                    block.code.push_str(&part);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            Event::Code(command) if command.starts_with("cargo xtask ") => blocks.push(Block {
                page: page.to_owned(),
                language: "sh".to_owned(),
                code: command.into_string(),
                is_fenced: false,
            }),
            _ => {}
        }
    }
    blocks
}

//! `isotherm init`: from a clean directory to the first routed request in four commands.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use isotherm_e2e::{MODEL, permit};
use isotherm_harness::process::Process;
use isotherm_harness::tools::repository_file;
use isotherm_harness::{Engines, Pool, Tools, WAIT_MAX, port, wait_for};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// An owner's configuration, whose cluster `engines` has an endpoint.
const OWNER: &str = "ext-proc/envoy-config/tests/data/lua-and-llm-route.yaml";

fn init(tools: &Tools, folder: &Path, options: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(&tools.isotherm);
    command.arg("init").args(options).current_dir(folder);
    let filter = format!("--filter={}", tools.filter.display());
    // Without a terminal there is no question.
    Ok(command.arg(filter).stdin(Stdio::null()).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asks the service's program and Envoy whether they accept the files of a folder.
fn check_files(tools: &Tools, folder: &Path) -> anyhow::Result<()> {
    let commands: [(&Path, &[&str]); 3] = [
        (&tools.isotherm, &["check", "--strict", "isotherm.yaml"]),
        (&tools.isotherm, &["envoy", "check", "envoy.yaml"]),
        (
            &tools.envoy,
            &["--mode", "validate", "-l", "error", "-c", "envoy.yaml"],
        ),
    ];
    for (program, arguments) in commands {
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(folder).output()?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
    }
    Ok(())
}

async fn engines(name: &str) -> anyhow::Result<Engines> {
    Engines::start(name, &Pool::new(MODEL).replicas(2)).await
}

/// Starts a program by a command as `isotherm init` prints it.
fn start(tools: &Tools, folder: &Path, command: &str, log: &str) -> anyhow::Result<Process> {
    let envoy = tools.envoy.parent().context("no folder")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &format!("exec {command}")])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", envoy.display()));
    Process::start(log, &mut shell, &folder.join(format!("{log}.log")))
}

fn run(folder: &Path, command: &str) -> anyhow::Result<Output> {
    let mut shell = Command::new("bash");
    Ok(shell.args(["-c", command]).current_dir(folder).output()?)
}

#[tokio::test]
async fn four_commands_lead_from_a_clean_directory_to_a_routed_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let engines = engines("init").await?;
    let folder = TempDir::new()?;
    let mut ports = Vec::new();
    for _ in 0..4 {
        ports.push(port::reserve()?);
    }
    let names = ["listen", "envoy-admin", "service", "admin"];
    let mut options: Vec<String> = names
        .iter()
        .zip(&ports)
        .map(|(name, port)| format!("--{name}={}", port.address()))
        .collect();
    let replicas = engines.addresses();
    options.extend(
        replicas
            .iter()
            .map(|address| format!("--replica={address}")),
    );
    let options: Vec<&str> = options.iter().map(String::as_str).collect();

    let output = init(&tools, folder.path(), &options)?;
    ensure!(output.status.success(), "{output:?}");
    check_files(&tools, folder.path())?;
    let report = text(&output.stdout);
    let mut next = report.lines().filter_map(|line| line.strip_prefix("  "));
    let mut command = || next.next().context("a command is missing");
    let (serve, envoy, curl, doctor) = (command()?, command()?, command()?, command()?);

    let _service = start(&tools, folder.path(), serve, "isotherm")?;
    // Another Envoy of this machine may have the same id for hot restarts.
    let envoy = format!("{envoy} --disable-hot-restart");
    let _envoy = start(&tools, folder.path(), &envoy, "envoy")?;
    wait_for(WAIT_MAX, "a routed request", async || {
        let output = run(folder.path(), curl)?;
        Ok(text(&output.stdout).contains("\"choices\"").then_some(()))
    })
    .await?;
    wait_for(WAIT_MAX, "no fault", async || {
        let output = run(folder.path(), doctor)?;
        let is_healthy = output.status.success() && text(&output.stdout) == "no known faults\n";
        Ok(is_healthy.then_some(()))
    })
    .await
}

#[tokio::test]
async fn answers_at_a_terminal_and_options_make_the_same_files() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let engines = engines("init-prompts").await?;
    let replicas: Vec<String> = engines
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let folder = TempDir::new()?;
    let by_options = folder.path().join("options");
    fs::create_dir(&by_options)?;
    let options: Vec<String> = replicas
        .iter()
        .map(|address| format!("--replica={address}"))
        .collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let output = init(&tools, &by_options, &options)?;
    ensure!(output.status.success(), "{output:?}");

    // `script` gives the program a terminal, and types the answers: the replicas, and the model that they tell.
    let answers = folder.path().join("answers");
    fs::write(&answers, format!("{}\n\n", replicas.join(", ")))?;
    let program = format!(
        "'{}' init --filter '{}' --dir answered",
        tools.isotherm.display(),
        tools.filter.display()
    );
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--command", &program, "/dev/null"])
        .current_dir(folder.path())
        .stdin(fs::File::open(&answers)?);
    let output = terminal
        .output()
        .context("`script` of util-linux is needed")?;
    let shown = text(&output.stdout);
    ensure!(output.status.success(), "{shown}");
    assert!(shown.contains("Replicas, as host:port"), "{shown}");
    assert!(shown.contains(&format!("[{MODEL}]")), "{shown}");
    for file in ["isotherm.yaml", "envoy.yaml"] {
        let answered = fs::read_to_string(folder.path().join("answered").join(file))?;
        assert_eq!(answered, fs::read_to_string(by_options.join(file))?);
    }
    check_files(&tools, &by_options)
}

#[tokio::test]
async fn an_envoy_that_is_there_gives_its_endpoints_and_stays() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let owner = repository_file(OWNER);
    let before = fs::read_to_string(&owner)?;
    let file = format!("--envoy={}", owner.display());
    let options = [&file, "--route=/v1/", "--model=m"];
    let output = init(&tools, folder.path(), &options)?;
    ensure!(output.status.success(), "{output:?}");
    check_files(&tools, folder.path())?;
    assert_eq!(fs::read_to_string(&owner)?, before);
    let config = fs::read_to_string(folder.path().join("isotherm.yaml"))?;
    assert!(config.contains("replicas:\n      "), "{config}");
    assert!(!config.contains("static: []"), "{config}");
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_there_stays_without_force() -> anyhow::Result<()> {
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let file = folder.path().join("envoy.yaml");
    fs::write(&file, "mine")?;
    let options = ["--model=m", "--replica=127.0.0.1:1"];
    let output = init(&tools, folder.path(), &options)?;
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("envoy.yaml is there: --force"),
        "{message}"
    );
    assert_eq!(fs::read_to_string(&file)?, "mine");
    assert!(!folder.path().join("isotherm.yaml").exists());

    let output = init(
        &tools,
        folder.path(),
        &[&options[..], &["--force"]].concat(),
    )?;
    ensure!(output.status.success(), "{output:?}");
    check_files(&tools, folder.path())
}

#[tokio::test]
async fn a_silent_replica_is_a_warning_where_the_model_is_known() -> anyhow::Result<()> {
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    drop(listener);
    let replica = format!("--replica={address}");
    let output = init(&tools, folder.path(), &[&replica])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no replica names its model"),
        "{output:?}"
    );
    let output = init(&tools, folder.path(), &[&replica, "--model=m"])?;
    ensure!(output.status.success(), "{output:?}");
    let warning = format!("warning: {address} does not answer");
    assert!(text(&output.stderr).contains(&warning), "{output:?}");
    check_files(&tools, folder.path())
}

#[tokio::test]
async fn a_mistake_in_the_options_says_what_to_give_and_writes_nothing() -> anyhow::Result<()> {
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let mistakes: [(&[&str], &str); 4] = [
        (&[], "--replica HOST:PORT"),
        (&["--replica=10.0.0.1"], "is not host:port"),
        (
            &["--replica=a:1", "--replica=b:2", "--model=m"],
            "one DNS name",
        ),
        (
            &["--replica=127.0.0.1:1", "--model=a\"b"],
            "the options make a configuration",
        ),
    ];
    for (options, expected) in mistakes {
        let output = init(&tools, folder.path(), options)?;
        assert!(!output.status.success(), "{options:?}");
        let message = text(&output.stderr);
        assert!(message.contains(expected), "{options:?}: {message}");
        assert_eq!(fs::read_dir(folder.path())?.count(), 0, "{options:?}");
    }
    Ok(())
}

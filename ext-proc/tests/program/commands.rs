//! The commands for scripts and for hands: JSON, exit codes, addresses as people type them, and pages about the command line.

use std::path::PathBuf;

use serde_json::Value;

use crate::cli::{data, isotherm, out, probed_service};
use crate::fake::service::Service;
use crate::fake::{FakeEngine, vllm};

/// A service that takes changes, with one replica that has been probed, and its admin address.
async fn service_with(engine: &FakeEngine) -> (Service, String) {
    let service = probed_service("admin: { token_file: token }", engine).await;
    let admin = service.admin.to_string();
    (service, admin)
}

async fn json(args: &[&str]) -> Value {
    let text = out(&isotherm(args, "").await);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

/// A configuration in a folder of its own.
fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("isotherm.yaml");
    std::fs::write(&file, text).unwrap();
    (folder, file)
}

#[tokio::test]
async fn every_table_has_a_form_in_json() {
    let engine = FakeEngine::start(vllm(0)).await;
    let (_service, admin) = service_with(&engine).await;
    let address = engine.addr.to_string();
    let replicas = json(&["replicas", "list", "--json", "--admin", &admin]).await;
    assert_eq!(replicas[0]["address"], address);
    let top = json(&["top", "--once", "--json", "--admin", &admin]).await;
    assert_eq!(top["replicas"][0]["address"], address);
    assert_eq!(top["pools"][0]["pool"], "llama");
    let regions = json(&["regions", "--json", "--admin", &admin]).await;
    assert_eq!(regions["name"], Value::Null);
    let scaling = json(&["scaling", "show", "--json", "--admin", &admin]).await;
    assert!(scaling["pools"].is_array(), "{scaling}");
    let body = r#"{"model": "llama", "messages": [{"role": "user", "content": "hello"}]}"#;
    let explained = json(&["explain", "--json", "--admin", &admin, body]).await;
    assert_eq!(explained["candidates"][0]["replica"], address);
    let file = data("config-full.yaml");
    let checked = json(&["check", "--json", file.to_str().unwrap()]).await;
    assert_eq!(checked["mistakes"], serde_json::json!([]));
}

#[tokio::test]
async fn mistakes_are_objects_with_their_line_in_json() {
    let file = data("config-bad.yaml");
    let output = isotherm(&["check", "--json", "--config", file.to_str().unwrap()], "").await;
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mistakes = report["mistakes"].as_array().unwrap();
    assert_eq!(mistakes.len(), 18);
    let is_it = |mistake: &&Value| mistake["option"] == "pools[0].probe.intervall_ms";
    let mistake = mistakes.iter().find(is_it).unwrap();
    assert_eq!(
        (&mistake["line"], &mistake["column"]),
        (&12.into(), &7.into())
    );
}

#[tokio::test]
async fn each_way_to_fail_has_an_exit_code_of_its_own() {
    let file = data("config-bad.yaml");
    let bad = file.to_str().unwrap();
    for (args, code) in [
        (&["check", bad][..], 1),
        (&["check"], 2),
        (&["replicas", "list", "--admin", "nonsense"], 2),
        (&["replicas", "list", "--admin", "127.0.0.1:1"], 3),
        (&["explain", "{}", "--admin", "127.0.0.1:1"], 3),
        (&["top", "--once", "--admin", "http://127.0.0.1:1"], 3),
        (&["drain-envoy", "--admin", "127.0.0.1:1"], 3),
    ] {
        let output = isotherm(args, "").await;
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    }
}

#[tokio::test]
async fn another_server_is_no_admin_interface() {
    let engine = FakeEngine::start(vllm(0)).await;
    let address = engine.addr.to_string();
    let output = isotherm(&["replicas", "list", "--admin", &address], "").await;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("is not Isotherm's admin interface"), "{text}");
}

#[tokio::test]
async fn names_and_urls_are_addresses_and_a_drain_is_taken_back() {
    let engine = FakeEngine::start(vllm(0)).await;
    let service = Service::start("admin: { token_file: token }").await;
    let token = service.folder().join("token");
    let (token, port) = (token.to_str().unwrap(), service.admin.port());
    let (localhost, url) = (
        format!("localhost:{port}"),
        format!("http://127.0.0.1:{port}/"),
    );
    let named = format!("localhost:{}", engine.addr.port());
    for (admin, action, expected) in [
        (&localhost, "add", "added, until the service restarts"),
        (&url, "drain", "drains, until `isotherm replicas undrain"),
        (&localhost, "undrain", "serves again"),
        (&url, "flush", "counts as empty"),
        (&url, "remove", "removed, until the service restarts"),
    ] {
        let args = [
            "replicas",
            action,
            &named,
            "--admin",
            admin,
            "--token-file",
            token,
        ];
        let text = out(&isotherm(&args, "").await);
        assert!(
            text.starts_with(&engine.addr.to_string()) && text.contains(expected),
            "{text}"
        );
        let replicas = service.pool_registry.pools()[0].replicas();
        let is_draining = replicas.iter().any(|replica| replica.draining);
        assert_eq!(is_draining, action == "drain", "after {action}");
    }
    let list = isotherm(&["replicas", "add", "http://a/v1", "--admin", &url], "").await;
    assert_eq!(list.status.code(), Some(2));
}

#[tokio::test]
async fn a_body_that_is_no_json_is_not_explained() {
    let engine = FakeEngine::start(vllm(0)).await;
    let (_service, admin) = service_with(&engine).await;
    let line = r#"{"model": "llama"}"#;
    for (body, expected) in [
        ("{bad", "line 1 column 2"),
        (&format!("{line}\n{line}\n"), "give one line of the file"),
        ("[1, 2", "line 1 column 5"),
        ("hello", "without a fingerprint"),
    ] {
        let output = isotherm(&["explain", "--admin", &admin, "-"], body).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{body}: {output:?}");
        assert!(
            text.contains("not one JSON value") && text.contains(expected),
            "{body}: {text}"
        );
    }
}

#[tokio::test]
async fn a_path_that_clients_may_not_use_is_explained_with_the_remedy() {
    let engine = FakeEngine::start(vllm(0)).await;
    let (_service, admin) = service_with(&engine).await;
    for (path, expected) in [
        (
            "/v1/rerank",
            "`/v1/rerank`; to publish it, add it to `paths`",
        ),
        ("/v1/files", "`isotherm batch serve` has `/v1/files`"),
        ("/v1/batches/batch_1/cancel", "`isotherm batch serve` has"),
    ] {
        let args = [
            "explain",
            "--admin",
            &admin,
            "--path",
            path,
            r#"{"model": "llama"}"#,
        ];
        let text = out(&isotherm(&args, "").await);
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn check_warns_of_a_file_that_cannot_do_what_it_seems_to() {
    for (text, expected) in [
        ("", "the pool `*` can never get a replica"),
        (
            "pools: [{model: a}]",
            "the pool `a` can never get a replica",
        ),
        ("admin: {token_file: missing}", "admin.token_file: "),
        (
            "pools: [{model: a, replicas: {static: ['127.0.0.1:1']}, probe: {token_file: missing}}]",
            "pools[0].probe.token_file: ",
        ),
        (
            "tls: {listen: ['127.0.0.1:9'], certificate: missing.pem, key: key.pem}\nadmin: {token_file: isotherm.yaml}",
            "tls.certificate: ",
        ),
    ] {
        let (_folder, file) = written(text);
        let file = file.to_str().unwrap();
        let output = isotherm(&["check", file], "").await;
        let warning = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{output:?}");
        assert!(
            warning.contains(&format!("warning: {expected}")),
            "{text}: {warning}"
        );
        let output = isotherm(&["check", "--strict", file], "").await;
        assert_eq!(output.status.code(), Some(1), "{text}");
    }
    let (_folder, file) = written("pools: [{model: a, replicas: {static: ['127.0.0.1:1']}}]");
    let output = isotherm(&["check", "--strict", file.to_str().unwrap()], "").await;
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[tokio::test]
async fn a_mistake_is_shown_with_its_line_and_what_to_write() {
    for (value, expected) in [
        ("5s", "give `ttft_slo_ms: 5000`"),
        ("1.5 min", "give `ttft_slo_ms: 90000`"),
        ("'100'", "remove the quotes"),
        ("soon", "found the text `soon`"),
    ] {
        let (_folder, file) = written(&format!("pools:\n  - model: a\n    ttft_slo_ms: {value}\n"));
        let output = isotherm(&["check", file.to_str().unwrap()], "").await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{value}: {text}");
        let shown = format!("\n    3 |     ttft_slo_ms: {value}\n      |                  ^");
        assert!(text.contains(&shown), "{text}");
    }
    for value in ["'true'", "'off'"] {
        let (_folder, file) = written(&format!("plaintext: {value}\n"));
        let output = isotherm(&["check", file.to_str().unwrap()], "").await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("remove the quotes"), "{value}: {text}");
    }
}

#[tokio::test]
async fn a_misspelt_option_names_its_neighbour_and_not_every_other() {
    let (_folder, file) = written("pools:\n  - modell: a\n");
    let text = isotherm(&["check", file.to_str().unwrap()], "").await;
    let text = String::from_utf8_lossy(&text.stderr);
    assert!(
        text.contains("did you mean `model`?") && !text.contains("ttft_slo_ms"),
        "{text}"
    );
    let (_folder, file) = written("pools:\n  - colour: a\n");
    let text = isotherm(&["check", file.to_str().unwrap()], "").await;
    let text = String::from_utf8_lossy(&text.stderr);
    assert!(text.contains("this section has model, aliases"), "{text}");
}

#[tokio::test]
async fn the_schema_of_the_file_accepts_the_examples_and_refuses_what_check_refuses() {
    let schema = json(&["config-schema"]).await;
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let parse = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    for path in [
        "examples/quickstart/isotherm.yaml",
        "examples/three-regions/us/isotherm.yaml",
        "examples/three-regions/eu/isotherm.yaml",
        "examples/three-regions/asia/isotherm.yaml",
        "ext-proc/tests/data/config-full.yaml",
    ] {
        let value = parse(&std::fs::read_to_string(root.join(path)).unwrap());
        let mistakes: Vec<String> = schema
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(mistakes.is_empty(), "{path}: {mistakes:?}");
    }
    for text in [
        "{}",
        "admin:",
        "listen: ['127.0.0.1:1']",
        "pools: [{model: a, queue: {length_max: 1}}]",
    ] {
        assert!(schema.is_valid(&parse(text)), "{text}");
    }
    for text in [
        "colour: blue",
        "drain_ms_max: 5s",
        "drain_ms_max: -1",
        "plaintext: 1",
        "pools: {model: a}",
        "pools: [{modell: a}]",
        "pools: [{policy: best}]",
        "region: {name: us, peers: [{name: eu}]}",
    ] {
        assert!(!schema.is_valid(&parse(text)), "{text}");
    }
}

#[tokio::test]
async fn shells_complete_commands_and_each_has_a_manual_page() {
    for (shell, part) in [
        ("bash", "_isotherm()"),
        ("zsh", "#compdef isotherm"),
        ("fish", "complete -c isotherm"),
    ] {
        let script = out(&isotherm(&["completions", shell], "").await);
        assert!(
            script.contains(part) && script.contains("undrain"),
            "{shell}"
        );
    }
    let page = out(&isotherm(&["man"], "").await);
    assert!(page.contains(".TH isotherm 1"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    out(&isotherm(&["man", folder.path().to_str().unwrap()], "").await);
    for page in [
        "isotherm.1",
        "isotherm-replicas-undrain.1",
        "isotherm-config-schema.1",
    ] {
        assert!(folder.path().join(page).is_file(), "{page}");
    }
}

#[tokio::test]
async fn help_lists_the_pages_about_the_configuration() {
    let help = out(&isotherm(&["--help"], "").await);
    for command in [
        "config-reference",
        "config-schema",
        "completions",
        "man",
        "drain-envoy",
    ] {
        assert!(help.contains(command), "{help}");
    }
}

#[tokio::test]
async fn certificates_are_made_for_names_of_regions_only() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let made = out(&isotherm(&["certificates", "--folder", place, "us", "eu-west"], "").await);
    assert!(
        made.contains("region.pem, region.key and ca.pem for eu-west.isotherm"),
        "{made}"
    );
    let refused = isotherm(&["certificates", "--folder", place, "asia", "EU/.."], "").await;
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        error.contains("`EU/..` is not the name of a region"),
        "{error}"
    );
    assert!(!folder.path().join("asia").exists());
}

//! The doors of the service: TLS towards Envoy, and the audit of changes.

use isotherm_e2e::{Client, ScriptedReplica, admin, chat, permit, scripted};
use isotherm_harness::{Authority, Document, StackBuilder, port};
use reqwest::Method;
use serde_json::json;

const SERVICE: &str = "static_resources/clusters/name=isotherm";
const ADDRESS: &str =
    "load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/port_value";

/// Envoy's side of TLS to the service, with a certificate of its own or without.
fn transport_socket(folder: &str, has_certificate: bool) -> serde_json::Value {
    let file = |name: &str| json!({ "filename": format!("{folder}/{name}") });
    let certificate = json!({
        "certificate_chain": file("region.pem"), "private_key": file("region.key"),
    });
    let certificates = if has_certificate {
        vec![certificate]
    } else {
        Vec::new()
    };
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                "tls_certificates": certificates,
                "validation_context": {
                    "trusted_ca": file("ca.pem"),
                    "match_typed_subject_alt_names": [
                        { "san_type": "DNS", "matcher": { "exact": "service.isotherm" } },
                    ],
                },
            },
        },
    })
}

/// Puts mutual TLS between Envoy and the service.
fn with_mutual_tls(
    stack: StackBuilder,
    folder: &str,
    listen: u16,
    has_certificate: bool,
) -> StackBuilder {
    let tls = json!({
        "listen": [format!("127.0.0.1:{listen}")],
        "certificate": format!("{folder}/region.pem"),
        "key": format!("{folder}/region.key"),
        "client_ca": format!("{folder}/ca.pem"),
    });
    let socket = transport_socket(folder, has_certificate);
    stack
        .service(move |config: &mut Document| config.set("tls", tls))
        .envoy(move |document| {
            document.set(&format!("{SERVICE}/{ADDRESS}"), listen)?;
            document.set(&format!("{SERVICE}/transport_socket"), socket)
        })
}

#[tokio::test]
async fn an_envoy_with_a_certificate_gets_decisions_over_mutual_tls() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let folder = tempfile::tempdir()?;
    Authority::new()?.issue("service", folder.path())?;
    let folder = folder.path().display().to_string();
    let replica = ScriptedReplica::start("a").await?;
    let listen = port::reserve()?;
    let stack = scripted("mutual-tls", &[&replica], 4);
    let stack = with_mutual_tls(stack, &folder, listen.address().port(), true);
    let stack = isotherm_e2e::with_decision_header(stack).start().await?;
    let client = Client::new(&stack.url(""))?;
    let response = client.chat("s", &chat("hello")).await?;
    assert_eq!(response.status, 200, "{}", response.text());
    let replica = replica.address().to_string();
    assert_eq!(response.decision("replica"), Some(&*replica));
    Ok(())
}

#[tokio::test]
async fn an_envoy_without_a_certificate_gets_no_decision() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let folder = tempfile::tempdir()?;
    Authority::new()?.issue("service", folder.path())?;
    let folder = folder.path().display().to_string();
    let replica = ScriptedReplica::start("a").await?;
    let listen = port::reserve()?;
    let stack = scripted("no-client-certificate", &[&replica], 4);
    let mut stack = with_mutual_tls(stack, &folder, listen.address().port(), false)
        .without_service()
        .start()
        .await?;
    stack.service_mut().start().await?;
    admin::wait_for_log(stack.service(), "TLS handshake failed").await?;
    Ok(())
}

#[tokio::test]
async fn each_change_is_written_down_with_its_author() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("audit", &[&replica], 4).start().await?;
    let service = stack.service();
    let tokens = service.config_path().with_file_name("admin-token");
    std::fs::write(tokens, format!("alice {}\n", service.token()))?;
    service
        .admin_request(Method::POST, "/api/reload", None)
        .await?;
    for part in ["isotherm_audit", "alice", "127.0.0.1", "/api/reload"] {
        admin::wait_for_log(service, part).await?;
    }
    Ok(())
}

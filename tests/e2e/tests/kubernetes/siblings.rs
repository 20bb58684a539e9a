//! Services that find each other through the EndpointSlices of their headless Service.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use isotherm_e2e::slice_server::SliceServer;
use isotherm_e2e::{WAIT_MAX, permit};
use isotherm_harness::{Document, Service, port, tools, wait_for};
use serde_json::{Value, json};

const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// A service as the pod with the address `ip`. All pods listen at the same port.
async fn start(server: &SliceServer, ip: IpAddr, port: u16) -> anyhow::Result<Service> {
    let region = json!({
        "name": "us", "listen": SocketAddr::new(ip, port).to_string(), "siblings_service": "isotherm"
    });
    // The same slice names replicas: nothing serves them, and a failed probe is a result.
    let replicas = json!({ "kubernetes": { "service": "isotherm" } });
    let pool = json!({ "model": "llama", "replicas": replicas });
    let config = Document(json!({ "admin": {}, "pools": [pool], "region": region }));
    let name = format!("kubernetes-siblings-{ip}");
    let mut service = Service::alone(&name, config)?;
    let directory = tools::output_directory().join("stacks").join(name);
    service.set_environment("KUBECONFIG", server.kubeconfig(&directory)?);
    service.set_environment("POD_IP", ip.to_string());
    service.start().await?;
    Ok(service)
}

/// Waits until the siblings of a service and their links are `expected`.
async fn wait_for_siblings(
    service: &Service,
    expected: &[(SocketAddr, &str)],
) -> anyhow::Result<()> {
    let expected: Vec<Value> = expected
        .iter()
        .map(|(address, link)| json!([address.to_string(), link]))
        .collect();
    wait_for(WAIT_MAX, &format!("the siblings {expected:?}"), || async {
        let regions = service.get("/api/regions").await?;
        let siblings = regions["siblings"].as_array().into_iter().flatten();
        let found = siblings.map(|sibling| json!([sibling["address"], sibling["link"]]));
        Ok((found.collect::<Vec<_>>() == expected).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn services_find_each_other_and_follow_their_service_without_a_restart() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let server = SliceServer::start().await?;
    let reserved = port::reserve()?;
    let port = reserved.address().port();
    let at = |ip| SocketAddr::new(ip, port);
    server.set(&[FIRST]);
    let first = start(&server, FIRST, port).await?;
    wait_for_siblings(&first, &[]).await?;

    server.set(&[FIRST, SECOND]);
    let second = start(&server, SECOND, port).await?;
    wait_for_siblings(&first, &[(at(SECOND), "up")]).await?;
    wait_for_siblings(&second, &[(at(FIRST), "up")]).await?;
    let replicas = first.get("/api/replicas").await?;
    assert_eq!(replicas.as_array().map(Vec::len), Some(2), "{replicas}");

    server.set(&[FIRST]);
    wait_for_siblings(&first, &[]).await?;
    server.set(&[FIRST, SECOND]);
    wait_for_siblings(&first, &[(at(SECOND), "up")]).await
}

//! Prefill and decode replicas behind a real Envoy: what the engine's sidecar reads, and what the service counts.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use isotherm_e2e::scripted_replica::ReceivedRequest;
use isotherm_e2e::{
    Action, Client, GatewayShape, ScriptedReplica, admin, chat, permit, scripted, send,
};
use isotherm_fingerprint::names;
use isotherm_harness::{Stack, StackBuilder, envoy};
use reqwest::Method;
use serde_json::{Value, json};

/// The address that a client forges.
const FORGED: &str = "10.9.9.9:80";

/// The way in which Envoy asks the service.
#[derive(Clone, Copy, Debug)]
enum Frontend {
    DecisionStream,
    /// External processing, with the filter in front.
    ExtProc,
    /// A gateway without the filter.
    Gateway(GatewayShape),
}

impl Frontend {
    fn all() -> impl Iterator<Item = Self> {
        let gateways = GatewayShape::ALL.into_iter().map(Self::Gateway);
        [Self::DecisionStream, Self::ExtProc]
            .into_iter()
            .chain(gateways)
    }
}

/// One decode replica and two prefill replicas.
struct World {
    decode: ScriptedReplica,
    prefills: [ScriptedReplica; 2],
    stack: Stack,
    client: Client,
}

impl World {
    async fn start(frontend: Frontend) -> anyhow::Result<Self> {
        let [decode, first, second] = ScriptedReplica::start_all(["decode", "p1", "p2"]).await?;
        let prefills = [first, second];
        let addresses = [prefills[0].address(), prefills[1].address()];
        let name = format!("roles-{frontend:?}").to_lowercase();
        let name = name.replace(['(', ')'], "-");
        let stack = scripted(&name, &[&decode], 8).service(move |config| {
            for address in addresses {
                let replica = json!({ "address": address.to_string(), "role": "prefill" });
                config.push("pools/0/replicas/static", replica)?;
            }
            Ok(())
        });
        let stack = asking_by(frontend, stack).start().await?;
        let client = Client::new(&stack.url(""))?;
        admin::wait_for_metric(stack.service(), "isotherm_available_prefillers", &[], |n| {
            n == 2.0
        })
        .await?;
        if let Frontend::DecisionStream = frontend {
            stack.envoy().wait_for_decision_streams(3).await?;
        }
        Ok(Self {
            decode,
            prefills,
            stack,
            client,
        })
    }

    /// Sends a chat with forged headers; returns the request that the decode replica received.
    async fn send(&self, prompt: &str) -> anyhow::Result<ReceivedRequest> {
        let before = self.decode.received().len();
        let mut request = self.client.post_chat(&chat(prompt));
        for name in names::SIDECAR {
            request = request.header(name, FORGED);
        }
        let response = send(request).await?.success()?;
        ensure!(response.served_by() == Some("decode"), "{response:?}");
        let received = self.decode.received().into_iter().nth(before);
        let received = received.context("the decode replica received nothing")?;
        for (name, value) in &received.headers {
            ensure!(value != FORGED, "{name} of the client reached the replica");
        }
        Ok(received)
    }

    /// The prefill replica that the service names for a chat.
    async fn prefiller(&self, prompt: &str) -> anyhow::Result<Option<SocketAddr>> {
        let received = self.send(prompt).await?;
        let mut named = received.headers.get_all(names::PREFILLER).iter();
        let first = named.next().map(|value| value.to_str()).transpose()?;
        ensure!(named.next().is_none(), "the header is there twice");
        Ok(first.map(str::parse).transpose()?)
    }

    /// Unfinished requests and prompts of all replicas.
    async fn outstanding(&self) -> anyhow::Result<Vec<u64>> {
        let replicas = self.stack.service().get("/api/replicas").await?;
        let replicas = replicas.as_array().context("a list of replicas")?;
        let outstanding = replicas.iter().map(|replica| &replica["outstanding"]);
        Ok(outstanding.filter_map(Value::as_u64).collect())
    }

    async fn check_released(&self) -> anyhow::Result<()> {
        admin::wait_until_idle(self.stack.service()).await?;
        let outstanding = self.outstanding().await?;
        ensure!(outstanding.iter().all(|n| *n == 0), "{outstanding:?}");
        Ok(())
    }

    fn is_prefiller(&self, address: SocketAddr) -> bool {
        let mut prefills = self.prefills.iter();
        prefills.any(|replica| replica.address() == address)
    }
}

fn asking_by(frontend: Frontend, stack: StackBuilder) -> StackBuilder {
    match frontend {
        Frontend::DecisionStream => stack,
        Frontend::ExtProc => stack.envoy(|document| {
            envoy::edit_filter(document, "isotherm.request", |filter| {
                filter.remove("decision_stream").map(drop)
            })
        }),
        Frontend::Gateway(shape) => stack.envoy(move |document| shape.apply(document)),
    }
}

/// A prompt of several thousand tokens.
fn long(word: &str) -> String {
    format!("{word} ").repeat(4_000)
}

#[tokio::test]
async fn long_prompts_name_a_prefill_replica_in_every_frontend() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for frontend in Frontend::all() {
        let world = World::start(frontend).await?;
        let case = format!("{frontend:?}");
        let cold = long("red");
        let first = world.prefiller(&cold).await?.context(case.clone())?;
        ensure!(world.is_prefiller(first), "{case}: {first}");
        for rest in ["green", "blue", "white"] {
            let longer = format!("{cold}{}", long(rest));
            let again = world.prefiller(&longer).await?;
            ensure!(
                again == Some(first),
                "{case}: {again:?} holds the beginning"
            );
        }
        ensure!(world.prefiller("hello").await?.is_none(), "{case}: short");
        ensure!(world.prefiller(&cold).await?.is_none(), "{case}: cached");
        for prefill in &world.prefills {
            ensure!(
                prefill.received().is_empty(),
                "{case}: no request of its own"
            );
        }
        world.check_released().await?;
        let prefills =
            admin::counter(world.stack.service(), "isotherm_prefills_total", &[]).await?;
        ensure!(prefills == 4, "{case}: {prefills} requests with one");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_releases_both_replicas() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for frontend in Frontend::all() {
        let world = World::start(frontend).await?;
        world.decode.push_action(Action::Hold);
        let request = world.client.spawn_chat(&long("red"));
        world.decode.wait_until_holding(1).await?;
        let mut outstanding = world.outstanding().await?;
        outstanding.sort_unstable();
        ensure!(outstanding == [0, 1, 1], "{frontend:?}: {outstanding:?}");
        request.abort();
        world.check_released().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_claim_on_a_prefill_replica_ends_when_the_response_begins() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let gateway = Frontend::Gateway(GatewayShape::AiGateway);
    for frontend in [Frontend::DecisionStream, gateway] {
        let world = World::start(frontend).await?;
        world.decode.push_action(Action::Stream);
        let request = world.client.spawn_chat(&long("red"));
        world.decode.wait_until_holding(1).await?;
        let service = world.stack.service();
        let address = world.decode.address().to_string();
        for prefill in &world.prefills {
            let replica = prefill.address().to_string();
            let labels = [("replica", replica.as_str())];
            let metric = "isotherm_replica_outstanding";
            admin::wait_for_metric(service, metric, &labels, |n| n == 0.0).await?;
        }
        let labels = [("replica", address.as_str())];
        let writing = admin::metric(service, "isotherm_replica_outstanding", &labels).await?;
        ensure!(writing == Some(1.0), "{frontend:?}: {writing:?}");
        world.decode.release(1);
        request.await??.success()?;
        world.check_released().await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_prefill_replicas_the_decode_replica_serves_alone() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let world = World::start(Frontend::DecisionStream).await?;
    ensure!(world.prefiller(&long("red")).await?.is_some());
    let service = world.stack.service();
    let [first, second] = &world.prefills;
    let path = format!("/api/replicas/{}", first.address());
    service.admin_request(Method::DELETE, &path, None).await?;
    let left = world.prefiller(&long("green")).await?;
    ensure!(left == Some(second.address()), "{left:?}");
    let path = format!("/api/replicas/{}/drain", second.address());
    service.admin_request(Method::POST, &path, None).await?;
    ensure!(world.prefiller(&long("blue")).await?.is_none());
    world.check_released().await
}

#[tokio::test]
async fn a_pool_without_roles_removes_forged_headers_for_the_sidecar() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for frontend in Frontend::all() {
        let world = World::start(frontend).await?;
        for prefill in &world.prefills {
            let path = format!("/api/replicas/{}", prefill.address());
            let service = world.stack.service();
            service.admin_request(Method::DELETE, &path, None).await?;
        }
        let received = world.send(&long("red")).await?;
        for name in names::SIDECAR {
            ensure!(!received.headers.contains_key(name), "{frontend:?}: {name}");
        }
    }
    Ok(())
}

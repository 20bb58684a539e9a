//! Several regions of scripted replicas, and waiting for what they think of each other.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use isotherm_harness::{Pool, Regions, RegionsBuilder, Service, Stack, envoy, wait_for};
use serde_json::{Value, json};

use crate::{MODEL, ScriptedReplica, WAIT_MAX};

/// How long a region must have been healthy before it gets its replicas back, in these tests.
pub const GIVE_BACK_AFTER: Duration = Duration::from_secs(2);

const SERVICE: &str = "static_resources/clusters/name=isotherm";
const HTTP2: &str = "typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicit_http_config/http2_protocol_options";
/// Longer than any machine forgets a process.
const PATIENT: &str = "20s";

/// Regions of scripted replicas that each get `outstanding_max` requests at a time. Their Envoys are patient with their
/// own services, as in [`crate::scripted`], and as shipped towards each other.
#[must_use]
pub fn scripted(
    name: &str,
    regions: &[(&str, &[&ScriptedReplica])],
    outstanding_max: u32,
) -> RegionsBuilder {
    let mut builder = Regions::builder(name);
    for (region, replicas) in regions {
        let addresses = replicas.iter().map(|replica| replica.address());
        builder = builder.region(
            region,
            Pool::new(MODEL)
                .with_addresses(addresses)
                .push("outstanding"),
        );
    }
    builder
        .service(move |_, config| {
            config.set("pools/0/outstanding_max", outstanding_max)?;
            let give_back_after_ms = u64::try_from(GIVE_BACK_AFTER.as_millis())?;
            config.set("region/give_back_after_ms", give_back_after_ms)
        })
        .envoy(|_, document| {
            let filter = "isotherm.ext_proc";
            envoy::set_in_filter(document, filter, "message_timeout", &json!(PATIENT))?;
            document.set(&format!("{SERVICE}/connect_timeout"), PATIENT)?;
            document.set(&format!("{SERVICE}/health_checks/0/timeout"), PATIENT)?;
            let keepalive = format!("{SERVICE}/{HTTP2}/connection_keepalive/timeout");
            document.set(&keepalive, PATIENT)?;
            envoy::show_decisions(document)
        })
}

/// One series of the service's metrics page: the sum of those that have all of these labels.
///
/// # Errors
/// When the service does not answer.
pub async fn series(
    service: &Service,
    name: &str,
    labels: &[(&str, &str)],
) -> anyhow::Result<Option<f64>> {
    let page = service.metrics().await?;
    let of_name = page
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name));
    let matching = of_name.filter(|line| {
        labels
            .iter()
            .all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
    });
    let values: Vec<f64> = matching
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    Ok((!values.is_empty()).then(|| values.iter().sum()))
}

/// How many requests `region` has sent to `peer`.
///
/// # Errors
/// When the service does not answer.
pub async fn forwarded(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<u64> {
    whole(regions, region, "isotherm_forwarded_total", peer).await
}

/// How many of those came back.
///
/// # Errors
/// When the service does not answer.
pub async fn returned(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<u64> {
    whole(regions, region, "isotherm_returned_total", peer).await
}

async fn whole(regions: &Regions, region: &str, name: &str, peer: &str) -> anyhow::Result<u64> {
    let mut sum = 0.0;
    for service in regions.region(region)?.services() {
        sum += series(service, name, &[("region", peer)])
            .await?
            .unwrap_or(0.0);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a counter"
    )]
    Ok(sum as u64)
}

/// What `region` says of `peer`: a member of `GET /api/regions`.
///
/// # Errors
/// When it does not answer, or does not know the peer.
pub async fn peer(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<Value> {
    let seen = regions.status(region).await?;
    let peers = seen.get("peers").and_then(Value::as_array);
    let found = peers.and_then(|peers| {
        let named = |one: &&Value| one.get("name").and_then(Value::as_str) == Some(peer);
        peers.iter().find(named)
    });
    found
        .cloned()
        .with_context(|| format!("no {peer} in {seen}"))
}

/// State of `peer` as `region` sees it: `up`, `lost` and so on.
///
/// # Errors
/// When it does not answer, or does not know the peer.
pub async fn state(regions: &Regions, region: &str, of: &str) -> anyhow::Result<String> {
    let peer = peer(regions, region, of).await?;
    let state = peer.get("state").and_then(Value::as_str);
    state
        .map(str::to_owned)
        .with_context(|| format!("no state in {peer}"))
}

/// Waits until `region` makes one of these of `peer`.
///
/// # Errors
/// When it never does.
pub async fn becomes(
    regions: &Regions,
    region: &str,
    peer: &str,
    wanted: &[&str],
) -> anyhow::Result<()> {
    let what = format!("{region} to find {peer} {wanted:?}");
    let last = Mutex::new(String::new());
    wait_for(WAIT_MAX, &what, || async {
        let now = state(regions, region, peer).await?;
        let found = wanted.contains(&&*now).then_some(());
        *last.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(found)
    })
    .await
    .with_context(|| format!("at last it found it {last:?}"))
}

/// Waits until each of these [`reaches`] each other one.
///
/// # Errors
/// When they never do.
pub async fn meet(regions: &Regions, names: &[&str]) -> anyhow::Result<()> {
    for region in names {
        for peer in names.iter().filter(|peer| *peer != region) {
            reaches(regions, region, peer).await?;
        }
    }
    Ok(())
}

/// Waits until `region` hears `peer`, would forward to it, looks after none of its replicas, and has an Envoy that
/// finds the other's well.
///
/// # Errors
/// When that never is so.
pub async fn reaches(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<()> {
    becomes(regions, region, peer, &["up"]).await?;
    available(regions, region, peer).await?;
    let envoy = regions.region(region)?.envoy();
    let what = format!("{region} and its Envoy to be at peace with {peer}");
    wait_for(WAIT_MAX, &what, || async {
        let name = format!("cluster.region-{peer}-gateways.membership_healthy");
        let well = envoy.stat(&name).await? == 1;
        let adopted = self::peer(regions, region, peer).await?;
        let adopted = adopted.get("adopted").and_then(Value::as_u64);
        Ok((well && adopted == Some(0)).then_some(()))
    })
    .await
}

/// Waits until `region` would forward to `peer`.
///
/// # Errors
/// When it never would.
pub async fn available(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<()> {
    becomes_available(regions, region, peer, true).await
}

/// Waits until `region` would not forward to `peer`. It may hear it nevertheless: by what the peer asks.
///
/// # Errors
/// When it always would.
pub async fn unavailable(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<()> {
    becomes_available(regions, region, peer, false).await
}

async fn becomes_available(
    regions: &Regions,
    region: &str,
    peer: &str,
    wanted: bool,
) -> anyhow::Result<()> {
    let service = regions.region(region)?.service();
    let what = format!("{peer} to be available to {region}: {wanted}");
    wait_for(WAIT_MAX, &what, || async {
        let value = series(service, "isotherm_peer_available", &[("region", peer)]).await?;
        Ok(value.filter(|value| (*value > 0.5) == wanted).map(|_| ()))
    })
    .await
}

/// Whose replicas a region looks after, its own included: the addresses in `GET /api/replicas`.
///
/// # Errors
/// When the service does not answer.
pub async fn looks_after(stack: &Stack) -> anyhow::Result<Vec<SocketAddr>> {
    let mut all = Vec::new();
    for service in stack.services().filter(|service| service.process().is_ok()) {
        let replicas = service.replicas().await?;
        let addresses = replicas.as_array().into_iter().flatten();
        all.extend(addresses.filter_map(|replica| {
            let address = replica.get("address")?.as_str()?;
            address.parse::<SocketAddr>().ok()
        }));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Waits until a region looks after exactly these replicas.
///
/// # Errors
/// When it never does.
pub async fn owns(
    regions: &Regions,
    region: &str,
    wanted: &[&ScriptedReplica],
) -> anyhow::Result<()> {
    let mut wanted: Vec<SocketAddr> = wanted.iter().map(|replica| replica.address()).collect();
    wanted.sort_unstable();
    let what = format!("{region} to look after {wanted:?}");
    wait_for(WAIT_MAX, &what, || async {
        let now = looks_after(regions.region(region)?).await?;
        Ok((now == wanted).then_some(()))
    })
    .await
}

/// Waits until all other regions know the replicas of `of`, and that `first` is the first that may look after them: in
/// the newest list of heirs and in the one before, since it takes both.
///
/// # Errors
/// When that never is so.
pub async fn recorded(
    regions: &Regions,
    of: &str,
    replicas: usize,
    first: &str,
) -> anyhow::Result<()> {
    for by in regions.names().filter(|region| *region != of) {
        let path = regions.region(by)?.directory().join("region-state.json");
        let what = format!("{by} to know {first} as the first heir of {of}");
        wait_for(WAIT_MAX, &what, || async {
            // Not there yet, or on its way.
            let Ok(text) = std::fs::read_to_string(&path) else {
                return Ok(None);
            };
            let state: Value = serde_json::from_str(&text)?;
            let records = state.get("records").and_then(Value::as_array);
            let record = records
                .into_iter()
                .flatten()
                .find(|record| record.get("region").and_then(Value::as_str) == Some(of));
            let at = |pointer: &str| record.and_then(|record| record.pointer(pointer));
            let known = at("/pools/0/replicas").and_then(Value::as_array);
            let heads =
                ["/successors/order/0", "/successors/previous/0"].map(|list| at(list).and_then(Value::as_str));
            let all = known.is_some_and(|known| known.len() == replicas);
            Ok((all && heads == [Some(first); 2]).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// That every request had a whole, good answer, but for those whose answer had begun when the network broke: as many
/// as the Envoys of the clients' regions say.
///
/// # Errors
/// When another one had none.
pub fn all_good_or_begun(
    regions: &Regions,
    names: &[&str],
    records: &[crate::load::RequestRecord],
) -> anyhow::Result<()> {
    let mut begun = 0;
    for name in names {
        let log = regions.region(name)?.envoy().process().log();
        begun += log.matches("upstream_reset_after_response_started").count();
    }
    let bad = records.iter().filter(|record| !record.is_success()).count();
    if bad <= begun {
        return Ok(());
    }
    crate::load::check_all_succeeded(records).with_context(|| format!("{begun} answers had begun"))
}

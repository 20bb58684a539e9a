//! `isotherm replicas`: shows, adds, removes, drains and flushes replicas of a running service.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use isotherm_router::Role;

use super::address::{parse_replica, resolve};
use super::client::{AdminClient, Connection, percent_encode};
use super::output::{self, JsonFlag, or_dash, percent};
use crate::admin::view;
use crate::config::Address;

#[derive(Debug, Args)]
pub(super) struct Replicas {
    #[command(flatten)]
    connection: Connection,
    /// Model of the pool; may be left out if there is one pool.
    #[arg(long, value_name = "MODEL", global = true)]
    pool: Option<String>,
    #[command(subcommand)]
    action: ReplicaAction,
}

#[derive(Debug, Subcommand)]
enum ReplicaAction {
    /// Show every replica, its load, and whether it accepts another request.
    List(JsonFlag),
    /// Add a replica, until the service restarts. It gets requests after its first successful probe.
    Add(NewReplica),
    /// Remove a replica at once. Its requests in flight end as usual.
    Remove(ReplicaAddress),
    /// Drain a replica: it gets no new request and finishes its requests in flight.
    Drain(ReplicaAddress),
    /// Let a draining replica serve again.
    Undrain(ReplicaAddress),
    /// Forget what a replica's cache held: its engine has emptied it, as after new weights.
    Flush(ReplicaAddress),
}

#[derive(Debug, Args)]
struct ReplicaAddress {
    /// Address of the replica, as `ip:port`, `name:port` or `http://` with one of them.
    #[arg(value_name = "HOST:PORT", value_parser = parse_replica)]
    address: Address,
}

#[derive(Debug, Args)]
struct NewReplica {
    #[command(flatten)]
    replica: ReplicaAddress,
    /// The part of a request that the replica serves.
    #[arg(long, value_parser = [Role::Both.as_ref(), Role::Prefill.as_ref(), Role::Decode.as_ref()])]
    role: Option<String>,
}

pub(super) async fn run(args: Replicas) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let query = args.pool.as_ref().map_or_else(String::new, |pool| {
        format!("?pool={}", percent_encode(pool))
    });
    let (replica, change) = match args.action {
        ReplicaAction::List(json) => {
            let replicas: Vec<_> = client.get(&format!("/api/replicas{query}")).await?;
            json.print(&replicas, |replicas| list(replicas))?;
            return Ok(ExitCode::SUCCESS);
        }
        ReplicaAction::Add(NewReplica { replica, role }) => (replica, Change::Add(role)),
        ReplicaAction::Remove(replica) => (replica, Change::Remove),
        ReplicaAction::Drain(replica) => (replica, Change::Drain),
        ReplicaAction::Undrain(replica) => (replica, Change::Undrain),
        ReplicaAction::Flush(replica) => (replica, Change::Flush),
    };
    let address = resolve(&replica.address).await?.to_string();
    let of_replica = format!("/api/replicas/{}", percent_encode(&address));
    let to = |action| {
        let path = format!("{of_replica}/{action}{query}");
        (Method::POST, path, Vec::new())
    };
    let (method, path, body) = match &change {
        Change::Add(role) => {
            let new = view::NewReplica {
                pool: args.pool,
                address: address.clone(),
                role: role.clone(),
            };
            (
                Method::POST,
                "/api/replicas".to_owned(),
                serde_json::to_vec(&new)?,
            )
        }
        Change::Remove => (Method::DELETE, format!("{of_replica}{query}"), Vec::new()),
        Change::Drain => to("drain"),
        Change::Undrain => to("undrain"),
        Change::Flush => to("flush"),
    };
    drop(client.send(method, &path, body.into()).await?);
    output::print(&change.report(&address))?;
    Ok(ExitCode::SUCCESS)
}

/// A change of one replica.
#[derive(Debug)]
enum Change {
    /// An addition, with the role that the operator names.
    Add(Option<String>),
    Remove,
    Drain,
    Undrain,
    Flush,
}

impl Change {
    /// Says what the service did, and how long it lasts: a restart reads the file, which no command changes.
    fn report(&self, address: &str) -> String {
        match self {
            Self::Add(_) => format!(
                "{address} added, until the service restarts: write it into `replicas.static` of the configuration to keep it\n"
            ),
            Self::Remove => format!(
                "{address} removed, until the service restarts: take it out of the configuration, too, if it is there\n"
            ),
            Self::Drain => format!(
                "{address} drains, until `isotherm replicas undrain {address}` or a restart of the service\n"
            ),
            Self::Undrain => format!("{address} serves again\n"),
            Self::Flush => {
                format!("{address} counts as empty: its cache fills with its next requests\n")
            }
        }
    }
}

/// Column names of [`row`].
pub(super) const HEADER: [&str; 12] = [
    "POOL",
    "REPLICA",
    "ROLE",
    "OWNER",
    "STATE",
    "OUTSTANDING",
    "PENDING",
    "RUNNING",
    "HEADROOM",
    "KV CACHE",
    "ADAPTERS",
    "PROBED",
];

pub(super) fn row(replica: &view::ReplicaView) -> Vec<String> {
    vec![
        replica.pool.clone(),
        replica.address.clone(),
        replica.role.clone(),
        or_dash(replica.owner.as_ref()),
        replica.availability.clone(),
        replica.outstanding.to_string(),
        match replica.without_metrics {
            true => "no metrics".to_owned(),
            false => or_dash(replica.pending),
        },
        or_dash(replica.running),
        or_dash(replica.headroom),
        or_dash(replica.kv_usage.map(|usage| percent(usage.into()))),
        or_dash(replica.adapters.as_ref().map(adapters)),
        or_dash(replica.probe_age_ms.map(|age| probed(age, replica))),
    ]
}

/// Says how long ago the replica was probed, and whether several processes answer its probes.
fn probed(age_ms: u64, replica: &view::ReplicaView) -> String {
    match replica.several_processes {
        true => format!("{age_ms} ms ago, several processes"),
        false => format!("{age_ms} ms ago"),
    }
}

/// Names the adapters that the replica holds, and says how many it lists.
fn adapters(adapters: &view::AdaptersView) -> String {
    let loaded = match &*adapters.loaded {
        [] => "none".to_owned(),
        loaded => loaded.join(","),
    };
    match &adapters.listed {
        Some(listed) => format!("{loaded} (of {})", listed.len()),
        None => loaded,
    }
}

/// Formats all replicas as a table.
pub(super) fn list(replicas: &[view::ReplicaView]) -> String {
    if replicas.is_empty() {
        return "no replicas; `isotherm replicas add HOST:PORT` adds one\n".to_owned();
    }
    output::table(&HEADER, replicas.iter().map(row).collect())
}

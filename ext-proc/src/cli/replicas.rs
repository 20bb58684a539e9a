//! `isotherm replicas`.

use std::net::SocketAddr;
use std::process::ExitCode;

use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::Method;

use super::client::{AdminClient, Connection, percent_encode};
use super::output;
use super::table::{self, or_dash, percent};
use crate::admin::view;

#[derive(Debug, Args)]
pub(super) struct Replicas {
    #[command(flatten)]
    connection: Connection,
    /// The pool, by its model; may be left out where there is one pool.
    #[arg(long, value_name = "MODEL", global = true)]
    pool: Option<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show every replica, its load, and whether it takes another request.
    List,
    /// Add a replica. It gets requests after its first good probe.
    Add {
        /// Where it listens.
        #[arg(value_name = "IP:PORT")]
        address: SocketAddr,
    },
    /// Remove a replica at once. What it has in flight ends as it ends.
    Remove {
        /// Where it listens.
        #[arg(value_name = "IP:PORT")]
        address: SocketAddr,
    },
    /// Give a replica nothing new; it finishes what it has.
    Drain {
        /// Where it listens.
        #[arg(value_name = "IP:PORT")]
        address: SocketAddr,
    },
}

pub(super) async fn run(args: Replicas) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let query = args.pool.as_ref().map_or_else(String::new, |pool| {
        format!("?pool={}", percent_encode(pool))
    });
    let path_of =
        |address: SocketAddr| format!("/api/replicas/{}", percent_encode(&address.to_string()));
    match args.action {
        Action::List => {
            let replicas: Vec<view::ReplicaView> =
                client.get(&format!("/api/replicas{query}")).await?;
            output::print(&list(&replicas))?;
        }
        Action::Add { address } => {
            let new = view::NewReplica {
                pool: args.pool,
                address: address.to_string(),
            };
            let body = Bytes::from(serde_json::to_vec(&new)?);
            client.command(Method::POST, "/api/replicas", body).await?;
            println!("{address} added");
        }
        Action::Remove { address } => {
            let path = format!("{}{query}", path_of(address));
            client.command(Method::DELETE, &path, Bytes::new()).await?;
            println!("{address} removed");
        }
        Action::Drain { address } => {
            let path = format!("{}/drain{query}", path_of(address));
            client.command(Method::POST, &path, Bytes::new()).await?;
            println!("{address} gets nothing new");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of the columns of [`row`].
pub(super) const HEADER: [&str; 10] = [
    "POOL",
    "REPLICA",
    "OF",
    "STATE",
    "OUTSTANDING",
    "PENDING",
    "RUNNING",
    "HEADROOM",
    "KV CACHE",
    "PROBED",
];

/// One replica as a row.
///
/// The owner of an adopted replica; `-` for a replica of this region.
pub(super) fn row(replica: &view::ReplicaView) -> [String; 10] {
    [
        replica.pool.clone(),
        replica.address.clone(),
        or_dash(replica.adopted_from.as_ref()),
        replica.availability.clone(),
        replica.outstanding.to_string(),
        or_dash(replica.pending),
        or_dash(replica.running),
        or_dash(replica.headroom),
        or_dash(replica.kv_usage.map(|usage| percent(usage.into()))),
        or_dash(replica.probe_age_ms.map(|age| format!("{age} ms ago"))),
    ]
}

/// All replicas as a table.
pub(super) fn list(replicas: &[view::ReplicaView]) -> String {
    if replicas.is_empty() {
        return "no replicas; `isotherm replicas add IP:PORT` adds one\n".to_owned();
    }
    let rows: Vec<_> = replicas.iter().map(row).collect();
    table::render(HEADER, rows)
}

//! `isotherm scaling`: shows the numbers of replicas, and holds one.

use std::process::ExitCode;

use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::Method;

use super::client::{AdminClient, Connection};
use super::output::{self, JsonFlag, or_dash, percent};
use crate::admin::view::{NewHold, PoolScalingView, ScalingView};

/// The path of the numbers in the admin interface.
pub(super) const PATH: &str = "/api/scaling";

#[derive(Debug, Args)]
pub(super) struct ScalingArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Option<ScalingAction>,
}

#[derive(Debug, Subcommand)]
enum ScalingAction {
    /// Show the number of replicas of every pool, its forecast and its reason. The default.
    Show(JsonFlag),
    /// Hold the number of a pool for a while.
    Hold {
        /// Number of replicas.
        replicas: u32,
        /// Duration of the hold, in seconds.
        #[arg(long, default_value_t = 3_600)]
        seconds: u64,
        /// Model of the pool; not needed if there is one pool.
        #[arg(long)]
        pool: Option<String>,
    },
    /// End a hold.
    Release {
        /// Model of the pool; not needed if there is one pool.
        #[arg(long)]
        pool: Option<String>,
    },
}

pub(super) async fn run(args: ScalingArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let show = ScalingAction::Show(JsonFlag::default());
    let hold = match args.action.unwrap_or(show) {
        ScalingAction::Show(json) => {
            let view: ScalingView = client.get(PATH).await?;
            json.print(&view, text)?;
            return Ok(ExitCode::SUCCESS);
        }
        ScalingAction::Hold {
            replicas,
            seconds,
            pool,
        } => NewHold {
            pool,
            replicas: Some(replicas),
            seconds: Some(seconds),
        },
        ScalingAction::Release { pool } => NewHold {
            pool,
            replicas: None,
            seconds: None,
        },
    };
    let body = Bytes::from(serde_json::to_vec(&hold)?);
    drop(
        client
            .send(Method::POST, &format!("{PATH}/hold"), body)
            .await?,
    );
    match hold.replicas {
        Some(replicas) => println!("the number is held at {replicas}, within its bounds"),
        None => println!("the number follows the plan again"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Column names of [`row`].
const HEADER: [&str; 12] = [
    "POOL", "MODE", "DESIRED", "READY", "STARTING", "SURPLUS", "DEMAND", "FORECAST", "MODEL",
    "USE", "START-UP", "REASON",
];

/// The numbers as a table; empty if no pool has one.
pub(super) fn text(view: &ScalingView) -> String {
    if view.pools.is_empty() {
        return "no pool has a section `scaling`\n".to_owned();
    }
    let mut text = output::table(&HEADER, view.pools.iter().map(row).collect());
    for pool in &view.pools {
        for (what, names) in [("drains", &pool.drain), ("may be donated", &pool.donate)] {
            if !names.is_empty() {
                text += &format!("{}: {what}: {}\n", pool.pool, names.join(", "));
            }
        }
        if pool.unmet_replicas > 0.0 {
            text += &format!(
                "{}: {:.1} replicas are missing within its bounds\n",
                pool.pool, pool.unmet_replicas
            );
        }
    }
    if !view.is_leader {
        text += "a sibling leads; this service publishes its numbers\n";
    }
    text
}

fn row(pool: &PoolScalingView) -> Vec<String> {
    let decimal = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.1}")));
    let forecast = pool
        .model
        .as_ref()
        .and_then(|model| pool.forecasts.get(model));
    vec![
        pool.pool.clone(),
        if pool.is_held {
            "held".to_owned()
        } else {
            pool.mode.clone()
        },
        or_dash(pool.desired),
        pool.ready.to_string(),
        pool.starting.to_string(),
        pool.surplus.to_string(),
        decimal(pool.demand_replicas),
        or_dash(forecast.map(|forecast| format!("{:.1} to {:.1}", forecast.point, forecast.upper))),
        or_dash(pool.model.clone()),
        or_dash(pool.utilisation.map(percent)),
        format!("{} s", pool.startup_ms / 1_000),
        pool.reason.clone(),
    ]
}

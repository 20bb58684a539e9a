//! The service with a policy of its own: `cargo run --example own_policy isotherm.yaml`.

#[path = "../policies/tests/policies/warm_unless_busy.rs"]
mod warm_unless_busy;

use anyhow::Context as _;
use isotherm_ext_proc::{config, server};
use isotherm_router::PolicyFactory;
use warm_unless_busy::WarmUnlessBusy;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).context("name a configuration")?;
    let mut config = config::load(path.as_ref())?;
    for pool in &mut config.pools {
        pool.router.policy = PolicyFactory::new("warm_unless_busy", |_| Box::new(WarmUnlessBusy));
    }
    server::run(config, None).await
}

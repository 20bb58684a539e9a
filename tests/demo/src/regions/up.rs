//! `up --regions`: prints how to use several running regions.

use std::fmt::Write as _;

use isotherm_harness::{MODEL, Regions, Stack};

use super::deployment::DeploymentPlan;

/// Instructions for running regions.
///
/// # Errors
/// When a process has ended.
pub fn instructions(regions: &Regions, plan: &DeploymentPlan) -> anyhow::Result<String> {
    let mut text = String::from("\nAsk a region:\n");
    let mut watch = String::new();
    let mut places = String::new();
    let mut first = None;
    for name in regions.names() {
        let stack = regions.region(name)?;
        first.get_or_insert((name, stack));
        writeln!(text, "  {:5} {}", name, stack.url("/v1/chat/completions"))?;
        let (isotherm, config) = commands(stack);
        writeln!(watch, "  {isotherm} top --config {config}")?;
        writeln!(
            places,
            "{name:5} Envoy {} (process {}), service {} (process {})",
            stack.url("/v1"),
            stack.envoy().process().id(),
            stack.service().admin_url("/"),
            stack.service().process()?.id(),
        )?;
    }
    let Some((name, stack)) = first else {
        return Ok(text);
    };
    let (isotherm, config) = commands(stack);
    let last = regions.names().last().unwrap_or(name);
    let process = regions.region(last)?.service().process()?.id();
    write!(
        text,
        r#"
  curl {url} -H 'content-type: application/json' \
    -d '{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hello"}}]}}' -i

The header x-isotherm-decision of the answer says which replica it came from, or which region.

Watch (in another terminal), each region for itself or all from one:
{watch}  {isotherm} regions --config {config}

Fill {name}: with more than some 20 conversations for each of its {replicas} replicas it forwards to the others:
  for i in $(seq 200); do
    curl -s -o /dev/null -D - {url} -H 'content-type: application/json' \
      -d '{{"model":"{MODEL}","messages":[{{"role":"user","content":"'"$(seq -s ' ' $i 2000)"'"}}]}}' | grep -i x-isotherm-decision &
  done; wait

Lose {last}'s service; with etcd, a neighbour takes the lease of its replicas:
  kill -9 {process}
  {isotherm} regions --config {config}

{places}
{round_trip} ms between regions and back. Logs: {directory}

Ctrl-C stops all of it.
"#,
        url = stack.url("/v1/chat/completions"),
        replicas = plan.replicas,
        round_trip = plan.round_trip.as_secs_f64() * 1_000.0,
        directory = regions.directory().display(),
    )?;
    Ok(text)
}

fn commands(stack: &Stack) -> (String, String) {
    let service = stack.service();
    (
        service.program().display().to_string(),
        service.config_path().display().to_string(),
    )
}

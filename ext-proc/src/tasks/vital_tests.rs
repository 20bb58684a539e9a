//! Every task that serving needs ends the process when it panics. Each case runs the test below in a process of its own, in which one
//! task panics.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use crate::server::Server;
use crate::{config, log};

/// The environment variable with the name of the task that panics.
const CHOSEN: &str = "ISOTHERM_PANIC_IN_TASK";
const SIGABRT: i32 = 6;

const TASKS: [&str; 17] = [
    "pools",
    "probes",
    "probe",
    "files of probes",
    "sources",
    "Kubernetes source",
    "Kubernetes watch",
    "configuration file",
    "SIGHUP",
    "readiness",
    "admin interface",
    "plans",
    "timer",
    "links of peers",
    "timer of regions",
    "changes of regions",
    "pings of a peer",
];

const CONFIG: &str = "
listen: ['127.0.0.1:0']
admin: { listen: '127.0.0.1:0' }
pools:
  - model: m
    replicas: { static: ['127.0.0.1:1'] }
    scaling: { replicas_min: 1, replicas_max: 2 }
  - model: other
    replicas: { kubernetes: { service: engines, ports: [80], namespace: prod } }
region:
  name: us
  listen: '127.0.0.1:0'
  peers: [{ name: eu, address: 'localhost:1' }]
";

const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{ name: c, cluster: { server: 'http://127.0.0.1:1' } }]
contexts: [{ name: c, context: { cluster: c, user: u } }]
users: [{ name: u, user: {} }]
current-context: c
";

pub(super) async fn panic_if_chosen<T>(name: &str, task: impl Future<Output = T>) -> T {
    let is_chosen = env::var(CHOSEN).is_ok_and(|chosen| chosen == name);
    assert!(!is_chosen, "as a defect would");
    task.await
}

#[test]
fn a_panic_in_a_task_that_serving_needs_ends_the_process_and_names_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let service = |task: &'static str| {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "tasks::vital_tests::a_service_runs", "--ignored"])
            .env(CHOSEN, task)
            .env("KUBECONFIG", &kubeconfig)
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("RUST_BACKTRACE")
            .stderr(Stdio::piped())
            .stdout(Stdio::piped());
        (task, command.spawn().unwrap())
    };
    for (task, service) in Vec::from_iter(TASKS.map(service)) {
        let output = service.wait_with_output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{task}: {output:?}");
        assert!(
            log.contains(&format!("\"task\":\"{task}\"")),
            "{task}: {log}"
        );
        assert!(log.contains("as a defect would"), "{task}: {log}");
    }
}

#[tokio::test]
#[ignore = "ends the process: the test above starts it in one of its own"]
async fn a_service_runs() {
    log::init(log::DEFAULT_FILTER).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("isotherm.yaml");
    fs::write(&file, CONFIG).unwrap();
    let config = config::load(&file).unwrap();
    let server = Server::bind(config, Some(file)).await.unwrap();
    // Without a panic, the test above finds a process that ended in order.
    server
        .run(tokio::time::sleep(Duration::from_secs(20)))
        .await
        .unwrap();
}

//! Configuration files, as an operator writes them: good ones, bad ones, none.

use std::path::Path;
use std::time::Duration;

use isotherm_ext_proc::config::{self, Config, Engine, Listen, ScalingMode, StaticReplica};
use isotherm_planner::{CostRules, PoolRules, ReplicaBounds, UtilisationRules};
use isotherm_policies::PolicyName;
use isotherm_router::{Push, Role, RouterConfig};

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

#[test]
fn every_option_of_scaling_arrives_where_it_belongs() {
    let config = config::load(&data("config-full.yaml")).unwrap();
    let (address, state) = ("127.0.0.1:9105".parse().unwrap(), data("scaling.json"));
    assert_eq!(config.scaling.keda_listen, Some(address));
    assert_eq!(config.scaling.gpus.get("h100"), Some(&24));
    assert_eq!(config.scaling.state_file, Some(state));
    assert!(config.pools[0].scaling.is_none());
    let scaling = config
        .pools
        .iter()
        .find_map(|pool| pool.scaling.as_ref())
        .unwrap();
    assert_eq!(scaling.mode, ScalingMode::Act);
    let webhook = scaling.webhook.as_ref().unwrap();
    assert_eq!(webhook.url, "http://127.0.0.1:7000/scale");
    assert_eq!(webhook.token_file, Some(data("hook.token")));
    let rules = PoolRules {
        replicas: ReplicaBounds {
            min: 3,
            max: 6,
            ..ReplicaBounds::default()
        },
        utilisation: UtilisationRules {
            busy: 0.85,
            cooldown: Duration::from_secs(6),
            ..UtilisationRules::default()
        },
        stabilisation: Duration::from_secs(120),
        cost: CostRules {
            kind: "h100".to_owned(),
            gpus: 4,
            ..CostRules::default()
        },
        weight: 4.0,
        startup: Duration::from_secs(240),
        ..PoolRules::default()
    };
    assert_eq!(scaling.rules, rules);
}

#[test]
fn mistakes_of_scaling_are_named() {
    let text = "scaling: { gpus: { h100: 3 } }\n\
                pools:\n\
                \x20 - model: a\n\
                \x20   scaling: { replicas_min: 5, replicas_max: 4, gpu_kind: h100, webhook_token_file: a }\n\
                \x20 - model: b\n\
                \x20   scaling: { webhook: \"https://example.com/\", webhook_token_file: a }\n";
    let errors = config::parse(text).unwrap_err().to_string();
    for part in [
        "pools[0].scaling.replicas_min: 5 is more than replicas_max (4)",
        "pools[0].scaling.webhook_token_file: has no effect without `webhook`",
        "a proxy on this machine adds TLS",
        "line 1, column 18: scaling.gpus.h100: 3 GPUs do not suffice",
        "4 mistakes",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn every_option_of_a_file_arrives_where_it_belongs() {
    let config = config::load(&data("config-full.yaml")).unwrap();
    assert_eq!(
        config.listen,
        [
            Listen::Tcp("127.0.0.1:9102".parse().unwrap()),
            Listen::Unix("/run/isotherm/grpc.sock".into())
        ]
    );
    let tls = config.tls.as_ref().unwrap();
    assert_eq!(tls.client_ca, Some(data("certs/envoys.pem")));
    assert_eq!(config.admin.listen, "[::1]:9103".parse().unwrap());
    let metrics = "0.0.0.0:9113".parse().unwrap();
    assert_eq!(config.admin.metrics_listen, Some(metrics));
    assert!(config.decision_header && config.recording);
    assert_eq!(config.drain_max, Duration::from_secs(5));
    let pool = &config.pools[0];
    assert_eq!(pool.model, "llama-3.1-8b");
    assert_eq!(pool.aliases, ["llama", "meta-llama/Llama-3.1-8B-Instruct"]);
    assert_eq!(pool.cluster, "llama");
    assert_eq!(pool.router.policy, PolicyName::ConsistentHash.into());
    assert_eq!(pool.router.push, Push::Outstanding { max: 16 });
    assert_eq!(pool.router.queue.length_max, 5);
    assert_eq!(pool.router.queue.wait_max, Duration::from_millis(1500));
    assert_eq!(pool.router.index.bytes_max, 2_097_152);
    assert_eq!(pool.router.ttft_slo, Duration::from_millis(2_500));
    assert_eq!(pool.router.probe_stale_after, Duration::from_secs(6));
    assert_eq!(pool.engine, Some(Engine::Sglang));
    assert_eq!(pool.probe.interval, Duration::from_millis(50));
    assert_eq!(pool.probe.timeout, Duration::from_secs(2));
    let fixed = [
        "127.0.0.1:8001".parse().unwrap(),
        "[::1]:8001".parse().unwrap(),
    ];
    let fixed = fixed.map(|address: std::net::SocketAddr| StaticReplica::from(address));
    let last = StaticReplica {
        address: "127.0.0.1:8002".parse().unwrap(),
        role: Role::Prefill,
    };
    assert_eq!(pool.sources.fixed[..2], fixed);
    assert_eq!(pool.sources.fixed[2..], [last]);
    let dns = pool.sources.dns.as_ref().unwrap();
    assert_eq!(dns.to_string(), "engines.example:8000");
    let kubernetes = pool.sources.kubernetes.as_ref().unwrap();
    assert_eq!(
        kubernetes.to_string(),
        "Service engines at `http` in models"
    );
    assert_eq!(
        (
            config.pools[1].model.as_str(),
            config.pools[1].cluster.as_str()
        ),
        ("*", "rest")
    );
}

#[test]
fn secrets_are_relative_to_the_file_that_names_them() {
    let config = config::load(&data("config-full.yaml")).unwrap();
    assert_eq!(config.admin.token_file, Some(data("secrets/token")));
    let probe = &config.pools[0].probe;
    assert_eq!(probe.token_file, Some(data("secrets/engine-token")));
    assert_eq!(probe.ca, Some(data("secrets/engines.pem")));
    assert_eq!(probe.server_name.as_deref(), Some("vllm.internal"));
}

#[test]
fn every_mistake_is_reported_at_once_with_its_option_and_line() {
    let errors = config::load(&data("config-bad.yaml")).unwrap_err();
    let found: Vec<(u64, &str)> = errors
        .errors
        .iter()
        .map(|error| {
            (
                error.location.map_or(0, |location| location.line),
                error.option.as_str(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (1, "listen[1]"),
            (3, "admin.listen"),
            (4, "admin.tokn_file"),
            (5, "decision_header"),
            (6, "drain_ms_max"),
            (9, "pools[0].policy"),
            (10, "pools[0].push"),
            (12, "pools[0].probe.intervall_ms"),
            (13, "pools[0].probe.interval_ms"),
            (14, "pools[0].probe.server_name"),
            (15, "pools[0].queue"),
            (16, "pools[1].model"),
            (17, "pools[1].cluster"),
            (19, "pools[1].replicas.static[1]"),
            (19, "pools[1].replicas.static[2]"),
            (20, "pools[1].replicas.dns"),
            (21, "pools[2].model"),
            (22, "pools[2].aliases[0]"),
        ],
        "{errors}"
    );
}

/// The mistakes of a text, as option and message.
fn mistakes(text: &str) -> Vec<(String, String)> {
    let errors = config::parse(text).unwrap_err().errors;
    let errors = errors.into_iter();
    errors.map(|error| (error.option, error.message)).collect()
}

#[test]
fn plaintext_beyond_loopback_must_be_asked_for() {
    let mistakes = mistakes("listen: [\"127.0.0.1:1\", \"10.0.0.1:2\", \"[::]:3\", \"unix:/s\"]\n");
    let options: Vec<_> = mistakes.iter().map(|(option, _)| &**option).collect();
    assert_eq!(options, ["listen[1]", "listen[2]"]);
    for (_, message) in &mistakes {
        assert!(message.contains("client_ca") && message.contains("plaintext: true"));
    }
    assert!(config::parse("listen: [\"10.0.0.1:2\"]\nplaintext: true\n").is_ok());
}

#[test]
fn an_admin_interface_beyond_loopback_needs_a_token() {
    let mistakes = mistakes("admin: { listen: \"0.0.0.0:9003\" }\n");
    assert_eq!(mistakes[0].0, "admin.token_file");
    assert!(mistakes[0].1.contains("metrics_listen"), "{mistakes:?}");
    assert!(config::parse("admin: { listen: \"0.0.0.0:9003\", token_file: t }\n").is_ok());
    assert!(config::parse("admin: { metrics_listen: \"0.0.0.0:9005\" }\n").is_ok());
}

#[test]
fn messages_say_what_to_write_instead() {
    let text = config::load(&data("config-bad.yaml"))
        .unwrap_err()
        .to_string();
    for part in [
        "config-bad.yaml: 18 mistakes",
        "did you mean `token_file`?",
        "`prefix-tree` is not one of `isotherm`, `prefix_tree`, `cache_aware`",
        "line 12, column 7: pools[0].probe.intervall_ms: unknown option; did you mean `interval_ms`?",
        "put text that looks like a number",
        "the model `llama` is taken by pools[0].model, line 8",
        "`engines:70000` is not host:port",
    ] {
        assert!(text.contains(part), "missing: {part}\nin:\n{text}");
    }
}

#[test]
fn no_file_an_empty_file_and_an_empty_section_mean_the_defaults() {
    let defaults = Config::default();
    assert_eq!(config::parse("").unwrap(), defaults);
    assert_eq!(config::parse("# nothing\n").unwrap(), defaults);
    assert_eq!(config::parse("admin:\npools: [{}]\n").unwrap(), defaults);
    assert_eq!(defaults.pools.len(), 1);
    let pool = &defaults.pools[0];
    assert_eq!(
        (pool.model.as_str(), pool.cluster.as_str()),
        ("*", "default")
    );
    assert_eq!(pool.router, RouterConfig::default());
    assert!(pool.sources.fixed.is_empty() && pool.sources.dns.is_none());
}

#[test]
fn a_pool_without_a_cluster_uses_its_models_name_when_a_header_can_carry_it() {
    let config = config::parse("pools: [{model: m1}]").unwrap();
    assert_eq!(config.pools[0].cluster, "m1");
    let errors = config::parse("pools: [{model: 'größe'}]").unwrap_err();
    assert!(
        errors.to_string().contains("give `cluster` as well"),
        "{errors}"
    );
}

#[test]
fn mistakes_in_a_replica_with_a_role_are_reported_where_they_stand() {
    let replica = |entries: &str| {
        let text = format!("pools: [{{ replicas: {{ static: [{entries}] }} }}]");
        config::parse(&text).map_err(|errors| errors.to_string())
    };
    let good = replica("'127.0.0.1:1', { address: '127.0.0.1:2', role: decode }").unwrap();
    let roles = good.pools[0].sources.fixed.iter();
    assert_eq!(
        roles.map(|replica| replica.role).collect::<Vec<_>>(),
        [Role::Both, Role::Decode]
    );
    for (entries, part) in [
        ("{ role: prefill }", "static[0].address: must be given"),
        (
            "{ address: '127.0.0.1:1', role: writer }",
            "`writer` is not one of `both`, `prefill`, `decode`",
        ),
        (
            "{ address: '127.0.0.1:0' }",
            "static[0].address: port 0 reaches nothing",
        ),
        (
            "'127.0.0.1:1', { address: '127.0.0.1:1' }",
            "static[1].address",
        ),
        ("{ addres: '127.0.0.1:1' }", "did you mean `address`?"),
    ] {
        let error = replica(entries).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_missing_file_is_reported() {
    let errors = config::load(&data("no-such-file.yaml")).unwrap_err();
    assert!(
        errors
            .to_string()
            .contains("no-such-file.yaml: 1 mistake\n  cannot be read"),
        "{errors}"
    );
}

#[test]
fn anchors_and_aliases_work_so_that_pools_can_share_options() {
    let config = config::parse(
        "pools:\n  - {model: a, probe: &fast {interval_ms: 20}}\n  - {model: b, probe: *fast}\n",
    )
    .unwrap();
    assert_eq!(config.pools[1].probe.interval, Duration::from_millis(20));
}

proptest::proptest! {
    #[test]
    fn a_file_with_any_line_changed_is_read_or_refused_with_reasons(
        line in 0usize..40,
        text in "[ -~]{0,40}|[a-z_]{1,12}: .{0,20}|\\PC{0,20}",
    ) {
        let good = std::fs::read_to_string(data("config-full.yaml")).unwrap();
        let mut lines: Vec<&str> = good.lines().collect();
        if let Some(changed) = lines.get_mut(line) {
            *changed = &text;
        }
        if let Err(errors) = config::parse(&lines.join("\n")) {
            proptest::prop_assert!(!errors.errors.is_empty());
            proptest::prop_assert!(errors.errors.iter().all(|error| !error.message.is_empty()));
        }
    }
}

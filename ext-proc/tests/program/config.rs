//! Configuration files, as an operator writes them: good ones, bad ones, none.

use std::path::Path;
use std::time::Duration;

use isotherm_ext_proc::config::{
    self, Config, DnsSource, Engine, Listen, ScalingMode, SocketMode, StaticReplica,
};
use isotherm_planner::{
    CostRules, ForecastModel, ForecastRules, Pace, PoolRules, ReplicaBounds, Signal,
    UtilisationRules,
};
use isotherm_policies::PolicyName;
use isotherm_router::{CacheAwareRules, MissRule, Push, Role, RouterConfig};

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
    assert_eq!(config.scaling.gpus_max().get("h100"), Some(&24));
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
        pace: Pace::UtilisationAndGap,
        replicas: ReplicaBounds {
            min: 3,
            max: 6,
            ..ReplicaBounds::default()
        },
        interval: Duration::from_secs(1_800),
        utilisation: UtilisationRules {
            up: 0.8,
            down: 0.2,
            busy: 0.85,
            cooldown: Duration::from_secs(30),
            ..UtilisationRules::default()
        },
        stabilisation: Duration::from_secs(120),
        signal: Signal::InputTokens,
        forecast: ForecastRules {
            model: ForecastModel::Arima,
            quantile: 0.95,
            ..ForecastRules::default()
        },
        cost: CostRules {
            kind: "h100".to_owned(),
            gpus: 4,
            per_hour: 2.5,
        },
        weight: 4.0,
        startup: Duration::from_secs(240),
        ..PoolRules::default()
    };
    assert_eq!(scaling.rules, rules);
}

#[test]
fn mistakes_of_scaling_are_named() {
    let text = "scaling: { gpus: [{ kind: h100, count: 3 }] }\n\
                pools:\n\
                \x20 - model: a\n\
                \x20   scaling: { replicas: { min: 5, max: 4 }, cost: { kind: h100 } }\n\
                \x20 - model: b\n\
                \x20   scaling: { utilisation: { up: 0.3, down: 0.4 }, webhook: { url: \"https://example.com/\" } }\n";
    let errors = config::parse(text).unwrap_err().to_string();
    for part in [
        "pools[0].scaling.replicas.min",
        "5 is more than max (4)",
        "0.4 is not below up (0.3)",
        "a proxy on this machine adds TLS",
        "scaling.gpus[0].count",
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
    assert_eq!(config.unix.mode, SocketMode(0o600));
    assert_eq!(config.unix.group.as_deref(), Some("envoy"));
    let tls = config.tls.as_ref().unwrap();
    assert_eq!(tls.client_ca, Some(data("certs/envoys.pem")));
    assert_eq!(config.admin.listen, "[::1]:9103".parse().unwrap());
    let metrics = "0.0.0.0:9113".parse().unwrap();
    assert_eq!(config.admin.metrics_listen, Some(metrics));
    assert!(config.decision_header && config.recording.enabled);
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
    assert_eq!(pool.router.probe_stale_after, Duration::from_secs(1));
    assert_eq!(pool.engine, Some(Engine::Sglang));
    assert_eq!(pool.probe.interval, Duration::from_millis(50));
    assert_eq!(pool.probe.timeout, Duration::from_millis(500));
    assert_eq!(pool.probe.path.as_deref(), Some("/stats"));
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
    let dns = DnsSource {
        name: "engines.example".into(),
        port: 8000,
        interval: Duration::from_secs(2),
    };
    assert_eq!(pool.sources.dns, Some(dns));
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
fn the_thresholds_of_cache_aware_are_those_of_sglang() {
    let config = config::load(&data("config-full.yaml")).unwrap();
    let given = CacheAwareRules {
        cache_threshold: 0.3,
        balance_abs_threshold: 64,
        balance_rel_threshold: 1.5,
        on_miss: MissRule::LeastOutstanding,
    };
    assert_eq!(config.pools[1].router.cache_aware, given);
    let rules = "cache_aware: { cache_threshold: 1, balance_rel_threshold: 1.0001 }";
    let config = config::parse(&format!("pools: [{{ policy: cache_aware, {rules} }}]")).unwrap();
    let given = CacheAwareRules {
        cache_threshold: 1.0,
        balance_rel_threshold: 1.0001,
        ..CacheAwareRules::default()
    };
    assert_eq!(config.pools[0].router.cache_aware, given);
    for (pool, part) in [
        (
            "cache_aware: { cache_threshold: 0.3 }",
            "pools[0].cache_aware: has no effect with `policy: isotherm`",
        ),
        (
            "policy: cache_aware, cache_aware: { cache_threshold: 1.5 }",
            "expected number, 0 to 1; found the number 1.5",
        ),
        (
            "policy: cache_aware, cache_aware: { balance_rel_threshold: much }",
            "expected number, 1 to 1000; found the text `much`",
        ),
    ] {
        let error = config::parse(&format!("pools: [{{ {pool} }}]")).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn secrets_are_relative_to_the_file_that_names_them() {
    let config = config::load(&data("config-full.yaml")).unwrap();
    assert_eq!(config.admin.token_file, Some(data("secrets/token")));
    let probe = &config.pools[0].probe;
    assert_eq!(probe.token_file, Some(data("secrets/engine-token")));
    let tls = probe.tls.as_ref().unwrap();
    assert_eq!(tls.ca, data("secrets/engines.pem"));
    assert_eq!(tls.server_name.as_deref(), Some("vllm.internal"));
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
            (10, "pools[0].outstanding_max"),
            (12, "pools[0].probe.intervall_ms"),
            (14, "pools[0].probe.stale_after_ms"),
            (15, "pools[0].queue"),
            (16, "pools[1].model"),
            (17, "pools[1].cluster"),
            (19, "pools[1].replicas.static[1]"),
            (19, "pools[1].replicas.static[2]"),
            (20, "pools[1].replicas.dns.name"),
            (20, "pools[1].replicas.dns.port"),
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
        "expected number, 1 to 65535; found the number 70000",
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

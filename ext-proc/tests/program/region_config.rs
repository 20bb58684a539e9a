//! The section `region` of configuration files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_ext_proc::config::{self, ConfigErrors, RegionConfig, TlsFiles};
use isotherm_router::{ForwardingRule, RegionChoice, RegionRules, RouterConfig};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn region(text: &str) -> Result<Option<RegionConfig>, ConfigErrors> {
    config::parse(&format!("region: {text}")).map(|config| config.region)
}

/// The mistakes of a section, as lines of text.
fn mistakes(text: &str) -> String {
    region(text).unwrap_err().to_string()
}

#[test]
fn every_option_of_the_section_arrives_and_files_are_relative_to_the_file() {
    let config = config::load(&data("config-full.yaml")).unwrap();
    let region = config.region.unwrap();
    assert_eq!(region.name, "us");
    assert_eq!(region.listen, "0.0.0.0:9104".parse().unwrap());
    assert_eq!(
        region.tls,
        Some(TlsFiles {
            certificate: data("certs/us.pem"),
            key: data("certs/us.key"),
            ca: "/etc/isotherm/ca.pem".into(),
        })
    );
    assert_eq!(region.heartbeat, Duration::from_millis(100));
    assert_eq!(region.rules().forwarding, ForwardingRule::Published);
    let store = region.store.unwrap();
    assert_eq!(store.etcd.len(), 2);
    assert_eq!(store.tls.unwrap().certificate, data("certs/etcd.pem"));
    assert_eq!(store.lease, Duration::from_secs(5));
    assert_eq!(store.advertise.unwrap().to_string(), "us.example:9104");
    assert_eq!(store.networks, ["10.1.0.0/16".parse().unwrap()]);
    assert_eq!(region.peers[1].replicas, ["10.2.0.0/16".parse().unwrap()]);
    let peers: Vec<_> = region
        .peers
        .iter()
        .map(|peer| format!("{} {}", peer.name, peer.address))
        .collect();
    assert_eq!(peers, ["eu eu.example:9004", "asia-1 10.2.0.1:9004"]);
    let siblings: Vec<_> = region.siblings.iter().map(ToString::to_string).collect();
    assert_eq!(siblings, ["10.0.0.12:9004", "isotherm-2.us.example:9004"]);
}

#[test]
fn without_the_section_a_region_is_alone() {
    assert_eq!(config::parse("").unwrap().region, None);
    assert_eq!(region("").unwrap(), None);
}

#[test]
fn the_least_that_can_be_written_means_the_defaults() {
    let region = region("{ name: us, tls: { certificate: a, key: b, ca: c } }")
        .unwrap()
        .unwrap();
    assert_eq!(region.listen, "0.0.0.0:9004".parse().unwrap());
    assert_eq!(region.heartbeat, Duration::from_millis(200));
    assert_eq!(region.silence_max(), Duration::from_millis(600));
    assert_eq!(
        region.rules(),
        RegionRules {
            stale_after: Duration::from_millis(600),
            ..RouterConfig::default().region
        }
    );
    assert_eq!(region.store, None);
    assert!(region.peers.is_empty() && region.siblings.is_empty());
}

#[test]
fn every_mistake_of_the_section_is_reported_with_its_line() {
    let errors = config::load(&data("region-bad.yaml")).unwrap_err();
    let found: Vec<(u64, &str)> = errors
        .errors
        .iter()
        .map(|error| {
            let line = error.location.map_or(0, |location| location.line);
            (line, error.option.as_str())
        })
        .collect();
    assert_eq!(
        found,
        [
            (5, "region.name"),
            (6, "region.listen"),
            (7, "region.tls.ca"),
            (7, "region.tls.key"),
            (8, "region.heartbeat_ms"),
            (10, "region.peers[0].name"),
            (11, "region.peers[1].name"),
            (11, "region.peers[1].address"),
            (12, "region.peers[2].name"),
            (12, "region.peers[2].address"),
            (13, "region.peers[3].address"),
            (14, "region.peers[4].name"),
            (14, "region.peers[4].address"),
            (14, "region.peers[4].clustr"),
            (15, "region.siblings[0]"),
            (15, "region.siblings[1]"),
        ],
        "{errors}"
    );
    let text = errors.to_string();
    for part in [
        "`US` is not the name of a region, such as eu or us-east-1",
        "the address `127.0.0.1:9003` is taken by admin.listen, line 2",
        "the region `eu` is taken by region.peers[0].name, line 10",
        "the cluster `region-eu` is taken by pools[0].cluster, line 3",
        "`eu.example` is not host:port",
    ] {
        assert!(text.contains(part), "missing: {part}\nin:\n{text}");
    }
}

#[test]
fn a_region_is_not_its_own_peer() {
    let text = mistakes(
        "{ name: us, tls: { certificate: a, key: b, ca: c }, peers: [{ name: us, address: \"a:1\" }] }",
    );
    assert!(
        text.contains("region.peers[0].name: the region `us` is taken by region.name"),
        "{text}"
    );
}

#[test]
fn links_are_protected_or_stay_on_this_machine() {
    let text = mistakes("{ name: us }");
    assert!(text.contains("region.tls: must be given"), "{text}");

    let peers =
        "peers: [{ name: eu, address: \"127.0.0.1:2\" }, { name: asia, address: \"10.0.0.1:3\" }]";
    let siblings = "siblings: [\"localhost:4\", \"us.example:5\"]";
    for (options, open) in [
        (peers, "10.0.0.1:3 (`region.peers[1].address`)"),
        (siblings, "us.example:5 (`region.siblings[1]`)"),
    ] {
        let text = mistakes(&format!(
            "{{ name: us, listen: \"127.0.0.1:1\", {options} }}"
        ));
        assert!(text.contains("region.tls: must be given"), "{text}");
        assert!(text.contains(open), "{open}\n{text}");
    }

    let peer = "peers: [{ name: eu, address: \"127.0.0.1:2\" }]";
    let fine = format!("{{ name: us, listen: \"[::1]:1\", {peer} }}");
    assert!(region(&fine).unwrap().unwrap().tls.is_none());
}

#[test]
fn more_peers_than_can_be_kept_are_refused() {
    let peers = |count: usize| {
        let peers: Vec<_> = (0..count)
            .map(|n| format!("{{ name: r{n}, address: \"r{n}.example:9004\" }}"))
            .collect();
        let tls = "tls: { certificate: a, key: b, ca: c }";
        region(&format!(
            "{{ name: us, {tls}, peers: [{}] }}",
            peers.join(", ")
        ))
    };
    assert_eq!(peers(256).unwrap().unwrap().peers.len(), 256);
    let text = peers(257).unwrap_err().to_string();
    assert!(text.contains("at most 256"), "{text}");
}

#[test]
fn each_rule_of_forwarding_is_one_of_the_core() {
    let rules = |rule: &str| {
        let text = format!("{{ name: us, listen: '127.0.0.1:1', forwarding: {rule} }}");
        let rules = region(&text).unwrap().unwrap().rules();
        (rules.forwarding, rules.choice)
    };
    let availability = RegionChoice::Availability;
    assert_eq!(rules("cost"), (ForwardingRule::Cost, availability));
    assert_eq!(
        rules("published"),
        (ForwardingRule::Published, availability)
    );
    assert_eq!(rules("utilisation").1, RegionChoice::Utilisation);
}

#[test]
fn a_store_is_of_one_kind_and_has_addresses() {
    let store = |text: &str| {
        region(&format!(
            "{{ name: us, listen: '127.0.0.1:1', store: {text} }}"
        ))
    };
    let parsed = store("{ etcd: ['127.0.0.1:2379'] }").unwrap().unwrap();
    assert_eq!(parsed.store.unwrap().lease, Duration::from_secs(10));
    let parsed = store("{ kubernetes: models }").unwrap().unwrap();
    assert_eq!(parsed.store.unwrap().kubernetes.as_deref(), Some("models"));
    for (text, mistake) in [
        ("{}", "give one of `etcd` and `kubernetes`"),
        ("{ etcd: [] }", "give one of `etcd` and `kubernetes`"),
        (
            "{ etcd: ['a:1'], kubernetes: models }",
            "give only one of `etcd` and `kubernetes`",
        ),
        ("{ etcd: ['a'] }", "region.store.etcd[0]"),
        (
            "{ kubernetes: models, tls: { certificate: a, key: b, ca: c } }",
            "region.store.tls: belongs to `etcd`",
        ),
        ("{ etcd: ['a:1'], networks: [10.0.0.300/8] }", "10.2.0.0/16"),
        ("{ etcd: ['a:1'], lease_ms: 5 }", "region.store.lease_ms"),
    ] {
        let errors = store(text).unwrap_err().to_string();
        assert!(errors.contains(mistake), "{text}: {errors}");
    }
    let errors = mistakes(
        "{ name: us, listen: '127.0.0.1:1', heartbeat_ms: 1000, \
         store: { kubernetes: models, lease_ms: 2999 } }",
    );
    assert!(errors.contains("must be at least 3000"), "{errors}");
}

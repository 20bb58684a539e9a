use super::*;
use crate::pool::Pool;
use crate::yaml::Node;

const GATEWAY: &str = include_str!("../../tests/data/lua-and-llm-route.yaml");

fn request(routes: &[&str]) -> Request {
    Request {
        routes: routes.iter().map(|route| (*route).to_owned()).collect(),
        ..Request::default()
    }
}

fn refusal(text: &str, request: &Request) -> String {
    add(text, request).unwrap_err().to_string()
}

/// The route with this prefix.
fn route<'a>(root: &'a Node, prefix: &str) -> Route<'a> {
    let managers = envoy::managers(root);
    let mut routes = managers.iter().flat_map(Manager::routes);
    routes.find(|route| route.specifier() == prefix).unwrap()
}

fn pool(model: &str, cluster: &str) -> Pool {
    Pool {
        models: vec![model.to_owned()],
        cluster: cluster.to_owned(),
    }
}

#[test]
fn a_second_addition_is_refused_with_the_line_of_the_first() {
    let added = add(GATEWAY, &request(&["/v1/"])).unwrap();
    let message = refusal(&added.text, &request(&["/"]));
    assert!(
        message.contains("has Isotherm already (isotherm.request)"),
        "{message}"
    );
    let line = added
        .text
        .lines()
        .position(|line| line.contains("- name: isotherm.request"))
        .unwrap()
        + 1;
    assert!(message.starts_with(&format!("line {line}: ")), "{message}");
}

#[test]
fn an_unknown_route_is_refused_with_the_routes_that_exist() {
    let message = refusal(GATEWAY, &request(&["/v2"]));
    assert!(message.contains("no route `/v2`"), "{message}");
    assert!(
        message.contains("line 21: prefix /v1/, to engines, virtual host all"),
        "{message}"
    );
}

#[test]
fn a_route_that_envoy_answers_itself_is_refused() {
    let text = GATEWAY.replace(
        "route: { cluster: app }",
        "direct_response: { status: 404 }",
    );
    let message = refusal(&text, &request(&["/"]));
    assert!(message.contains("leads to no cluster"), "{message}");
}

#[test]
fn routes_of_one_name_to_different_clusters_need_a_choice() {
    let hosts = include_str!("../../tests/data/another-virtual-host.yaml");
    let message = refusal(hosts, &request(&["/"]));
    assert!(
        message.contains("`--virtual-host NAME` or `--to CLUSTER`"),
        "{message}"
    );
    for chosen in [
        Request {
            to: Some("engines".into()),
            ..request(&["/"])
        },
        Request {
            virtual_host: Some("llm".into()),
            ..request(&["/"])
        },
    ] {
        let added = add(hosts, &chosen).unwrap();
        assert!(added.service_section.contains("127.0.0.1:8001"));
        assert!(
            added
                .text
                .contains("                route:\n                  cluster: app\n")
        );
    }
}

#[test]
fn a_cluster_of_the_pool_s_name_is_refused() {
    let setup = Setup {
        pools: vec![pool("*", "engines")],
        ..Setup::default()
    };
    let message = refusal(
        GATEWAY,
        &Request {
            setup,
            ..request(&["/v1/"])
        },
    );
    assert!(message.contains("a cluster `engines` exists"), "{message}");
}

#[test]
fn listeners_and_routes_by_discovery_get_the_pieces_with_their_places() {
    for (text, reason) in [
        (
            include_str!("../../tests/data/discovery-by-files.yaml"),
            "come from `dynamic_resources`",
        ),
        (
            include_str!("../../tests/data/routes-by-discovery.yaml"),
            "delivers the routes of listener main",
        ),
        ("resources: []\n", "a discovery file"),
    ] {
        let refused = add(text, &request(&["/v1/"])).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
        let pieces = refused.pieces().unwrap();
        for place in [
            "static_resources.clusters",
            "http_filters",
            "early_header_mutation",
            "each route",
            "`node`",
        ] {
            assert!(pieces.contains(place), "{place}");
        }
        for piece in pieces.split("\n\n").filter(|piece| piece.starts_with('#')) {
            let (_, piece) = piece.split_once('\n').unwrap();
            parse(&format!(
                "piece:\n{}",
                piece.replace('\n', "\n  ").replacen("", "  ", 1)
            ))
            .unwrap();
        }
    }
}

#[test]
fn a_chain_without_a_router_at_its_end_is_refused() {
    let text = GATEWAY.replace("http.router.v3.Router", "http.cors.v3.Cors");
    assert!(refusal(&text, &request(&["/v1/"])).contains("no router as its last filter"));
}

#[test]
fn an_anchor_that_another_route_uses_is_refused() {
    let text = GATEWAY
        .replace("                route:\n", "                route: &to\n")
        .replace("route: { cluster: app }", "route: *to");
    let message = refusal(&text, &request(&["/v1/"]));
    assert!(message.contains("used by another route"), "{message}");
    assert!(message.contains("prefix /, to engines"), "{message}");
}

#[test]
fn an_earlier_route_that_takes_the_named_one_s_requests_is_refused_with_its_remedy() {
    let text = GATEWAY
        .replace("prefix: /v1/ }", "prefix: /v1/ } , name: first }")
        .replace(
            "- match: { prefix: /v1/ } ,",
            "- { match: { prefix: /v1/ },",
        );
    let text = text.replace("   # the engines\n                route:\n                  cluster: engines\n                  timeout: 300s", "\n              ");
    let text = text.replace(
        "name: first }",
        "name: first, route: { cluster: engines, timeout: 60s } }",
    );
    let message = refusal(&text, &request(&["/"]));
    assert!(message.contains("route-shadows-isotherm"), "{message}");
    add(&text, &request(&["/", "first"])).unwrap();
}

#[test]
fn a_route_keeps_its_own_settings() {
    let text = include_str!("../../tests/data/jwt-per-route.yaml");
    let added = add(text, &request(&["/v1/"])).unwrap();
    let (before, after) = (parse(text).unwrap(), parse(&added.text).unwrap());
    let (before, after) = (route(&before, "/v1/"), route(&after, "/v1/"));
    for name in ["envoy.filters.http.jwt_authn", "envoy.filters.http.cors"] {
        assert_eq!(before.of_filter(name), after.of_filter(name));
        assert!(after.of_filter(name).is_some());
    }
    let setting = "request_headers_to_add";
    assert_eq!(before.node.get(setting), after.node.get(setting));
    for name in ["timeout", "rate_limits"] {
        assert_eq!(
            before.action().unwrap().get(name),
            after.action().unwrap().get(name)
        );
    }
    assert_eq!(after.clusters(), ["llama"]);
    assert!(after.enables("isotherm.request").unwrap());
}

#[test]
fn times_for_one_attempt_go_and_the_owner_s_retries_stay() {
    let text = include_str!("../../tests/data/short-times-and-weights.yaml");
    let added = add(text, &request(&["/v1/(chat/)?completions", "/v1/models"])).unwrap();
    let after = parse(&added.text).unwrap();
    let chat = route(&after, "/v1/(chat/)?completions").action().unwrap();
    assert_eq!(chat.str_at("retry_policy.retry_on"), Some("5xx,reset"));
    assert_eq!(chat.str_at("timeout"), Some("0s"));
    let models = route(&after, "/v1/models").action().unwrap();
    assert_eq!(
        models.str_at("retry_policy.retry_on"),
        Some("connect-failure")
    );
    assert!(chat.at("retry_policy.per_try_timeout").is_none());
    assert!(models.at("retry_policy.per_try_timeout").is_none());
    assert!(
        added.text.contains("                per_try_timeout: 0.5s"),
        "the virtual host keeps its own"
    );
    assert!(
        added
            .service_section
            .contains("[\"127.0.0.1:8001\", \"[::1]:8002\"]")
    );
}

#[test]
fn the_session_key_comes_before_what_the_owner_hashes_by() {
    let text = include_str!("../../tests/data/provider-by-header.yaml");
    let added = add(text, &request(&["/v1"])).unwrap();
    let after = parse(&added.text).unwrap();
    let managers = envoy::managers(&after);
    let routes: Vec<Route<'_>> = managers.iter().flat_map(Manager::routes).collect();
    let clusters: Vec<Vec<&str>> = routes.iter().map(Route::clusters).collect();
    assert_eq!(clusters, [["saas"], ["llama"], ["llama"]]);
    let policies: Vec<&Node> = routes[2]
        .action()
        .unwrap()
        .items_at("hash_policy")
        .collect();
    let names = [
        policies[0].str_at("header.header_name"),
        policies[1].str_at("filter_state.key"),
        policies[2].str_at("header.header_name"),
    ];
    assert_eq!(
        names.map(Option::unwrap_or_default),
        ["x-isotherm-session", "isotherm.session", "x-user"]
    );
    assert!(
        added
            .notes
            .iter()
            .any(|note| note.contains("kept: line 17")),
        "{:?}",
        added.notes
    );
}

#[test]
fn several_pools_take_the_cluster_from_a_header_that_no_other_backend_sees() {
    let pools = vec![pool("a", "pool_a"), pool("*", "pool_b")];
    let setup = Setup {
        pools,
        ..Setup::default()
    };
    let added = add(
        GATEWAY,
        &Request {
            setup,
            ..request(&["/v1/"])
        },
    )
    .unwrap();
    let after = parse(&added.text).unwrap();
    let own = route(&after, "/v1/");
    assert_eq!(
        own.action().unwrap().str_at("cluster_header"),
        Some("x-isotherm-cluster")
    );
    let removed: Vec<&str> = own
        .host
        .table
        .items_at("request_headers_to_remove")
        .filter_map(Node::as_str)
        .collect();
    assert_eq!(removed, ["x-isotherm-cluster"]);
    let default = "append: { header: { key: x-isotherm-cluster, value: \"pool_b\" }, append_action: OVERWRITE_IF_EXISTS_OR_ADD }";
    assert!(added.text.contains(default), "{}", added.text);
    assert!(
        added
            .text
            .contains("\"pools\": [{ \"models\": [\"a\"], \"cluster\": \"pool_a\" }]")
    );
    assert!(
        envoy::cluster(&after, "pool_a").is_some() && envoy::cluster(&after, "pool_b").is_some()
    );
}

#[test]
fn the_pool_s_cluster_speaks_to_the_engines_as_the_old_one_did() {
    let text = include_str!("../../tests/data/authorization-and-tls-engines.yaml");
    let added = add(text, &request(&["/v1/chat/completions", "/v1/completions"])).unwrap();
    let after = parse(&added.text).unwrap();
    let (old, new) = (
        envoy::cluster(&after, "engines").unwrap(),
        envoy::cluster(&after, "llama").unwrap(),
    );
    assert_eq!(new.get("transport_socket"), old.get("transport_socket"));
    let options = new
        .get("typed_extension_protocol_options")
        .unwrap()
        .get(crate::envoy::HTTP_OPTIONS)
        .unwrap();
    assert!(
        options
            .at("explicit_http_config.http2_protocol_options")
            .is_some()
    );
    assert!(
        options
            .at("explicit_http_config.http_protocol_options")
            .is_none()
    );
}

#[test]
fn a_prefix_of_the_gateway_is_allowed_by_the_filter_and_named_for_the_service() {
    let text = include_str!("../../tests/data/rewritten-prefix.yaml");
    let added = add(text, &request(&["/llm/"])).unwrap();
    assert!(
        added
            .text
            .contains("\"paths\": [\"/llm/v1/chat/completions\", ")
    );
    let of_service = "paths: [\"/llm/v1/chat/completions\", ";
    assert!(added.service_section.starts_with(of_service));
}

#[test]
fn the_api_of_a_path_that_its_route_rewrites_is_named_for_the_filter() {
    let text = include_str!("../../tests/data/rewritten-prefix.yaml");
    let whole = text
        .replace("{ prefix: /llm/ }", "{ path: /llm/openai }")
        .replace("prefix_rewrite: /", "prefix_rewrite: /v1/chat/completions");
    let by_expression = whole.replace(
        "prefix_rewrite: /v1/chat/completions",
        "regex_rewrite: { pattern: { regex: '^/llm/(openai)$' }, substitution: '/\\1/v1/chat/completions' }",
    );
    let prefix = whole.replace("{ path: /llm/openai }", "{ prefix: /llm/openai }");
    for text in [&whole, &by_expression, &prefix] {
        let added = add(text, &request(&["/llm/openai"])).unwrap();
        let entry = "\"apis\": [{ \"path\": \"/llm/openai\", \"api\": \"chat_completions\" }]";
        assert!(added.text.contains(entry), "{}", added.text);
        let of_service = "apis:\n  - { path: \"/llm/openai\", api: chat_completions }\npools:";
        assert!(added.service_section.contains(of_service));
    }
}

#[test]
fn the_changes_name_lines_of_the_owner_s_file() {
    let added = add(GATEWAY, &request(&["/v1/"])).unwrap();
    let lines: Vec<(usize, &str)> = added
        .changes
        .iter()
        .map(|change| (change.line, change.text.as_str()))
        .collect();
    assert!(
        lines.contains(&(21, "route /v1/ leads to llama, and enables the filters")),
        "{lines:?}"
    );
    assert!(lines.is_sorted_by_key(|(line, _)| *line));
}

#[test]
fn requirements_of_weighted_clusters_move_to_the_route_or_the_addition_is_refused() {
    let text = include_str!("../../tests/data/short-times-and-weights.yaml");
    let jwt = "typed_per_filter_config: { envoy.filters.http.rbac: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute } }";
    let one = text.replace("weight: 90 }", &format!("weight: 90, {jwt} }}"));
    let chat = request(&["/v1/(chat/)?completions"]);
    let message = refusal(&one, &chat);
    assert!(
        message.contains("`typed_per_filter_config` of their own"),
        "{message}"
    );
    let both = one.replace("weight: 10 }", &format!("weight: 10, {jwt} }}"));
    let added = add(&both, &chat).unwrap();
    let after = parse(&added.text).unwrap();
    let own = route(&after, "/v1/(chat/)?completions");
    assert!(own.of_filter("envoy.filters.http.rbac").is_some());
    assert_eq!(own.enables("isotherm.request"), Some(true));
}

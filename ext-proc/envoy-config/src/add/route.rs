//! A route that becomes Isotherm's: another destination, and only the settings that would break it replaced.

use crate::envoy::{Manager, Route, millis};
use crate::limits::{ATTEMPT_TIMES, QUEUE_WAIT_MS};
use crate::published::PublishedPaths;
use crate::shipped::MissingPiece;
use crate::yaml::Node;

use super::Addition;
use super::pieces::{destination, enabled};
use super::refuse::Cause;

/// Settings that a weighted cluster may have of its own.
const WEIGHTED_SETTINGS: [&str; 6] = [
    "host_rewrite_literal",
    "request_headers_to_add",
    "request_headers_to_remove",
    "response_headers_to_add",
    "response_headers_to_remove",
    "typed_per_filter_config",
];

impl<'a> Addition<'a> {
    /// Turns a route into one of Isotherm's.
    pub(super) fn edit_route(
        &mut self,
        manager: &Manager<'a>,
        route: &Route<'a>,
    ) -> Result<(), Cause> {
        let (Some(action), Some(old)) = (route.action(), route.destination()) else {
            return Ok(());
        };
        self.keep_settings_of_weights(route, action)?;
        let (name, value) = destination(&self.setup);
        self.edits.replace_member(action, old, name, &value);
        let goal = value.as_str().unwrap_or_default();
        self.change(
            route.node.line,
            format!(
                "route {} leads to {goal}, and enables the filters",
                route.specifier()
            ),
        );
        self.edit_times(manager, action)?;
        self.edit_hash_policy(action)?;
        self.edit_retries(route, action)?;
        self.edit_mirrors(route)?;
        self.edit_compression(manager, route);
        let limit = self.shipped.setting("request_body_buffer_limit")?;
        let number = |node: &Node| node.as_str().and_then(|text| text.parse::<u64>().ok());
        let own = route
            .inherited("request_body_buffer_limit")
            .and_then(number);
        if own.is_none_or(|own| Some(own) < number(&limit)) {
            self.edits
                .set(route.node, "request_body_buffer_limit", &limit);
        }
        let filters = self
            .shipped
            .filters(&self.setup, &PublishedPaths::default())?;
        let mut enabled = enabled(&filters);
        let weighted = action.items_at("weighted_clusters.clusters").next();
        let of_weights = weighted.and_then(|cluster| cluster.get("typed_per_filter_config"));
        for member in of_weights.into_iter().flat_map(Node::members) {
            enabled.set(&member.name, member.value.clone());
        }
        match route.node.get("typed_per_filter_config") {
            Some(own) => {
                for member in enabled.members() {
                    self.edits.set(own, &member.name, &member.value);
                }
            }
            None => self
                .edits
                .set(route.node, "typed_per_filter_config", &enabled),
        }
        Ok(())
    }

    /// Settings of weighted clusters become the route's. Where the clusters differ, one route cannot have them all.
    fn keep_settings_of_weights(
        &mut self,
        route: &Route<'a>,
        action: &'a Node,
    ) -> Result<(), Cause> {
        let weighted: Vec<&Node> = action.items_at("weighted_clusters.clusters").collect();
        let Some(first) = weighted.first() else {
            return Ok(());
        };
        for name in WEIGHTED_SETTINGS {
            let own = first.get(name);
            let differs = weighted.iter().any(|cluster| cluster.get(name) != own);
            let (own, holder) = match own {
                Some(own) if name == "host_rewrite_literal" => (own, action),
                Some(own) => (own, route.node),
                None if differs => {
                    return Err(Cause::Weights {
                        line: first.line,
                        name,
                    });
                }
                None => continue,
            };
            if differs || holder.get(name).is_some() {
                return Err(Cause::Weights {
                    line: first.line,
                    name,
                });
            }
            if name != "typed_per_filter_config" {
                self.edits.set(holder, name, own);
            }
            self.change(
                first.line,
                format!("{name} of the weighted clusters is the route's"),
            );
        }
        Ok(())
    }

    /// Answers may take as long as they take: a time that ends requests in the queue goes.
    fn edit_times(&mut self, manager: &Manager<'a>, action: &'a Node) -> Result<(), MissingPiece> {
        let time = |node: &Node| node.as_str().and_then(millis);
        let is_short = |ms: f64| ms > 0.0 && ms <= QUEUE_WAIT_MS;
        match action.get("timeout") {
            None => self.edits.set(action, "timeout", &Node::text("0s")),
            Some(own) if time(own).is_some_and(is_short) => {
                self.edits.replace(own, &Node::text("0s"));
                self.change(
                    own.line,
                    "timeout: removed, since requests in the queue would end",
                );
            }
            Some(_) => {}
        }
        let silence = self.shipped.silence()?;
        let shipped = time(&silence).unwrap_or_default();
        let own = action
            .get("idle_timeout")
            .or(manager.node.get("stream_idle_timeout"));
        let own_ms = own.and_then(time);
        if own_ms.is_none_or(|ms| ms > 0.0 && ms < shipped) {
            self.edits.set(action, "idle_timeout", &silence);
        }
        if let Some(bound) = action.get("max_stream_duration") {
            let longest = bound.get("max_stream_duration");
            if longest.and_then(time).is_some_and(is_short) {
                self.edits
                    .set(bound, "max_stream_duration", &Node::text("0s"));
                self.change(
                    bound.line,
                    "max_stream_duration: removed, since requests in the queue would end",
                );
            }
        }
        Ok(())
    }

    /// The session key comes first, then what the owner hashes by.
    fn edit_hash_policy(&mut self, action: &'a Node) -> Result<(), MissingPiece> {
        let shipped = self.shipped.setting("hash_policy")?;
        match action.get("hash_policy") {
            None => self.edits.set(action, "hash_policy", &shipped),
            Some(own) => {
                let session: Vec<Node> = shipped
                    .items()
                    .iter()
                    .filter(|policy| policy.get("connection_properties").is_none())
                    .cloned()
                    .collect();
                self.edits.insert_items(own, 0, &session, "");
                self.change(own.line, "hash_policy: the session key comes first");
            }
        }
        Ok(())
    }

    /// The owner's retries stay, without a time for one attempt. Where there are none, the shipped ones come in.
    fn edit_retries(&mut self, route: &Route<'a>, action: &'a Node) -> Result<(), MissingPiece> {
        let Some(own) = route.inherited("retry_policy") else {
            let shipped = self.shipped.setting("retry_policy")?;
            self.edits.set(action, "retry_policy", &shipped);
            return Ok(());
        };
        let times: Vec<&str> = ATTEMPT_TIMES
            .into_iter()
            .filter(|name| own.member(name).is_some())
            .collect();
        if times.is_empty() {
            return Ok(());
        }
        let reason = "a replica that computes would count as failed";
        if action.get("retry_policy").is_some() {
            for member in times.iter().filter_map(|name| own.member(name)) {
                self.edits.remove_member(own, member);
                self.change(member.line, format!("{}: removed, {reason}", member.name));
            }
        } else {
            let mut copy = own.clone();
            for name in times {
                copy.remove(name);
            }
            self.edits.set(action, "retry_policy", &copy);
            let text = format!(
                "the route has its own retry_policy without a time for one attempt: {reason}"
            );
            self.change(route.node.line, text);
        }
        Ok(())
    }

    /// A response decompressor in front of the filters would hide the engine's numbers from them: engines do not compress.
    fn edit_compression(&mut self, manager: &Manager<'a>, route: &Route<'a>) {
        if !manager
            .filters()
            .iter()
            .any(crate::check::decompresses_responses)
        {
            return;
        }
        let header = Node::text("accept-encoding");
        match route.node.get("request_headers_to_remove") {
            Some(own) => {
                let has_header = |name: &Node| {
                    name.as_str()
                        .is_some_and(|name| name.eq_ignore_ascii_case("accept-encoding"))
                };
                if !own.items().iter().any(has_header) {
                    self.edits
                        .insert_items(own, own.items().len(), &[header], "");
                }
            }
            None => {
                let headers = Node::list(vec![header]);
                self.edits
                    .set(route.node, "request_headers_to_remove", &headers);
            }
        }
        self.change(
            route.node.line,
            "the engine is not asked for compression: a decompressor in front of the filters would hide its usage",
        );
    }
}

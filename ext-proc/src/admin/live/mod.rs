//! `GET /`, the live page, and `GET /api/decisions`, which it reads.
//!
//! The page is one static text, put together from the files of this folder: words, drawings, charts, tables. Its policy (CSP) names the hashes of its own script and style and allows nothing else, so
//! that no text of a request can become code in an operator's browser. The page itself tells nothing; what it shows comes
//! from `/api`, under the rules of that.

use std::sync::LazyLock;

use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Json, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

use super::AdminState;
use super::view::DecisionView;

const PAGE: &str = concat!(
    include_str!("head.html"),
    "<style>",
    include_str!("style.css"),
    "</style>",
    include_str!("body.html"),
    "<script>",
    include_str!("words.js"),
    include_str!("elements.js"),
    include_str!("charts.js"),
    include_str!("flow.js"),
    include_str!("tables.js"),
    include_str!("page.js"),
    "</script></body></html>\n",
);
const FAVICON: &str = include_str!("favicon.svg");

static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash_of("script"),
        hash_of("style")
    )
});

pub(super) async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(PAGE)).into_response()
}

pub(super) async fn favicon() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "image/svg+xml"),
        (header::CACHE_CONTROL, "max-age=86400"),
    ];
    (headers, FAVICON).into_response()
}

pub(super) async fn decisions(State(admin): AdminState) -> Json<Vec<DecisionView>> {
    Json(admin.pool_registry.decision_log().look())
}

/// The hash of the page's only element of this name, as a policy writes it.
fn hash_of(element: &str) -> String {
    let content = PAGE
        .split_once(&format!("<{element}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{element}>")));
    let content = content.map_or("", |(content, _)| content);
    let hash = STANDARD.encode(digest(&SHA256, content.as_bytes()));
    format!("sha256-{hash}")
}

#[cfg(test)]
mod tests {
    use isotherm_router::{Availability, Reason, RejectReason, ReleaseReason};
    use strum::IntoEnumIterator as _;

    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for outside in [
            "http://",
            "https://",
            "src=",
            "innerHTML",
            "eval(",
            "style=",
        ] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        let links = PAGE.split("href=\"").skip(1);
        let links = links.filter_map(|rest| rest.split('"').next());
        assert_eq!(Vec::from_iter(links), ["favicon.svg", "metrics"]);
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        assert_ne!(hash_of("script"), hash_of("nothing"));
        assert_ne!(hash_of("style"), hash_of("nothing"));
    }

    #[test]
    fn every_reason_and_state_has_plain_words() {
        let words = include_str!("words.js");
        let reasons: [&str; 9] = [
            Reason::Prefix.into(),
            Reason::Ring.into(),
            Reason::LeastLoaded.into(),
            Reason::Spread.into(),
            Reason::Turn.into(),
            Reason::Random.into(),
            Reason::Soonest.into(),
            Reason::Utilisation.into(),
            Reason::Adapter.into(),
        ];
        let rejects: [&str; 10] = [
            RejectReason::QueueFull.into(),
            RejectReason::WaitedTooLong.into(),
            RejectReason::EmptySubset.into(),
            RejectReason::NoReplica.into(),
            RejectReason::NoHealthyReplica.into(),
            RejectReason::RegionFull.into(),
            RejectReason::TenantLimit.into(),
            RejectReason::ShuttingDown.into(),
            RejectReason::Quarantined.into(),
            RejectReason::NoSpareCapacity.into(),
        ];
        let states: [&str; 10] = [
            Availability::Available.into(),
            Availability::Draining.into(),
            Availability::NeverProbed.into(),
            Availability::ProbeFailed.into(),
            Availability::Stale.into(),
            Availability::Failing.into(),
            Availability::Hung.into(),
            Availability::Pending.into(),
            Availability::NoHeadroom.into(),
            Availability::Full.into(),
        ];
        let releases = ReleaseReason::iter().map(Into::into);
        let names = reasons.into_iter().chain(rejects).chain(states);
        for name in names.chain(releases) {
            assert!(
                words.contains(&format!("\n  {name}: [\"")),
                "no words for {name}"
            );
        }
    }
}

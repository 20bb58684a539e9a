//! `GET /`, the live page, and `GET /api/decisions`, which it reads.
//!
//! The page is one static file. Its policy (CSP) names the hashes of its own script and style and allows nothing else, so
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

const PAGE: &str = include_str!("live.html");

static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri 'none'; \
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
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for outside in ["http://", "https://", "src=", "href=", "innerHTML", "eval("] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        assert_ne!(hash_of("script"), hash_of("nothing"));
        assert_ne!(hash_of("style"), hash_of("nothing"));
    }
}

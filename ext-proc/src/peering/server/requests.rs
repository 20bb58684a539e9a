//! The requests of one connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::LinkServer;
use crate::peering::codec::{decode, encode};
use crate::peering::host::host;
use crate::peering::message;
use crate::peering::{MESSAGE_BYTES_MAX, TransportSecurity};

/// The longest time without a new request: longer than the longest interval of heartbeats. It bounds a request and its response,
/// too.
const INACTIVE_MAX: Duration = Duration::from_secs(30);
/// Limit of the buffer for a request's headers.
const BUFFER_BYTES_MAX: usize = 16 * 1024;
/// The longest wait for the requests under way when the service stops.
const STOP_MAX: Duration = Duration::from_secs(1);

/// A refusal: the status, and the reason as its text.
type Refusal = (StatusCode, String);

impl LinkServer {
    /// Answers the requests of one connection until the caller closes it, sends nothing for too long, or the service stops.
    ///
    /// `certificate` is the caller's, which the authority has signed; `None` without TLS.
    pub(super) async fn serve_requests(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        certificate: Option<CertificateDer<'static>>,
        from: SocketAddr,
    ) {
        let caller = certificate.as_ref();
        let region = caller.and_then(|caller| self.identity.region_of(caller));
        let permit = match self.limiter.acquire(region) {
            Ok(permit) => permit,
            Err(reason) => return self.reject(from, reason),
        };
        let requests = AtomicU64::new(0);
        let service = service_fn(async |request| {
            requests.fetch_add(1, Ordering::Relaxed);
            let answer = match permit.is_within_limit {
                true => self.answer(certificate.as_ref(), request).await,
                false => {
                    let reason = "the region has too many connections".to_owned();
                    Err((StatusCode::TOO_MANY_REQUESTS, reason))
                }
            };
            let (status, body) = answer.unwrap_or_else(|(status, reason)| {
                self.reject(from, &reason);
                (status, reason.into())
            });
            let mut response = Response::builder().status(status);
            if !status.is_success() {
                response = response.header(header::CONNECTION, "close");
            }
            response.body(Full::new(body))
        });
        let mut connection = pin!(
            http1::Builder::new()
                .max_buf_size(BUFFER_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service)
        );
        let inactive = async {
            let mut before = None;
            while before != Some(requests.load(Ordering::Relaxed)) {
                before = Some(requests.load(Ordering::Relaxed));
                sleep(INACTIVE_MAX).await;
            }
        };
        tokio::select! {
            // The caller notices how a connection ends.
            _ = connection.as_mut() => {}
            () = inactive => tracing::debug!(%from, "caller inactive"),
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = timeout(STOP_MAX, connection).await;
            }
        }
    }

    /// Checks a request, hands its message on, and returns the reply.
    async fn answer(
        &self,
        certificate: Option<&CertificateDer<'_>>,
        request: Request<Incoming>,
    ) -> Result<(StatusCode, Bytes), Refusal> {
        let region = self.check(certificate, &request)?;
        let body = Limited::new(request.into_body(), MESSAGE_BYTES_MAX).collect();
        let body = body
            .await
            .map_err(|error| match error.is::<LengthLimitError>() {
                true => (
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the message is too long".to_owned(),
                ),
                false => invalid(error),
            })?;
        let message = decode(&body.to_bytes()).map_err(invalid)?;
        let reply = message.and_then(|message| self.handler.on_message(&region, message));
        let Some(reply) = reply else {
            return Ok((StatusCode::NO_CONTENT, Bytes::new()));
        };
        let reply = encode(&reply).map_err(|error| {
            let reason = format!("the reply is not valid: {error}");
            (StatusCode::INTERNAL_SERVER_ERROR, reason)
        })?;
        Ok((StatusCode::OK, reply))
    }

    /// Returns the caller's region. Each request is checked, since the region may have been removed since the handshake.
    fn check(
        &self,
        certificate: Option<&CertificateDer<'_>>,
        request: &Request<Incoming>,
    ) -> Result<Arc<str>, Refusal> {
        let identity = &self.identity;
        let own = identity.region();
        let header = |name: &str| {
            let value = request.headers().get(name);
            value
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let refuse = |status, reason: String| Err((status, reason));
        if request.uri().path() != message::PATH {
            let reason = format!("this service speaks another protocol: {}", message::PATH);
            return refuse(StatusCode::NOT_FOUND, reason);
        }
        if header(header::HOST.as_str()) != host(own) {
            let reason = format!("this is a service of the region `{own}`");
            return refuse(StatusCode::MISDIRECTED_REQUEST, reason);
        }
        if header(message::INCARNATION_HEADER) == identity.incarnation().to_string() {
            let reason = "the address leads back to this service".to_owned();
            return refuse(StatusCode::CONFLICT, reason);
        }
        let region = match identity.security() {
            TransportSecurity::Tls(_) => {
                certificate.and_then(|certificate| identity.region_of(certificate))
            }
            TransportSecurity::Plaintext => identity.allowed(header(message::REGION_HEADER)),
        };
        let reason = || format!("the caller is no peer of `{own}`");
        region.ok_or_else(|| (StatusCode::FORBIDDEN, reason()))
    }
}

fn invalid(error: impl ToString) -> Refusal {
    (StatusCode::BAD_REQUEST, error.to_string())
}

//! Making the engine misbehave, at start (`--fault`) or at run time (`POST /fault`).
//!
//! | order | effect |
//! | --- | --- |
//! | `slow` | every step takes this many times as long; 1 is normal |
//! | `hang` | requests are taken and never answered |
//! | `metrics_hang` | the same for `/metrics` and `/v1/loads` only |
//! | `error_share`, `error_status` | this share of requests fails with 500 or 503 |
//! | `refuse_ms` | the socket is closed for so long: connections are refused, open ones go on |
//! | `crash_ms` | after so long every connection is cut and the replica is gone; the process ends with its last replica |

use core::str::FromStr;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::api_error::ApiError;
use super::replica::Replica;

/// Faults to change; a field that is absent keeps its value.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultOrder {
    /// Steps take this many times as long.
    pub slow: Option<f64>,
    /// Take requests and never answer.
    pub hang: Option<bool>,
    /// Take scrapes and never answer.
    pub metrics_hang: Option<bool>,
    /// Share of requests that fail, 0 to 1.
    pub error_share: Option<f64>,
    /// With this status: 500 or 503.
    pub error_status: Option<u16>,
    /// Close the socket for so long, ms.
    pub refuse_ms: Option<u64>,
    /// Be gone after so long, ms.
    pub crash_ms: Option<u64>,
}

/// Instruction to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOrder {
    /// Nothing.
    Serve,
    /// Close for so long.
    Refuse(Duration),
    /// Be gone after so long.
    Crash(Duration),
}

/// The faults in force.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<Switches>,
    socket: watch::Sender<SocketOrder>,
}

#[derive(Debug)]
struct Switches {
    hang: bool,
    metrics_hang: bool,
    error_share: f64,
    error_status: StatusCode,
    random: Pcg64Mcg,
}

/// Fate of a request under the current faults.
enum Verdict {
    Pass,
    Hang,
    Fail(StatusCode),
}

impl Faults {
    /// None, and a seed for what is random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = Switches {
            hang: false,
            metrics_hang: false,
            error_share: 0.0,
            error_status: StatusCode::INTERNAL_SERVER_ERROR,
            random: Pcg64Mcg::seed_from_u64(seed),
        };
        Self {
            state: Mutex::new(state),
            socket: watch::Sender::new(SocketOrder::Serve),
        }
    }

    /// Orders for the socket.
    #[must_use]
    pub fn socket(&self) -> watch::Receiver<SocketOrder> {
        self.socket.subscribe()
    }

    fn judge(&self, method: &Method, path: &str) -> Verdict {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let scrape = path == "/metrics" || path == "/v1/loads";
        if path.starts_with("/debug") || path == "/fault" {
            Verdict::Pass
        } else if scrape {
            if state.metrics_hang {
                Verdict::Hang
            } else {
                Verdict::Pass
            }
        } else if state.hang {
            Verdict::Hang
        } else if *method == Method::POST && state.error_share > 0.0 {
            let share = state.error_share;
            if state.random.random_bool(share) {
                Verdict::Fail(state.error_status)
            } else {
                Verdict::Pass
            }
        } else {
            Verdict::Pass
        }
    }
}

impl Replica {
    /// Puts an order into force.
    ///
    /// # Errors
    /// 400 when a value is out of its range; nothing is changed then.
    pub fn order(&self, order: FaultOrder) -> Result<(), ApiError> {
        let range = |value: Option<f64>, low: f64, high: f64, name: &'static str| match value {
            Some(value) if !(low..=high).contains(&value) => Err(ApiError::bad_request(
                format!("`{name}` must be between {low} and {high}, not {value}"),
                Some(name),
            )),
            _ => Ok(()),
        };
        range(order.slow, 0.001, 1_000.0, "slow")?;
        range(order.error_share, 0.0, 1.0, "error_share")?;
        let status = match order.error_status {
            None => None,
            Some(500) => Some(StatusCode::INTERNAL_SERVER_ERROR),
            Some(503) => Some(StatusCode::SERVICE_UNAVAILABLE),
            Some(other) => {
                let message = format!("`error_status` must be 500 or 503, not {other}");
                return Err(ApiError::bad_request(message, Some("error_status")));
            }
        };
        {
            let mut state = self
                .faults
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            state.hang = order.hang.unwrap_or(state.hang);
            state.metrics_hang = order.metrics_hang.unwrap_or(state.metrics_hang);
            state.error_share = order.error_share.unwrap_or(state.error_share);
            state.error_status = status.unwrap_or(state.error_status);
        }
        if let Some(factor) = order.slow {
            self.slow_down(factor);
        }
        if let Some(ms) = order.refuse_ms {
            self.faults
                .socket
                .send_replace(SocketOrder::Refuse(Duration::from_millis(ms)));
        }
        if let Some(ms) = order.crash_ms {
            self.faults
                .socket
                .send_replace(SocketOrder::Crash(Duration::from_millis(ms)));
        }
        Ok(())
    }
}

/// `POST /fault`
///
/// # Errors
/// 400 for a body that is not a [`FaultOrder`].
pub async fn set(
    State(replica): State<Arc<Replica>>,
    body: Bytes,
) -> Result<Json<FaultOrder>, ApiError> {
    let order: FaultOrder = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(format!("not a fault order: {error}"), None))?;
    replica.order(order)?;
    Ok(Json(order))
}

/// Applies the faults to every request.
pub async fn apply(State(replica): State<Arc<Replica>>, request: Request, next: Next) -> Response {
    match replica.faults.judge(request.method(), request.uri().path()) {
        Verdict::Pass => next.run(request).await,
        Verdict::Hang => core::future::pending().await,
        Verdict::Fail(status) => ApiError::server(status, "an injected fault").into_response(),
    }
}

impl FromStr for FaultOrder {
    type Err = String;

    /// `NAME` or `NAME=VALUE`, as on the command line.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        let value: serde_json::Value = serde_json::from_str(value)
            .map_err(|error| format!("{value:?} is not a number, nor true or false: {error}"))?;
        let mut members = serde_json::Map::new();
        members.insert(name.to_owned(), value);
        serde_json::from_value(members.into()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_on_the_command_line() {
        assert_eq!(
            "slow=3".parse(),
            Ok(FaultOrder {
                slow: Some(3.0),
                ..FaultOrder::default()
            })
        );
        assert_eq!(
            "hang".parse(),
            Ok(FaultOrder {
                hang: Some(true),
                ..FaultOrder::default()
            })
        );
        assert!(
            "explode"
                .parse::<FaultOrder>()
                .unwrap_err()
                .contains("explode")
        );
    }
}

//! Injected faults, ordered at start (`--fault`) or at run time (`POST /fault`).
//!
//! | order | effect |
//! | --- | --- |
//! | `slow` | every step takes this many times as long; 1 is normal |
//! | `hang` | the server accepts requests and never answers |
//! | `metrics_hang` | the same for `/metrics` and `/v1/loads` only |
//! | `error_share`, `error_status` | this share of requests fails with 500 or 503 |
//! | `refuse_ms` | the socket is closed for so long: connections are refused, open ones go on |
//! | `crash_ms` | after so long every connection is cut and the replica is gone; the process ends with its last replica |

use core::str::FromStr;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use axum::http::{Method, StatusCode};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::api_error::ApiError;

/// Faults to change; a field that is absent keeps its value.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultOrder {
    /// Factor of the duration of steps.
    pub slow: Option<f64>,
    /// Accept requests and never answer.
    pub hang: Option<bool>,
    /// Accept scrapes and never answer.
    pub metrics_hang: Option<bool>,
    /// Share of requests that fail, 0 to 1.
    pub error_share: Option<f64>,
    /// Status of failed requests: 500 or 503.
    pub error_status: Option<u16>,
    /// Time for which to close the socket, ms.
    pub refuse_ms: Option<u64>,
    /// Time until the crash, ms.
    pub crash_ms: Option<u64>,
}

/// Instruction to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOrder {
    /// Serve.
    Serve,
    /// Close for this time.
    Refuse(Duration),
    /// Crash after this time.
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
pub(super) enum Fate {
    Pass,
    Hang,
    Fail(StatusCode),
}

impl Faults {
    /// No faults; random failures follow from the seed.
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

    pub(super) fn fate(&self, method: &Method, path: &str) -> Fate {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let scrape = path == "/metrics" || path == "/v1/loads";
        if path.starts_with("/debug") || path == "/fault" || (scrape && !state.metrics_hang) {
            Fate::Pass
        } else if scrape || state.hang {
            Fate::Hang
        } else if *method == Method::POST && state.error_share > 0.0 {
            let share = state.error_share;
            if state.random.random_bool(share) {
                Fate::Fail(state.error_status)
            } else {
                Fate::Pass
            }
        } else {
            Fate::Pass
        }
    }
}

impl Faults {
    /// Applies an order; the caller slows the engine down.
    ///
    /// # Errors
    /// 400 when a value is out of its range; nothing is changed then.
    pub fn set(&self, order: FaultOrder) -> Result<(), ApiError> {
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
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.hang = order.hang.unwrap_or(state.hang);
            state.metrics_hang = order.metrics_hang.unwrap_or(state.metrics_hang);
            state.error_share = order.error_share.unwrap_or(state.error_share);
            state.error_status = status.unwrap_or(state.error_status);
        }
        if let Some(ms) = order.refuse_ms {
            self.socket
                .send_replace(SocketOrder::Refuse(Duration::from_millis(ms)));
        }
        if let Some(ms) = order.crash_ms {
            self.socket
                .send_replace(SocketOrder::Crash(Duration::from_millis(ms)));
        }
        Ok(())
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
    fn fault_orders_parse_from_the_command_line() {
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

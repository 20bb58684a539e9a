//! Injected faults, ordered at start (`--fault`) or at run time (`POST /fault`).
//!
//! | order | effect |
//! | --- | --- |
//! | `slow` | every step takes this many times as long; 1 is normal |
//! | `hang` | the server accepts requests and never responds |
//! | `metrics_hang` | `/metrics` accepts requests and never responds |
//! | `error_share`, `error_status` | this share of requests fails with 500 or 503 |
//! | `refuse_ms` | the socket is closed for this time: the system refuses connections, open ones go on |
//! | `crash_ms` | after this time the replica cuts every connection and ends; the process ends with its last replica |

use core::str::FromStr;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use axum::http::{Method, StatusCode};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use serde_json::json;
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
    pub fn socket(&self) -> watch::Receiver<SocketOrder> {
        self.socket.subscribe()
    }

    pub(super) fn fate(&self, method: &Method, path: &str) -> Fate {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_scrape = path == "/metrics";
        if path.starts_with("/debug") || path == "/fault" || (is_scrape && !state.metrics_hang) {
            return Fate::Pass;
        }
        if is_scrape || state.hang {
            return Fate::Hang;
        }
        let share = state.error_share;
        let fails = *method == Method::POST && share > 0.0 && state.random.random_bool(share);
        if fails {
            Fate::Fail(state.error_status)
        } else {
            Fate::Pass
        }
    }

    /// Applies an order; the caller slows the engine down.
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
        let duration = Duration::from_millis;
        let refuse = order.refuse_ms.map(|ms| SocketOrder::Refuse(duration(ms)));
        let crash = order.crash_ms.map(|ms| SocketOrder::Crash(duration(ms)));
        for order in refuse.into_iter().chain(crash) {
            self.socket.send_replace(order);
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
        serde_json::from_value(json!({ name: value })).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_orders_parse_from_the_command_line() {
        let parse = |text: &str| text.parse::<FaultOrder>();
        assert_eq!(parse("slow=3").unwrap().slow, Some(3.0));
        assert_eq!(parse("hang").unwrap().hang, Some(true));
        assert!(parse("explode").unwrap_err().contains("explode"));
    }
}

//! The host's monotonic clock.
//!
//! No step of the wall clock may make a body late or a first token slow. The interface of the filter has the wall clock alone, so
//! the filter calls WASI's function, which every host of proxy-wasm has. Rejected: the standard library's `Instant`. It has no
//! number that another instance could compare, and a build without WASI's standard library has none at all.
#![expect(unsafe_code, reason = "no safe function reads the clock")]

use isotherm_wasm_filter_core::response::Nanoseconds;

/// The number of the clock in WASI.
const MONOTONIC: u32 = 1;

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    /// Writes the time of a clock in nanoseconds. Returns 0, or an error number.
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
}

/// The time of the clock, which all instances on a host share.
pub(crate) fn now() -> Nanoseconds {
    let mut time = 0;
    // SAFETY: the host writes the 8 bytes of a number to the place of one.
    let error = unsafe { clock_time_get(MONOTONIC, 0, &raw mut time) };
    debug_assert_eq!(error, 0, "the host has no monotonic clock");
    time
}

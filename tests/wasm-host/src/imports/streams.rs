//! Streams of the plugin's own, and what lets it act in another context's place.
//!
//! As strict as Envoy: a stream belongs to the context that opened it, and only requests can be let go or answered.

use wasmi::{Caller, Linker};

use super::{BAD_ARGUMENT, NOT_FOUND, OK, Result, read, read_text, write};
use crate::host::{Host, REQUEST, ROOT};

/// The ABI's number of the direction of requests.
const HTTP_REQUEST: u32 = 0;

pub(super) fn define(linker: &mut Linker<Host>) -> anyhow::Result<()> {
    contexts(linker)?;
    linker.func_wrap(
        "env",
        "proxy_grpc_stream",
        |mut caller: Caller<'_, Host>,
         cluster: u32,
         cluster_bytes: u32,
         service: u32,
         service_bytes: u32,
         method: u32,
         method_bytes: u32,
         _: u32,
         _: u32,
         place: u32|
         -> Result<u32> {
            let cluster = read_text(&mut caller, cluster, cluster_bytes)?;
            let service = read_text(&mut caller, service, service_bytes)?;
            let method = read_text(&mut caller, method, method_bytes)?;
            let number = super::u32_bytes(caller.data().streams.len())?;
            let name = format!("{cluster}/{service}/{method}");
            caller.data_mut().streams.push(name);
            write(&mut caller, place, &number)?;
            Ok(OK)
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_grpc_send",
        |mut caller: Caller<'_, Host>,
         stream: u32,
         message: u32,
         bytes: u32,
         _: u32|
         -> Result<u32> {
            let message = read(&mut caller, message, bytes)?;
            let host = caller.data_mut();
            if host.context() != ROOT || host.streams.len() <= stream as usize {
                return Ok(NOT_FOUND);
            }
            host.sent.push(message);
            Ok(OK)
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_grpc_cancel",
        |caller: Caller<'_, Host>, stream: u32| -> u32 {
            let is_there = (stream as usize) < caller.data().streams.len();
            if is_there { OK } else { NOT_FOUND }
        },
    )?;
    Ok(())
}

fn contexts(linker: &mut Linker<Host>) -> anyhow::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_set_tick_period_milliseconds",
        |mut caller: Caller<'_, Host>, milliseconds: u32| -> u32 {
            caller.data_mut().tick_ms = milliseconds;
            OK
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_effective_context",
        |mut caller: Caller<'_, Host>, context: u32| -> u32 {
            if ![ROOT, REQUEST].contains(&context) {
                return BAD_ARGUMENT;
            }
            caller.data_mut().effective = Some(context);
            OK
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_continue_stream",
        |mut caller: Caller<'_, Host>, direction: u32| -> u32 {
            let host = caller.data_mut();
            if host.context() != REQUEST || direction != HTTP_REQUEST {
                return BAD_ARGUMENT;
            }
            host.resumed += 1;
            OK
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_send_local_response",
        |mut caller: Caller<'_, Host>,
         status: u32,
         _: u32,
         _: u32,
         body: u32,
         body_bytes: u32,
         _: u32,
         _: u32,
         _: i32|
         -> Result<u32> {
            let body = read(&mut caller, body, body_bytes)?;
            let host = caller.data_mut();
            if host.context() != REQUEST {
                return Ok(BAD_ARGUMENT);
            }
            host.replied = Some((status, body));
            Ok(OK)
        },
    )?;
    Ok(())
}

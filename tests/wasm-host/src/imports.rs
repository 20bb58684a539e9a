//! The functions that the host gives to the module: the functions of proxy-wasm 0.2.1 that the filter calls, WASI's clock, and
//! the function of WASI that the standard library calls at its start.
//!
//! The host is as strict as Envoy: a header map that does not exist at the moment is a bad argument, which the module does not
//! survive; a stream belongs to the context that opened it; and only requests can be resumed or answered.

use anyhow::{Context as _, anyhow};
use wasmi::{Caller, Engine, Error, Extern, Linker, Memory, Module, Val};

use crate::host::{Host, ROOT};

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const BAD_ARGUMENT: u32 = 2;
/// The ABI's number of the direction of requests.
const HTTP_REQUEST: u32 = 0;

type Result<T> = core::result::Result<T, Error>;

/// The arguments of a call, padded to the longest list.
type Arguments = [u32; 10];

/// A function of the host; it returns a status of the ABI.
type Function = fn(&mut Instance<'_>, Arguments) -> Result<u32>;

const FUNCTIONS: [(&str, Function); 21] = [
    ("clock_time_get", get_monotonic_time),
    ("environ_sizes_get", environ_sizes_get),
    ("proxy_continue_stream", continue_stream),
    ("proxy_define_metric", define_metric),
    ("proxy_get_buffer_bytes", get_buffer_bytes),
    ("proxy_get_current_time_nanoseconds", get_current_time),
    ("proxy_get_header_map_pairs", get_header_map_pairs),
    ("proxy_get_header_map_value", get_header_map_value),
    ("proxy_get_property", get_property),
    ("proxy_grpc_cancel", grpc_cancel),
    ("proxy_grpc_send", grpc_send),
    ("proxy_grpc_stream", grpc_stream),
    ("proxy_increment_metric", add_to_metric),
    ("proxy_log", log),
    ("proxy_record_metric", add_to_metric),
    ("proxy_remove_header_map_value", remove_header_map_value),
    ("proxy_replace_header_map_value", replace_header_map_value),
    ("proxy_send_local_response", send_local_response),
    ("proxy_set_effective_context", set_effective_context),
    ("proxy_set_property", set_property),
    ("proxy_set_tick_period_milliseconds", set_tick_period),
];

/// Every function that the module may import. A call of another function that it imports ends the test.
pub(crate) fn linker(engine: &Engine, module: &Module) -> anyhow::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    for import in module.imports() {
        let Some(kind) = import.ty().func() else {
            continue;
        };
        let (from, name) = (import.module(), import.name());
        let function = FUNCTIONS.iter().find(|(function, _)| *function == name);
        let function = function.map(|(_, function)| *function);
        let message = format!("the host does not imitate {from}::{name}");
        linker.func_new(from, name, kind.clone(), move |caller, values, results| {
            let function = function.ok_or_else(|| Error::new(message.clone()))?;
            let mut arguments = Arguments::default();
            for (argument, value) in arguments.iter_mut().zip(values) {
                *argument = match value {
                    Val::I32(value) => value.cast_unsigned(),
                    Val::I64(value) => u32::try_from(*value).map_err(trap)?,
                    other => return Err(trap(anyhow!("an argument {other:?}"))),
                };
            }
            let status = function(&mut Instance(caller), arguments)?;
            if let Some(result) = results.first_mut() {
                *result = Val::I32(status.cast_signed());
            }
            Ok(())
        })?;
    }
    Ok(linker)
}

fn environ_sizes_get(instance: &mut Instance<'_>, [count, bytes, ..]: Arguments) -> Result<u32> {
    instance.write_u32(count, 0)?;
    instance.write_u32(bytes, 0)
}

fn log(instance: &mut Instance<'_>, [_, text, bytes, ..]: Arguments) -> Result<u32> {
    let line = instance.read_text(text, bytes)?;
    instance.host().log.push(line);
    Ok(OK)
}

fn get_monotonic_time(instance: &mut Instance<'_>, [_, _, address, ..]: Arguments) -> Result<u32> {
    let now = instance.host().now_ns;
    instance.write(address, &now.to_le_bytes())
}

fn get_current_time(instance: &mut Instance<'_>, [address, ..]: Arguments) -> Result<u32> {
    let host = instance.host();
    let now = host.now_ns + host.wall_step_ns;
    instance.write(address, &now.to_le_bytes())
}

fn get_header_map_pairs(
    instance: &mut Instance<'_>,
    [map, address, size, ..]: Arguments,
) -> Result<u32> {
    let Some(headers) = instance.host().map(map) else {
        return Ok(BAD_ARGUMENT);
    };
    let mut pairs = u32_bytes(headers.len())?.to_vec();
    for (name, value) in headers.iter() {
        pairs.extend(u32_bytes(name.len())?);
        pairs.extend(u32_bytes(value.len())?);
    }
    for (name, value) in headers.iter() {
        pairs.extend(name.as_bytes());
        pairs.push(0);
        pairs.extend(value);
        pairs.push(0);
    }
    instance.return_bytes(&pairs, address, size)
}

fn get_header_map_value(
    instance: &mut Instance<'_>,
    [map, name, name_bytes, address, size, ..]: Arguments,
) -> Result<u32> {
    let name = instance.read_text(name, name_bytes)?;
    let Some(headers) = instance.host().map(map) else {
        return Ok(BAD_ARGUMENT);
    };
    let header = headers.iter().find(|(candidate, _)| *candidate == name);
    match header.map(|(_, value)| value.clone()) {
        Some(value) => instance.return_bytes(&value, address, size),
        None => Ok(NOT_FOUND),
    }
}

fn replace_header_map_value(
    instance: &mut Instance<'_>,
    [map, name, name_bytes, value, value_bytes, ..]: Arguments,
) -> Result<u32> {
    let name = instance.read_text(name, name_bytes)?;
    let value = instance.read(value, value_bytes)?;
    let Some(headers) = instance.host().map(map) else {
        return Ok(BAD_ARGUMENT);
    };
    headers.retain(|(candidate, _)| *candidate != name);
    headers.push((name, value));
    Ok(OK)
}

fn remove_header_map_value(
    instance: &mut Instance<'_>,
    [map, name, bytes, ..]: Arguments,
) -> Result<u32> {
    let name = instance.read_text(name, bytes)?;
    let Some(headers) = instance.host().map(map) else {
        return Ok(BAD_ARGUMENT);
    };
    headers.retain(|(candidate, _)| *candidate != name);
    Ok(OK)
}

fn get_buffer_bytes(
    instance: &mut Instance<'_>,
    [buffer, start, bytes_max, address, size, ..]: Arguments,
) -> Result<u32> {
    let host = instance.host();
    let rest = host.buffer(buffer);
    let Some(rest) = rest.and_then(|bytes| bytes.get(start as usize..)) else {
        return Ok(BAD_ARGUMENT);
    };
    let bytes = rest.get(..bytes_max as usize).unwrap_or(rest).to_vec();
    if buffer < 2 {
        host.body_bytes_read += bytes.len();
    }
    instance.return_bytes(&bytes, address, size)
}

fn get_property(
    instance: &mut Instance<'_>,
    [path, bytes, address, size, ..]: Arguments,
) -> Result<u32> {
    let path = instance.read_text(path, bytes)?;
    let path = path.trim_end_matches('\0').replace('\0', ".");
    match instance.host().properties.get(&path).cloned() {
        Some(value) => instance.return_bytes(value.as_bytes(), address, size),
        None => Ok(NOT_FOUND),
    }
}

fn set_property(
    instance: &mut Instance<'_>,
    [path, path_bytes, value, value_bytes, ..]: Arguments,
) -> Result<u32> {
    let path = instance.read_text(path, path_bytes)?;
    let value = instance.read_text(value, value_bytes)?;
    let host = instance.host();
    if host.context() != host.request {
        return Ok(NOT_FOUND);
    }
    host.filter_state.insert(path, value);
    Ok(OK)
}

fn define_metric(
    instance: &mut Instance<'_>,
    [_, name, bytes, address, ..]: Arguments,
) -> Result<u32> {
    let name = instance.read_text(name, bytes)?;
    let number = instance.host().metrics.len();
    instance.host().metrics.push((name, 0));
    instance.write(address, &u32_bytes(number)?)
}

fn add_to_metric(instance: &mut Instance<'_>, [metric, value, ..]: Arguments) -> Result<u32> {
    let Some((_, sum)) = instance.host().metrics.get_mut(metric as usize) else {
        return Ok(NOT_FOUND);
    };
    *sum += u64::from(value);
    Ok(OK)
}

fn grpc_stream(
    instance: &mut Instance<'_>,
    [
        cluster,
        cluster_bytes,
        service,
        service_bytes,
        method,
        method_bytes,
        _,
        _,
        address,
        _,
    ]: Arguments,
) -> Result<u32> {
    let cluster = instance.read_text(cluster, cluster_bytes)?;
    let service = instance.read_text(service, service_bytes)?;
    let method = instance.read_text(method, method_bytes)?;
    let stream = u32_bytes(instance.host().streams.len())?;
    let name = format!("{cluster}/{service}/{method}");
    instance.host().streams.push(name);
    instance.write(address, &stream)
}

fn grpc_send(instance: &mut Instance<'_>, [stream, message, bytes, ..]: Arguments) -> Result<u32> {
    let message = instance.read(message, bytes)?;
    let host = instance.host();
    if host.context() != ROOT || host.streams.len() <= stream as usize {
        return Ok(NOT_FOUND);
    }
    host.sent.push(message);
    Ok(OK)
}

fn grpc_cancel(instance: &mut Instance<'_>, [stream, ..]: Arguments) -> Result<u32> {
    let is_open = (stream as usize) < instance.host().streams.len();
    Ok(if is_open { OK } else { NOT_FOUND })
}

fn set_tick_period(instance: &mut Instance<'_>, [milliseconds, ..]: Arguments) -> Result<u32> {
    instance.host().tick_ms = milliseconds;
    Ok(OK)
}

fn set_effective_context(instance: &mut Instance<'_>, [context, ..]: Arguments) -> Result<u32> {
    let request = instance.host().request;
    if ![ROOT, request].contains(&context) {
        return Ok(BAD_ARGUMENT);
    }
    instance.host().effective = Some(context);
    Ok(OK)
}

fn continue_stream(instance: &mut Instance<'_>, [direction, ..]: Arguments) -> Result<u32> {
    let host = instance.host();
    if host.context() != host.request || direction != HTTP_REQUEST {
        return Ok(BAD_ARGUMENT);
    }
    host.resumed += 1;
    Ok(OK)
}

fn send_local_response(
    instance: &mut Instance<'_>,
    [status, _, _, body, body_bytes, ..]: Arguments,
) -> Result<u32> {
    let body = instance.read(body, body_bytes)?;
    let host = instance.host();
    if host.context() != host.request {
        return Ok(BAD_ARGUMENT);
    }
    host.replied = Some((status, body));
    Ok(OK)
}

/// The module that calls a function of the host.
struct Instance<'a>(Caller<'a, Host>);

impl Instance<'_> {
    fn host(&mut self) -> &mut Host {
        self.0.data_mut()
    }

    /// Copies bytes into memory that the module allocates, and writes their address and length.
    fn return_bytes(&mut self, bytes: &[u8], address: u32, size: u32) -> Result<u32> {
        let allocator = ["proxy_on_memory_allocate", "malloc"]
            .into_iter()
            .find_map(|name| self.0.get_export(name).and_then(Extern::into_func))
            .context("the module exports no allocator")
            .map_err(trap)?
            .typed::<u32, u32>(&self.0)?;
        let length = u32::try_from(bytes.len()).map_err(trap)?;
        let allocated = allocator.call(&mut self.0, length)?;
        self.write(allocated, bytes)?;
        self.write_u32(address, allocated)?;
        self.write_u32(size, length)
    }

    fn memory(&mut self) -> Result<Memory> {
        let memory = self.0.get_export("memory").and_then(Extern::into_memory);
        memory.ok_or_else(|| trap(anyhow!("the module exports no memory")))
    }

    fn read(&mut self, address: u32, bytes: u32) -> Result<Vec<u8>> {
        let mut content = vec![0; bytes as usize];
        let memory = self.memory()?;
        let read = memory.read(&self.0, address as usize, &mut content);
        read.map_err(trap)?;
        Ok(content)
    }

    fn read_text(&mut self, address: u32, bytes: u32) -> Result<String> {
        String::from_utf8(self.read(address, bytes)?).map_err(trap)
    }

    fn write(&mut self, address: u32, bytes: &[u8]) -> Result<u32> {
        let memory = self.memory()?;
        let written = memory.write(&mut self.0, address as usize, bytes);
        written.map_err(trap)?;
        Ok(OK)
    }

    fn write_u32(&mut self, address: u32, value: u32) -> Result<u32> {
        self.write(address, &value.to_le_bytes())
    }
}

fn u32_bytes(value: usize) -> Result<[u8; 4]> {
    Ok(u32::try_from(value).map_err(trap)?.to_le_bytes())
}

fn trap(error: impl std::fmt::Display) -> Error {
    Error::new(error.to_string())
}

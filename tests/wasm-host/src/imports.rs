//! The functions that the host gives to the module: those of proxy-wasm 0.2.1 that the filter calls, and of WASI
//! what the standard library wants at its start.
//!
//! Strict where Envoy is: a header map that does not exist at the moment is a bad argument, which the module does not survive.

use anyhow::{Context as _, anyhow};
use wasmi::{Caller, Engine, Error, Extern, Linker, Memory, Module};

use crate::host::Host;

mod streams;

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const BAD_ARGUMENT: u32 = 2;

type Result<T> = core::result::Result<T, Error>;

/// Everything that the module may import. What it imports besides ends a test when it is called.
pub(crate) fn linker(engine: &Engine, module: &Module) -> anyhow::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    for import in module.imports() {
        if let Some(kind) = import.ty().func() {
            let (from, name) = (import.module(), import.name());
            let message = format!("the host does not imitate {from}::{name}");
            linker.func_new(from, name, kind.clone(), move |_, _, _| {
                Err(Error::new(message.clone()))
            })?;
        }
    }
    linker.allow_shadowing(true);
    logging_and_time(&mut linker)?;
    maps(&mut linker)?;
    buffers_and_properties(&mut linker)?;
    metrics(&mut linker)?;
    streams::define(&mut linker)?;
    linker.func_wrap(
        "wasi_snapshot_preview1",
        "environ_sizes_get",
        |mut caller: Caller<'_, Host>, count: u32, bytes: u32| -> Result<u32> {
            write_u32(&mut caller, count, 0)?;
            write_u32(&mut caller, bytes, 0)?;
            Ok(0)
        },
    )?;
    Ok(linker)
}

fn logging_and_time(linker: &mut Linker<Host>) -> anyhow::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_log",
        |mut caller: Caller<'_, Host>, _: u32, text: u32, bytes: u32| -> Result<u32> {
            let line = read_text(&mut caller, text, bytes)?;
            caller.data_mut().log.push(line);
            Ok(OK)
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_current_time_nanoseconds",
        |mut caller: Caller<'_, Host>, place: u32| -> Result<u32> {
            let now = caller.data().now_ns;
            write(&mut caller, place, &now.to_le_bytes())?;
            Ok(OK)
        },
    )?;
    Ok(())
}

fn maps(linker: &mut Linker<Host>) -> anyhow::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_header_map_pairs",
        |mut caller: Caller<'_, Host>, map: u32, place: u32, size: u32| -> Result<u32> {
            let Some(headers) = caller.data_mut().map(map) else {
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
            hand_over(&mut caller, &pairs, place, size)
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_header_map_value",
        |mut caller: Caller<'_, Host>,
         map: u32,
         name: u32,
         name_bytes: u32,
         place: u32,
         size: u32|
         -> Result<u32> {
            let name = read_text(&mut caller, name, name_bytes)?;
            let Some(headers) = caller.data_mut().map(map) else {
                return Ok(BAD_ARGUMENT);
            };
            let found = headers.iter().find(|(candidate, _)| *candidate == name);
            match found.map(|(_, value)| value.clone()) {
                Some(value) => hand_over(&mut caller, &value, place, size),
                None => Ok(NOT_FOUND),
            }
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_replace_header_map_value",
        |mut caller: Caller<'_, Host>,
         map: u32,
         name: u32,
         name_bytes: u32,
         value: u32,
         value_bytes: u32|
         -> Result<u32> {
            let name = read_text(&mut caller, name, name_bytes)?;
            let value = read(&mut caller, value, value_bytes)?;
            let Some(headers) = caller.data_mut().map(map) else {
                return Ok(BAD_ARGUMENT);
            };
            headers.retain(|(candidate, _)| *candidate != name);
            headers.push((name, value));
            Ok(OK)
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_remove_header_map_value",
        |mut caller: Caller<'_, Host>, map: u32, name: u32, name_bytes: u32| -> Result<u32> {
            let name = read_text(&mut caller, name, name_bytes)?;
            let Some(headers) = caller.data_mut().map(map) else {
                return Ok(BAD_ARGUMENT);
            };
            headers.retain(|(candidate, _)| *candidate != name);
            Ok(OK)
        },
    )?;
    Ok(())
}

fn buffers_and_properties(linker: &mut Linker<Host>) -> anyhow::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_buffer_bytes",
        |mut caller: Caller<'_, Host>,
         buffer: u32,
         start: u32,
         bytes_max: u32,
         place: u32,
         size: u32|
         -> Result<u32> {
            let Some(rest) = caller
                .data()
                .buffer(buffer)
                .and_then(|bytes| bytes.get(start as usize..))
            else {
                return Ok(BAD_ARGUMENT);
            };
            let bytes = rest.get(..bytes_max as usize).unwrap_or(rest).to_vec();
            if buffer < 2 {
                caller.data_mut().body_bytes_read += bytes.len();
            }
            hand_over(&mut caller, &bytes, place, size)
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_property",
        |mut caller: Caller<'_, Host>,
         path: u32,
         bytes: u32,
         place: u32,
         size: u32|
         -> Result<u32> {
            let path = read_text(&mut caller, path, bytes)?;
            let path = path.trim_end_matches('\0').replace('\0', ".");
            match caller.data().properties.get(&path).cloned() {
                Some(value) => hand_over(&mut caller, value.as_bytes(), place, size),
                None => Ok(NOT_FOUND),
            }
        },
    )?;
    Ok(())
}

fn metrics(linker: &mut Linker<Host>) -> anyhow::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_define_metric",
        |mut caller: Caller<'_, Host>, _: u32, name: u32, bytes: u32, place: u32| -> Result<u32> {
            let name = read_text(&mut caller, name, bytes)?;
            let number = caller.data().metrics.len();
            caller.data_mut().metrics.push((name, 0));
            write(&mut caller, place, &u32_bytes(number)?)?;
            Ok(OK)
        },
    )?;
    for name in ["proxy_increment_metric", "proxy_record_metric"] {
        linker.func_wrap(
            "env",
            name,
            |mut caller: Caller<'_, Host>, number: u32, value: u64| -> u32 {
                match caller.data_mut().metrics.get_mut(number as usize) {
                    Some((_, sum)) => {
                        *sum += value;
                        OK
                    }
                    None => NOT_FOUND,
                }
            },
        )?;
    }
    Ok(())
}

/// Puts bytes into memory that the module allocates, and tells it where.
fn hand_over(caller: &mut Caller<'_, Host>, bytes: &[u8], place: u32, size: u32) -> Result<u32> {
    let allocate = ["proxy_on_memory_allocate", "malloc"]
        .into_iter()
        .find_map(|name| caller.get_export(name).and_then(Extern::into_func))
        .context("the module exports no allocator")
        .map_err(trap)?
        .typed::<u32, u32>(&*caller)?;
    let length = u32::try_from(bytes.len()).map_err(trap)?;
    let address = allocate.call(&mut *caller, length)?;
    write(caller, address, bytes)?;
    write_u32(caller, place, address)?;
    write_u32(caller, size, length)?;
    Ok(OK)
}

fn memory(caller: &mut Caller<'_, Host>) -> Result<Memory> {
    caller
        .get_export("memory")
        .and_then(Extern::into_memory)
        .ok_or_else(|| trap(anyhow!("the module exports no memory")))
}

fn read(caller: &mut Caller<'_, Host>, address: u32, bytes: u32) -> Result<Vec<u8>> {
    let mut content = vec![0; bytes as usize];
    memory(caller)?
        .read(&*caller, address as usize, &mut content)
        .map_err(trap)?;
    Ok(content)
}

fn read_text(caller: &mut Caller<'_, Host>, address: u32, bytes: u32) -> Result<String> {
    String::from_utf8(read(caller, address, bytes)?).map_err(trap)
}

fn write(caller: &mut Caller<'_, Host>, address: u32, bytes: &[u8]) -> Result<()> {
    memory(caller)?
        .write(&mut *caller, address as usize, bytes)
        .map_err(trap)
}

fn write_u32(caller: &mut Caller<'_, Host>, address: u32, value: u32) -> Result<()> {
    write(caller, address, &value.to_le_bytes())
}

fn u32_bytes(value: usize) -> Result<[u8; 4]> {
    Ok(u32::try_from(value).map_err(trap)?.to_le_bytes())
}

fn trap(error: impl std::fmt::Display) -> Error {
    Error::new(error.to_string())
}

//! Removes the exports of empty callbacks from a WebAssembly module.
//!
//! Envoy calls every callback that a module exports, and each call enters the module and leaves it. The proxy-wasm library
//! exports all callbacks, also the ones that the filter leaves empty. Rejected: a linker option, because none removes an
//! export that a library marks `no_mangle`.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};

/// Exports that every module keeps: the ABI's version, memory, the plugin's life cycle, and the callbacks of a request.
const KEPT: [&str; 15] = [
    "memory",
    "_initialize",
    "malloc",
    "proxy_abi_version_0_2_1",
    "proxy_on_memory_allocate",
    "proxy_on_context_create",
    "proxy_on_vm_start",
    "proxy_on_configure",
    "proxy_on_delete",
    "proxy_on_request_headers",
    "proxy_on_request_body",
    "proxy_on_request_trailers",
    "proxy_on_response_headers",
    "proxy_on_response_body",
    "proxy_on_response_trailers",
];
/// Names of the allocator, of which a module exports one, by its target.
const ALLOCATORS: [&str; 2] = ["malloc", "proxy_on_memory_allocate"];

/// Magic number and version, in front of the sections.
const PREAMBLE: &[u8] = b"\0asm\x01\0\0\0";
const EXPORTS: u8 = 7;

/// The module with the exports of [`KEPT`] and of these callbacks only.
pub(crate) fn prune(module: &[u8], callbacks: &[&str]) -> anyhow::Result<Vec<u8>> {
    let wanted: BTreeSet<&str> = KEPT.iter().chain(callbacks).copied().collect();
    let mut rest = module
        .strip_prefix(PREAMBLE)
        .context("this is no WebAssembly module")?;
    let mut pruned = PREAMBLE.to_vec();
    let mut found = BTreeSet::new();
    while let Some((&kind, after)) = rest.split_first() {
        let (content, after) = sized(after)?;
        rest = after;
        pruned.push(kind);
        if kind == EXPORTS {
            push_sized(&mut pruned, &kept(content, &wanted, &mut found)?);
        } else {
            push_sized(&mut pruned, content);
        }
    }
    let missing = wanted.difference(&found);
    let missing: Vec<_> = missing.filter(|name| !ALLOCATORS.contains(name)).collect();
    if !missing.is_empty() || ALLOCATORS.iter().all(|name| !found.contains(*name)) {
        bail!("the module does not export what Envoy needs: {missing:?} or one of {ALLOCATORS:?}");
    }
    Ok(pruned)
}

/// The section of exports, reduced to the wanted ones.
fn kept<'a>(
    section: &'a [u8],
    wanted: &BTreeSet<&str>,
    found: &mut BTreeSet<&'a str>,
) -> anyhow::Result<Vec<u8>> {
    let (count, mut rest) = number(section)?;
    let (mut entries, mut entries_kept) = (Vec::new(), 0);
    for _ in 0..count {
        let entry = rest;
        let (name, after) = sized(rest)?;
        // Behind the name: a byte for the kind, and an index.
        let (_, after) = after.split_first().context("an export ends early")?;
        (_, rest) = number(after)?;
        let name = std::str::from_utf8(name)?;
        if wanted.contains(name) {
            found.insert(name);
            entries_kept += 1;
            let bytes = entry.len() - rest.len();
            entries.extend_from_slice(entry.get(..bytes).context("an export ends early")?);
        }
    }
    let mut section = Vec::new();
    push_number(&mut section, entries_kept);
    section.extend(entries);
    Ok(section)
}

/// Splits off bytes that have their length in front.
fn sized(bytes: &[u8]) -> anyhow::Result<(&[u8], &[u8])> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(length)
        .context("the module ends early")
}

fn push_sized(to: &mut Vec<u8>, bytes: &[u8]) {
    push_number(to, bytes.len());
    to.extend_from_slice(bytes);
}

/// Splits off a 32-bit number in LEB128.
fn number(bytes: &[u8]) -> anyhow::Result<(usize, &[u8])> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let rest = bytes.get(index + 1..).unwrap_or_default();
            return Ok((usize::try_from(value)?, rest));
        }
    }
    bail!("a number in the module does not end")
}

fn push_number(to: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with a section in front of its exports, which are functions.
    fn module(exports: &[&str]) -> Vec<u8> {
        let mut section = Vec::new();
        push_number(&mut section, exports.len());
        for (index, name) in exports.iter().enumerate() {
            push_sized(&mut section, name.as_bytes());
            section.push(0);
            push_number(&mut section, 100 + index);
        }
        let mut module = PREAMBLE.to_vec();
        module.push(1);
        push_sized(&mut module, &[0; 300]);
        module.push(EXPORTS);
        push_sized(&mut module, &section);
        module
    }

    fn needed() -> Vec<&'static str> {
        let needed = KEPT.into_iter();
        needed.filter(|name| *name != "malloc").collect()
    }

    #[test]
    fn empty_callbacks_are_removed_and_the_rest_stays_unchanged() {
        let mut more = needed();
        more.extend(["proxy_on_log", "proxy_on_tick", "__heap_base"]);
        assert_eq!(prune(&module(&more), &[]).unwrap(), module(&needed()));

        let mut ticking = needed();
        ticking.push("proxy_on_tick");
        let pruned = prune(&module(&ticking), &["proxy_on_tick"]);
        assert_eq!(pruned.unwrap(), module(&ticking));
    }

    #[test]
    fn a_module_that_lacks_a_callback_is_refused() {
        let mut fewer = needed();
        fewer.retain(|name| *name != "proxy_on_request_body");
        let error = prune(&module(&fewer), &[]).unwrap_err().to_string();
        assert!(error.contains("proxy_on_request_body"), "{error}");
    }

    #[test]
    fn other_bytes_and_truncated_modules_are_refused() {
        assert!(prune(b"\x7fELF", &[]).is_err());
        let whole = module(&needed());
        for end in PREAMBLE.len()..whole.len() - 1 {
            assert!(prune(&whole[..end], &[]).is_err(), "cut at {end}");
        }
    }
}

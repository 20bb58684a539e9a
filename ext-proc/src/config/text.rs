//! Kinds of text: names, each checked for its use, and addresses.

use std::net::SocketAddr;

use ipnet::IpNet;
use isotherm_fingerprint::{paths, tenant};
use isotherm_router::Push;

use super::address::{Address, is_host_name};
use super::kind::{Kind, number_or_text, text};
use super::listen::Listen;
use super::service_port::ServicePort;

/// The longest name of a model or of a cluster, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest DNS label, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// The longest name of an object of Kubernetes, in bytes.
const OBJECT_BYTES_MAX: usize = 253;

/// The name that stands for every model that no pool names.
pub(super) const ANY_MODEL: &str = "*";

/// A name that `is_valid` accepts; `wrong` says what is wrong with any other.
fn name(
    accepts: &str,
    is_valid: impl Fn(&str) -> bool + 'static,
    wrong: impl Fn(&str) -> String + 'static,
) -> Kind<String> {
    text(accepts, move |text| match is_valid(text) {
        true => Ok(text.to_owned()),
        false => Err(wrong(text)),
    })
}

/// The name of a model, as requests write it; `*` for any.
pub(super) fn model_name() -> Kind<String> {
    name(
        "text",
        |text| (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control),
        |_| format!("a model's name has 1 to {NAME_BYTES_MAX} bytes and no control characters"),
    )
}

/// Whether a header can carry `text`: visible ASCII characters only.
pub(super) fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The name of a header, in lower case.
pub(super) fn header_name() -> Kind<String> {
    text("the name of a header", |text| {
        let is_valid = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        match is_valid {
            true => Ok(text.to_ascii_lowercase()),
            false => Err(format!(
                "`{text}` is no name of a header: letters, digits, `-` and `_`"
            )),
        }
    })
}

/// The name of a tenant, as the filter writes it into its header.
pub(super) fn tenant_name() -> Kind<String> {
    name(
        "name of a tenant",
        |text| tenant::is_valid(text.as_bytes()),
        |text| {
            format!(
                "`{text}` names no tenant: a name has 1 to {} visible ASCII characters without quotes, `\\`, `,` and `;` (the \
                 metrics show the hash of any other)",
                tenant::TENANT_BYTES_MAX
            )
        },
    )
}

/// The name of an Envoy cluster. A header carries it.
pub(super) fn cluster_name() -> Kind<String> {
    name(
        "text of visible ASCII characters",
        |text| (1..=NAME_BYTES_MAX).contains(&text.len()) && is_visible(text),
        |text| {
            format!(
                "a header cannot carry `{text}`: a cluster's name has 1 to {NAME_BYTES_MAX} visible ASCII characters"
            )
        },
    )
}

pub(super) fn host_name() -> Kind<String> {
    name("host name", is_host_name, |text| {
        format!(
            "`{text}` is not a host name, such as engines.example (the port is an option of its own)"
        )
    })
}

/// A push rule, in the spelling of the simulator's `--push`.
pub(super) fn push() -> Kind<Push> {
    text(
        "`pending`, `outstanding:NUMBER` or `blind`",
        str::parse::<Push>,
    )
}

/// A path that clients may use, as in the filter's configuration.
pub(super) fn allowed_path() -> Kind<String> {
    text("path, PATH/* or *", |text| match paths::check_entry(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!("`{text}`: {error}")),
    })
}

/// A path whose API the configuration tells.
pub(super) fn api_path() -> Kind<String> {
    name(
        "path",
        |text| paths::check_entry(text).is_ok() && !text.ends_with('*'),
        |text| format!("`{text}` is not a whole path, such as /llm/openai"),
    )
}

/// The name of a region: a DNS label, since certificates carry it.
pub(super) fn region_name() -> Kind<String> {
    name(
        "lower-case letters, digits and hyphens",
        is_region_name,
        |text| {
            format!(
                "`{text}` is not the name of a region, such as eu or us-east-1: 1 to {LABEL_BYTES_MAX} lower-case letters, digits and hyphens, with no hyphen at either end"
            )
        },
    )
}

/// Whether `text` may name a region.
pub(crate) fn is_region_name(text: &str) -> bool {
    is_label(text)
}

/// Whether `text` is a DNS label in lower case.
fn is_label(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_hyphen_at_end = text.starts_with('-') || text.ends_with('-');
    let has_length = (1..=LABEL_BYTES_MAX).contains(&text.len());
    has_length && !has_hyphen_at_end && text.bytes().all(is_allowed)
}

/// The name of a namespace of Kubernetes.
pub(super) fn namespace_name() -> Kind<String> {
    name("lower-case letters, digits and hyphens", is_label, |text| {
        format!(
            "`{text}` is not a namespace, such as default: 1 to {LABEL_BYTES_MAX} lower-case letters, digits and hyphens, with no hyphen at either end"
        )
    })
}

/// The name of an object of Kubernetes: DNS labels with dots between them.
pub(super) fn object_name() -> Kind<String> {
    let is_valid = |text: &str| text.len() <= OBJECT_BYTES_MAX && text.split('.').all(is_label);
    name("name of an object", is_valid, |text| {
        format!(
            "`{text}` is not a name of Kubernetes, such as llm-pool: lower-case letters, digits, hyphens and dots (the namespace is an option of its own)"
        )
    })
}

/// A label selector. The API server knows its whole grammar and says what is wrong with it.
pub(super) fn label_selector() -> Kind<String> {
    let is_valid = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
    name("label selector", is_valid, |_| {
        "a label selector is not empty, such as app=vllm or app in (vllm, sglang)".into()
    })
}

/// The number or the name of a Service's port.
pub(super) fn service_port() -> Kind<ServicePort> {
    let number = |number| ServicePort::Number(u16::try_from(number).unwrap_or(u16::MAX));
    let accepts = "number, 1 to 65535, or the name of a port";
    number_or_text(accepts, 1..=65_535, number, |text| match is_label(text) {
        true => Ok(ServicePort::Name(text.to_owned())),
        false => Err(format!("`{text}` is not the name of a port, such as http")),
    })
}

pub(super) fn socket_address() -> Kind<SocketAddr> {
    text("ip:port", |text| {
        text.parse().map_err(|_| {
            format!("`{text}` is not ip:port, such as 127.0.0.1:8000 or [::1]:8000 (names are not resolved here)")
        })
    })
}

/// An address that the service listens on for Envoy.
pub(super) fn listen_address() -> Kind<Listen> {
    text("ip:port or unix:/path", Listen::parse)
}

/// A network of addresses.
pub(super) fn network() -> Kind<IpNet> {
    text("network", |text| {
        text.parse()
            .map_err(|_| format!("`{text}` is not a network, such as 10.2.0.0/16 or fd00::/8"))
    })
}

/// The URL of a collector: `http://` or `https://` and an address, without a path.
pub(super) fn collector_url() -> Kind<String> {
    text("http(s)://host:port", |text| {
        let schemes = ["http://", "https://"];
        let mut rests = schemes
            .map(|scheme| Some((scheme, text.strip_prefix(scheme)?)))
            .into_iter();
        let Some((scheme, rest)) = rests.find_map(|rest| rest) else {
            return Err(format!(
                "`{text}` is not `http://host:port` or `https://host:port`: OTLP by gRPC, whose port is usually 4317"
            ));
        };
        let address = Address::parse(rest.strip_suffix('/').unwrap_or(rest))?;
        Ok(format!("{scheme}{address}"))
    })
}

/// The URL of a webhook: `http://`, an address, and a path.
pub(super) fn webhook_url() -> Kind<String> {
    text("http://host:port/path", |text| {
        let rest = text.strip_prefix("http://").ok_or_else(|| {
            format!("`{text}` is not `http://host:port/path`: a proxy on this machine adds TLS")
        })?;
        let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address = Address::parse(address)?;
        let url = format!("http://{address}/{path}");
        match url.parse::<hyper::Uri>() {
            Ok(_) => Ok(url),
            Err(error) => Err(format!("`{text}` is no URL: {error}")),
        }
    })
}

pub(super) fn dial_address() -> Kind<Address> {
    text("host:port", Address::parse)
}

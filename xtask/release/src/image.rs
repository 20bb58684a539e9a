//! The images: service, simulated engine and filter, each as one archive of an OCI image layout.
//!
//! Each has one layer above nothing: a static program and the authorities that it trusts, or the module. An index names one
//! manifest an architecture. Nothing needs Docker, and any client of registries pushes the files. The filter's image is
//! what Istio and Envoy Gateway take: one layer with `plugin.wasm`. Its index names both architectures with the same
//! layer, because a container runtime refuses an image of another architecture.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_spec::image::{
    Arch, Config, ConfigBuilder, Descriptor, DescriptorBuilder, ImageConfigurationBuilder,
    ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, PlatformBuilder,
    RootFsBuilder, SCHEMA_VERSION, Sha256Digest,
};
use serde_json::Value;

use crate::archive::{Entry, gzip, sha256, tar};
use crate::layout::{self, ENGINE, SERVICE};
use crate::platform::PLATFORMS;
use crate::release::{Identity, Release};

/// The user of the programs: no name, no rights.
const USER: &str = "65532:65532";
/// Endpoint picker, health, siblings, scaler, admin interface and metrics.
const PORTS: [&str; 6] = ["9002", "9003", "9004", "9005", "9090", "9091"];
/// Where Go's and Rust's TLS libraries look for authorities.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Name of the filter's image.
const FILTER: &str = "isotherm-filter";
/// The annotation by which clients find an image in a layout.
const REFERENCE: &str = "org.opencontainers.image.ref.name";

/// Writes all images, and returns the digest of the service's index.
pub(crate) fn write_all(release: &Release) -> anyhow::Result<String> {
    let filter = filter(&release.identity, &layout::read(&release.filter)?)?;
    put(release, FILTER, &filter.archive)?;
    write_program(release, ENGINE, ConfigBuilder::default)?;
    write_program(release, SERVICE, || {
        let service = ConfigBuilder::default().cmd(["serve".to_owned()]);
        service.exposed_ports(PORTS.map(str::to_owned))
    })
}

/// Makes the image of the filter.
///
/// # Errors
/// When an archive cannot be written to memory.
pub fn filter(identity: &Identity, module: &[u8]) -> anyhow::Result<Layout> {
    let mut image = Image::new(identity, FILTER);
    for platform in PLATFORMS {
        let files = [Entry::file("plugin.wasm", module)];
        image.add(platform.image(), &files, ConfigBuilder::default())?;
    }
    image.layout()
}

/// Writes the image of a program, with each architecture of the release, and returns the digest of its index.
fn write_program(
    release: &Release,
    program: &str,
    config: impl Fn() -> ConfigBuilder,
) -> anyhow::Result<String> {
    let mut image = Image::new(&release.identity, program);
    for (platform, programs) in &release.programs {
        let files = [
            Entry::program(program, layout::read(&programs.join(program))?),
            Entry::file(AUTHORITIES, authorities()),
        ];
        let config = config().user(USER).entrypoint([format!("/{program}")]);
        image.add(platform.image(), &files, config)?;
    }
    let layout = image.layout()?;
    put(release, program, &layout.archive)?;
    Ok(layout.digest)
}

/// Writes the archive of an image.
fn put(release: &Release, name: &str, archive: &[u8]) -> anyhow::Result<()> {
    let file = format!("{name}-{}.oci.tar", release.identity.version);
    let put = release.put(&file, archive);
    put.with_context(|| format!("the image {name} is not written"))
}

/// Mozilla's authorities, as the release's lock file pins them.
fn authorities() -> String {
    let certificates = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    let pem = certificates.map(|certificate| {
        let text = STANDARD.encode(certificate);
        let lines: Vec<&str> = (0..text.len())
            .step_by(64)
            .filter_map(|start| text.get(start..text.len().min(start + 64)))
            .collect();
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        )
    });
    pem.collect()
}

/// The layout of an image.
#[derive(Debug)]
pub struct Layout {
    /// The archive of its files.
    pub archive: Vec<u8>,
    /// The digest of its index.
    pub digest: String,
}

/// An image that is being written.
struct Image<'a> {
    identity: &'a Identity,
    name: &'a str,
    /// Content by its digest.
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: Vec<Descriptor>,
}

impl<'a> Image<'a> {
    fn new(identity: &'a Identity, name: &'a str) -> Self {
        Self {
            identity,
            name,
            blobs: BTreeMap::new(),
            manifests: Vec::new(),
        }
    }

    /// Adds the image of one architecture.
    fn add(&mut self, arch: Arch, files: &[Entry], config: ConfigBuilder) -> anyhow::Result<()> {
        let archive = tar(files, self.identity.time)?;
        let content = ImageConfigurationBuilder::default()
            .created(self.identity.created()?)
            .architecture(arch.clone())
            .os(Os::Linux)
            .config(self.labelled(config)?)
            .rootfs(
                RootFsBuilder::default()
                    .typ("layers")
                    .diff_ids([format!("sha256:{}", sha256(&archive))])
                    .build()?,
            )
            .build()?;
        let layer = gzip(&archive, self.identity.compression())?;
        let layer = self.blob(MediaType::ImageLayerGzip, layer)?.build()?;
        let content = canonical(serde_json::to_value(content)?)?;
        let content = self.blob(MediaType::ImageConfig, content)?.build()?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(content)
            .layers([layer])
            .build()?;
        let manifest = canonical(serde_json::to_value(manifest)?)?;
        let platform = PlatformBuilder::default();
        let platform = platform.architecture(arch).os(Os::Linux).build()?;
        let manifest = self.blob(MediaType::ImageManifest, manifest)?;
        self.manifests.push(manifest.platform(platform).build()?);
        Ok(())
    }

    fn labelled(&self, config: ConfigBuilder) -> anyhow::Result<Config> {
        let identity = self.identity;
        let mut labels = HashMap::new();
        let mut label = |name: &str, value: &str| {
            let name = format!("org.opencontainers.image.{name}");
            labels.insert(name, value.to_owned());
        };
        label("title", self.name);
        label("version", &identity.version);
        label("revision", &identity.revision);
        label("created", &identity.created()?);
        label("licenses", "Apache-2.0");
        if let Some(source) = &identity.source {
            label("source", source);
        }
        Ok(config.labels(labels).build()?)
    }

    /// Keeps content by its digest, and returns its descriptor.
    fn blob(&mut self, kind: MediaType, content: Vec<u8>) -> anyhow::Result<DescriptorBuilder> {
        let digest = sha256(&content);
        let descriptor = DescriptorBuilder::default()
            .media_type(kind)
            .size(content.len() as u64)
            .digest(digest.parse::<Sha256Digest>()?);
        self.blobs.insert(digest, content);
        Ok(descriptor)
    }

    /// Makes the layout.
    fn layout(mut self) -> anyhow::Result<Layout> {
        let manifests = std::mem::take(&mut self.manifests);
        let index = self.blob(MediaType::ImageIndex, index_of(manifests)?)?;
        let version = self.identity.version.clone();
        let annotations = HashMap::from([(REFERENCE.to_owned(), version)]);
        let index_of_layout = index.annotations(annotations).build()?;
        let digest = index_of_layout.digest().to_string();
        let layout = OciLayoutBuilder::default();
        let layout = layout.image_layout_version("1.0.0").build()?;
        let blobs = self.blobs.into_iter();
        let blobs =
            blobs.map(|(digest, content)| Entry::file(format!("blobs/sha256/{digest}"), content));
        let mut entries: Vec<Entry> = blobs.collect();
        entries.push(Entry::file(
            "oci-layout",
            canonical(serde_json::to_value(layout)?)?,
        ));
        entries.push(Entry::file("index.json", index_of(vec![index_of_layout])?));
        let archive = tar(&entries, self.identity.time)?;
        Ok(Layout { archive, digest })
    }
}

/// The index of manifests, or of an index.
fn index_of(manifests: Vec<Descriptor>) -> anyhow::Result<Vec<u8>> {
    let index = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests)
        .build()?;
    canonical(serde_json::to_value(index)?)
}

/// JSON with its keys in order: the library keeps labels in hash tables.
fn canonical(mut value: Value) -> anyhow::Result<Vec<u8>> {
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authorities_are_certificates_in_pem() {
        let text = authorities();
        let count = text.matches("-----BEGIN CERTIFICATE-----\n").count();
        assert!(count > 100, "{count}");
        assert!(text.lines().all(|line| line.len() <= 64));
    }

    #[test]
    fn json_has_its_keys_in_order() {
        let text = r#"{"b":1,"a":{"d":2,"c":3}}"#;
        let bytes = canonical(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(bytes, br#"{"a":{"c":3,"d":2},"b":1}"#);
    }
}

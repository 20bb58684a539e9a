//! Objects of Kubernetes: manifests, their paths at the API server, and their definitions.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::wait::{WAIT_MAX, wait_for};

/// Reads the objects of a manifest.
pub fn documents(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())
}

/// The kind of an object; empty when it has none.
pub fn kind(object: &Value) -> &str {
    text(object, "/kind")
}

/// The path of an object's kind in its namespace.
pub fn path_of(object: &Value) -> String {
    let (version, kind) = (text(object, "/apiVersion"), kind(object).to_lowercase());
    let root = if version.contains('/') {
        "/apis/"
    } else {
        "/api/"
    };
    let plural = match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with('a') => format!("{stem}ies"),
        _ => format!("{kind}s"),
    };
    let namespace = match text(object, "/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    };
    format!("{root}{version}/namespaces/{namespace}/{plural}")
}

/// Installs every custom resource definition of a folder, and waits until the server serves the kinds of `objects`.
pub async fn install_definitions(
    plane: &ControlPlane,
    folder: &Path,
    objects: &[Value],
) -> anyhow::Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definitions = Vec::new();
    for entry in fs::read_dir(folder)? {
        let objects = documents(&entry?.path())?.into_iter();
        definitions.extend(objects.filter(|object| kind(object) == "CustomResourceDefinition"));
    }
    plane
        .request_each(definitions, |definition| {
            ("POST", path.to_owned(), Some(definition))
        })
        .await?;
    for object in objects {
        let list = path_of(object);
        let served = || async { Ok(plane.request("GET", &list, None).await.ok()) };
        wait_for(WAIT_MAX, &list, served).await?;
    }
    Ok(())
}

/// The text at a JSON pointer; empty when there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_path_of_an_object_follows_its_kind_and_namespace() {
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "namespace": "models" }
        });
        let policy =
            json!({ "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyPatchPolicy" });
        let service = json!({ "apiVersion": "v1", "kind": "Service" });
        for (object, path) in [
            (
                gateway,
                "/apis/gateway.networking.k8s.io/v1/namespaces/models/gateways",
            ),
            (
                policy,
                "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/default/envoypatchpolicies",
            ),
            (service, "/api/v1/namespaces/default/services"),
        ] {
            assert_eq!(path_of(&object), path);
        }
    }
}

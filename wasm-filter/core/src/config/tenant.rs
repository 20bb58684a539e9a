//! The sources of a request's tenant.

use serde::Deserialize;

use super::check_name;

/// The most members of a path in dynamic metadata.
const PATH_MEMBERS_MAX: usize = 16;

/// A source of the tenant.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TenantSource {
    /// A header that authentication sets.
    Header(String),
    /// Dynamic metadata of an HTTP filter in front, such as that of a JWT.
    Metadata(MetadataPath),
}

/// A place in dynamic metadata.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetadataPath {
    /// The namespace, which is the name of the filter that writes it.
    filter: String,
    /// The members from the namespace to the name.
    path: Vec<String>,
}

impl TenantSource {
    pub(super) fn resolve(&mut self, path: &str, errors: &mut Vec<String>) {
        match self {
            Self::Header(name) => {
                check_name(name, path, errors);
                name.make_ascii_lowercase();
            }
            Self::Metadata(place) => place.check(path, errors),
        }
    }
}

impl MetadataPath {
    /// The path of the host's property with the value.
    pub(crate) fn property(&self) -> Vec<&str> {
        let mut path = vec!["metadata", "filter_metadata", &*self.filter];
        path.extend(self.path.iter().map(String::as_str));
        path
    }

    fn check(&self, path: &str, errors: &mut Vec<String>) {
        check_name(&self.filter, &format!("{path}.metadata.filter"), errors);
        if self.path.is_empty() || self.path.len() > PATH_MEMBERS_MAX {
            errors.push(format!(
                "{path}.metadata.path has {} members: 1 to {PATH_MEMBERS_MAX} are valid",
                self.path.len()
            ));
        }
        for (index, member) in self.path.iter().enumerate() {
            check_name(member, &format!("{path}.metadata.path[{index}]"), errors);
        }
    }
}

//! The secret of session keys: in the configuration, or in Envoy's environment.
//!
//! Who may read Envoy's configuration, or its dump, reads a secret that stands there. A variable of Envoy's environment
//! reaches the filter if `environment_variables.host_env_keys` of its `vm_config` names it.

use std::{env, fmt};

use isotherm_fingerprint::session::{SECRET_BYTES_MIN, SessionSecret};
use serde::Deserialize;

/// The source of the secret. Its debug format hides the text.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "expected a text or {\"env\": \"NAME\"}")]
pub(super) enum SecretSource {
    Text(String),
    Variable(Variable),
}

/// The name of a variable of Envoy's environment.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    env: String,
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => formatter.write_str("Text(..)"),
            Self::Variable(variable) => write!(formatter, "Variable({})", variable.env),
        }
    }
}

impl SecretSource {
    /// Reads the secret, or says what is wrong with it.
    #[expect(
        clippy::disallowed_methods,
        reason = "in the sandbox the environment is what the host's configuration passes"
    )]
    pub(super) fn read(self) -> Result<SessionSecret, String> {
        let (place, text) = match self {
            Self::Text(text) => ("session_secret".to_owned(), text),
            Self::Variable(Variable { env: name }) => {
                let text = env::var(&name).map_err(|_| format!(
                    "session_secret.env: the filter sees no variable {name}: set it in Envoy's environment, and name it in `environment_variables.host_env_keys` of the filter's `vm_config`"
                ))?;
                // A file of variables, or a Secret made of a file, often ends with a line break.
                (
                    format!("the variable {name} of session_secret"),
                    text.trim_end().to_owned(),
                )
            }
        };
        SessionSecret::from_text(&text).ok_or_else(|| format!(
            "{place} has {} bytes: at least {SECRET_BYTES_MIN} are needed, such as those of `openssl rand -hex 16`",
            text.len()
        ))
    }
}

//! What is wrong with a configuration, such as a size that is not in bytes.

use futae_units::Size;
use std::fmt;

/// Why a configuration cannot be used: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Bytes of a size that must be one.
pub(crate) fn bytes(what: &str, size: Size) -> Result<u64, ConfigError> {
    match size {
        Size::Bytes(bytes) => Ok(bytes),
        other => Err(ConfigError(format!(
            "{what} = \"{other}\" is not in bytes; say it like \"512MiB\""
        ))),
    }
}

//! What the file says of one guest.

use super::error::{ConfigError, bytes};
use crate::actuator::Actuator;
use futae_allocate::GuestLimits;
use futae_units::Size;
use serde::Deserialize;
use std::path::PathBuf;

/// One guest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Its name.
    pub name: String,
    /// What it always has.
    pub minimum: Size,
    /// What it never has more than.
    pub maximum: Size,
    /// What it begins with; none: what it has.
    pub start: Option<Size>,
    /// What its time is worth beside that of the others.
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// Memory that is no cache, where its agent does not tell.
    pub overhead: Option<Size>,
    /// Where its agent is heard.
    pub agent: Option<AgentConfig>,
    /// By what its memory is changed.
    pub actuator: Actuator,
}

impl GuestConfig {
    /// What the guest may have, and begins with: the configured start, or else what it `has`, in bytes.
    pub(crate) fn limits(&self, has: Option<u64>) -> Result<GuestLimits, ConfigError> {
        let name = &self.name;
        let size = |what: &str, size| bytes(&format!("guest {name:?}: {what}"), size);
        let (least, most) = (
            size("minimum", self.minimum)?,
            size("maximum", self.maximum)?,
        );
        if least > most {
            return Err(ConfigError(format!(
                "guest {name:?}: its minimum of {} MiB is above its maximum of {} MiB",
                least >> 20,
                most >> 20
            )));
        }
        let start = match (self.start, has) {
            (Some(start), _) => size("start", start)?,
            (None, Some(has)) => has.min(most).max(least),
            (None, None) => return Err(ConfigError(format!("guest {name:?} has no start"))),
        };
        Ok(GuestLimits {
            name: name.clone(),
            least,
            most,
            start,
            weight: self.weight,
            overhead: self.overhead.map_or(Ok(0), |over| size("overhead", over))?,
        })
    }
}

/// Where an agent is heard: a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum AgentConfig {
    /// Of somebody who listens, such as QEMU's `-chardev socket,server=on`.
    Connect(PathBuf),
    /// Made here, for somebody who connects.
    Listen(PathBuf),
}

pub(crate) fn default_weight() -> f64 {
    1.0
}

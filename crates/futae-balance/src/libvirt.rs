//! Guests that libvirt runs, found by their names: those that start, stop and migrate while others are balanced.

pub(crate) mod events;

use crate::actuator::{Actuator, TIMEOUT, virsh};
use crate::config::{AgentConfig, GuestConfig, default_weight};
use futae_allocate::GuestLimits;
use futae_units::Size;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What stands for the name of a domain in the path of its agent's socket.
const NAME: &str = "%n";

/// Guests that libvirt runs, each with the same settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibvirtConfig {
    /// The hypervisor; none: virsh's own choice.
    pub uri: Option<String>,
    /// What each guest always has.
    pub minimum: Size,
    /// What each never has more than; none: its maximum as libvirt has it.
    pub maximum: Option<Size>,
    /// Memory that is no cache, where its agent does not tell.
    pub overhead: Option<Size>,
    /// Where its agent is heard: a path with `%n` for the name of the domain.
    pub agent: Option<AgentConfig>,
}

impl LibvirtConfig {
    /// What is wrong with it, if anything is.
    pub(crate) fn problem(&self) -> Option<String> {
        let (AgentConfig::Connect(path) | AgentConfig::Listen(path)) = self.agent.as_ref()?;
        (!path.to_string_lossy().contains(NAME)).then(|| {
            format!(
                "libvirt.agent: {} is the same for all guests; write {NAME} where the guest's name belongs",
                path.display()
            )
        })
    }

    /// The names of the domains that run, in order, but for those that `others` are.
    pub(crate) fn running(&self, others: &[GuestConfig]) -> Result<Vec<String>, String> {
        let mut names = virsh::running(self.uri.as_deref(), TIMEOUT)?;
        names.retain(|name| {
            !others.iter().any(|other| {
                let domain = match &other.actuator {
                    Actuator::Virsh { domain, .. } => domain,
                    _ => &other.name,
                };
                domain == name || other.name == *name
            })
        });
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// What a domain that runs may have by these settings, and how many bytes it has.
    ///
    /// # Errors
    ///
    /// libvirt does not tell, or the domain is yet to give up what it starts with too much.
    pub(crate) fn ask(&self, name: &str) -> Result<(GuestConfig, u64), String> {
        let uri = self.uri.as_deref();
        let memory = virsh::memory(name, uri, TIMEOUT)?;
        // Until its balloon is driven, it has all. Told to keep that, it would never come to what it was set up with.
        if memory.used == memory.maximum
            && let Some(wanted) = virsh::set_up(name, uri, TIMEOUT)
            && wanted < memory.maximum
            && virsh::has_no_driver(name, uri, TIMEOUT)
        {
            return Err(format!(
                "it starts with {} MiB until a driver of its balloon takes what is above its currentMemory of {} MiB",
                memory.used >> 20,
                wanted >> 20
            ));
        }
        Ok((self.guest(name, memory.maximum), memory.used))
    }

    /// The settings of one domain, whose maximum libvirt has as so many bytes.
    pub(crate) fn guest(&self, name: &str, maximum: u64) -> GuestConfig {
        let maximum = self.maximum.unwrap_or(Size::Bytes(maximum));
        let named = |path: &Path| PathBuf::from(path.to_string_lossy().replace(NAME, name));
        let agent = self.agent.as_ref().map(|agent| match agent {
            AgentConfig::Connect(path) => AgentConfig::Connect(named(path)),
            AgentConfig::Listen(path) => AgentConfig::Listen(named(path)),
        });
        GuestConfig {
            name: name.to_owned(),
            minimum: self.minimum,
            maximum,
            start: None,
            weight: default_weight(),
            overhead: self.overhead,
            agent,
            actuator: Actuator::Virsh {
                domain: name.to_owned(),
                uri: self.uri.clone(),
            },
        }
    }
}

/// Has guests begin with less where they have more than `total` together, each by the same part of what it has above its
/// minimum.
pub(crate) fn fit(limits: &mut [GuestLimits], total: u64) -> Result<(), String> {
    let sum = |of: fn(&GuestLimits) -> u64| -> u128 {
        limits.iter().map(|one| u128::from(of(one))).sum()
    };
    let (starts, leasts) = (sum(|one| one.start), sum(|one| one.least));
    let excess = starts.saturating_sub(u128::from(total));
    if excess == 0 {
        return Ok(());
    }
    let spare = starts - leasts;
    if excess > spare {
        return Err(format!(
            "the minimums of all guests are {} MiB together, more than the total of {} MiB",
            leasts >> 20,
            total >> 20
        ));
    }
    for one in limits {
        let above = u128::from(one.start - one.least);
        let less = (above * excess).div_ceil(spare);
        one.start -= u64::try_from(less)
            .unwrap_or(u64::MAX)
            .min(one.start - one.least);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(least: u64, start: u64) -> GuestLimits {
        GuestLimits {
            name: String::new(),
            least,
            most: 1000,
            start,
            weight: 1.0,
            overhead: 0,
        }
    }

    #[test]
    fn what_is_too_much_is_taken_from_what_is_above_the_minimum() {
        let mut all = [limits(100, 500), limits(100, 100), limits(0, 300)];
        fit(&mut all, 600).expect("it fits");
        let starts = all.each_ref().map(|one| one.start);
        assert!(starts.iter().sum::<u64>() <= 600, "{starts:?}");
        assert!(starts.iter().sum::<u64>() >= 597, "{starts:?}");
        assert_eq!(starts[1], 100);
        assert!(starts[0] > starts[2] && starts[2] > 0, "{starts:?}");
        let before = all.clone();
        fit(&mut all, 600).expect("it fits");
        assert_eq!(all, before);
        assert!(fit(&mut all, 199).is_err_and(|why| why.contains("minimums")));
    }

    #[test]
    fn an_agent_that_all_guests_would_share_is_refused() {
        let config = |path: &str| LibvirtConfig {
            uri: None,
            minimum: Size::Bytes(1),
            maximum: Some(Size::Bytes(2)),
            overhead: None,
            agent: Some(AgentConfig::Listen(path.into())),
        };
        assert!(
            config("/run/a.sock")
                .problem()
                .is_some_and(|why| why.contains(NAME))
        );
        let each = config("/run/%n.sock");
        assert_eq!(each.problem(), None);
        let guest = each.guest("db", 1);
        assert_eq!(guest.maximum, Size::Bytes(2));
        assert_eq!(
            guest.agent,
            Some(AgentConfig::Listen("/run/db.sock".into()))
        );
    }
}

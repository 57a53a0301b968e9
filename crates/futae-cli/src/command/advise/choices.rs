//! What there is to choose from.

use crate::command::forecast::Place;
use crate::command::sim::split_policies;
use futae_policy::{Kind, PolicySpec, Trait};
use futae_sim::{LevelSpec, Link, WriteMode, links};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::fmt::Display;

/// The host's part of the memory, in eighths.
const HOST_EIGHTHS: [u64; 6] = [0, 1, 2, 4, 6, 7];
/// Fewer blocks than this in a simulated cache say little.
const BLOCKS_FEW: u64 = 64;

/// Memory to be divided.
pub struct Memory {
    pub bytes: u64,
    pub block_bytes: u64,
    pub guests: u32,
    /// The part of all blocks that is simulated.
    pub sample: f64,
}

impl Memory {
    /// Blocks of a simulated cache for this many real bytes.
    fn simulated_blocks(&self, bytes: u64) -> u64 {
        (bytes as f64 / self.block_bytes as f64 * self.sample).round() as u64
    }
}

/// A guest's own cache.
pub struct Guest<'a> {
    pub policy: &'a PolicySpec,
    /// Its memory, where that is settled.
    pub bytes: Option<u64>,
}

/// One choice.
#[derive(Clone)]
pub struct Plan {
    pub levels: Vec<LevelSpec>,
    pub links: Vec<Link>,
    pub write_mode: WriteMode,
    pub guest_bytes: Option<u64>,
    pub host_bytes: u64,
    pub host_policy: Option<String>,
}

/// All choices for a place.
pub fn choices(
    at: Place,
    memory: &Memory,
    guest: &Guest<'_>,
    policies: Option<&str>,
) -> Result<Vec<Plan>, Failure> {
    if memory.simulated_blocks(memory.bytes) < BLOCKS_FEW {
        return Err(Failure::usage(format!(
            "--memory of {} bytes is too little to be divided: {} blocks of {} bytes in a sample of {}%, and {BLOCKS_FEW} \
             are the least",
            memory.bytes,
            memory.simulated_blocks(memory.bytes),
            memory.block_bytes,
            memory.sample * 100.0
        )));
    }
    let policies = match policies {
        Some(policies) => split_policies(policies),
        None => usual(at),
    };
    match at {
        Place::Host if guest.bytes.is_some() => Err(Failure::usage(
            "--guest-memory is for requests of programs in the guests, and these were made at the host",
        )),
        Place::Host => policies.iter().map(|policy| host(memory, policy)).collect(),
        Place::Guest => divided(memory, guest, &policies),
    }
}

/// The policies that are compared where no others are asked for. Requests at the host do not say what guests evict, so
/// none that lives on that is compared there.
fn usual(at: Place) -> Vec<&'static str> {
    let is_usual = |kind: &&Kind| {
        let has = |wanted| kind.traits().contains(&wanted);
        has(Trait::Advised) && (at == Place::Guest || !has(Trait::LivesOnDemotions))
    };
    let kinds = Kind::ALL.iter().filter(is_usual);
    kinds.map(|kind| kind.name()).collect()
}

fn level(policy: impl Display, blocks: u64) -> Result<LevelSpec, Failure> {
    format!("{policy}:{blocks}blocks")
        .parse()
        .map_err(Failure::usage)
}

fn plan(
    levels: Vec<LevelSpec>,
    guest_bytes: Option<u64>,
    host_bytes: u64,
    host_policy: Option<&str>,
) -> Plan {
    Plan {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::WriteThrough,
        guest_bytes,
        host_bytes,
        host_policy: host_policy.map(str::to_owned),
    }
}

fn host(memory: &Memory, policy: &str) -> Result<Plan, Failure> {
    let level = level(policy, memory.simulated_blocks(memory.bytes))?;
    if level.policy.lives_on_demotions() {
        return Err(Failure::usage(format!(
            "{policy} keeps what guests evict, which requests at the host do not tell; give a trace of what programs in the \
             guest ask for, with --at guest"
        )));
    }
    Ok(plan(vec![level], None, memory.bytes, Some(policy)))
}

fn divided(memory: &Memory, guest: &Guest<'_>, policies: &[&str]) -> Result<Vec<Plan>, Failure> {
    let parts: Vec<(u64, u64)> = match guest.bytes {
        Some(bytes) => vec![(bytes, 0), (bytes, memory.bytes)],
        None => HOST_EIGHTHS
            .map(|eighths| {
                let host_bytes = memory.bytes / 8 * eighths;
                (
                    (memory.bytes - host_bytes) / u64::from(memory.guests),
                    host_bytes,
                )
            })
            .into(),
    };
    let mut plans = Vec::new();
    for (guest_bytes, host_bytes) in parts {
        let guest_blocks = memory.simulated_blocks(guest_bytes);
        let host_blocks = memory.simulated_blocks(host_bytes);
        if guest_blocks == 0 || host_blocks == 0 && host_bytes > 0 {
            continue;
        }
        let above = level(guest.policy, guest_blocks)?;
        if host_bytes == 0 {
            // A last level is shared by all guests, so one that holds next to nothing stands for none.
            let levels = match memory.guests {
                1 => vec![above],
                _ => vec![above, level(PolicySpec::of(Kind::lru), 1)?],
            };
            plans.push(plan(levels, Some(guest_bytes), 0, None));
            continue;
        }
        for policy in policies {
            let levels = vec![above.clone(), level(policy, host_blocks)?];
            plans.push(plan(levels, Some(guest_bytes), host_bytes, Some(policy)));
        }
    }
    if plans.is_empty() {
        let block = Size::Bytes(memory.block_bytes);
        let which = match guest.bytes {
            Some(bytes) => format!("--guest-memory {}", Size::Bytes(bytes)),
            None => format!("--memory for {} guests", memory.guests),
        };
        return Err(Failure::usage(format!(
            "{which} is less than a block of {block} for a guest, in a sample of {}%; give more",
            memory.sample * 100.0
        )));
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_without_a_block_are_refused() {
        let policy = PolicySpec::of(Kind::lru);
        for (guests, bytes, words) in [
            (1, Some(0), "--guest-memory 0 is less than a block of 4KiB"),
            (1000, None, "--memory for 1000 guests"),
        ] {
            let memory = Memory {
                bytes: 1 << 20,
                block_bytes: 4096,
                guests,
                sample: 1.0,
            };
            let guest = Guest {
                policy: &policy,
                bytes,
            };
            let found =
                choices(Place::Guest, &memory, &guest, Some("lru")).map(|plans| plans.len());
            let refused = found.expect_err("no choice").to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}

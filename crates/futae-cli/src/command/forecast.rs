//! A forecast: what `futae advise` expects of a choice of caches, and `futae verify` holds against what comes.

use anyhow::Context;
use futae_agent_protocol::{PageCache, Replacement};
use futae_policy::{Kind, PolicySpec};
use futae_sim::forecast::Estimate;
use futae_sim::{Link, WriteMode};
use futae_terminal::failure::Failure;
use futae_terminal::text_file::read_text;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The policy that models how the kernel of a guest replaces pages.
pub const fn kind(replacement: Replacement) -> Kind {
    match replacement {
        Replacement::Linux => Kind::linux,
        Replacement::Mglru => Kind::mglru,
    }
}

/// As [`kind`], with what the kernel reads ahead, in blocks, and in which folios.
pub fn model(cache: &PageCache, block_bytes: u64) -> PolicySpec {
    let blocks = cache.read_ahead_bytes / block_bytes.max(1);
    let model = PolicySpec::of(kind(cache.replacement)).reading_ahead(blocks);
    match cache.large_folios && blocks > 0 {
        true => model.in_large_folios(),
        false => model,
    }
}

/// Where the requests of a trace were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Above the guest's cache: what programs in the guest ask for.
    Guest,
    /// Below it: what arrives at the host.
    Host,
}

/// What is printed by `futae advise --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forecast {
    /// The version of futae.
    pub version: String,
    /// Traces or workloads, one for each guest.
    pub sources: Vec<String>,
    /// Where their requests were made.
    pub at: Place,
    /// Memory that is divided, in bytes.
    pub memory_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Guests.
    pub guests: u32,
    /// The part of all blocks that the trace has; 1 for all.
    pub sample: f64,
    /// Requests that were counted.
    pub requests: u64,
    /// Requests before counting began.
    pub warmup_requests: u64,
    /// What was compared.
    pub options: Vec<Choice>,
    /// The advice: which of them.
    pub best: usize,
    /// Why.
    pub reason: String,
}

/// One choice of caches, with what is expected of it. Each figure has the bounds within which 95 of 100 runs as long as
/// this one are expected under the same load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Levels, top down, as `futae sim --level` takes them for the requests that were simulated.
    pub levels: Vec<String>,
    /// Between the levels.
    pub links: Vec<Link>,
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// Memory for the cache of each guest, in bytes; none where it is not part of the choice.
    pub guest_bytes: Option<u64>,
    /// Memory for the host's cache, in bytes; 0 for no such cache.
    pub host_bytes: u64,
    /// The policy of the host's cache, if there is one.
    pub host_policy: Option<String>,
    /// Requests that some cache served, per request.
    pub hit_ratio: Estimate,
    /// Requests to the host's cache that it served, per request to it, as the server counts them.
    pub host_hit_ratio: Option<Estimate>,
    /// Requests that came to the host's cache.
    pub host_requests: u64,
    /// Those of them that were writes, per request to it.
    pub host_write_share: f64,
    /// Reads from the store per request.
    pub store_reads_per_request: Estimate,
    /// Writes to the store per request.
    pub store_writes_per_request: Estimate,
    /// What a request takes, in seconds.
    pub mean_access_seconds: Estimate,
    /// The same in each window.
    #[serde(skip)]
    pub window_seconds: Vec<f64>,
}

impl Forecast {
    /// Reads what `futae advise --save` wrote.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
        let forecast: Self = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is no forecast that futae advise --save wrote",
                path.display()
            )
        })?;
        if forecast.best >= forecast.options.len() {
            let message = format!(
                "{} advises option {} of {}",
                path.display(),
                forecast.best,
                forecast.options.len()
            );
            return Err(Failure::usage(message));
        }
        Ok(forecast)
    }

    /// The choice that is advised.
    pub fn advised(&self) -> &Choice {
        &self.options[self.best]
    }
}

impl Choice {
    /// As a person says it.
    pub fn name(&self) -> String {
        let mode = match self.write_mode {
            WriteMode::WriteThrough => "",
            WriteMode::WriteBack => " with write-back",
        };
        let host = match &self.host_policy {
            Some(policy) => format!(
                "a cache of {} under {policy}{mode} on the host",
                size(self.host_bytes)
            ),
            None => "no cache on the host".to_owned(),
        };
        match self.guest_bytes {
            Some(bytes) => format!("{} for each guest and {host}", size(bytes)),
            None => host,
        }
    }
}

/// Bytes as memory is counted.
pub fn size(bytes: u64) -> String {
    const GIB: f64 = (1u64 << 30) as f64;
    const MIB: f64 = (1u64 << 20) as f64;
    let bytes = bytes as f64;
    if bytes >= GIB {
        format!("{:.2} GiB", bytes / GIB)
    } else if bytes >= MIB {
        format!("{:.1} MiB", bytes / MIB)
    } else {
        format!("{:.0} KiB", bytes / 1024.0)
    }
}

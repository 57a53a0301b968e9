//! The status report with all counters.

use super::cost::Cost;
use super::keeper::{Elsewhere, KeeperStatus};
use super::kept::MemoryStatus;
use super::state::State;
use super::verify::DemotionStatus;
use super::volume::Volume;
use crate::{Latencies, LatencyStatus};
use futae_policy::{Class, Counters};
use serde::{Deserialize, Serialize};

/// The counters of a cache, by the names that every output uses. Events are counted in blocks,
/// operations as operations, bytes as bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The policy string.
    pub policy: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Slots.
    pub capacity_blocks: u64,
    /// Resident blocks.
    pub resident_blocks: u64,
    /// Bytes of resident blocks that clients also hold, i.e. got and did not report as evicted.
    /// This is the double-cached memory if clients or agents report evictions, otherwise an upper
    /// bound of it.
    #[serde(default)]
    pub double_cached_bytes: u64,
    /// Blocks whose newest data the store does not have yet.
    pub dirty_blocks: u64,
    /// Blocks of these that were evicted; their data is kept beside the cache until the store has
    /// it.
    #[serde(default)]
    pub dirty_evicted_blocks: u64,
    /// Dirty blocks at which writers wait; 0 under write-through.
    #[serde(default)]
    pub dirty_max_blocks: u64,
    /// Write-back operations sent to stores.
    #[serde(default)]
    pub write_backs: u64,
    /// Blocks written back.
    #[serde(default)]
    pub write_back_blocks: u64,
    /// Write-back operations that failed; their blocks stay dirty.
    #[serde(default)]
    pub write_back_errors: u64,
    /// Number of times that a write had to wait because too many blocks were dirty.
    #[serde(default)]
    pub throttled_writes: u64,
    /// Events at the level.
    #[serde(flatten)]
    pub counters: Counters,
    /// Read operations sent to stores.
    pub store_reads: u64,
    /// Blocks read from stores.
    pub store_read_blocks: u64,
    /// Write operations sent to stores (trims and zeroings included).
    pub store_writes: u64,
    /// Blocks read from stores because of a notice.
    pub notice_reads: u64,
    /// Blocks named by notices that were dropped because too many waited.
    #[serde(default)]
    pub notices_dropped: u64,
    /// Blocks named by notices that wait for a decision or are being read.
    #[serde(default)]
    pub notices_pending_blocks: u64,
    /// Blocks read from stores at the policy's own request.
    pub preload_reads: u64,
    /// Hits answered from the store because the block was still being loaded.
    #[serde(default)]
    pub loading_reads: u64,
    /// Blocks that have a slot and whose data is still being loaded in the background.
    #[serde(default)]
    pub loading_blocks: u64,
    /// Partial writes to blocks that were not resident: not offered to the policy.
    pub write_around_blocks: u64,
    /// Misses that waited for a read already under way instead of starting their own.
    pub shared_reads: u64,
    /// Demoted blocks that were refused (older than a write, or from a shared volume).
    pub demotions_refused: u64,
    /// Bytes answered to readers.
    pub bytes_read: u64,
    /// Bytes accepted from writers.
    pub bytes_written: u64,
    /// Bytes read from stores.
    pub bytes_store_read: u64,
    /// Bytes written to stores.
    pub bytes_store_written: u64,
    /// Bytes of demoted data received and accepted.
    pub bytes_demoted_in: u64,
    /// Bytes of demoted data sent down.
    pub bytes_demoted_out: u64,
    /// Requests that failed, and store reads that failed.
    pub errors: u64,
    /// The largest number of blocks decided while the cache's lock was held once.
    #[serde(default)]
    pub lock_step_blocks_max: u64,
    /// Bytes of the buffers of reads from stores, of requests that wait for several reads, and of
    /// write-backs.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// The maximum of `buffer_bytes` so far.
    #[serde(default)]
    pub buffer_bytes_max: u64,
    /// Results of demotions, if they are verified.
    #[serde(flatten)]
    pub demotions: DemotionStatus,
    /// Counters of the kernel's page cache, if it holds the blocks instead of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KeeperStatus>,
    /// What became of the blocks that the previous server left in a memory file.
    #[serde(flatten)]
    pub memory: MemoryStatus,
    /// The volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Latencies of requests for the files of a tree, all files together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tree_latencies: Vec<LatencyStatus>,
    /// Latencies of reads and writes of these files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tree_store_latencies: Vec<LatencyStatus>,
    /// The weights in force, for a policy that weighs classes.
    #[serde(default)]
    pub weights: Vec<WeightStatus>,
    /// The classes with at least one request, by the number of their marks.
    pub classes: Vec<ClassStatus>,
}

/// One volume of a cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What the store is and how it is read.
    pub store: String,
    /// Store operations that took a slower path: through the page cache instead of `O_DIRECT`, or
    /// by threads instead of io_uring.
    pub store_buffered_fallbacks: u64,
    /// Demand accesses, in blocks.
    pub requests: u64,
    /// Demand accesses that hit.
    pub hits: u64,
    /// Demand accesses that missed.
    pub misses: u64,
    /// Read operations sent to its store.
    #[serde(default)]
    pub store_reads: u64,
    /// Demotions received, in blocks.
    pub demotions_in: u64,
    /// Notices received, in blocks.
    pub notices_in: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Its blocks in the cache.
    #[serde(default)]
    pub resident_blocks: u64,
    /// Bytes of its resident blocks that clients also hold, i.e. got and did not report as evicted.
    #[serde(default)]
    pub double_cached_bytes: u64,
    /// Blocks whose newest data the store does not have yet.
    #[serde(default)]
    pub dirty_blocks: u64,
    /// Whether an earlier server ended with answered writes in its cache and no FLUSH has failed
    /// because of it yet.
    #[serde(default)]
    pub unclean: bool,
    /// Whether the unclean mark is set, by which the next server would detect such an end of this
    /// one.
    #[serde(default)]
    pub unclean_mark: bool,
    /// Demoted blocks whose data differed from the volume's: forged, stale or torn.
    #[serde(default)]
    pub demotions_different: u64,
    /// Whether most of the blocks recently demoted for it differed.
    #[serde(default)]
    pub demotions_keep_differing: bool,
    /// The class of its store: `local`, `remote`, or a configured name.
    #[serde(default)]
    pub class: String,
    /// Recent cost of a read from the store, in microseconds per block: a moving average.
    #[serde(default)]
    pub read_micros: Option<f64>,
    /// The 99th percentile of the same.
    #[serde(default)]
    pub read_micros_p99: Option<f64>,
    /// Recent cost of a write to the store, in microseconds per block: a moving average.
    #[serde(default)]
    pub write_micros: Option<f64>,
    /// The 99th percentile of the same.
    #[serde(default)]
    pub write_micros_p99: Option<f64>,
    /// Latencies of its requests, from arrival at a front end to the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<LatencyStatus>,
    /// Latencies of its store's reads and writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub store_latencies: Vec<LatencyStatus>,
}

/// The weight of a class: how much sooner its blocks are evicted than others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WeightStatus {
    /// The policy's name for the class.
    pub class: String,
    /// Its weight; only ratios count.
    pub weight: f64,
}

/// One class of blocks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClassStatus {
    /// The marks as a number: 1 protected, 2 remote, 4 dirty.
    pub class: usize,
    /// Demand accesses, in blocks.
    pub requests: u64,
    /// Demand accesses that hit.
    pub hits: u64,
    /// Demand accesses that missed.
    pub misses: u64,
}

impl State {
    /// The current counters.
    pub fn status(&self) -> EngineStatus {
        let tally = &self.tally;
        EngineStatus {
            policy: self.policy.to_string(),
            block_bytes: self.block_bytes,
            capacity_blocks: u64::from(self.level.capacity()),
            resident_blocks: u64::from(self.level.resident()),
            double_cached_bytes: self
                .volumes
                .iter()
                .map(|volume| volume.held_above_blocks * self.block_bytes)
                .sum(),
            dirty_blocks: self
                .write_back
                .as_ref()
                .map_or(0, |known| known.dirty_blocks),
            dirty_evicted_blocks: self
                .volumes
                .iter()
                .map(|volume| volume.dirt.unframed_blocks())
                .sum(),
            dirty_max_blocks: self
                .write_back
                .as_ref()
                .map_or(0, |known| known.dirty_max_blocks),
            write_backs: tally.write_backs,
            write_back_blocks: tally.write_back_blocks,
            write_back_errors: tally.write_back_errors,
            throttled_writes: tally.throttled_writes,
            counters: self.level.counters(),
            store_reads: tally.store_reads,
            store_read_blocks: tally.store_read_blocks,
            store_writes: tally.store_writes,
            notice_reads: tally.notice_reads,
            notices_dropped: tally.notices_dropped,
            notices_pending_blocks: self
                .volumes
                .iter()
                .map(|volume| volume.notices.pending_blocks(self.block_bytes))
                .sum(),
            preload_reads: tally.preload_reads,
            loading_reads: tally.loading_reads,
            loading_blocks: self.loading_blocks(),
            write_around_blocks: tally.write_around_blocks,
            shared_reads: tally.shared_reads,
            demotions_refused: tally.demotions_refused,
            bytes_read: tally.bytes_read,
            bytes_written: tally.bytes_written,
            bytes_store_read: tally.bytes_store_read,
            bytes_store_written: tally.bytes_store_written,
            bytes_demoted_in: tally.bytes_demoted_in,
            bytes_demoted_out: tally.bytes_demoted_out,
            errors: tally.errors,
            lock_step_blocks_max: self.steps.longest,
            buffer_bytes: self.account.held(),
            buffer_bytes_max: self.account.most(),
            demotions: self.demotion_status(),
            kernel: self.elsewhere.as_ref().map(Elsewhere::status),
            memory: self.memory_status(),
            volumes: self.volume_status(),
            tree_latencies: self.tree_latencies.requests.report(),
            tree_store_latencies: self.tree_latencies.store.report(),
            weights: self.weight_status(),
            classes: self.class_status(),
        }
    }

    fn volume_status(&self) -> Vec<VolumeStatus> {
        let report = |it: Option<&Latencies>| it.map(Latencies::report).unwrap_or_default();
        let one = |volume: &Volume| {
            let (read, write) = match volume.costs.as_deref() {
                Some(costs) => (Some(&costs.read), Some(&costs.write)),
                None => (None, None),
            };
            VolumeStatus {
                name: volume.name.clone(),
                size_bytes: volume.size_bytes,
                store: volume.store.describe(),
                store_buffered_fallbacks: volume.store.buffered_fallbacks(),
                requests: volume.tally.requests,
                hits: volume.tally.hits,
                misses: volume.tally.requests - volume.tally.hits,
                store_reads: volume.tally.store_reads,
                demotions_in: volume.tally.demotions_in,
                notices_in: volume.tally.notices_in,
                errors: volume.tally.errors,
                resident_blocks: volume.residents.count(),
                double_cached_bytes: volume.held_above_blocks * self.block_bytes,
                dirty_blocks: volume.dirt.len(),
                unclean: volume
                    .guard
                    .as_ref()
                    .is_some_and(|guard| guard.is_unclean()),
                unclean_mark: volume
                    .guard
                    .as_ref()
                    .is_some_and(|guard| guard.is_present()),
                demotions_different: volume.demotions.different,
                demotions_keep_differing: volume.demotions.keeps_differing(),
                class: self.class_name(volume.class),
                read_micros: read.and_then(Cost::mean),
                read_micros_p99: read.and_then(Cost::percentile_99),
                write_micros: write.and_then(Cost::mean),
                write_micros_p99: write.and_then(Cost::percentile_99),
                latencies: report(volume.latencies.as_deref()),
                store_latencies: report(volume.store_latencies.as_deref()),
            }
        };
        let listed = self
            .volumes
            .iter()
            .filter(|volume| !volume.grows && !volume.is_gone);
        listed.map(one).collect()
    }

    fn weight_status(&self) -> Vec<WeightStatus> {
        let weights = self.level.weights().into_iter();
        let report = |(class, weight)| WeightStatus { class, weight };
        weights.map(report).collect()
    }

    fn class_name(&self, class: Class) -> String {
        match class.store() {
            0 => "local".to_owned(),
            1 => "remote".to_owned(),
            // A class without a name is shown by its number.
            own => self
                .class_names
                .get(own - 2)
                .cloned()
                .unwrap_or_else(|| (own - 1).to_string()),
        }
    }

    fn class_status(&self) -> Vec<ClassStatus> {
        let used = self
            .by_class
            .iter()
            .enumerate()
            .filter(|(_, tally)| tally.requests > 0);
        used.map(|(class, tally)| ClassStatus {
            class,
            requests: tally.requests,
            hits: tally.hits,
            misses: tally.requests - tally.hits,
        })
        .collect()
    }
}

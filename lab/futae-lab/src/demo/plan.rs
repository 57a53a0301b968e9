//! What is to be run: how large everything is, and how much is read.

use super::way::{Transport, Way};
use futae_machine::Kernel;
use futae_terminal::failure::Failure;
use futae_trace::WorkloadSpec;
use std::time::Duration;

/// Guests, each with a disk of its own.
pub const GUESTS: u32 = 2;
/// What the guests read, in bytes: a page, which is a block of the lower cache.
pub const BLOCK_BYTES: u64 = 4096;
/// Memory of each guest. Its page cache gets what the kernel and the programs leave.
const MEMORY_MIB: u32 = 192;
/// Operations of one order to a guest. Between them it can be interrupted.
pub const ORDER_READS: u64 = 4096;

/// How large everything is, and how much is read.
#[derive(Clone)]
pub struct GuestsPlan {
    /// The ways to run, in this order.
    pub ways: Vec<Way>,
    /// The guests' kernel; none: the first that Debian has.
    pub kernel: Option<Kernel>,
    /// How the guests reach the disks of a server.
    pub transport: Transport,
    /// How the next block is chosen, as `futae load` and `futae sim` name it.
    pub choice: String,
    /// Blocks of each guest's disk.
    pub image_blocks: u64,
    /// Slots of the lower cache, which the guests share.
    pub lower_blocks: u32,
    /// All randomness comes from here.
    pub seed: u64,
    /// Operations of each guest before counting begins, each time.
    pub warmup: u64,
    /// Operations of each guest that are counted, each time.
    pub reads: u64,
    /// The share of writes among them.
    pub writes: f64,
    /// The guests read and write a file of ext4, not the device.
    pub files: bool,
    /// What each operation of the store takes longer.
    pub store_latency: Duration,
}

impl GuestsPlan {
    /// The load of one guest, as the simulator has it.
    pub fn workload(&self) -> String {
        let (choice, bytes) = (self.choice.trim(), self.image_blocks * BLOCK_BYTES);
        match (self.writes, choice.strip_suffix(')')) {
            (0.0, _) => format!("{choice}:{bytes}"),
            (writes, Some(begin)) => format!("{begin}, writes={writes}):{bytes}"),
            (writes, None) => format!("{choice}(writes={writes}):{bytes}"),
        }
    }

    /// The ways to run, without those for which it makes no difference how disks are reached if `is_first` is not set.
    pub fn ways(&self, is_first: bool) -> impl Iterator<Item = Way> {
        let ways = self.ways.iter().copied();
        ways.filter(move |way| is_first || way.served_policy().is_some())
    }

    /// Whether guests can do that.
    pub fn check(&self) -> Result<(), Failure> {
        if !(0.0..=1.0).contains(&self.writes) {
            let message = format!("--writes {} is not a share from 0 to 1", self.writes);
            return Err(Failure::usage(message));
        }
        match self.workload().parse::<WorkloadSpec>() {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::usage(format!("--choice {}: {error}", self.choice))),
        }
    }

    /// Bytes of the lower cache.
    pub fn lower_bytes(&self) -> u64 {
        u64::from(self.lower_blocks) * BLOCK_BYTES
    }

    /// Memory of each guest in MiB. All ways have as much memory of the host; `direct` leaves a part of it idle.
    pub fn memory_mib(&self, way: Way) -> u32 {
        let share = match way {
            Way::Memory => (self.lower_bytes() / u64::from(GUESTS)) >> 20,
            Way::Direct | Way::Writeback | Way::Lru | Way::Exclusive => 0,
        };
        MEMORY_MIB + share as u32
    }
}

//! What `futae mount` is given.

use super::choice::Choice;
use super::residency::{HitOrder, Residency};
use super::transport::Transport;
use super::tree_args::TreeArgs;
use crate::command::observe_args::ObserveArgs;
use crate::command::otlp::OtlpArgs;
use crate::command::state::StateArgs;
use crate::command::write_args::{StoreArgs, WriteArgs};
use futae_log::LogArgs;
use std::path::PathBuf;

/// Mount volumes as files, or a directory as a tree, cached in this process
#[derive(clap::Args)]
pub struct Args {
    /// A disk image, a block device, an NBD address (nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH), or a directory. Or several volumes in one cache, each a file named
    /// NAME: `NAME=SOURCE[,class=local|remote|CLASS][,protected][,read-only]`, as `futae serve --export` has them
    #[arg(required = true, value_name = "SOURCE")]
    pub(super) sources: Vec<String>,
    /// An empty directory
    pub(super) mountpoint: PathBuf,
    /// Memory for the cache, e.g. 2GiB
    #[arg(long, value_name = "SIZE")]
    pub(super) cache: String,
    /// Size of a block, a power of two from 4KiB to 256MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(super) block: String,
    #[command(flatten)]
    pub(super) choice: Choice,
    #[command(flatten)]
    pub(super) state: StateArgs,
    #[command(flatten)]
    pub(super) writes: WriteArgs,
    #[command(flatten)]
    pub(super) store: StoreArgs,
    /// What is sent to the cache below when a block is evicted: its data (demote), its number
    /// (notice), or nothing (none). auto: its data if the source accepts it and blocks are at most
    /// 1MiB
    #[arg(long, value_name = "WHAT", default_value = "auto", alias = "hand-down")]
    pub(super) on_eviction: Tell,
    /// Name of the file of a single source; by default the source's or the export's own, or `disk`
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Refuse writes
    #[arg(long)]
    pub(super) read_only: bool,
    /// Allow other users to open the files, with permissions, owner and group as in
    /// --allow-other=mode=0660,group=kvm. Without a value, all users may read. Users other than root need
    /// user_allow_other in /etc/fuse.conf. Not for trees, whose files have permissions of their own
    #[arg(long, value_name = "ACCESS", num_args = 0..=1, require_equals = true, default_missing_value = "mode=0644")]
    pub(super) allow_other: Option<String>,
    /// Cache the file in the kernel's page cache too. Reads are faster, but the data is in memory twice, and this
    /// cache does not see reads that hit the page cache
    #[arg(long)]
    pub(super) kernel_cache: bool,
    /// Where the blocks are held: in the memory of this process (futae), or in the kernel's page cache of the mount, where
    /// hits have the kernel's speed and --policy decides what stays (kernel). kernel needs root, eBPF and Linux 6.12, and a
    /// policy that does not depend on the order of hits
    #[arg(long, value_name = "WHERE", default_value = "futae")]
    pub(super) residency: Residency,
    /// With --residency kernel, the kernel counts the hits of a page between two misses, but not
    /// their order. exact: accept only policies that do not depend on that order. approximate:
    /// accept any policy, and spread the hits evenly over that time
    #[arg(long, value_name = "HOW", default_value = "exact")]
    pub(super) hit_order: HitOrder,
    /// Count adjacent reads as one access to a block, up to SIZE: the kernel splits long requests of applications.
    /// 0 counts each read [default: 1MiB for lfu-history, which counts requests, but 0 with --residency kernel; otherwise 0]
    #[arg(long, value_name = "SIZE")]
    pub(super) join_reads: Option<String>,
    /// Threads that take requests from the kernel
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) threads: Option<u16>,
    /// Transport of requests from the kernel: FUSE over io_uring (ring), /dev/fuse (device), or io_uring where the
    /// kernel has it enabled (auto)
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(super) transport: Transport,
    /// Unix socket for orders (status, resize, policy): unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub(super) control: Option<String>,
    #[command(flatten)]
    pub(super) observe: ObserveArgs,
    #[command(flatten)]
    pub(super) otlp: OtlpArgs,
    /// Log every decision of the cache to FILE, in place of an earlier log
    #[arg(long, value_name = "FILE")]
    pub(super) decision_log: Option<PathBuf>,
    /// Seed of randomised policies
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    pub(super) json: bool,
    /// Go on in the background once the files are there, for mount.futae
    #[arg(long, hide = true)]
    pub(super) detached: bool,
    #[command(flatten)]
    pub(super) tree: TreeArgs,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

impl Args {
    /// The sources as given on the command line.
    pub(super) fn source(&self) -> String {
        self.sources.join(", ")
    }
}

/// What to tell the cache below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tell {
    Auto,
    #[value(alias = "data")]
    Demote,
    Notice,
    #[value(alias = "nothing")]
    None,
}

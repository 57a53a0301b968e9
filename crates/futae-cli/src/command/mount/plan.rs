//! What the arguments come to, before anything is opened.

use super::args::Args;
use super::choice::Pins;
use super::residency::{HitOrder, Residency};
use super::{open, orders};
use crate::command::observe_args::Observe;
use crate::command::otlp::OtlpPlan;
use crate::command::volumes::{ClassNames, VolumeSpec};
use futae_control::Access;
use futae_engine::{EngineOptions, OnEviction};
use futae_guest::FileAccess;
use futae_policy::{Kind, PolicySpec, Shape, Trait};
use futae_terminal::failure::Failure;
use futae_units::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use std::path::PathBuf;

/// A block is a page of the kernel.
const PAGE_BYTES: u64 = 4096;
/// The unit of access of the paper behind `lfu-history`.
const JOIN_READS_BYTES: u64 = 1 << 20;

/// What the arguments come to, before anything is opened.
pub(super) struct Plan {
    pub(super) volumes: Vec<VolumeSpec>,
    pub(super) classes: ClassNames,
    pub(super) cache: EngineOptions,
    pub(super) pins: Option<Pins>,
    pub(super) join_reads_bytes: u64,
    pub(super) control: Option<PathBuf>,
    pub(super) observe: Observe,
    pub(super) otlp: Option<OtlpPlan>,
    pub(super) access: Option<FileAccess>,
}

impl Plan {
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let (policy, pins) = args.choice.spec()?;
        let mut policy = args.tree.policy(policy)?;
        let volumes = open::volumes(args)?;
        let classes = ClassNames::new(&volumes, &mut policy)?;
        futae_control::lives_without_evictions(&policy, orders::NO_CACHE_ABOVE)
            .map_err(|problem| Failure::usage(format!("--policy {}: {problem}", policy.name)))?;
        if volumes.len() > 1 && policy.has(Trait::ChoosesByNumber) {
            return Err(Failure::usage(format!(
                "--policy {} keeps blocks of a single source; mount the sources one by one",
                policy.name
            )));
        }
        args.state.check()?;
        let shape = Shape {
            slots: 16,
            seed: args.seed,
        };
        futae_policy::build(&policy, &shape)
            .map_err(|error| Failure::usage(format!("--policy: {error}")))?;
        let block_bytes = parse_block_bytes(&args.block, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
            .map_err(|error| Failure::usage(format!("--block: {error}")))?;
        let capacity_blocks = capacity_blocks(&args.cache, block_bytes)?;
        if let Some(pins) = &pins {
            pins.check_capacity(capacity_blocks, block_bytes)?;
        }
        let join_reads_bytes = join_reads_bytes(args, &policy)?;
        let cache = EngineOptions {
            block_bytes,
            capacity_blocks,
            policy,
            seed: args.seed,
            on_eviction: OnEviction::None,
            decision_log: args.decision_log.clone(),
            write_back: args
                .writes
                .options_or(block_bytes, args.residency.write_back())?,
        };
        let control = args.control.as_deref().map(orders::socket_path);
        Ok(Self {
            volumes,
            classes,
            cache,
            pins,
            join_reads_bytes,
            access: args.allow_other.as_deref().map(access).transpose()?,
            control: control.transpose()?,
            observe: args.observe.plan(false)?,
            otlp: args.otlp.plan()?,
        })
    }
}

/// The number of slots for `--cache`, at least one.
fn capacity_blocks(cache: &str, block_bytes: u64) -> Result<u32, Failure> {
    let wrong = |error| Failure::usage(format!("--cache: {error}"));
    let size: Size = cache.parse().map_err(wrong)?;
    if size
        .bytes(block_bytes)
        .is_ok_and(|bytes| bytes < block_bytes)
    {
        let block = Size::Bytes(block_bytes);
        return Err(Failure::usage(format!(
            "--cache {cache} is less than one block of {block}; give it more, or choose a smaller --block"
        )));
    }
    let blocks = size.blocks(block_bytes).map_err(wrong)?;
    u32::try_from(blocks).map_err(|_| {
        let most = u32::MAX;
        Failure::usage(format!(
            "--cache: {blocks} blocks, but a cache has at most {most}; use a larger --block"
        ))
    })
}

/// Who may open the files.
fn access(text: &str) -> Result<FileAccess, Failure> {
    let wrong = |problem: String| Failure::usage(format!("--allow-other {text}: {problem}"));
    // As of a socket, where the options follow an address.
    let options = format!(",{text}");
    let (rest, access) = Access::take_from(&options).map_err(wrong)?;
    if !rest.is_empty() {
        let problem = "write mode=OCTAL, owner=NAME and group=NAME with commas between them";
        return Err(wrong(problem.to_owned()));
    }
    let Access { mode, owner, group } = access;
    Ok(FileAccess { mode, owner, group })
}

/// The longest request that the application is taken to make.
fn join_reads_bytes(args: &Args, policy: &PolicySpec) -> Result<u64, Failure> {
    let Some(text) = &args.join_reads else {
        // The kernel shows pages.
        let counts = policy.counts_requests() && args.residency == Residency::Futae;
        return Ok(if counts { JOIN_READS_BYTES } else { 0 });
    };
    match text.parse() {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        _ => Err(Failure::usage(format!(
            "--join-reads {text}: write a size such as 1MiB, or 0"
        ))),
    }
}

/// Refuses options that do not go with the residency that was asked for.
pub(super) fn check_residency(args: &Args, plan: &Plan) -> Result<(), Failure> {
    let approximates = args.hit_order == HitOrder::Approximate;
    if args.residency == Residency::Futae && approximates {
        return Err(Failure::usage(
            "--hit-order approximate is for --residency kernel; this process sees the order of all hits",
        ));
    }
    if args.residency == Residency::Futae {
        return Ok(());
    }
    let policy = &plan.cache.policy;
    if !policy.takes_counts() && !approximates {
        return Err(Failure::usage(format!(
            "--residency kernel: policy {policy} decides by the order of hits, and the kernel tells only which pages were hit; \
             choose {}, or --hit-order approximate, or leave out --residency kernel; around another policy one of these has to be \
             inside, as in directory(sieve)",
            Kind::names_with_any(&[Trait::TakesMarks, Trait::TakesCounts])
        )));
    }
    if plan.cache.block_bytes != PAGE_BYTES {
        return Err(Failure::usage(
            "--residency kernel: a block is a page of the kernel; leave out --block",
        ));
    }
    let refused = [
        (args.kernel_cache, "--kernel-cache"),
        (args.state.is_asked(), "--state"),
        (plan.join_reads_bytes > 0, "--join-reads"),
    ];
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        None => Ok(()),
        Some((_, option)) => Err(Failure::usage(format!(
            "{option} does not go with --residency kernel, where the data is in the kernel's page cache; leave out one of them"
        ))),
    }
}

//! The eBPF programs of `src/bpf`, loaded and read by `aya`.

use super::copies::{Copies, notice};
use super::copying::{self, CopyCounts, Switch};
use super::counts::Counts;
use crate::args::Checked;
use crate::extents::Pages;
use anyhow::{Context, anyhow, bail};
use aya::maps::{HashMap, Map, MapData, PerCpuArray, PerCpuHashMap, RingBuf};
use aya::programs::{BtfTracePoint, FEntry, FExit};
use aya::{Btf, Ebpf};
use futae_agent_protocol::{Counters, Source};
use futae_page_cache::bases::Bases;
use futae_page_cache::kernel;
use rustix::fd::{AsFd, BorrowedFd};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/counts.bpf.o"));

/// Fields of a record of counters (`enum field` in `counts.bpf.c`).
const FIELDS: usize = 9;
type Record = [u64; FIELDS];
/// `struct file_key`: device, unused, both halves of the inode.
type FileKey = [u32; 4];
const RING_BYTES_MIN: u32 = 4096;
/// The ring of notices in small machines, where evicted pages come with their data: it then has what these leave, and
/// room for 26,000.
const NOTICE_RING_BYTES_SMALL: u32 = 1 << 20;

enum Hook {
    Tracepoint(&'static str),
    Begin(&'static str),
    End(&'static str),
}

use Hook::{Begin, End, Tracepoint};

/// Programs with what they hook into. Those that only some kernels take come first, so that a kernel
/// refuses before much work is done.
const BY_TRACEPOINTS: [(&str, Hook); 3] = [
    ("pages_got", Tracepoint("mm_filemap_get_pages")),
    ("page_faulted", Tracepoint("mm_filemap_fault")),
    ("pages_mapped", Tracepoint("mm_filemap_map_pages")),
];
const BY_FUNCTIONS: [(&str, Hook); 4] = [
    ("read_ended", End("filemap_read")),
    ("read_missed", Begin("page_cache_sync_ra")),
    ("fault_ended", End("filemap_fault")),
    ("map_ended", End("filemap_map_pages")),
];
const ALWAYS: [(&str, Hook); 3] = [
    ("page_added", Tracepoint("mm_filemap_add_to_page_cache")),
    ("page_dirtied", Tracepoint("writeback_dirty_folio")),
    LEFT,
];
/// All that is needed for what is evicted.
const LEFT: (&str, Hook) = ("page_left", Tracepoint("mm_filemap_delete_from_page_cache"));

/// Tells refaults by device and by file, if the kernel takes it.
const REFAULTS: (&str, Hook) = ("page_refaulted", Begin("workingset_refault"));

/// The programs at work; they leave the kernel when this is dropped.
pub struct Programs {
    source: Source,
    sees_refaults: bool,
    devices: PerCpuHashMap<MapData, u32, Record>,
    groups: PerCpuHashMap<MapData, u64, Record>,
    files: HashMap<MapData, FileKey, Record>,
    lost: PerCpuArray<MapData, u64>,
    notices: RingBuf<MapData>,
    references: RingBuf<MapData>,
    switch: Switch,
    /// Taken once.
    copies: Option<Copies>,
    /// Why evicted pages are not copied, if they should be and are not.
    no_copies: Option<String>,
    programs: Ebpf,
}

impl Programs {
    /// Loads the family that this kernel takes.
    pub fn load(args: &Checked) -> anyhow::Result<Self> {
        let bases = args.evictions.then(Bases::find).transpose();
        let no_copies = bases.as_ref().err().map(|why| format!("{why:#}"));
        let mut bases = bases.ok().flatten();
        let loaded = load_all(args, bases.as_ref());
        // A kernel that forbids to read its memory (lockdown) may take the programs without the copies.
        let (loaded, no_copies) = match loaded {
            Err(why) if bases.take().is_some() => (load_all(args, None), Some(format!("{why:#}"))),
            loaded => (loaded, no_copies),
        };
        let (source, mut programs, sees_refaults) = loaded?;
        // What loading took is of no use any more. Rings take their memory only now.
        crate::system::give_back_memory();
        let switch = Switch::take(&mut programs)?;
        let is_copying = args.evictions && no_copies.is_none();
        let memory = crate::proc::memory().total;
        let copies = is_copying.then(|| copying::take(&mut programs, memory));
        let mut map = |name: &str| -> anyhow::Result<Map> {
            programs
                .take_map(name)
                .with_context(|| format!("no map {name}"))
        };
        Ok(Self {
            source,
            sees_refaults,
            devices: map("devices")?.try_into()?,
            groups: map("groups")?.try_into()?,
            files: map("files")?.try_into()?,
            lost: map("lost")?.try_into()?,
            notices: map("notices")?.try_into()?,
            references: map("references")?.try_into()?,
            switch,
            copies: copies.transpose()?,
            no_copies,
            programs,
        })
    }

    /// Which family is loaded.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Whether refaults are told by device and by file.
    pub fn sees_refaults(&self) -> bool {
        self.sees_refaults
    }

    /// Instructions that the kernel went through to check the program for which that were the most.
    pub fn verified_instructions(&self) -> Option<u32> {
        let programs = self.programs.programs();
        let verified =
            programs.filter_map(|(_, one)| one.info().ok()?.verified_instruction_count());
        verified.max()
    }

    /// What was counted so far.
    pub fn read(&self) -> anyhow::Result<Counts> {
        let mut counts = Counts::default();
        for entry in self.devices.iter() {
            let (device, records) = entry?;
            let counters = counters(&sum(&records));
            counts.total.add(&counters);
            counts.devices.push((device, counters));
        }
        for entry in self.groups.iter() {
            let (group, records) = entry?;
            counts.groups.push((group, counters(&sum(&records))));
        }
        for entry in self.files.iter() {
            // An entry may be replaced by another while all are read.
            let Ok(([device, _, low, high], record)) = entry else {
                continue;
            };
            let inode = u64::from(high) << 32 | u64::from(low);
            counts.files.push(((device, inode), counters(&record)));
        }
        let lost =
            |index: u32| -> anyhow::Result<u64> { Ok(self.lost.get(&index, 0)?.iter().sum()) };
        counts.notices_lost = lost(0)?;
        counts.references_lost = lost(1)?;
        counts.groups_lost = lost(5)?;
        Ok(counts)
    }

    /// Forgets what was counted for these memory cgroups.
    pub fn forget_groups(&mut self, groups: &[u64]) {
        for group in groups {
            // One that cannot be removed stays, and is tried again.
            let _ = self.groups.remove(group);
        }
    }

    /// Evicted pages since the last call, at most this many.
    pub fn evicted(&mut self, most: usize, into: &mut Vec<Pages>) {
        for _ in 0..most {
            let Some(item) = self.notices.next() else {
                return;
            };
            into.extend(item.first_chunk().map(notice));
        }
    }

    /// What evicted pages are copied into, once.
    pub fn take_copies(&mut self) -> Result<Copies, String> {
        if let Some(why) = &self.no_copies {
            return Err(why.clone());
        }
        self.copies
            .take()
            .ok_or_else(|| "nobody asked for it".to_owned())
    }

    /// Has evicted pages copied or not from now on.
    pub fn hold_back(&mut self, holds: bool) {
        self.switch.hold_back(holds);
    }

    /// What copies have cost so far.
    pub fn copy_counts(&self) -> CopyCounts {
        Switch::counts(&self.lost)
    }

    /// Sampled reads since the last call, at most this many.
    pub fn references(&mut self, most: usize, into: &mut Vec<u64>) {
        for _ in 0..most {
            let Some(item) = self.references.next() else {
                return;
            };
            into.extend(item.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)));
        }
    }

    /// The rings.
    pub fn wakers(&self) -> [BorrowedFd<'_>; 2] {
        [self.notices.as_fd(), self.references.as_fd()]
    }
}

/// What this kernel says of the types that the programs read, and of tracepoints.
fn types() -> anyhow::Result<Btf> {
    let families = || BY_TRACEPOINTS.iter().chain(&ALWAYS);
    kernel::types(|event| {
        families().any(|(_, hook)| matches!(hook, Tracepoint(known) if *known == event))
    })
}

/// What it says of functions. They are at its end, so this is large: it is read where it is needed, and
/// after the other is no more.
fn functions() -> anyhow::Result<Btf> {
    kernel::description(|name| {
        let mut hooks = BY_FUNCTIONS.iter().chain([&REFAULTS]);
        hooks.any(|(_, hook)| matches!(hook, Begin(known) | End(known) if name == known.as_bytes()))
    })
}

/// Loads what this kernel takes: which family, and whether refaults are seen.
fn load_all(args: &Checked, bases: Option<&Bases>) -> anyhow::Result<(Source, Ebpf, bool)> {
    let types = types()?;
    if !args.counts_reads {
        let mut programs = loaded(args, bases, &types)?;
        load_and_attach(&mut programs, &[&LEFT], &types, None)?;
        return Ok((Source::Tracepoints, programs, false));
    }
    let by_tracepoints = match args.functions {
        true => Err(anyhow!("not to be used")),
        false => loaded(args, bases, &types).and_then(|mut programs| {
            load_family(&mut programs, &BY_TRACEPOINTS, &types, None)?;
            Ok(programs)
        }),
    };
    let functions = functions();
    let (source, mut programs) = match (by_tracepoints, &functions) {
        (Ok(programs), _) => (Source::Tracepoints, programs),
        (Err(first), Ok(functions)) => {
            let mut programs = loaded(args, bases, &types)?;
            load_family(&mut programs, &BY_FUNCTIONS, &types, Some(functions))
                .map_err(|second| anyhow!("tracepoints: {first:#}; functions: {second:#}"))?;
            (Source::Functions, programs)
        }
        (Err(first), Err(second)) => bail!("tracepoints: {first:#}; functions: {second:#}"),
    };
    let (name, hook) = &REFAULTS;
    let refaults = functions.and_then(|functions| {
        load(&mut programs, name, hook, &functions)?;
        attach(&mut programs, name, hook)
    });
    Ok((source, programs, refaults.is_ok()))
}

/// The object with its maps; its programs are not in the kernel yet.
fn loaded(args: &Checked, bases: Option<&Bases>, types: &Btf) -> anyhow::Result<Ebpf> {
    let mut loader = kernel::loader();
    let memory = crate::proc::memory();
    let (files, groups) = (u8::from(args.top > 0), u8::from(args.groups));
    let (notices, counts) = (u8::from(args.notices), u8::from(args.counts_reads));
    loader.btf(Some(types));
    // Storage of tasks is used by the programs alone.
    loader.allow_unsupported_maps();
    loader.override_global("count_pages", &counts, true);
    loader.override_global("count_files", &files, true);
    loader.override_global("count_groups", &groups, true);
    loader.override_global("send_notices", &notices, true);
    loader.override_global("sample_below", &args.threshold, true);
    copying::apply(bases, memory.total, &mut loader);
    // What is not used takes no memory.
    for (name, is_used, least) in [
        ("files", args.top > 0, 1),
        ("groups", args.groups, 1),
        ("devices", args.counts_reads, 1),
        ("notices", args.notices, RING_BYTES_MIN),
        ("references", args.threshold > 0, RING_BYTES_MIN),
    ] {
        if !is_used {
            loader.map_max_entries(name, least);
        }
    }
    if bases.is_some() && copying::is_small(memory.total) {
        loader.map_max_entries("notices", NOTICE_RING_BYTES_SMALL);
    }
    Ok(loader.load(OBJECT)?)
}

/// Puts the programs of a family into the kernel, and then to work.
fn load_family(
    programs: &mut Ebpf,
    family: &[(&str, Hook)],
    types: &Btf,
    functions: Option<&Btf>,
) -> anyhow::Result<()> {
    let all: Vec<_> = family.iter().chain(&ALWAYS).collect();
    load_and_attach(programs, &all, types, functions)
}

/// Puts programs into the kernel, in their order, and then to work, the last one first.
fn load_and_attach(
    programs: &mut Ebpf,
    all: &[&(&str, Hook)],
    types: &Btf,
    functions: Option<&Btf>,
) -> anyhow::Result<()> {
    for (name, hook) in all {
        let btf = match hook {
            Tracepoint(_) => types,
            Begin(_) | End(_) => functions.unwrap_or(types),
        };
        load(programs, name, hook, btf).with_context(|| (*name).to_owned())?;
    }
    for (name, hook) in all.iter().rev() {
        attach(programs, name, hook).with_context(|| (*name).to_owned())?;
    }
    Ok(())
}

fn load(programs: &mut Ebpf, name: &str, hook: &Hook, btf: &Btf) -> anyhow::Result<()> {
    let program = programs
        .program_mut(name)
        .context("it is not in the object")?;
    match hook {
        Tracepoint(event) => <&mut BtfTracePoint>::try_from(program)?.load(event, btf)?,
        Begin(function) => <&mut FEntry>::try_from(program)?.load(function, btf)?,
        End(function) => <&mut FExit>::try_from(program)?.load(function, btf)?,
    }
    Ok(())
}

fn attach(programs: &mut Ebpf, name: &str, hook: &Hook) -> anyhow::Result<()> {
    let program = programs
        .program_mut(name)
        .context("it is not in the object")?;
    match hook {
        Tracepoint(_) => {
            <&mut BtfTracePoint>::try_from(program)?.attach()?;
        }
        Begin(_) => {
            <&mut FEntry>::try_from(program)?.attach()?;
        }
        End(_) => {
            <&mut FExit>::try_from(program)?.attach()?;
        }
    }
    Ok(())
}

fn sum(records: &[Record]) -> Record {
    let mut total = Record::default();
    for record in records {
        for (field, more) in total.iter_mut().zip(record) {
            *field = field.wrapping_add(*more);
        }
    }
    total
}

fn counters(record: &Record) -> Counters {
    let [
        accesses,
        misses,
        read,
        written,
        reclaimed,
        truncated,
        invalidated,
        dirtied,
        refaults,
    ] = *record;
    Counters {
        accesses,
        misses,
        added: read + written,
        readahead: read.saturating_sub(misses),
        written,
        refaults,
        reclaimed,
        truncated,
        invalidated,
        dirtied,
    }
}

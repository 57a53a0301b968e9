//! The page cache of one file system, watched.

use crate::bases::Bases;
use crate::kernel;
use crate::mapped::{self, Mapped};
use crate::numbering::{ALIGNED, Numbering};
use crate::numbers::{Given, Numbers, OWNER_VALUES};
use crate::pages::{Event, Pages};
use crate::shared::Shared;
use anyhow::{Context, ensure};
use aya::Ebpf;
use aya::maps::{Array, Map, MapData, RingBuf};
use aya::programs::BtfTracePoint;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, PoisonError};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/marks.bpf.o"));

/// Programs and their tracepoints; the newest first, so that a kernel without it refuses before much work is done.
const PROGRAMS: [(&str, &str); 5] = [
    ("pages_got", "mm_filemap_get_pages"),
    ("page_faulted", "mm_filemap_fault"),
    ("pages_mapped", "mm_filemap_map_pages"),
    ("page_added", "mm_filemap_add_to_page_cache"),
    ("page_left", "mm_filemap_delete_from_page_cache"),
];

/// `FRESH` in `marks.bpf.c`.
const FRESH: u8 = 0x80;
/// A byte of `touched` stands for this many marks (`TOUCHED_SHIFT`).
const TOUCHED: usize = 512;
/// Marks, and bytes of `touched`, in a value of an array.
const VALUE: u64 = 8;
/// Bits in a value.
const BITS: u64 = 64;
/// Fields of `struct control`.
const DEVICE: usize = 0;
const PRESENT: usize = 1;
const LEFT_UNSAID: usize = 2;
const LOST: usize = 3;
const GIVEN: usize = 4;
const FAULTS: usize = 5;
const APART: usize = 6;
const TURN: usize = 7;
const AREAS: usize = 8;
const MAPPED_USED: usize = 9;
const CONTROLS: usize = 10;
/// What is said of pages (`struct said`): that they have left.
const LEFT: u64 = 0;
/// Bytes of the ring of pages that have left: what is taken at a time by a reclaim, and more than is given up at a time.
const LEFT_PAGES_BYTES: u32 = 8 << 20;
/// Pages in all: what an array of the kernel can have bits for, and less than what it can number.
const PAGES_MAX: u64 = 1 << 32;

/// The page cache of one file system, watched. The programs leave the kernel when it is dropped.
pub struct Watch {
    numbers: Numbers,
    total: u64,
    control: Shared,
    marks: Shared,
    touched: Shared,
    present: Shared,
    news: Mutex<RingBuf<MapData>>,
    /// Pages that have left, where they are copied.
    left_pages: Option<Mutex<RingBuf<MapData>>>,
    /// Or why maps cannot be looked at.
    mapped: Result<Mapped, String>,
    looks: Mutex<Looks>,
    programs: Mutex<Ebpf>,
}

/// What looks at maps have found so far.
#[derive(Default)]
struct Looks {
    turn: u64,
    /// Faults before the last one.
    faults: u64,
    /// Whether it found maps.
    found: bool,
}

impl Watch {
    /// Loads the programs. Nothing is seen before [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// What is missing, and what would mend it.
    pub fn load(pages: Pages<'_>) -> anyhow::Result<Self> {
        Self::load_programs(pages, None).map_err(explained)
    }

    /// The same, and has pages copied as they leave ([`left_pages`](Self::left_pages)).
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), or the kernel does not let its memory be read.
    pub fn load_copying(pages: Pages<'_>) -> anyhow::Result<Self> {
        let bases = Bases::find()?;
        Self::load_programs(pages, Some(&bases)).map_err(explained)
    }

    fn load_programs(pages: Pages<'_>, bases: Option<&Bases>) -> anyhow::Result<Self> {
        let (total, given) = (pages.numbers(), pages.given());
        ensure!(
            total <= PAGES_MAX,
            "more than {PAGES_MAX} pages would have to be watched"
        );
        let (first_inode, files) = match pages {
            Pages::Of { first_inode, files } => (first_inode, files),
            Pages::AtMost(_) => (0, &[][..]),
        };
        let types = kernel::types(|event| PROGRAMS.iter().any(|(_, known)| *known == event))?;
        let mut loader = kernel::loader();
        loader.btf(Some(&types));
        // Storage of tasks is used by the programs alone.
        loader.allow_unsupported_maps();
        loader.override_global("first_inode", &first_inode, true);
        loader.override_global("numbers_max", &given, true);
        let copies = bases.is_some();
        let bases = bases.map_or_else(mapped::bases, |bases| Ok(*bases));
        if copies {
            loader.override_global("copies", &1u64, true);
            loader.map_max_entries("left_pages", LEFT_PAGES_BYTES);
        }
        if let Ok(bases) = &bases {
            bases.apply(&mut loader);
            loader.map_max_entries(mapped::RING, mapped::RING_BYTES);
        }
        let values = [
            ("marks", total / VALUE),
            ("touched", (total / TOUCHED as u64).div_ceil(VALUE)),
            ("present", total / BITS),
            ("owners", given),
            ("looked_at", total / BITS),
        ]
        .map(|(name, values)| (name, values.max(1)));
        let others = [
            ("file_pages", files.len() as u64),
            ("numbers", given),
            ("given_back", given),
        ];
        for (name, values) in values.into_iter().chain(others) {
            loader.map_max_entries(name, u32::try_from(values.max(1))?);
        }
        let mut programs = loader.load(OBJECT)?;
        for (name, event) in PROGRAMS {
            program(&mut programs, name)?
                .load(event, &types)
                .with_context(|| format!("the tracepoint {event}"))?;
        }
        // While all maps are there.
        let mapped = bases.and_then(|_| Mapped::load(&mut programs));
        let mut map = |name: &str| -> anyhow::Result<Map> {
            let found = programs.take_map(name);
            found.with_context(|| format!("no map {name}"))
        };
        let mut shared = |at: usize, times: usize| -> anyhow::Result<Shared> {
            let (name, values) = values[at];
            Shared::new(map(name)?, usize::try_from(values)? * times)
        };
        let [marks, touched, present] = [shared(0, 1)?, shared(1, 1)?, shared(2, 1)?];
        let owners = shared(3, OWNER_VALUES)?;
        let control = Shared::new(map("control")?, CONTROLS)?;
        let news = Mutex::new(map("news")?.try_into()?);
        let left_pages = copies.then(|| map("left_pages"));
        let left_pages = left_pages.transpose()?.map(RingBuf::try_from).transpose()?;
        let known = map("numbers")?.try_into()?;
        let numbers = if given > 0 {
            Numbers::Given(Box::new(Given { owners, known }))
        } else {
            let numbering = Numbering::new(files);
            let mut file_pages: Array<MapData, [u64; 2]> = map("file_pages")?.try_into()?;
            for (at, range) in (0..).zip(numbering.files()) {
                file_pages.set(at, [range.start, range.end - range.start], 0)?;
            }
            Numbers::Of {
                first_inode,
                numbering,
            }
        };
        for (name, event) in PROGRAMS {
            program(&mut programs, name)?
                .attach()
                .with_context(|| format!("the tracepoint {event}"))?;
        }
        Ok(Self {
            numbers,
            total,
            control,
            marks,
            touched,
            present,
            news,
            left_pages: left_pages.map(Mutex::new),
            mapped: mapped.map_err(|error| short(&error)),
            looks: Mutex::default(),
            programs: Mutex::new(programs),
        })
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory_bytes(pages: Pages<'_>) -> u64 {
        let total = pages.numbers();
        total
            .saturating_add(total / TOUCHED as u64)
            .saturating_add(2 * (total / VALUE))
            .saturating_add(pages.bytes())
    }

    /// Bytes of memory that this one takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let pages = match &self.numbers {
            Numbers::Given(_) => Self::memory_bytes(Pages::AtMost(self.total)),
            // Numbers that follow from the places of the pages take none.
            Numbers::Of { .. } => Self::memory_bytes(Pages::Of {
                first_inode: 0,
                files: &[self.total],
            }),
        };
        pages
            + self
                .left_pages
                .as_ref()
                .map_or(0, |_| LEFT_PAGES_BYTES.into())
    }

    /// How many pages it can watch at a time.
    #[must_use]
    pub fn pages_max(&self) -> u64 {
        self.total
    }

    /// Sees from now on what happens in the file system that `root` is in.
    pub fn begin(&self, root: &Metadata) {
        let device = kernel::packed_device(root.dev());
        self.control.numbers()[DEVICE].store(device.into(), SeqCst);
    }

    /// Whether it has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.control.numbers()[DEVICE].load(Relaxed) != 0
    }

    /// The numbers that pages have or had.
    fn in_use(&self) -> usize {
        let given = match self.numbers {
            Numbers::Of { .. } => self.total,
            Numbers::Given(_) => self.control.numbers()[GIVEN].load(SeqCst),
        };
        given.min(self.total) as usize
    }

    /// Tells which pages were read since the last call: inode number, page, and how often, up to 127 times. The read
    /// that brought a page is not among them.
    pub fn used(&self, mut tell: impl FnMut(u64, u64, u32)) {
        let marks = self.marks.bytes();
        let values = self.in_use().div_ceil(TOUCHED * VALUE as usize);
        for (at, eight) in self.touched.numbers().iter().enumerate().take(values) {
            if eight.load(Relaxed) == 0 {
                continue;
            }
            let first = at * VALUE as usize;
            let bytes = &self.touched.bytes()[first..first + VALUE as usize];
            for (group, byte) in (first..).zip(bytes) {
                if byte.load(Relaxed) == 0 {
                    continue;
                }
                // Before the marks: one that is made meanwhile says so again.
                byte.swap(0, SeqCst);
                let from = group * TOUCHED;
                for (number, mark) in (from..).zip(marks.iter().skip(from).take(TOUCHED)) {
                    let seen = mark.load(Relaxed);
                    if seen & !FRESH == 0 {
                        continue;
                    }
                    let times = mark.fetch_and(FRESH, SeqCst) & !FRESH;
                    if let Some((inode, page)) = self.numbers.page(number as u64) {
                        tell(inode, page, times.into());
                    }
                }
            }
        }
    }

    /// Tells what became of pages since the last call: inode number and page.
    pub fn news(&self, mut tell: impl FnMut(u64, u64, Event)) {
        let mut ring = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(item) = ring.next() {
            let number = |at: usize| {
                let bytes = item.get(at * size_of::<u64>()..);
                let bytes = bytes.and_then(|bytes| bytes.first_chunk());
                bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
            };
            let [inode, first, pages, what] = std::array::from_fn(number);
            let event = if what == LEFT {
                Event::Left
            } else {
                Event::Unwatched
            };
            for page in first..first.saturating_add(pages.min(ALIGNED)) {
                tell(inode, page, event);
            }
        }
    }

    /// Tells pages that have left since the last call, with what they held: inode number, page, and its bytes; so many at most. Those for
    /// which there was no room are left out, and all where pages are not copied.
    pub fn left_pages(&self, most: usize, mut tell: impl FnMut(u64, u64, &[u8])) {
        let Some(ring) = &self.left_pages else {
            return;
        };
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..most {
            let Some(item) = ring.next() else {
                return;
            };
            let Some((place, data)) = item.split_at_checked(2 * size_of::<u64>()) else {
                return;
            };
            let number = |at: usize| {
                let bytes = place.get(at * size_of::<u64>()..);
                let bytes = bytes.and_then(|bytes| bytes.first_chunk());
                bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
            };
            tell(number(0), number(1), data);
        }
    }

    /// Pages that have left and could not be told, since too many waited.
    #[must_use]
    pub fn left_unreported(&self) -> u64 {
        self.control.numbers()[LEFT_UNSAID].load(Relaxed)
    }

    /// Pages that came, are not watched, and could not be told.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.control.numbers()[LOST].load(Relaxed)
    }

    /// Whether a page is there.
    #[must_use]
    pub fn is_present(&self, inode: u64, page: u64) -> bool {
        let Some(number) = self.numbers.number(inode, page) else {
            return false;
        };
        let bits = self.present.numbers().get((number / BITS) as usize);
        bits.is_some_and(|bits| bits.load(Relaxed) >> (number % BITS) & 1 == 1)
    }

    /// Whether the reader for whom a page came has not had it yet.
    #[must_use]
    pub fn is_fresh(&self, inode: u64, page: u64) -> bool {
        let number = self.numbers.number(inode, page);
        let mark = number.and_then(|number| self.marks.bytes().get(number as usize));
        mark.is_some_and(|mark| mark.load(Relaxed) & FRESH != 0)
    }

    /// Tells all pages that are there.
    pub fn each_present(&self, mut tell: impl FnMut(u64, u64)) {
        let values = self.in_use().div_ceil(BITS as usize);
        for (at, bits) in (0u64..).zip(self.present.numbers().iter().take(values)) {
            let mut left = bits.load(Relaxed);
            while left != 0 {
                let bit = u64::from(left.trailing_zeros());
                left &= left - 1;
                if let Some((inode, page)) = self.numbers.page(at * BITS + bit) {
                    tell(inode, page);
                }
            }
        }
    }

    /// Looks at the maps of all processes, at one page in every few, and at others the next time. Pages that were accessed through them
    /// since they were mapped or last looked at are told by [`used`](Self::used), once. Where nothing is mapped, it does nothing.
    /// Returns whether anything was.
    ///
    /// A page that several processes have mapped counts as accessed in each look.
    ///
    /// # Errors
    ///
    /// Why this machine cannot do it.
    pub fn look_at_mapped(&self) -> anyhow::Result<bool> {
        let control = self.control.numbers();
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let faults = control[FAULTS].load(SeqCst);
        if faults == looks.faults && !looks.found {
            return Ok(false);
        }
        looks.faults = faults;
        let mapped = self.mapped.as_ref();
        let mapped = mapped.map_err(|why| anyhow::Error::msg(why.clone()))?;
        let apart = self.present_pages().div_ceil(mapped::LOOKED_AT).max(1);
        looks.turn = (looks.turn + 1) % apart;
        control[APART].store(apart, SeqCst);
        control[TURN].store(looks.turn, SeqCst);
        let areas = control[AREAS].load(SeqCst);
        mapped.look(&self.programs)?;
        looks.found = control[AREAS].load(SeqCst) > areas;
        Ok(looks.found)
    }

    /// Why maps cannot be looked at.
    #[must_use]
    pub fn why_no_looks(&self) -> Option<&str> {
        self.mapped.as_ref().err().map(String::as_str)
    }

    /// Pages that looks at maps have found accessed again.
    #[must_use]
    pub fn mapped_used(&self) -> u64 {
        self.control.numbers()[MAPPED_USED].load(Relaxed)
    }

    /// How many pages are there.
    #[must_use]
    pub fn present_pages(&self) -> u64 {
        self.control.numbers()[PRESENT].load(Relaxed)
    }
}

fn program<'a>(programs: &'a mut Ebpf, name: &str) -> anyhow::Result<&'a mut BtfTracePoint> {
    let program = programs
        .program_mut(name)
        .context("it is not in the object")?;
    Ok(program.try_into()?)
}

/// What a refusal says of the programs themselves begins so, and is as long as they are.
const VERIFIER: &str = ". Verifier output";

/// Why there is no watch, with what would mend it.
fn explained(error: anyhow::Error) -> anyhow::Error {
    let is_refused = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
    };
    // Root in a user namespace has the privileges there, and not those of the machine.
    let needs = if !kernel::may_load_bpf() || error.chain().any(is_refused) {
        "eBPF needs root of the machine, or CAP_BPF and CAP_PERFMON"
    } else if !Path::new(kernel::DESCRIPTION).exists() {
        "eBPF needs a kernel that describes itself (BTF)"
    } else {
        "the page cache's tracepoints came with Linux 6.12"
    };
    anyhow::Error::msg(short(&error)).context(needs)
}

fn short(error: &anyhow::Error) -> String {
    let said = format!("{error:#}");
    said.split(VERIFIER).next().unwrap_or_default().to_owned()
}

//! The page cache of one file system, watched.

use crate::kernel;
use crate::numbering::{ALIGNED, Numbering};
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
/// A byte of `touched` stands for so many marks (`TOUCHED_SHIFT`).
const TOUCHED: usize = 512;
/// Marks, and bytes of `touched`, in a value of an array.
const VALUE: u64 = 8;
/// Bits in a value.
const BITS: u64 = 64;
/// Fields of `struct control`.
const DEVICE: usize = 0;
const PRESENT: usize = 1;
const LEFT_UNSAID: usize = 2;
const CONTROLS: usize = 3;
/// Pages in all: what an array of the kernel can have bits for, and less than what it can number.
const PAGES_MAX: u64 = 1 << 32;

/// The page cache of one file system, watched. The programs leave the kernel when it is dropped.
pub struct Watch {
    numbering: Numbering,
    control: Shared,
    marks: Shared,
    touched: Shared,
    present: Shared,
    left: Mutex<RingBuf<MapData>>,
    _programs: Ebpf,
}

impl Watch {
    /// Loads the programs for files of so many pages, which have the inode number `first_inode` and the next ones. Nothing
    /// is seen before [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// What is missing, and what would mend it.
    pub fn load(first_inode: u64, pages: &[u64]) -> anyhow::Result<Self> {
        Self::load_programs(first_inode, pages).map_err(explained)
    }

    fn load_programs(first_inode: u64, pages: &[u64]) -> anyhow::Result<Self> {
        let numbering = Numbering::new(pages);
        let total = numbering.total();
        ensure!(
            total <= PAGES_MAX,
            "the files have more than {PAGES_MAX} pages"
        );
        let types = kernel::types(|event| PROGRAMS.iter().any(|(_, known)| *known == event))?;
        let mut loader = kernel::loader();
        loader.btf(Some(&types));
        // Storage of tasks is used by the programs alone.
        loader.allow_unsupported_maps();
        loader.override_global("first_inode", &first_inode, true);
        let values = [
            ("marks", total / VALUE),
            ("touched", (total / TOUCHED as u64).div_ceil(VALUE)),
            ("present", total / BITS),
        ]
        .map(|(name, values)| (name, values.max(1)));
        for (name, values) in values {
            loader.map_max_entries(name, u32::try_from(values)?);
        }
        loader.map_max_entries("file_pages", u32::try_from(pages.len().max(1))?);
        let mut programs = loader.load(OBJECT)?;
        for (name, event) in PROGRAMS {
            program(&mut programs, name)?
                .load(event, &types)
                .with_context(|| format!("the tracepoint {event}"))?;
        }
        let mut map = |name: &str| -> anyhow::Result<Map> {
            let found = programs.take_map(name);
            found.with_context(|| format!("no map {name}"))
        };
        let mut shared = |at: usize| -> anyhow::Result<Shared> {
            let (name, values) = values[at];
            Shared::new(map(name)?, usize::try_from(values)?)
        };
        let [marks, touched, present] = [shared(0)?, shared(1)?, shared(2)?];
        let control = Shared::new(map("control")?, CONTROLS)?;
        let mut file_pages: Array<MapData, [u64; 2]> = map("file_pages")?.try_into()?;
        for (at, range) in (0..).zip(numbering.files()) {
            file_pages.set(at, [range.start, range.end - range.start], 0)?;
        }
        let left = Mutex::new(map("left")?.try_into()?);
        for (name, event) in PROGRAMS {
            program(&mut programs, name)?
                .attach()
                .with_context(|| format!("the tracepoint {event}"))?;
        }
        Ok(Self {
            numbering,
            control,
            marks,
            touched,
            present,
            left,
            _programs: programs,
        })
    }

    /// Bytes of memory that it takes for files of so many pages.
    #[must_use]
    pub fn memory_bytes(pages: &[u64]) -> u64 {
        let total = Numbering::new(pages).total();
        total
            .saturating_add(total / TOUCHED as u64)
            .saturating_add(total / VALUE)
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

    /// Tells which pages were read since the last call: file, page, and how often, up to 127 times. The read that
    /// brought a page is not among them.
    pub fn used(&self, mut tell: impl FnMut(usize, u64, u32)) {
        let marks = self.marks.bytes();
        for (at, eight) in self.touched.numbers().iter().enumerate() {
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
                    if let Some((file, page)) = self.numbering.place(number as u64) {
                        tell(file, page, times.into());
                    }
                }
            }
        }
    }

    /// Tells which pages have left since the last call, whoever sent them away, and are not there again.
    pub fn left(&self, mut tell: impl FnMut(usize, u64)) {
        let mut ring = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(item) = ring.next() {
            let number = |at: usize| {
                let bytes = item.get(at..).and_then(|bytes| bytes.first_chunk());
                bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
            };
            let (first, pages) = (number(0), number(8));
            for page in first..first.saturating_add(pages.min(ALIGNED)) {
                if let Some((file, page)) = self.numbering.place(page)
                    && !self.is_present(file, page)
                {
                    tell(file, page);
                }
            }
        }
    }

    /// Pages that have left and could not be told, since too many waited.
    #[must_use]
    pub fn left_unsaid(&self) -> u64 {
        self.control.numbers()[LEFT_UNSAID].load(Relaxed)
    }

    /// Whether a page is there.
    #[must_use]
    pub fn is_present(&self, file: usize, page: u64) -> bool {
        let Some(number) = self.numbering.number(file, page) else {
            return false;
        };
        let bits = self.present.numbers().get((number / BITS) as usize);
        bits.is_some_and(|bits| bits.load(Relaxed) >> (number % BITS) & 1 == 1)
    }

    /// Tells all pages that are there.
    pub fn each_present(&self, mut tell: impl FnMut(usize, u64)) {
        for (at, bits) in (0u64..).zip(self.present.numbers()) {
            let mut left = bits.load(Relaxed);
            while left != 0 {
                let bit = u64::from(left.trailing_zeros());
                left &= left - 1;
                if let Some((file, page)) = self.numbering.place(at * BITS + bit) {
                    tell(file, page);
                }
            }
        }
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
    error.context(needs)
}

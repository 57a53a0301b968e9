//! Pages that programs have mapped: which of them were accessed through their maps since the last look.

use crate::bases::Bases;
use crate::cold::mark_cold;
use crate::kernel;
use anyhow::{Context, ensure};
use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use aya::programs::Iter;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// The program (`bpf/mapped.h`), and what it iterates over.
const PROGRAM: &str = "look_at_mapped";
const OVER: &str = "task_vma";
/// Its ring of pages that were accessed.
pub const RING: &str = "accessed";
/// What the kernel calls the attachment; its type is needed to load the program.
const ATTACHMENT: &[u8] = b"bpf_iter_task_vma";
/// Bytes of the ring: twice what a look at [`LOOKED_AT`] pages can find.
pub const RING_BYTES: u32 = 256 << 10;
/// Pages that one look goes through, about. Where more are there, each is looked at once in several looks.
pub const LOOKED_AT: u64 = 4096;

/// The namespace in which this process has its number, and the inode of the machine's own (`PROC_PID_INIT_INO`).
const PROCESS_NAMESPACE: &str = "/proc/self/ns/pid";
const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Looks at maps.
pub struct Mapped {
    found: Mutex<RingBuf<MapData>>,
}

/// What the program needs to find a page table.
///
/// # Errors
///
/// This machine does not have it, or hides it.
pub fn bases() -> anyhow::Result<Bases> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "page tables are read on x86-64 only"
    );
    // The program tells processes by their numbers there; here they would be others.
    let namespace = std::fs::metadata(PROCESS_NAMESPACE).context(PROCESS_NAMESPACE)?;
    ensure!(
        namespace.ino() == INITIAL_NAMESPACE,
        "futae runs in a process namespace of its own (a container without the host's)"
    );
    Bases::find()
}

impl Mapped {
    /// Loads the program of an object of which no map was taken yet.
    pub fn load(programs: &mut Ebpf) -> anyhow::Result<Self> {
        let types = kernel::description(|name| name == ATTACHMENT)?;
        iterator(programs)?.load(OVER, &types)?;
        let found = programs.take_map(RING).context("no ring")?;
        let found = Mutex::new(found.try_into()?);
        Ok(Self { found })
    }

    /// Has the program go over the maps of all processes once, and clears the bits of the pages that it found accessed.
    pub fn look(&self, programs: &Mutex<Ebpf>) -> anyhow::Result<()> {
        let mut iteration = {
            let mut programs = programs.lock().unwrap_or_else(PoisonError::into_inner);
            let iterator = iterator(&mut programs)?;
            let attached = iterator.attach()?;
            iterator.take_link(attached)?.into_file()?
        };
        // The program runs while it is read, and writes nothing.
        let read = iteration.read_to_end(&mut Vec::new());
        // Also after an error: what was found is not to be found again.
        for (process, addresses) in self.found() {
            match mark_cold(process, &addresses) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                other => other.context("process_madvise (CAP_SYS_NICE and CAP_SYS_PTRACE)")?,
            }
        }
        Ok(read.map(drop)?)
    }

    /// Addresses of accessed pages by process.
    fn found(&self) -> BTreeMap<u32, Vec<u64>> {
        let mut accessed: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut ring = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(item) = ring.next() {
            if let Some((process, address)) = item.split_at_checked(size_of::<u64>()) {
                accessed
                    .entry(number(process) as u32)
                    .or_default()
                    .push(number(address));
            }
        }
        accessed
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes)
}

fn iterator(programs: &mut Ebpf) -> anyhow::Result<&mut Iter> {
    let program = programs.program_mut(PROGRAM);
    Ok(program.context("it is not in the object")?.try_into()?)
}

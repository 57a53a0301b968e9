//! The programs in the kernel: loading them, reading what they counted.

#[cfg(futae_has_bpf)]
mod bpf;
mod copies;
#[cfg(futae_has_bpf)]
mod copying;
mod counts;

use crate::args::Checked;
use crate::extents::Pages;
use crate::proc;
pub use copies::Copies;
pub use counts::Counts;
use futae_agent_protocol::{Counters, Source};
#[cfg(futae_has_bpf)]
use futae_page_cache::kernel;
use rustix::fd::BorrowedFd;

/// Whatever counts here.
pub struct Probe {
    kind: Kind,
    /// Whether the programs count.
    counts: bool,
    /// Refaults and the like when it was set up.
    begin: Counters,
}

enum Kind {
    #[cfg(futae_has_bpf)]
    Bpf(Box<bpf::Programs>),
    Vmstat,
}

impl Probe {
    /// Loads the programs that this kernel takes. Where it takes none, `/proc/vmstat` counts, and the
    /// second part says why.
    #[must_use]
    pub fn start(args: &Checked) -> (Self, Option<String>) {
        let (kind, why) = if args.no_bpf {
            (Kind::Vmstat, Some("without eBPF, as asked".to_owned()))
        } else {
            start(args)
        };
        (
            Self {
                kind,
                counts: args.counts_reads,
                begin: proc::vmstat(),
            },
            why,
        )
    }

    /// Where the counts come from.
    #[must_use]
    pub fn source(&self) -> Source {
        match &self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.source(),
            Kind::Vmstat => Source::Vmstat,
        }
    }

    /// Whether refaults are told by device and by file, too.
    #[must_use]
    pub fn sees_refaults(&self) -> bool {
        match &self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.sees_refaults(),
            Kind::Vmstat => false,
        }
    }

    /// Instructions that the kernel went through to check the program for which that were the most; none without
    /// programs, or where the kernel does not tell (before 5.16). What it keeps meanwhile grows with them.
    #[must_use]
    pub fn verified_instructions(&self) -> Option<u32> {
        match &self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.verified_instructions(),
            Kind::Vmstat => None,
        }
    }

    /// What happened since the start.
    ///
    /// # Errors
    /// If the kernel does not give the counters.
    pub fn read(&self) -> anyhow::Result<Counts> {
        let kernel = proc::vmstat().since(&self.begin);
        match &self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => {
                let mut counts = programs.read()?;
                if self.counts {
                    counts.total.refaults = kernel.refaults;
                } else {
                    counts.total = kernel;
                }
                Ok(counts)
            }
            Kind::Vmstat => Ok(Counts {
                total: kernel,
                ..Counts::default()
            }),
        }
    }

    /// Counts nothing any more for these memory cgroups, unless something happens in them again.
    pub fn forget_groups(&mut self, groups: &[u64]) {
        match &mut self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.forget_groups(groups),
            Kind::Vmstat => {
                let _ = groups;
            }
        }
    }

    /// Evicted pages that were told of since the last call, at most this many.
    pub fn evicted(&mut self, most: usize, into: &mut Vec<Pages>) {
        match &mut self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.evicted(most, into),
            Kind::Vmstat => {
                let _ = (most, into);
            }
        }
    }

    /// What evicted pages are copied into, once; if they are not copied, why.
    ///
    /// # Errors
    /// A sentence.
    pub fn take_copies(&mut self) -> Result<Copies, String> {
        match &mut self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.take_copies(),
            Kind::Vmstat => Err("there is no eBPF".to_owned()),
        }
    }

    /// Has evicted pages copied or not from now on.
    pub fn hold_back(&mut self, holds: bool) {
        match &mut self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.hold_back(holds),
            Kind::Vmstat => {
                let _ = holds;
            }
        }
    }

    /// Pages that came without their data so far, and nanoseconds that copies took.
    #[must_use]
    pub fn copy_counts(&self) -> (u64, u64) {
        match &self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => {
                let counts = programs.copy_counts();
                (counts.without_data, counts.copy_ns)
            }
            Kind::Vmstat => (0, 0),
        }
    }

    /// Sampled reads since the last call, at most this many.
    pub fn references(&mut self, most: usize, into: &mut Vec<u64>) {
        match &mut self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.references(most, into),
            Kind::Vmstat => {
                let _ = (most, into);
            }
        }
    }

    /// What becomes readable when a ring fills up.
    #[must_use]
    pub fn wakers(&self) -> Vec<BorrowedFd<'_>> {
        match &self.kind {
            #[cfg(futae_has_bpf)]
            Kind::Bpf(programs) => programs.wakers().into(),
            Kind::Vmstat => Vec::new(),
        }
    }
}

#[cfg(futae_has_bpf)]
fn start(args: &Checked) -> (Kind, Option<String>) {
    match bpf::Programs::load(args) {
        Ok(programs) => (Kind::Bpf(Box::new(programs)), None),
        Err(error) => (
            Kind::Vmstat,
            Some(explained(&error, kernel::may_load_bpf())),
        ),
    }
}

/// Why there is no eBPF, with what would mend it: most often a privilege, or a kernel's description of itself.
#[cfg(futae_has_bpf)]
fn explained(error: &anyhow::Error, may_load: bool) -> String {
    if !may_load {
        return format!(
            "eBPF needs root, or CAP_BPF and CAP_PERFMON (and CAP_DAC_READ_SEARCH for --notices): {error:#}"
        );
    }
    if !std::path::Path::new(kernel::DESCRIPTION).exists() {
        return format!("eBPF needs Linux 6.1 or later that describes itself (BTF): {error:#}");
    }
    format!("this kernel takes no eBPF: {error:#}")
}

#[cfg(not(futae_has_bpf))]
fn start(_: &Checked) -> (Kind, Option<String>) {
    let why = "built without eBPF, because clang was missing";
    (Kind::Vmstat, Some(why.to_owned()))
}

#[cfg(all(test, futae_has_bpf))]
mod tests {
    use super::*;

    #[test]
    fn a_privilege_that_is_missing_is_named() {
        let error = anyhow::anyhow!("map error");
        let said = explained(&error, false);
        assert!(
            said.contains("root") && said.contains("CAP_BPF") && said.ends_with("map error"),
            "{said}"
        );
        assert!(!explained(&error, true).contains("CAP_BPF"));
    }
}

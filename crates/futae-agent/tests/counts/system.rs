//! Reading through a mapping, and asking what of a file is in memory.
#![expect(unsafe_code, reason = "mappings without a safe wrapper")]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;

const PAGE: usize = 4096;

struct Mapping {
    at: *mut c_void,
    bytes: usize,
}

impl Mapping {
    fn new(file: &File, pages: u64) -> Self {
        let bytes = pages as usize * PAGE;
        // SAFETY: a new shared mapping where the kernel likes, which nobody else knows of.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        Self {
            at: at.expect("a mapping"),
            bytes,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no reference into it is left.
        unsafe { munmap(self.at, self.bytes) }.expect("it was mapped");
    }
}

/// Reads one byte of each of these pages of a file that has so many, through a mapping. Returns the page
/// faults that this took: all, and those that waited for the disk.
pub fn touch(file: &File, pages: u64, order: &[u64]) -> (u64, u64) {
    let mapping = Mapping::new(file, pages);
    let before = faults();
    for &page in order {
        assert!(page < pages);
        // SAFETY: within the mapping; the file is not made shorter meanwhile.
        unsafe {
            mapping
                .at
                .cast::<u8>()
                .add(page as usize * PAGE)
                .read_volatile()
        };
    }
    let after = faults();
    (after.0 - before.0, after.1 - before.1)
}

fn faults() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("it is there");
    let fields = stat.rsplit_once(") ").expect("a name").1;
    let field = |at: usize| {
        fields
            .split(' ')
            .nth(at)
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (minor, major) = (field(7).expect("minor"), field(9).expect("major"));
    (minor + major, major)
}

/// How many of the first pages of a file are in memory, by mincore.
pub fn resident(file: &File, pages: u64) -> u64 {
    if pages == 0 {
        return 0;
    }
    let mapping = Mapping::new(file, pages);
    let mut present = vec![0u8; pages as usize];
    // SAFETY: the range is mapped, and there is a byte for each of its pages.
    let result = unsafe { libc::mincore(mapping.at, mapping.bytes, present.as_mut_ptr()) };
    assert_eq!(result, 0, "mincore");
    present.iter().filter(|&&byte| byte & 1 != 0).count() as u64
}

//! Pages of other processes, marked as not accessed.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;

/// As many ranges as the kernel takes at a time.
const RANGES_MAX: usize = 1024;

/// Has the processor's bits of these pages of a process say that they were not accessed. Pages that other processes have mapped, too,
/// keep theirs. The kernel then counts the pages among those that it reclaims first, unless they are accessed again.
///
/// # Errors
///
/// The process is gone, or this one may not do it (`CAP_SYS_NICE` and `CAP_SYS_PTRACE`).
pub fn mark_cold(process: u32, addresses: &[u64]) -> io::Result<()> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let process = process.ok_or(io::ErrorKind::InvalidInput)?;
    let process: OwnedFd = pidfd_open(process, PidfdFlags::empty())?;
    for some in addresses.chunks(RANGES_MAX) {
        let ranges: Vec<libc::iovec> = some.iter().map(|&address| page_at(address)).collect();
        mark(&process, &ranges)?;
    }
    Ok(())
}

fn page_at(address: u64) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: crate::PAGE_BYTES as usize,
    }
}

/// The kernel ends at a range that is not mapped any more; those behind it are marked, too.
fn mark(process: &OwnedFd, ranges: &[libc::iovec]) -> io::Result<()> {
    let mut from = 0;
    while let Some(left) = ranges.get(from..).filter(|left| !left.is_empty()) {
        // SAFETY: `left` is an array of `left.len()` ranges, which outlives the call. The ranges are addresses in another process, which
        // this process never uses; the advice changes no memory.
        #[expect(unsafe_code, reason = "the named place for advice to other processes")]
        let marked = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.as_raw_fd(),
                left.as_ptr(),
                left.len(),
                libc::MADV_COLD,
                0,
            )
        };
        if let Ok(bytes) = u64::try_from(marked) {
            from += (bytes / crate::PAGE_BYTES) as usize;
            if bytes == 0 {
                from += 1;
            }
            continue;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EINVAL | libc::EFAULT | libc::EAGAIN) => from += 1,
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_gone_is_an_error_and_a_page_that_is_gone_is_none() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let gone = child.id();
        child.wait().expect("ended");
        let error = mark_cold(gone, &[0]).expect_err("gone");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        assert!(mark_cold(0, &[0]).is_err());
        // Nothing is mapped at the first page, nor above what a process can have.
        let mapped = memmap2::MmapMut::map_anon(4096).expect("a page");
        let addresses = [4096, mapped.as_ptr() as u64, 1 << 46];
        // Without CAP_SYS_NICE it may not.
        if let Err(error) = mark_cold(std::process::id(), &addresses) {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        }
    }
}

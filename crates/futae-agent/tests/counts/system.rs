//! Reading through a mapping, asking what of a file is in memory, and listening for other machines.
#![expect(unsafe_code, reason = "mappings and sockets without a safe wrapper")]

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
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

fn owned(descriptor: i32) -> std::io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call that returned it succeeded, so it is open, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Listens at a port of vsock, for this machine and others.
pub fn listen_vsock(port: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let socket = owned(unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0) })?;
    // SAFETY: all fields of sockaddr_vm are numbers, for which zero is a value.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    address.svm_cid = libc::VMADDR_CID_ANY;
    address.svm_port = port;
    let length = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: the address is a sockaddr_vm of that length and lives until the call returns.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    // SAFETY: no pointers.
    if bound != 0 || unsafe { libc::listen(socket.as_raw_fd(), 1) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(socket)
}

/// The next client.
pub fn accept(socket: &OwnedFd) -> std::io::Result<OwnedFd> {
    // SAFETY: who it is need not be told.
    owned(unsafe {
        libc::accept(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    })
}

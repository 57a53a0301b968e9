//! Calls that no safe library offers: a file by its handle, where a file lies on its disk, a connection to the
//! host over vsock, memory given back, and memory that is shared with the kernel's programs.
#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Longest handle in 32-bit words.
const HANDLE_WORDS: usize = 6;
/// Extents asked for at a time.
const EXTENTS: usize = 64;
/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::c_ulong = 0xc020_660b;

/// Where a part of a file lies, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Extent {
    /// In the file.
    pub logical: u64,
    /// On the device.
    pub physical: u64,
    /// How much.
    pub length: u64,
    reserved_long: [u64; 2],
    /// Bits of `FIEMAP_EXTENT_*`.
    pub flags: u32,
    reserved: [u32; 3],
}

#[cfg(test)]
impl Extent {
    pub fn new(logical: u64, physical: u64, length: u64, flags: u32) -> Self {
        Self {
            logical,
            physical,
            length,
            flags,
            ..Self::default()
        }
    }
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    words: [u32; HANDLE_WORDS],
}

fn owned(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    let descriptor = i32::try_from(descriptor).map_err(|_| io::ErrorKind::InvalidData)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call that returned it succeeded, so it is open, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Opens the file that `words`, a handle of this kind, names on the file system of `mount`.
pub fn open_by_handle(mount: BorrowedFd<'_>, kind: i32, words: &[u32]) -> io::Result<OwnedFd> {
    let mut handle = Handle {
        bytes: 0,
        kind,
        words: [0; HANDLE_WORDS],
    };
    let place = handle
        .words
        .get_mut(..words.len())
        .ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(words);
    handle.bytes = words.len() as u32 * 4;
    let flags = libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: `handle` is laid out as struct file_handle with room for the bytes that it announces,
    // and lives until the call returns.
    owned(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut handle,
            flags,
        )
    })
}

/// The next extents of a file from the byte `start` on, without writing anything back first.
pub fn extents(file: BorrowedFd<'_>, start: u64) -> io::Result<Vec<Extent>> {
    let mut request = Request {
        start,
        length: u64::MAX - start,
        flags: 0,
        mapped: 0,
        count: EXTENTS as u32,
        reserved: 0,
        extents: [Extent::default(); EXTENTS],
    };
    // SAFETY: `request` is laid out as struct fiemap followed by as many extents as `count` says.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request.extents[..(request.mapped as usize).min(EXTENTS)].to_vec())
}

/// From now on what is large gets memory of its own, which goes back to the kernel as soon as it is free. The
/// allocator would otherwise keep such memory once it has seen some, and grow what grows by copying it.
pub fn keep_large_memory_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; nobody else allocates in another way meanwhile.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Gives memory that is free in this process back to the kernel, as far as the allocator can.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Connects to a port of the machine `cid`; 2 is the host.
pub fn connect_vsock(cid: u32, port: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let socket = owned(libc::c_long::from(unsafe {
        libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
    }))?;
    // SAFETY: all fields of sockaddr_vm are numbers, for which zero is a value.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    address.svm_cid = cid;
    address.svm_port = port;
    let length = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: the address is a sockaddr_vm of that length and lives until the call returns.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Memory of an eBPF map, which the kernel writes, too.
///
/// What is here is never looked at by reference: it is copied in and out, and single words are atomic. All places are
/// checked; what is beyond the end is zero, and nothing is written there.
pub struct SharedMemory {
    at: NonNull<u8>,
    length: usize,
}

impl SharedMemory {
    /// Maps `length` bytes of a map from byte `offset` on, to write there or only to read.
    pub fn of(
        map: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        is_writable: bool,
    ) -> io::Result<Self> {
        let mut protection = ProtFlags::READ;
        if is_writable {
            protection |= ProtFlags::WRITE;
        }
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory that is in use.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                map,
                offset,
            )
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, length })
    }

    /// Where it begins in this process.
    pub fn address(&self) -> usize {
        self.at.as_ptr() as usize
    }

    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A pointer to `length` bytes at `at` that begin at a multiple of `unit`, if there are that many.
    fn place(&self, at: usize, length: usize, unit: usize) -> Option<*mut u8> {
        let end = at.checked_add(length)?;
        let is_there = end <= self.length && at.is_multiple_of(unit);
        // SAFETY: `at` is within the mapping.
        is_there.then(|| unsafe { self.at.as_ptr().add(at) })
    }

    /// The eight bytes at `at`, and all that was written before them.
    pub fn load(&self, at: usize) -> u64 {
        let place = self.place(at, 8, 8);
        // SAFETY: within the mapping, aligned, and alive as long as `self`; others write it atomically.
        place.map_or(0, |place| unsafe {
            AtomicU64::from_ptr(place.cast()).load(Ordering::Acquire)
        })
    }

    /// The four bytes at `at`, and all that was written before them.
    pub fn load_short(&self, at: usize) -> u32 {
        let place = self.place(at, 4, 4);
        // SAFETY: as for `load`.
        place.map_or(0, |place| unsafe {
            AtomicU32::from_ptr(place.cast()).load(Ordering::Acquire)
        })
    }

    /// Writes the eight bytes at `at` after all that was written before. The memory has to be writable.
    pub fn store(&self, at: usize, value: u64) {
        if let Some(place) = self.place(at, 8, 8) {
            // SAFETY: as for `load`; a mapping that is only read is not stored to.
            unsafe { AtomicU64::from_ptr(place.cast()).store(value, Ordering::Release) };
        }
    }

    /// Copies what is at `at`; false if it is not all there.
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.place(at, into.len(), 1) else {
            return false;
        };
        // SAFETY: within the mapping; `into` is not. The kernel does not write what it has handed over and what was
        // not given back yet.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies `from` to `at`; false if it has no room there. The memory has to be writable.
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        let Some(to) = self.place(at, from.len(), 1) else {
            return false;
        };
        // SAFETY: within the mapping; `from` is not. This process is the only one that writes there.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        true
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: what was mapped, and nobody has a reference into it. If it fails, it stays mapped.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.length) };
    }
}

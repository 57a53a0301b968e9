//! Requests and answers in the format of `linux/fuse.h`: their layout in a ring's entry, and the
//! requests that this crate parses itself.

use fuser::{INodeNo, OpenFlags, Request, WriteFlags};

/// `struct fuse_uring_req_header`.
pub(super) const HEADER_BYTES: usize = 288;
/// Its parts: the header of the request or answer, the operation's arguments, and the entry's
/// fields.
const OPERATION_AT: usize = 128;
const ENTRY_AT: usize = 256;
const PAYLOAD_BYTES_AT: usize = ENTRY_AT + 16;

/// `struct fuse_in_header` and `struct fuse_out_header`.
const IN_HEADER_BYTES: usize = 40;
pub(super) const OUT_HEADER_BYTES: usize = 16;

const READ: u32 = 15;
const WRITE: u32 = 16;
const INIT: u32 = 26;
const READDIR: u32 = 28;
const READDIRPLUS: u32 = 44;

/// `read_flags` in `struct fuse_read_in`, and the flag that is set for programs and not for pages.
const READ_FLAGS_AT: usize = 20;
const READ_LOCKOWNER: u32 = 1 << 1;

/// `size` in `struct fuse_read_in`, used for reading files and directories.
const SIZE: std::ops::Range<usize> = 16..20;

/// The part of a request in the header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) unique: u64,
    pub(super) operation: Operation,
    /// Bytes of the payload.
    pub(super) payload: usize,
}

/// The requested operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// `FUSE_READ`
    Read(Read),
    /// `FUSE_WRITE`; the data is the payload.
    Write(Write),
    /// Anything else.
    Other,
}

/// `FUSE_READ`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) size: u32,
    /// A program reads past the kernel's pages. Otherwise the kernel reads a page.
    pub(crate) past_pages: bool,
}

/// `FUSE_WRITE`, without the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    /// `FUSE_WRITE_*`
    pub(crate) how: u32,
    /// The `O_*` flags with which the file was opened.
    pub(crate) opened: i32,
    /// The caller: user, group and process.
    pub(crate) asker: [u32; 3],
}

impl Write {
    /// A request that the FUSE library has read.
    pub(crate) fn of(
        request: &Request,
        (inode, offset): (INodeNo, u64),
        how: WriteFlags,
        flags: OpenFlags,
    ) -> Self {
        Self {
            inode: inode.0,
            offset,
            how: how.bits(),
            opened: flags.0,
            asker: [request.uid(), request.gid(), request.pid()],
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

/// Parses the header of a request.
pub(super) fn asked(header: &[u8; HEADER_BYTES]) -> Asked {
    let operation = &header[OPERATION_AT..ENTRY_AT];
    let (inode, offset) = (u64_at(header, 16), u64_at(operation, 8));
    let operation = match u32_at(header, 4) {
        READ => Operation::Read(Read {
            inode,
            offset,
            size: u32_at(operation, SIZE.start),
            past_pages: u32_at(operation, READ_FLAGS_AT) & READ_LOCKOWNER != 0,
        }),
        WRITE => Operation::Write(Write {
            inode,
            offset,
            how: u32_at(operation, 20),
            opened: u32_at(operation, 32) as i32,
            asker: [24, 28, 32].map(|at| u32_at(header, at)),
        }),
        _ => Operation::Other,
    };
    Asked {
        unique: u64_at(header, 8),
        operation,
        payload: u32_at(header, PAYLOAD_BYTES_AT) as usize,
    }
}

/// Assembles the parts of a request as they appear on `/dev/fuse`; `None` if its lengths are wrong.
/// Reads of directories are limited to `directory_bytes`.
pub(super) fn message<'a>(
    header: &'a mut [u8; HEADER_BYTES],
    payload: &'a [u8],
    directory_bytes: u32,
) -> Option<[&'a [u8]; 3]> {
    let length = u32_at(header, 0) as usize;
    let operation = length.checked_sub(IN_HEADER_BYTES + payload.len())?;
    if operation > ENTRY_AT - OPERATION_AT {
        return None;
    }
    if matches!(u32_at(header, 4), READDIR | READDIRPLUS) {
        let size = OPERATION_AT + SIZE.start..OPERATION_AT + SIZE.end;
        let least = u32_at(header, size.start).min(directory_bytes);
        header[size].copy_from_slice(&least.to_ne_bytes());
    }
    let header = &*header;
    let operation = &header[OPERATION_AT..OPERATION_AT + operation];
    Some([&header[..IN_HEADER_BYTES], operation, payload])
}

/// Writes the header of an answer: an error (positive, as in `errno`) or 0, and the length of the
/// payload.
pub(super) fn answer(header: &mut [u8; HEADER_BYTES], unique: u64, errno: i32, payload: usize) {
    let length = (OUT_HEADER_BYTES + payload) as u32;
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    let payload = (payload as u32).to_ne_bytes();
    header[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&payload);
}

/// Parses an answer in the format of `/dev/fuse`: its request, its error, and its payload.
pub(super) fn answered(message: &[u8]) -> Option<(u64, i32, &[u8])> {
    let header = message.get(..OUT_HEADER_BYTES)?;
    let errno = (u32_at(header, 4) as i32).checked_neg()?;
    let payload = message.get(OUT_HEADER_BYTES..u32_at(header, 0) as usize)?;
    Some((u64_at(header, 8), errno, payload))
}

/// `struct fuse_write_out`.
pub(super) fn written(bytes: u32) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&bytes.to_ne_bytes());
    out
}

/// The first request of a connection, which offers no features.
pub(super) fn hello() -> Vec<u8> {
    const LENGTH: usize = IN_HEADER_BYTES + 64;
    /// `FUSE_INIT_EXT`
    const EXTENDED: u32 = 1 << 30;
    let mut message = vec![0; LENGTH];
    // Version 7.31 of the protocol, and no read-ahead.
    let words = [(0, LENGTH as u32), (4, INIT), (8, 1), (40, 7), (44, 31)];
    for (at, word) in words.into_iter().chain([(52, EXTENDED)]) {
        message[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with words at these offsets.
    fn header(words: &[(usize, u32)]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        for &(at, word) in words {
            header[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        header
    }

    #[test]
    fn writes_are_read_and_the_rest_goes_on_as_it_came() {
        let length = 40 + 40 + 3;
        let words = [
            (0, length),
            (4, WRITE),
            (8, 77),
            (16, 5),
            (24, 10),
            (28, 100),
            (32, 99),
        ];
        let operation = [(136, 4096), (144, 3), (148, 4), (160, 0o2001), (272, 3)];
        let mut header = header(&[&words[..], &operation].concat());
        let write = Write {
            inode: 5,
            offset: 4096,
            how: 4,
            opened: 0o2001,
            asker: [10, 100, 99],
        };
        let asked = asked(&header);
        assert_eq!((asked.unique, asked.payload), (77, 3));
        assert_eq!(asked.operation, Operation::Write(write));
        let parts = message(&mut header, b"abc", 10).expect("right lengths");
        assert_eq!(parts.map(<[u8]>::len), [40, 40, 3]);
        assert_eq!(parts.concat().len(), length as usize);
    }

    #[test]
    fn directories_are_read_in_pieces_and_wrong_lengths_not_at_all() {
        let words = [(0, 80), (4, READDIRPLUS), (144, 1 << 20)];
        let mut listing = header(&words);
        let parts = message(&mut listing, &[], 65_536).expect("right lengths");
        assert_eq!(u32_at(parts[1], 16), 65_536);
        let mut short = header(&words);
        assert_eq!(message(&mut short, &[0; 41], 65_536), None);
        let mut long = header(&[(0, 40 + 129), (4, READDIR)]);
        assert_eq!(message(&mut long, &[], 65_536), None);
    }

    #[test]
    fn answers_come_back_as_they_were_sent() {
        let mut header = [0; HEADER_BYTES];
        answer(&mut header, 77, 2, 0);
        assert_eq!(answered(&header[..16]), Some((77, 2, &[][..])));
        answer(&mut header, 78, 0, 3);
        let message = [&header[..16], b"abc"].concat();
        assert_eq!(answered(&message), Some((78, 0, &b"abc"[..])));
        assert_eq!(answered(&message[..18]), None);
        assert_eq!(answered(&message[..15]), None);
    }
}

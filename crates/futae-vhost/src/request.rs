//! virtio-blk requests, read from chains of descriptors.

use crate::chain::{Chain, Segment, gather, length};
use crate::device::{Device, RANGES_MAX, REQUEST_BYTES_MAX, SECTOR_BYTES};
use futae_engine::{IoBuf, IoErrorKind, Operation};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH,
    VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use vm_memory::{GuestAddress, GuestMemoryMmap};

/// Bytes of a request's header: its type, four reserved bytes, its first sector.
const HEADER_BYTES: u64 = 16;
/// Bytes of one range of a discard.
const RANGE_BYTES: u64 = 16;

/// The action for a request.
#[derive(Debug)]
pub(crate) enum Action {
    /// Read this many bytes into the writable memory.
    Read { offset: u64, length: u64 },
    /// Write this many bytes that follow the header.
    Write { offset: u64, length: u64 },
    /// Write everything that was answered before to stable storage.
    Flush,
    /// A discard or a write of zeroes with this many ranges; see [`ranges`].
    Ranges { count: u32, discards: bool },
    /// Copy the serial number to the writable memory.
    Id,
}

/// A status byte other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u8);

pub(crate) const IO_ERROR: Status = Status(VIRTIO_BLK_S_IOERR as u8);
pub(crate) const UNSUPPORTED: Status = Status(VIRTIO_BLK_S_UNSUPP as u8);

impl From<IoErrorKind> for Status {
    fn from(kind: IoErrorKind) -> Self {
        match kind {
            IoErrorKind::Unsupported => UNSUPPORTED,
            _ => IO_ERROR,
        }
    }
}

/// Takes the status byte, the last writable one, off the chain; `None` if no memory is writable.
pub(crate) fn split_status(chain: &mut Chain) -> Option<GuestAddress> {
    loop {
        let last = chain.writable.last_mut()?;
        if last.length == 0 {
            chain.writable.pop();
            continue;
        }
        last.length -= 1;
        return Some(GuestAddress(
            last.address.0.saturating_add(u64::from(last.length)),
        ));
    }
}

/// Decodes the request. The header is read once.
pub(crate) fn read(
    memory: &GuestMemoryMmap,
    chain: &Chain,
    device: &Device,
) -> Result<Action, Status> {
    let mut header = [0; HEADER_BYTES as usize];
    if !gather(memory, &chain.readable, 0, &mut header) {
        return Err(IO_ERROR);
    }
    let raw = u128::from_le_bytes(header);
    let (kind, sector) = (raw as u32, (raw >> 64) as u64);
    let payload = length(&chain.readable) - HEADER_BYTES;
    let room = length(&chain.writable);
    let writes = matches!(
        kind,
        VIRTIO_BLK_T_OUT | VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES
    );
    if writes && device.read_only {
        return Err(IO_ERROR);
    }
    match kind {
        VIRTIO_BLK_T_IN => {
            let offset = place(device, sector, room)?;
            Ok(Action::Read {
                offset,
                length: room,
            })
        }
        VIRTIO_BLK_T_OUT => {
            let offset = place(device, sector, payload)?;
            Ok(Action::Write {
                offset,
                length: payload,
            })
        }
        VIRTIO_BLK_T_FLUSH => Ok(Action::Flush),
        VIRTIO_BLK_T_GET_ID => Ok(Action::Id),
        VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
            let count = payload / RANGE_BYTES;
            let is_whole = payload.is_multiple_of(RANGE_BYTES);
            if !is_whole || count == 0 || count > u64::from(RANGES_MAX) {
                return Err(IO_ERROR);
            }
            Ok(Action::Ranges {
                count: count as u32,
                discards: kind == VIRTIO_BLK_T_DISCARD,
            })
        }
        _ => Err(UNSUPPORTED),
    }
}

/// The first byte of a transfer of `length` bytes, if it consists of whole sectors within the
/// device and is not too long.
fn place(device: &Device, sector: u64, length: u64) -> Result<u64, Status> {
    let is_legal = length.is_multiple_of(SECTOR_BYTES) && length <= REQUEST_BYTES_MAX;
    if length == 0 || !is_legal {
        return Err(IO_ERROR);
    }
    let end = sector.checked_add(length / SECTOR_BYTES);
    if end.is_none_or(|end| end > device.sectors()) {
        return Err(IO_ERROR);
    }
    Ok(sector * SECTOR_BYTES)
}

/// The data of a write.
pub(crate) fn payload(
    memory: &GuestMemoryMmap,
    readable: &[Segment],
    length: u64,
) -> Result<IoBuf, Status> {
    let mut data = IoBuf::new(length as usize);
    if gather(memory, readable, HEADER_BYTES, data.as_mut_slice()) {
        Ok(data)
    } else {
        Err(IO_ERROR)
    }
}

/// The operations of a discard or a write of zeroes with this many ranges, provided that all of
/// them are valid. Only writes of zeroes can be durable by themselves (`fua`).
pub(crate) fn ranges(
    memory: &GuestMemoryMmap,
    readable: &[Segment],
    device: &Device,
    (count, discards): (u32, bool),
    fua: bool,
) -> Result<Vec<Operation>, Status> {
    let mut bytes = vec![0; count as usize * RANGE_BYTES as usize];
    if !gather(memory, readable, HEADER_BYTES, &mut bytes) {
        return Err(IO_ERROR);
    }
    let mut operations = Vec::new();
    for range in bytes.as_chunks::<{ RANGE_BYTES as usize }>().0 {
        let raw = u128::from_le_bytes(*range);
        let (sector, sectors) = (raw as u64, u64::from((raw >> 64) as u32));
        let flags = (raw >> 96) as u32;
        let unmap = flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
        if flags & !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0 || (discards && unmap) {
            return Err(UNSUPPORTED);
        }
        let end = sector.checked_add(sectors);
        if end.is_none_or(|end| end > device.sectors()) {
            return Err(IO_ERROR);
        }
        if sectors == 0 {
            continue;
        }
        let (offset, length) = (sector * SECTOR_BYTES, sectors * SECTOR_BYTES);
        operations.push(if discards {
            Operation::Trim { offset, length }
        } else {
            Operation::WriteZeroes {
                offset,
                length,
                fua,
                no_hole: !unmap,
            }
        });
    }
    Ok(operations)
}

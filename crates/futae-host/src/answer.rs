//! Replies on the wire.

use crate::mailbox::{Completion, Tag, TagKind};
use crate::outbox::Frame;
use futae_engine::{Extent, IoBuf, IoError, IoErrorKind};
use futae_nbd::constants::{BASE_ALLOCATION_ID, STATE_HOLE, STATE_ZERO};
use futae_nbd::{ErrorNumber, reply};

/// The largest number of extents per answer to BLOCK_STATUS; the client asks again for the rest.
const EXTENTS_MAX: usize = 4096;
/// Memory for such an answer, and for the store's answer from which it is made.
pub(crate) const BLOCK_STATUS_BYTES: u64 = 1 << 20;
/// Bytes of a volume per query for extents to a store, so that the store's answer is bounded.
pub(crate) const BLOCK_STATUS_RANGE: u64 = 128 << 20;

/// The NBD error number for a failure in the cache.
fn number(kind: IoErrorKind) -> ErrorNumber {
    u32::try_from(kind.errno())
        .ok()
        .and_then(ErrorNumber::from_code)
        .unwrap_or(ErrorNumber::InputOutput)
}

/// The error text for a client. The engine's own messages name files of the host and are not sent.
fn reason(kind: IoErrorKind) -> &'static str {
    match kind {
        IoErrorKind::OutOfRange => "the range is not within the export",
        IoErrorKind::ReadOnly => "the export cannot be written",
        IoErrorKind::NoSpace => "the export's store has no room left",
        IoErrorKind::Unsupported => "the export's store cannot do this",
        IoErrorKind::Store => "the export's store failed",
        IoErrorKind::Shutdown => "the server stops",
    }
}

/// The reply to a completed request; `None` for requests without a reply.
pub(crate) fn completed(completion: Completion, structured: bool) -> Option<Frame> {
    let Completion { tag, result } = completion;
    match result {
        _ if tag.kind == TagKind::Silent => None,
        Ok(data) if tag.kind == TagKind::Read => Some(data_frame(&tag, data, structured)),
        Ok(data) if tag.kind == TagKind::Encoded => Some(Frame::data(&[], data, tag.held_bytes)),
        Ok(_) => Some(success(tag.cookie, tag.held_bytes)),
        Err(error) => Some(io_failure(&tag, &error, structured)),
    }
}

fn data_frame(tag: &Tag, data: IoBuf, structured: bool) -> Frame {
    if !structured {
        return Frame::data(&reply::simple(tag.cookie, None), data, tag.held_bytes);
    }
    // A READ has at most 32 MiB; an empty one was answered earlier.
    let bytes = data.len() as u32;
    Frame::data(
        &reply::data(tag.cookie, tag.offset, bytes, true),
        data,
        tag.held_bytes,
    )
}

/// Success without data.
pub(crate) fn success(cookie: u64, held_bytes: u64) -> Frame {
    Frame::head(&reply::simple(cookie, None), held_bytes)
}

/// The reply to an empty READ. With structured replies, even this one must be structured.
pub(crate) fn empty_read(cookie: u64, structured: bool) -> Frame {
    if structured {
        Frame::head(&reply::done(cookie), 0)
    } else {
        success(cookie, 0)
    }
}

fn io_failure(tag: &Tag, error: &IoError, structured: bool) -> Frame {
    failure(
        tag.cookie,
        number(error.kind),
        reason(error.kind),
        structured,
        tag.held_bytes,
    )
}

/// An error reply, with the reason if the client can read one.
pub(crate) fn failure(
    cookie: u64,
    error: ErrorNumber,
    why: &str,
    structured: bool,
    held_bytes: u64,
) -> Frame {
    if !structured {
        return Frame::head(&reply::simple(cookie, Some(error)), held_bytes);
    }
    let mut bytes = Vec::new();
    reply::append_error(&mut bytes, cookie, error, why);
    Frame::bytes(bytes, held_bytes)
}

/// The wire format of an answer to BLOCK_STATUS, for `length_bytes` from the request's offset on.
pub(crate) fn block_status(
    cookie: u64,
    extents: &[Extent],
    length_bytes: u32,
    only_first: bool,
) -> Result<IoBuf, IoError> {
    let mut described = merged(extents, length_bytes);
    described.truncate(if only_first { 1 } else { EXTENTS_MAX });
    if described.is_empty() {
        let why = "the store described nothing";
        return Err(IoError::new(IoErrorKind::Store, why));
    }
    let mut bytes = Vec::new();
    reply::append_block_status(&mut bytes, cookie, BASE_ALLOCATION_ID, &described, true);
    Ok(IoBuf::copy_of(&bytes))
}

/// The extents within `length_bytes`; adjacent ones of the same kind are merged.
fn merged(extents: &[Extent], length_bytes: u32) -> Vec<reply::Extent> {
    let mut left = length_bytes;
    let mut described: Vec<reply::Extent> = Vec::new();
    for extent in extents {
        let length = u32::try_from(extent.length).unwrap_or(u32::MAX).min(left);
        if length == 0 {
            continue;
        }
        left -= length;
        let state = if extent.hole {
            STATE_HOLE | STATE_ZERO
        } else {
            0
        };
        match described.last_mut() {
            Some(last) if last.state == state => last.length_bytes += length,
            _ => described.push(reply::Extent {
                length_bytes: length,
                state,
            }),
        }
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_cut_to_the_request_and_merged() {
        let extent = |length, hole| Extent { length, hole };
        let extents = [
            extent(10, false),
            extent(5, false),
            extent(0, true),
            extent(7, true),
            extent(1 << 40, false),
        ];
        let described = merged(&extents, 100);
        let lengths: Vec<_> = described
            .iter()
            .map(|e| (e.length_bytes, e.state))
            .collect();
        assert_eq!(lengths, [(15, 0), (7, STATE_HOLE | STATE_ZERO), (78, 0)]);
        assert!(merged(&[], 5).is_empty());
    }

    #[test]
    fn every_kind_of_failure_has_a_number_of_the_protocol() {
        for (kind, expected) in [
            (IoErrorKind::OutOfRange, ErrorNumber::Invalid),
            (IoErrorKind::ReadOnly, ErrorNumber::NotPermitted),
            (IoErrorKind::NoSpace, ErrorNumber::NoSpace),
            (IoErrorKind::Unsupported, ErrorNumber::NotSupported),
            (IoErrorKind::Store, ErrorNumber::InputOutput),
            (IoErrorKind::Shutdown, ErrorNumber::ShuttingDown),
        ] {
            assert_eq!(number(kind), expected);
        }
    }
}

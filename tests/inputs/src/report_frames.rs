//! Arbitrary bytes into the reader of agents' frames: as a stream, as the payload of a frame whose
//! checksums are right, and as a line of JSON. The first byte chooses. All of it also goes to the reader of
//! batches of evicted pages.

use futae_agent_protocol::evicted_pages::{EvictedPages, HEAD_BYTES, MAGIC, PAGES_MAX};
use futae_agent_protocol::{Frame, MAX_PAYLOAD_BYTES, PAGE_BYTES, Stream};

/// One input.
pub fn run(input: &[u8]) {
    evicted_pages(input);
    let Some((&choice, input)) = input.split_first() else {
        return;
    };
    match choice % 8 {
        0 => {
            let whole = read(input, input.len().max(1));
            assert_eq!(
                whole,
                read(input, 1 + usize::from(choice / 8)),
                "pieces change nothing"
            );
        }
        7 if choice < 128 => {
            if let Some(frame) = str::from_utf8(input)
                .ok()
                .and_then(|line| Frame::from_json(line).ok())
            {
                assert_eq!(Frame::from_json(&frame.to_json()), Ok(frame));
            }
        }
        kind => {
            read(&framed(kind, input), 4096);
        }
    }
}

/// A batch for as many pages as the input claims, and the input as it is.
fn evicted_pages(input: &[u8]) {
    let _ = EvictedPages::decode(input);
    let mut bytes = vec![0; HEAD_BYTES];
    let length = input.len().min(HEAD_BYTES - 20);
    bytes[..16].copy_from_slice(&MAGIC);
    bytes[16] = 1;
    bytes[20..20 + length].copy_from_slice(&input[..length]);
    let claimed = u32::from_le_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]) as usize;
    bytes.resize(
        HEAD_BYTES + claimed.min(2 * PAGES_MAX) * PAGE_BYTES as usize,
        0,
    );
    let read = EvictedPages::decode(&bytes);
    assert_eq!(read.is_ok(), claimed <= PAGES_MAX);
    if let Ok(batch) = read {
        assert_eq!(batch.pages.len(), claimed);
        let mut again = [0; HEAD_BYTES];
        batch.encode(&mut again);
        let data = [&again[..], &bytes[HEAD_BYTES..]].concat();
        assert_eq!(EvictedPages::decode(&data), Ok(batch));
    }
}

/// A frame of this kind around `payload`, with the checksums that belong to it.
fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(MAX_PAYLOAD_BYTES)];
    let mut bytes = b"FtRp\x01".to_vec();
    bytes.extend_from_slice(&[kind, 0, 0]);
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    bytes.extend_from_slice(&7u64.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Every frame in `bytes`, fed in pieces. What was read is written as it was.
fn read(bytes: &[u8], step: usize) -> Vec<Frame> {
    let (mut stream, mut frames) = (Stream::default(), Vec::new());
    for piece in bytes.chunks(step) {
        stream.feed(piece);
        while let Some(frame) = stream.next_frame() {
            let mut again = Stream::default();
            again.feed(&frame.encode());
            assert_eq!(again.next_frame().as_ref(), Some(&frame));
            frames.push(frame);
        }
    }
    assert!(stream.pending() <= bytes.len());
    frames
}

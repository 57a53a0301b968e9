//! Arbitrary bytes into the reader of agents' frames: as a stream, as the payload of a frame whose
//! checksums are right, and as a line of JSON. The first byte chooses.

#![no_main]

use futae_agent_protocol::{Frame, MAX_PAYLOAD_BYTES, Stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, input)) = input.split_first() else {
        return;
    };
    match choice % 8 {
        0 => {
            let whole = read(input, input.len().max(1));
            assert_eq!(whole, read(input, 1 + usize::from(choice / 8)), "pieces change nothing");
        }
        7 => {
            if let Some(frame) = str::from_utf8(input).ok().and_then(|line| Frame::from_json(line).ok())
            {
                assert_eq!(Frame::from_json(&frame.to_json()), Ok(frame));
            }
        }
        kind => {
            read(&framed(kind, input), 4096);
        }
    }
});

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

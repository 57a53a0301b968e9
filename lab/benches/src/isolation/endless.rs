//! An NBD server whose answers never end: chunks over the same range, and extents, for ever.

use futae_nbd::constants::STATE_ZERO;
use futae_nbd::reply::{self, Extent};
use futae_nbd::{
    Capabilities, Command, DemotionOffer, ExportDirectory, ExportInfo, Handshake, Outcome,
    RequestHeader, greeting, parse_request,
};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

const SIZE_BYTES: u64 = 1 << 30;
const EXTENTS: usize = 32 << 10;
const DATA_BYTES: usize = 64 << 10;

struct Shelf;

impl ExportDirectory for Shelf {
    fn list(&self) -> Vec<ExportInfo> {
        vec![ExportInfo {
            name: "endless".into(),
            description: String::new(),
            size_bytes: SIZE_BYTES,
            read_only: false,
            preferred_block_bytes: 4096,
            capabilities: Capabilities::all(),
        }]
    }

    fn demotion(&self) -> DemotionOffer {
        DemotionOffer::Unknown
    }
}

/// Serves on threads of its own until the process ends.
pub fn serve(socket: &Path) -> std::io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves is done.
            thread::spawn(move || drop(talk(stream)));
        }
    });
    Ok(())
}

fn talk(mut stream: UnixStream) -> anyhow::Result<()> {
    stream.write_all(&greeting())?;
    let mut handshake = Handshake::new(Shelf);
    let (mut received, mut part, mut out) = (Vec::new(), [0; 4096], Vec::new());
    loop {
        let progress = handshake.feed(&received, &mut out)?;
        received.drain(..progress.consumed);
        stream.write_all(&out)?;
        out.clear();
        match progress.outcome {
            Outcome::NeedMore => take(&mut stream, &mut part, &mut received)?,
            // Neither offers TLS.
            Outcome::Aborted | Outcome::StartTls => return Ok(()),
            Outcome::Done(_) => break,
        }
    }
    loop {
        while let Some((request, used)) = parse_request(&received)? {
            let whole = used + request.payload_bytes() as usize;
            while received.len() < whole {
                take(&mut stream, &mut part, &mut received)?;
            }
            received.drain(..whole);
            answer(&mut stream, &request)?;
        }
        take(&mut stream, &mut part, &mut received)?;
    }
}

fn take(stream: &mut UnixStream, part: &mut [u8], into: &mut Vec<u8>) -> anyhow::Result<()> {
    let count = stream.read(part)?;
    anyhow::ensure!(count > 0, "the client is gone");
    into.extend_from_slice(&part[..count]);
    Ok(())
}

/// Reads and block status are answered without end, the rest as it should be.
fn answer(stream: &mut UnixStream, request: &RequestHeader) -> anyhow::Result<()> {
    let cookie = request.cookie;
    match request.command {
        Command::Read => {
            let bytes = DATA_BYTES.min(request.length_bytes as usize).max(1);
            let mut chunk = reply::data(cookie, request.offset, bytes as u32, false).to_vec();
            chunk.resize(chunk.len() + bytes, 0xA5);
            loop {
                stream.write_all(&chunk)?;
            }
        }
        Command::BlockStatus => {
            let mut chunk = Vec::new();
            let extents = vec![
                Extent {
                    length_bytes: 4096,
                    state: STATE_ZERO
                };
                EXTENTS
            ];
            let id = futae_nbd::constants::BASE_ALLOCATION_ID;
            reply::append_block_status(&mut chunk, cookie, id, &extents, false);
            loop {
                stream.write_all(&chunk)?;
            }
        }
        Command::Disconnect => anyhow::bail!("goodbye"),
        _ => stream.write_all(&reply::simple(cookie, None))?,
    }
    Ok(())
}

//! A small pipelining NBD client that measures hot random reads of any server.
//!
//!     cargo run --release -p futae-host --example pipeline -- SOCKET [EXPORT] [SECONDS] [DEPTH]
//!
//! It reads the whole export once, then for each queue depth keeps that many 4 KiB reads under
//! way: replies are received as they come, and as many new requests leave in one write.

use futae_nbd::{ClientWish, Command, RequestHeader, client};
use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const REPLY: usize = 16 + BLOCK as usize;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments
        .next()
        .ok_or("usage: pipeline SOCKET [EXPORT] [SECONDS] [DEPTH]")?;
    let name = arguments.next().unwrap_or_default();
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let only: Option<usize> = arguments.next().map(|text| text.parse()).transpose()?;
    let mut stream = UnixStream::connect(socket)?;
    let export = client::negotiate(&mut stream, &name, &ClientWish::default())?;
    warm(&mut stream, export.size_bytes)?;
    let mut prng = futae_policy::Prng::new(1);
    for depth in only.map_or_else(|| vec![1, 4, 16, 64, 128], |depth| vec![depth]) {
        let rate = measure(&mut stream, &mut prng, export.size_bytes, depth, seconds)?;
        println!("depth {depth:>3}: {:>8.1} thousand reads/s", rate / 1e3);
    }
    Ok(())
}

fn warm(stream: &mut UnixStream, size_bytes: u64) -> Result<(), Box<dyn Error>> {
    const CHUNK: u64 = 1 << 20;
    let mut reply = vec![0; 16 + CHUNK as usize];
    for at in 0..size_bytes / CHUNK {
        stream
            .write_all(&RequestHeader::new(Command::Read, 0, at * CHUNK, CHUNK as u32).encode())?;
        stream.read_exact(&mut reply)?;
    }
    Ok(())
}

fn measure(
    stream: &mut UnixStream,
    prng: &mut futae_policy::Prng,
    size_bytes: u64,
    depth: usize,
    seconds: f64,
) -> Result<f64, Box<dyn Error>> {
    let mut requests = Vec::new();
    let mut received = vec![0; REPLY * depth.max(64)];
    let (mut fresh, mut partial, mut done, mut outstanding) = (depth, 0, 0u64, 0);
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    loop {
        if Instant::now() < end {
            requests.clear();
            for _ in 0..fresh {
                let offset = prng.below(size_bytes / BLOCK) * BLOCK;
                let header = RequestHeader::new(Command::Read, done, offset, BLOCK as u32);
                requests.extend_from_slice(&header.encode());
            }
            stream.write_all(&requests)?;
            outstanding += fresh;
        } else if outstanding == 0 {
            return Ok(done as f64 / start.elapsed().as_secs_f64());
        }
        // Only whole replies count; what is left of one is only counted, never looked at.
        let got = stream.read(&mut received)?;
        if got == 0 {
            return Err("the server hung up".into());
        }
        partial += got;
        fresh = partial / REPLY;
        partial %= REPLY;
        outstanding -= fresh;
        done += fresh as u64;
    }
}

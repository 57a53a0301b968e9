//! A server with no cache and no store: every read is answered with the same bytes, all replies
//! that are due with one call. It shows what the socket, the copy and the client allow.

use anyhow::Context;
use futae_nbd::export::Capabilities;
use futae_nbd::reply;
use futae_nbd::{Command, ExportInfo, Handshake, Outcome, RequestHeader, greeting, parse_request};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::{IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const SEND_BUFFER_BYTES: usize = 4 << 20;
const SLICES_MAX: usize = 1024;

/// Serves an export of `size_bytes` named "floor" on a unix socket until the process ends.
pub fn serve(socket: &Path, size_bytes: u64) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            // A client that leaves is no failure.
            let _ = talk(stream, size_bytes);
        });
    }
    Ok(())
}

fn export(size_bytes: u64) -> ExportInfo {
    ExportInfo {
        name: "floor".to_owned(),
        description: String::new(),
        size_bytes,
        read_only: true,
        preferred_block_bytes: 4096,
        capabilities: Capabilities::default(),
    }
}

fn talk(mut stream: UnixStream, size_bytes: u64) -> anyhow::Result<()> {
    let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
    let mut handshake = Handshake::new(vec![export(size_bytes)]);
    stream.write_all(&greeting())?;
    let mut received = vec![0; 64 << 10];
    let (mut held, mut out) = (0, Vec::new());
    loop {
        held += receive(&mut stream, &mut received[held..])?;
        out.clear();
        let progress = handshake.feed(&received[..held], &mut out)?;
        received.copy_within(progress.consumed..held, 0);
        held -= progress.consumed;
        stream.write_all(&out)?;
        match progress.outcome {
            Outcome::NeedMore => {}
            // Neither offers TLS.
            Outcome::Aborted | Outcome::StartTls => return Ok(()),
            Outcome::Done(_) => break,
        }
    }
    let mut requests = Vec::new();
    let data = vec![0; 32 << 20];
    loop {
        requests.clear();
        let mut at = 0;
        while let Some((header, bytes)) = parse_request(&received[at..held])? {
            at += bytes;
            if header.command == Command::Disconnect {
                return Ok(());
            }
            requests.push(header);
        }
        received.copy_within(at..held, 0);
        held -= at;
        answer(&mut stream, &requests, &data)?;
        held += receive(&mut stream, &mut received[held..])?;
    }
}

fn receive(stream: &mut UnixStream, into: &mut [u8]) -> anyhow::Result<usize> {
    let received = stream.read(into)?;
    anyhow::ensure!(received > 0, "the client is gone");
    Ok(received)
}

fn answer(stream: &mut UnixStream, requests: &[RequestHeader], data: &[u8]) -> anyhow::Result<()> {
    for batch in requests.chunks(SLICES_MAX / 2) {
        let heads: Vec<_> = batch
            .iter()
            .map(|request| reply::simple(request.cookie, None))
            .collect();
        let mut slices = Vec::with_capacity(2 * batch.len());
        for (head, request) in heads.iter().zip(batch) {
            slices.push(IoSlice::new(head));
            slices.push(IoSlice::new(
                &data[..data.len().min(request.length_bytes as usize)],
            ));
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let sent = stream.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, sent);
        }
    }
    Ok(())
}

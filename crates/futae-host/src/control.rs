//! The control socket: one JSON line in, one JSON line out.
//!
//! | line | answer |
//! | --- | --- |
//! | `{"command":"status"}` | a [`crate::ServerStatus`] |
//! | `{"command":"resize","cache":"1GiB"}`, with `"export":NAME` where exports have caches of their own | `{"capacity_blocks":N}` |
//! | anything else | `{"error":SENTENCE}` |
//!
//! Several lines may follow one another on a connection.

use crate::memory::check_cache_bytes;
use crate::server::Shared;
use futae_engine::Engine;
use futae_trace::Size;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::Builder;
use std::time::Duration;

/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Connections at a time; more are closed at once.
const CONTROLLERS_MAX: usize = 32;
/// A connection that says nothing for so long is closed. It also bounds a write that nobody reads.
const IDLE: Duration = Duration::from_secs(300);

#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
enum Order {
    Status {},
    Resize { cache: Size, export: Option<String> },
}

/// Takes orders on a new connection, on a thread of its own.
pub(crate) fn welcome(shared: &Arc<Shared>, socket: OwnedFd) {
    if shared.controllers.fetch_add(1, Relaxed) >= CONTROLLERS_MAX {
        shared.controllers.fetch_sub(1, Relaxed);
        return;
    }
    let shared_there = Arc::clone(shared);
    let thread = Builder::new().name("control".into()).spawn(move || {
        // A peer that went away or fell silent is nobody's concern.
        let _ = take_orders(&shared_there, UnixStream::from(socket));
        shared_there.controllers.fetch_sub(1, Relaxed);
    });
    if thread.is_err() {
        shared.controllers.fetch_sub(1, Relaxed);
    }
}

fn take_orders(shared: &Shared, stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut lines = BufReader::new(&stream);
    loop {
        if lines.buffer().is_empty() && stopped_before(shared, &stream)? {
            return Ok(());
        }
        let mut line = Vec::new();
        let received = (&mut lines)
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)?;
        if received == 0 {
            return Ok(());
        }
        let too_long = received as u64 > LINE_BYTES_MAX;
        let answer = if too_long {
            json!({ "error": format!("a line has at most {LINE_BYTES_MAX} bytes") })
        } else {
            obey(shared, &line)
        };
        (&stream).write_all(format!("{answer}\n").as_bytes())?;
        if too_long {
            return Ok(());
        }
    }
}

/// Waits for the next line to begin; `true` if the server stops first.
fn stopped_before(shared: &Shared, stream: &UnixStream) -> io::Result<bool> {
    let mut fds = [
        PollFd::new(&shared.stop, PollFlags::IN),
        PollFd::new(stream, PollFlags::IN),
    ];
    let idle = Timespec::try_from(IDLE).ok();
    poll(&mut fds, idle.as_ref())?;
    Ok(fds[0].revents().contains(PollFlags::IN))
}

fn obey(shared: &Shared, line: &[u8]) -> Value {
    let done = match serde_json::from_slice::<Order>(line) {
        Ok(Order::Status {}) => serde_json::to_value(shared.status()).map_err(|e| e.to_string()),
        Ok(Order::Resize { cache, export }) => resize(shared, cache, export.as_deref()),
        Err(error) => Err(format!("not an order: {error}")),
    };
    done.unwrap_or_else(|error| json!({ "error": error }))
}

fn resize(shared: &Shared, cache: Size, export: Option<&str>) -> Result<Value, String> {
    let engine = cache_of(shared, export)?;
    let block_bytes = engine.block_bytes();
    let blocks = cache
        .blocks(block_bytes)
        .map_err(|error| error.to_string())?;
    check_cache_bytes(blocks.saturating_mul(block_bytes))?;
    let blocks = match u32::try_from(blocks) {
        Ok(0) => return Err("a cache has at least one block".to_owned()),
        Ok(blocks) => blocks,
        Err(_) => return Err(format!("a cache has at most {} blocks", u32::MAX)),
    };
    engine.resize(blocks).map_err(|error| error.to_string())?;
    Ok(json!({ "capacity_blocks": blocks }))
}

fn cache_of(shared: &Shared, export: Option<&str>) -> Result<Arc<Engine>, String> {
    if let Some(name) = export {
        let export = shared.exports.get(name);
        return export
            .map(|export| Arc::clone(&export.engine))
            .ok_or_else(|| format!("no export is named {name:?}"));
    }
    let mut engines = shared.exports.engines();
    match engines.len() {
        1 => Ok(engines.remove(0)),
        count => Err(format!("there are {count} caches; say which by \"export\"")),
    }
}

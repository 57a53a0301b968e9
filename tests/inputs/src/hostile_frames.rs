//! Agents that say what the input says, to the feed of a server and to that of an allocator:
//! ranges of whole volumes, floods, replays, other runs, names with escapes, huge counts. Whatever
//! they say: no panic, nothing of other volumes, nothing twice, and a stop that does not wait for
//! the work that they asked for.

use crate::common::{BLOCK, MemoryStore, StoreEvent};
pub use crate::hostile::speaker::seeds;
use crate::hostile::speaker::{SECTORS, SIZE, Said, speech};
use crate::hostile::{Script, eventually, sockets, stamped};
use futae_agent_protocol::receiver::{Dispatch, SampleSink, Stop};
use futae_agent_protocol::{Frame, References};
use futae_allocate::OnlineCurve;
use futae_balance::config::AgentConfig;
use futae_balance::feed::{Feed, Inbox};
use futae_host::{FeedOptions, Listen, Server, ServerOptions};
use futae_testkit::wait::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Blocks in notices from which on nobody waits until all of them have been heard.
const LONG_SPEECH_BLOCKS: u64 = 50_000;
/// Blocks that a feed may still tell the cache of once it is to stop. A single hostile frame asks
/// for sixteen times as many.
const BLOCKS_AFTER_STOP_MAX: u64 = 500_000;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else {
        return;
    };
    match choice % 8 {
        0..4 => to_the_server(choice, &speech(&mut Script::new(input))),
        4 => to_the_allocator(&speech(&mut Script::new(input))),
        _ => to_an_inbox(&speech(&mut Script::new(input))),
    }
}

/// An agent says it all and hangs up; with `waits` once all of it has been heard.
fn tell(path: &Path, said: &Said, waits: bool) {
    let mut stream = UnixStream::connect(path).expect("a feed");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    if !waits {
        stream.set_nonblocking(true).expect("a socket");
    }
    for part in said.bytes.chunks(48 << 10) {
        // A feed that has enough may hang up, or let the speaker wait.
        if stream.write_all(part).is_err() {
            return;
        }
    }
    if waits {
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let end = loop {
            match stream.read(&mut [0]) {
                // The fuzzer's own clock.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                end => break end,
            }
        };
        // It may also hang up before it has read all of it.
        let reset = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(
            end.as_ref().map_or_else(reset, |&count| count == 0),
            "the feed neither hears to the end nor hangs up: {end:?}"
        );
    }
}

fn to_the_server(choice: u8, said: &Said) {
    let policy = ["exclusive(keep_served=true)", "exclusive", "lru", "arc"];
    // Less than the volume, so that notices are read from the store; or more, so that they are not.
    let slots = if choice < 2 { 64 } else { 4096 };
    let engine = crate::common::engine(policy[usize::from(choice % 4)], slots);
    let stores = [0, 1].map(|owner| MemoryStore::new(stamped(owner, 0, SIZE)));
    let export = |(name, store)| crate::common::export(&engine, name, store);
    let exports: Vec<_> = ["open", "honest"]
        .into_iter()
        .zip(&stores)
        .map(export)
        .collect();
    let directory = sockets();
    let path = directory.path().join("feed.sock");
    let options = ServerOptions {
        listen: vec![Listen::Unix(directory.path().join("nbd.sock"))],
        feeds: vec![FeedOptions {
            exports: vec!["open".into()],
            path: path.clone(),
            access: Default::default(),
        }],
        ..ServerOptions::default()
    };
    let honest = exports[1].clone();
    let server = Server::start(options, exports).expect("a server");
    let is_short = said.blocks < LONG_SPEECH_BLOCKS;
    tell(&path, said, is_short);
    // Notices go on by themselves, as the reads of those before them end.
    let settled = || eventually("notices end", || engine.reads_under_way() == 0);
    if is_short {
        settled();
        let heard = engine.status().counters.notices_in;
        assert!(heard <= said.blocks, "{heard} blocks of {}", said.blocks);
        if said.runs == 1 {
            tell(&path, said, true);
            settled();
            let again = engine.status().counters.notices_in;
            assert_eq!(again, heard, "what was played again was taken again");
        }
    } else {
        eventually("the speech has begun", || {
            let feed = server.status().feeds[0].agent.clone();
            feed.ranges + feed.refused_ranges + feed.replayed_frames + feed.frames > 0
        });
    }
    let client = engine.join(honest.volume);
    let data = engine.read_blocking(honest.volume, client, 5 * BLOCK, BLOCK);
    assert!(data.is_ok_and(|data| data.as_slice() == &stamped(1, 5 * BLOCK, BLOCK as usize)[..]));
    let before = engine.status().counters.notices_in;
    let report = server.stop();
    let after = engine.status().counters.notices_in;
    assert!(
        after - before < BLOCKS_AFTER_STOP_MAX,
        "{} blocks of notices were told after the stop",
        after - before
    );
    assert_eq!(report.flush_errors, []);
    eventually("no read is under way", || engine.reads_under_way() == 0);
    engine.audit();
    let is_write = |event: &StoreEvent| !matches!(event, StoreEvent::Read(_) | StoreEvent::Flush);
    assert_eq!(
        stores.map(|store| store.count(is_write)),
        [0, 0],
        "an agent writes nothing"
    );
}

/// Takes what came, and holds it against what may be.
fn take(activity: Option<futae_allocate::Activity>) -> bool {
    let Some(activity) = activity else {
        return false;
    };
    if let Some(pressure) = activity.pressure {
        assert!((0.0..=1.0).contains(&pressure), "{activity:?}");
    }
    true
}

/// An inbox, and what fills it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Inbox>>);

impl Shared {
    fn collect(&self, curve: Option<&mut OnlineCurve>) -> Option<futae_allocate::Activity> {
        self.0.lock().expect("a lock").collect(curve)
    }
}

impl SampleSink for Shared {
    fn take(&mut self, frame: &Frame) {
        self.0.lock().expect("a lock").take(frame);
    }
}

fn to_an_inbox(said: &Said) {
    let inbox = Shared::default();
    let stop = Stop::new().expect("a descriptor");
    let mut dispatch = Dispatch::default().samples_to(inbox.clone());
    let mut curve = OnlineCurve::new(SECTORS, 1);
    for (number, frame) in said.frames.iter().enumerate() {
        dispatch.frame(frame.clone(), &stop);
        if number % 5 == 4 {
            take(inbox.collect(Some(&mut curve)));
        }
    }
    take(inbox.collect(Some(&mut curve)));
    let before = dispatch.status().replayed_frames;
    // An attacker who recorded it plays it again.
    if said.runs <= 64 {
        for frame in &said.frames {
            dispatch.frame(frame.clone(), &stop);
        }
        assert!(
            !take(inbox.collect(None)),
            "what was played again was taken again"
        );
        assert_eq!(
            dispatch.status().replayed_frames - before,
            said.frames.len() as u64
        );
    }
}

fn to_the_allocator(said: &Said) {
    let directory = sockets();
    let path = directory.path().join("agent.sock");
    let feed = Feed::start(&AgentConfig::Listen(path.clone())).expect("a feed");
    let mut curve = OnlineCurve::new(u64::from(References::ALL), 1);
    tell(&path, said, false);
    take(feed.take(Some(&mut curve)));
    // Ends its thread, and waits for it.
    drop(feed);
    assert!(!path.exists(), "the socket goes with its feed");
}

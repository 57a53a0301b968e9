//! An NBD server whose replies are the input, against the store that reads from it. Whatever it
//! sends: no panic, no caller who waits for ever, and no byte in a READ that succeeds but those
//! that this server sent for that place.

use crate::hostile::player::{Player, Sent, Terms};
use crate::hostile::{Script, sockets, stamp};
use futae_engine::{IoBuf, Store, StoreOperation, StoreResult};
use futae_nbd::NbdUri;
use futae_nbd_store::NbdStore;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// What recycled buffers hold; no byte of the server's data has its highest bits.
const POISON: u8 = 0xEE;
/// A caller who waits for longer waits for ever.
const HANG: Duration = futae_testkit::wait::PATIENCE;

/// One input.
pub fn run(input: &[u8]) {
    let (orders, replies) = input.split_at(input.len().min(1).max(input.len() / 3));
    let mut orders = Script::new(orders);
    let shape = orders.byte();
    let minimum = [1, 1, 512, 4096][usize::from(shape & 3)];
    let terms = Terms {
        size_bytes: (256 << 10) + if minimum == 1 { 100 } else { 0 },
        minimum,
        longest: if shape & 4 == 0 { 32 << 20 } else { 16 << 10 },
        structured: shape & 8 == 0,
        demotion: shape & 16 == 0,
    };
    // A second connection takes a second, so few inputs have one.
    let again = shape >= 0xFD;
    let sent = Arc::new(Sent::default());
    let directory = sockets();
    let path = directory.path().join("nbd.sock");
    let listener = &UnixListener::bind(&path).expect("a socket");
    std::thread::scope(|scope| {
        let theirs = Arc::clone(&sent);
        scope.spawn(move || serve(listener, Script::new(replies), terms, &theirs, again));
        ask(&path, &mut orders, again, &sent);
        // The server may wait for a second connection that nobody needed.
        drop(UnixStream::connect(&path));
    });
}

fn serve(
    listener: &UnixListener,
    mut script: Script<'_>,
    mut terms: Terms,
    sent: &Arc<Sent>,
    again: bool,
) {
    for round in 0..1 + u8::from(again) {
        let Ok((stream, _)) = listener.accept() else {
            return;
        };
        script = Player::new(stream, script, terms, Arc::clone(sent)).play();
        if round == 0 && again {
            terms.size_bytes += [0, 0, 4096][usize::from(script.byte() % 3)];
        }
    }
}

/// A READ that was asked for, or another operation.
struct Asked {
    range: Option<(u64, usize)>,
    answer: Receiver<StoreResult>,
}

fn begin(store: &NbdStore, sequence: u64, operation: StoreOperation) -> Asked {
    let range = match &operation {
        StoreOperation::Read { offset, buffer } => Some((*offset, buffer.len())),
        _ => None,
    };
    let (sender, answer) = channel();
    // A caller of the fuzz target always listens.
    store.submit(
        sequence,
        operation,
        Box::new(move |result| drop(sender.send(result))),
    );
    Asked { range, answer }
}

/// A buffer in which every byte that nobody writes can be told.
fn poisoned(bytes: usize) -> IoBuf {
    let mut buffer = IoBuf::new(bytes);
    buffer.as_mut_slice().fill(POISON);
    buffer
}

/// Leaves poison in the buffers that this thread uses again.
fn poison_spares() {
    let pages: Vec<_> = [1, 1, 1, 1, 1, 1, 2, 3, 4, 4, 8, 15]
        .map(|pages| poisoned(pages * 4096))
        .into_iter()
        .collect();
    drop(pages);
}

fn ask(path: &Path, orders: &mut Script<'_>, again: bool, sent: &Arc<Sent>) {
    let uri: NbdUri = format!("nbd+unix:///?socket={}", path.display())
        .parse()
        .expect("an address");
    let patience = if again {
        Duration::from_secs(3)
    } else {
        Duration::ZERO
    };
    poison_spares();
    let store = NbdStore::connect_with_timeout(&uri, Some(4096), patience)
        .expect("the handshake keeps the protocol");
    let size = store.size_bytes();
    let (mut asked, mut has_asked) = (Vec::new(), false);
    for sequence in 1..=24 {
        let operation = orders.byte();
        if operation == 0 && orders.is_over() {
            break;
        }
        let bytes = orders.pick(&[4096, 1, 512, 5000, 8192, 16_384, 60_000, 65_536, 131_072]);
        let offset = match orders.byte() % 3 {
            0 => orders.below(size),
            _ => orders.below(size / 4096) * 4096,
        };
        let bytes = bytes.min(size - offset);
        let length = bytes as usize;
        let fua = operation & 64 != 0;
        match operation % 16 {
            0..8 => {
                let buffer = poisoned(length);
                asked.push(begin(
                    &store,
                    sequence,
                    StoreOperation::Read { offset, buffer },
                ));
            }
            8 | 9 => {
                let buffer = poisoned(length);
                let write = StoreOperation::Write {
                    offset,
                    buffer,
                    fua,
                };
                asked.push(begin(&store, sequence, write));
            }
            // One who asks waits for the answer: without a connection, as long as the store's patience lasts.
            10 if again && has_asked => {}
            10 => {
                has_asked = true;
                extents(&store, offset, bytes);
            }
            11 => asked.push(begin(&store, sequence, StoreOperation::Flush)),
            12 => {
                let trim = StoreOperation::Trim {
                    offset,
                    length: bytes,
                };
                asked.push(begin(&store, sequence, trim));
            }
            13 => {
                let zeroes = StoreOperation::WriteZeroes {
                    offset,
                    length: bytes,
                    fua,
                    no_hole: !fua,
                };
                asked.push(begin(&store, sequence, zeroes));
            }
            14 => store.notice(sequence, offset, bytes),
            _ => store.demote(
                sequence,
                store.generation(),
                offset / 4096 * 4096,
                poisoned(4096),
            ),
        }
    }
    for (number, asked) in asked.iter().enumerate() {
        let answer = asked.answer.recv_timeout(HANG);
        let answer = answer.unwrap_or_else(|_| panic!("operation {number} has no answer"));
        if let (Ok(buffer), Some(range)) = (answer, asked.range) {
            check(&buffer, range, sent);
        }
    }
}

/// What was sent for that place, or a hole if one was sent there.
fn check(buffer: &IoBuf, (offset, length): (u64, usize), sent: &Arc<Sent>) {
    assert_eq!(buffer.len(), length);
    if sent.is_garbled.load(Relaxed) {
        let is_poison = |part: &[u8]| part.iter().all(|&byte| byte == POISON);
        assert!(
            !buffer.as_slice().windows(32).any(is_poison),
            "poison at {offset}"
        );
        return;
    }
    let holes = sent.holes.lock().unwrap_or_else(PoisonError::into_inner);
    for (position, &byte) in (offset..).zip(buffer.as_slice()) {
        let is_hole = || byte == 0 && holes.iter().any(|hole| hole.contains(&position));
        assert!(
            byte == stamp(0, position) || is_hole(),
            "READ of {length} bytes at {offset}: {byte:#x} at {position} was not sent"
        );
    }
}

fn extents(store: &NbdStore, offset: u64, bytes: u64) {
    if let Ok(extents) = store.extents(offset, bytes) {
        let covered: u64 = extents.iter().map(|extent| extent.length).sum();
        assert_eq!(covered, bytes, "extents cover what was asked for");
        assert!(extents.iter().all(|extent| extent.length > 0));
    }
}

/// READs and the answers that once carried bytes of other volumes, and a bit of everything.
pub fn seeds() -> Vec<Vec<u8>> {
    let reads = |shape: u8, answers: &[u8]| {
        let orders: Vec<u8> = std::iter::once(shape)
            .chain((0..8).flat_map(|number| [0, 4, 1, 0, number * 2]))
            .collect();
        let replies: Vec<u8> = answers
            .iter()
            .copied()
            .cycle()
            .take(2 * orders.len())
            .collect();
        [orders, replies].concat()
    };
    let everything: Vec<u8> = (0..=255).collect();
    vec![
        reads(0, &[23]),
        reads(0, &[0]),
        reads(4, &[0, 23]),
        reads(8, &[23, 18]),
        reads(0, &[1, 3, 0, 9, 7, 7, 1, 8, 8, 0]),
        reads(0, &[3, 4, 5, 6, 11, 12, 17, 23]),
        reads(2, &[13, 1, 0, 0, 23, 9, 0, 1, 10, 0]),
        everything,
    ]
}

//! Servers in child processes, and store operations that wait.

use futae_testkit::wait::obtain;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use futae_engine::{IoBuf, IoErrorKind, Store, StoreOperation, StoreResult};
use futae_nbd::NbdUri;
use futae_nbd_store::NbdStore;

/// A server that dies with the test.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a server; says why if it is not installed.
pub(crate) fn start(program: &str, arguments: &[&str]) -> Option<Server> {
    let mut process = Command::new(program);
    process
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    match process.spawn() {
        Ok(child) => Some(Server(child)),
        Err(error) => {
            futae_testkit::need::skip(
                futae_testkit::need::Need::Tools,
                &format!("cannot run {program} ({error}); install it to run this test"),
            );
            None
        }
    }
}

pub(crate) fn uri(socket: &Path) -> NbdUri {
    format!("nbd+unix:///?socket={}", socket.display())
        .parse()
        .expect("an address")
}

/// Connects as soon as the server listens.
pub(crate) fn connect(socket: &Path) -> NbdStore {
    obtain("the server listens", || {
        NbdStore::connect(&uri(socket), Some(4096))
    })
}

/// Starts an operation.
pub(crate) fn begin(
    store: &NbdStore,
    sequence: u64,
    operation: StoreOperation,
) -> Receiver<StoreResult> {
    let (sender, receiver) = mpsc::channel();
    let caller = std::thread::current().id();
    let done = move |result| {
        assert_ne!(
            std::thread::current().id(),
            caller,
            "results come on the store's threads"
        );
        drop(sender.send(result));
    };
    store.submit(sequence, operation, Box::new(done));
    receiver
}

pub(crate) fn finish(receiver: &Receiver<StoreResult>) -> StoreResult {
    receiver
        .recv_timeout(Duration::from_secs(30))
        .expect("an answer in time")
}

/// A store, its next sequence number, and what it should contain.
pub(crate) struct Checked {
    pub(crate) store: NbdStore,
    pub(crate) sequence: u64,
    pub(crate) model: Vec<u8>,
}

impl Checked {
    pub(crate) fn new(store: NbdStore) -> Self {
        let model = vec![0; store.size_bytes() as usize];
        Self {
            store,
            sequence: 0,
            model,
        }
    }

    pub(crate) fn begin(&mut self, operation: StoreOperation) -> Receiver<StoreResult> {
        self.sequence += 1;
        begin(&self.store, self.sequence, operation)
    }

    pub(crate) fn run(&mut self, operation: StoreOperation) -> StoreResult {
        finish(&self.begin(operation))
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) {
        let buffer = IoBuf::new(length);
        let read = self
            .run(StoreOperation::Read { offset, buffer })
            .expect("readable");
        assert_eq!(read.len(), length);
        let wanted = &self.model[offset as usize..offset as usize + length];
        assert!(
            read.as_slice() == wanted,
            "{length} bytes at {offset} differ"
        );
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8], fua: bool) {
        let buffer = IoBuf::copy_of(data);
        let back = self
            .run(StoreOperation::Write {
                offset,
                buffer,
                fua,
            })
            .expect("writable");
        assert!(back.as_slice() == data, "the buffer comes back");
        self.model[offset as usize..offset as usize + data.len()].copy_from_slice(data);
    }

    pub(crate) fn zero(&mut self, offset: u64, length: u64, fua: bool) {
        let no_hole = length.is_multiple_of(3);
        self.run(StoreOperation::WriteZeroes {
            offset,
            length,
            fua,
            no_hole,
        })
        .expect("zeroable");
        self.model[offset as usize..(offset + length) as usize].fill(0);
    }

    /// Reads, writes and zeroes at random places, with lengths from one byte to `longest`.
    pub(crate) fn roam(&mut self, steps: u32, longest: u64) {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let size = self.model.len() as u64;
        for step in 0..steps {
            let offset = random(size);
            let length = (1 + random(longest)).min(size - offset);
            match random(4) {
                0 | 1 => self.read(offset, length as usize),
                2 => {
                    let data: Vec<u8> = (0..length)
                        .map(|at| (at * 7 + u64::from(step)) as u8)
                        .collect();
                    self.write(offset, &data, random(4) == 0);
                }
                _ => self.zero(offset, length, random(4) == 0),
            }
        }
        self.run(StoreOperation::Flush).expect("flushable");
        self.read(0, size as usize);
    }
}

/// Reads until the store works again.
pub(crate) fn recovers(store: &NbdStore, mut sequence: u64) -> u64 {
    obtain("the store works again", || {
        sequence += 1;
        let read = StoreOperation::Read {
            offset: 0,
            buffer: IoBuf::new(4096),
        };
        match finish(&begin(store, sequence, read)) {
            Ok(_) => Ok(sequence),
            Err(error) => {
                assert_eq!(error.kind, IoErrorKind::Store, "{error}");
                assert!(error.to_string().contains("nbd+unix:///"), "{error}");
                Err(error)
            }
        }
    })
}

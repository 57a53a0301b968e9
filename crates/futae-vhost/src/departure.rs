//! A guest leaves by live migration, perhaps for a server of its own over the same store.
//!
//! QEMU flushes the disks that it serves itself when a migration ends, but no vhost-user disk. So the device does: the state of its
//! queues, without which the guest does not go on elsewhere, is answered once what the guest has written is on stable storage.

use crate::device::Device;
use futae_engine::{ClientId, IoBuf, IoError, Operation, Request};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tracing::{error, info};

/// The time between two attempts, if the store fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks whether anybody still waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The flush with which a migration begins.
#[derive(Default)]
pub(crate) struct Preparation {
    /// Shared with the flush that is under way, if there is one.
    under_way: Arc<()>,
}

impl Preparation {
    /// The migration begins: most of what is dirty now need not be written while the guest stands still. A frontend that begins one
    /// after the other has one flush under way.
    pub(crate) fn begin(&self, device: &Device) {
        if Arc::strong_count(&self.under_way) == 1 {
            let under_way = Arc::clone(&self.under_way);
            flush(device, move |_| drop(under_way));
        }
    }
}

/// The guest stands still. Returns true once all that it has written is on stable storage, and false if nobody waits any longer. While
/// the store fails it is tried again, and the guest waits: elsewhere it would read old data.
pub(crate) fn settle(device: &Device, is_waited_for: impl Fn() -> bool) -> bool {
    let mut is_told = false;
    loop {
        let problem = match flushed(device, &is_waited_for) {
            None => return false,
            Some(Ok(_)) => break,
            Some(Err(problem)) => problem,
        };
        if !std::mem::replace(&mut is_told, true) {
            let name = &device.serial;
            error!(
                "{name}: the guest cannot leave before what it wrote is on stable storage: {problem}; trying again"
            );
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    if is_told {
        info!("{}: the guest can leave", device.serial);
    }
    true
}

/// The result of a flush; none if nobody waits for it.
fn flushed(device: &Device, is_waited_for: &impl Fn() -> bool) -> Option<Result<IoBuf, IoError>> {
    let (sender, answer) = channel();
    // Nobody may wait for it.
    flush(device, move |result| drop(sender.send(result)));
    while is_waited_for() {
        match answer.recv_timeout(LOOK_INTERVAL) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) => {}
            // The cache has ended.
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

/// On behalf of nobody: a loss that the guest has yet to learn of stays to be told.
fn flush(device: &Device, done: impl FnOnce(Result<IoBuf, IoError>) + Send + 'static) {
    device.engine.submit(Request {
        volume: device.volume,
        client: ClientId::NOBODY,
        sequence: 0,
        operation: Operation::Flush,
        done: Box::new(done),
    });
}

//! A guest leaves by live migration, perhaps for a server of its own over the same store.
//!
//! QEMU flushes the disks that it serves itself when a migration ends, but no vhost-user disk. So the device does: the state of its
//! queues, without which the guest does not go on elsewhere, is answered once what the guest has written is on stable storage.

use crate::device::Device;
use futae_engine::{ClientId, IoBuf, IoError, Operation, Request};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tracing::{error, info};

/// The time between two attempts, if the store fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks whether anybody still waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The migration begins: most of what is dirty now need not be written while the guest stands still.
pub(crate) fn prepare(device: &Device) {
    let (sender, _) = channel();
    flush(device, sender);
}

/// The guest stands still. Returns once all that it has written is on stable storage, or nobody waits any longer. While the store
/// fails it is tried again, and the guest waits: elsewhere it would read old data.
pub(crate) fn settle(device: &Device, is_waited_for: impl Fn() -> bool) {
    let mut is_told = false;
    while let Some(Err(problem)) = flushed(device, &is_waited_for) {
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
}

/// The result of a flush; none if nobody waits for it.
fn flushed(device: &Device, is_waited_for: &impl Fn() -> bool) -> Option<Result<IoBuf, IoError>> {
    let (sender, answer) = channel();
    flush(device, sender);
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
fn flush(device: &Device, sender: Sender<Result<IoBuf, IoError>>) {
    device.engine.submit(Request {
        volume: device.volume,
        client: ClientId::NOBODY,
        sequence: 0,
        operation: Operation::Flush,
        // Nobody may wait for it.
        done: Box::new(move |result| drop(sender.send(result))),
    });
}

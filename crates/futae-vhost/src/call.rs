//! The descriptor by which a guest is notified.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::sync::{Mutex, PoisonError};

/// The descriptor that notifies a guest, which the frontend may replace at any time.
#[derive(Default)]
pub(crate) struct Call(Mutex<Option<File>>);

impl Call {
    /// Notifies the guest by the new descriptor: it may have missed what the last one told it. A frontend that connects again
    /// gives one first that the guest does not hear, and with its event index the guest asks for one notification only.
    pub(crate) fn set(&self, file: Option<File>) {
        if let Some(file) = &file {
            make_nonblocking(file);
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = file;
        self.ring();
    }

    /// Notifies the guest. If the counter is full, the guest is notified as well.
    pub(crate) fn ring(&self) {
        if let Some(file) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = rustix::io::write(file, &1u64.to_ne_bytes());
        }
    }
}

/// Prevents a descriptor of the frontend from blocking a queue's thread.
pub(crate) fn make_nonblocking(file: &File) {
    if let Ok(flags) = fcntl_getfl(file) {
        let _ = fcntl_setfl(file, flags | OFlags::NONBLOCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn count(descriptor: &File) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(descriptor, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    #[test]
    fn a_guest_is_notified_by_each_new_descriptor() {
        let new = || File::from(eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"));
        let call = Call::default();
        call.ring();
        let descriptors = [new(), new()];
        for descriptor in &descriptors {
            call.set(Some(descriptor.try_clone().expect("a copy")));
        }
        assert_eq!(descriptors.each_ref().map(count), [1, 1]);
        call.ring();
        call.set(None);
        call.ring();
        assert_eq!(descriptors.each_ref().map(count), [0, 1]);
    }
}

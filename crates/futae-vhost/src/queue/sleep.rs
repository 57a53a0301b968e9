//! How the thread of a queue waits when there is nothing to do.

use super::Worker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use virtio_queue::QueueT;
use vm_memory::GuestAddressSpace;

/// The shortest wait for room that becomes free with time.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Worker {
    /// Waits for the guest, the cache, room, or the order to stop.
    pub(super) fn sleep(&mut self) {
        let takes = !self.is_broken && !self.start.control.must_stop();
        let listens = takes && !self.is_held_back;
        if listens {
            let memory = self.start.memory.memory();
            let is_available = self.start.queue.enable_notification(&*memory);
            self.mark_wish();
            match is_available {
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => return self.give_up(&error.to_string()),
            }
        }
        let control = Arc::clone(&self.start.control);
        if !control.mailbox.may_sleep() || (takes && control.must_stop()) {
            return;
        }
        if self.in_flight == 0 {
            self.start.room.rest();
        }
        let (mut kicked, mut has_room, mut rung) = (false, false, false);
        {
            let mut fds = Vec::with_capacity(3);
            fds.push(PollFd::from_borrowed_fd(
                control.mailbox.bell(),
                PollFlags::IN,
            ));
            if listens {
                fds.push(PollFd::new(&*self.start.kick, PollFlags::IN));
            }
            if self.is_held_back
                && let Some(bell) = self.start.room.bell()
            {
                fds.push(PollFd::from_borrowed_fd(bell, PollFlags::IN));
            }
            let wait = self.start.room.wait().filter(|_| self.is_held_back);
            let wait = wait.map(|wait| wait.max(WAIT_MIN));
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) => {
                    rung = !fds[0].revents().is_empty();
                    let other = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
                    (kicked, has_room) = (listens && other, !listens && other);
                }
                Err(Errno::INTR) => {}
                Err(_) => std::thread::sleep(Duration::from_millis(10)), // out of kernel memory
            }
        }
        control.mailbox.awake(rung);
        if kicked {
            match rustix::io::read(&*self.start.kick, &mut [0; 8]) {
                Ok(1..) | Err(Errno::AGAIN | Errno::INTR) => {}
                _ => self.give_up("its notifications cannot be read"),
            }
        }
        if has_room {
            self.start.room.heard();
        }
        if listens {
            let memory = self.start.memory.memory();
            if let Err(error) = self.start.queue.disable_notification(&*memory) {
                self.give_up(&error.to_string());
            }
            self.mark_wish();
        }
    }

    /// Marks in the dirty log that the device wrote when the guest should notify it.
    fn mark_wish(&self) {
        let has_event_index = self.start.queue.event_idx_enabled();
        self.start.used_log.mark_wish(has_event_index);
    }
}

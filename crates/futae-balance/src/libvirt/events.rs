//! What libvirt tells of domains at once: `virsh event`, which runs beside. It need not be there: domains are asked for
//! once a period all the same.

use crate::actuator::virsh;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Builder;

/// A `virsh event` that runs, until it is dropped.
pub(crate) struct Events {
    child: Child,
    /// Whether a domain has started or stopped since this was asked last.
    news: Arc<AtomicBool>,
}

impl Events {
    /// Has libvirt tell of domains that start and stop; none if virsh cannot be started.
    pub(crate) fn start(uri: Option<&str>) -> Option<Self> {
        let mut command = virsh::command(uri, &["event", "--event", "lifecycle", "--loop"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let out = child.stdout.take();
        let events = Self {
            child,
            news: Arc::default(),
        };
        let news = Arc::clone(&events.news);
        let listen = move || {
            let lines = BufReader::new(out?).lines().map_while(Result::ok);
            lines
                .filter(|line| line.starts_with("event "))
                .for_each(|_| news.store(true, Relaxed));
            Some(())
        };
        // Dropped, it ends the child.
        let thread = Builder::new().name("libvirt".to_owned()).spawn(listen);
        thread.is_ok().then_some(events)
    }

    /// Whether there are news.
    pub(crate) fn take(&self) -> bool {
        self.news.swap(false, Relaxed)
    }

    /// Whether libvirt still tells: its end of the connection may be gone.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // What is killed ends; it may have ended just now. Its thread then has nothing more to read.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! systemd, as a service sees it: what the service says on `NOTIFY_SOCKET`, and what it is passed. The test plays it.

use crate::process::Running;
use crate::tools::text;
use futae_testkit::wait::PATIENCE;
use rustix::cmsg_space;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A directory with an image, and the socket on which a service says how it is.
pub struct Systemd {
    /// The directory.
    pub place: TempDir,
    /// The socket.
    pub socket: UnixDatagram,
}

impl Systemd {
    /// A new directory, with an image `a.img` of 1 MiB.
    pub fn begin() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("a.img"), vec![7; 1 << 20]).expect("an image");
        let socket = UnixDatagram::bind(place.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self { place, socket }
    }

    /// A file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts a service with a watchdog of 200 ms, by bash, which knows its process number before it becomes it.
    pub fn start(&self, service: &Command, passed: &[(&str, BorrowedFd<'_>)]) -> Running {
        let mut script = String::new();
        for (at, (_, socket)) in passed.iter().enumerate() {
            // Under another number first: those from 3 on may be some of them.
            let number = socket.as_raw_fd();
            script.push_str(&format!("exec {}<&{number} {number}<&-\n", 100 + at));
            fcntl_setfd(socket, FdFlags::empty()).expect("inherited");
        }
        for at in 0..passed.len() {
            script.push_str(&format!("exec {}<&{} {1}<&-\n", 3 + at, 100 + at));
        }
        if !passed.is_empty() {
            let names: Vec<&str> = passed.iter().map(|(name, _)| *name).collect();
            let (count, names) = (passed.len(), names.join(":"));
            script.push_str(&format!(
                "export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names}\n"
            ));
        }
        script.push_str("export WATCHDOG_PID=$$ WATCHDOG_USEC=200000\nexec \"$0\" \"$@\"");
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(script);
        bash.arg(service.get_program()).args(service.get_args());
        bash.env("NOTIFY_SOCKET", self.path("notify"));
        Running::start("the service", bash)
    }

    /// What it says next, but for what the watchdog hears.
    pub fn hears(&self) -> String {
        loop {
            let said = self.heard();
            if said != "WATCHDOG=1\n" {
                return said;
            }
        }
    }

    fn heard(&self) -> String {
        let mut said = [0; 512];
        let length = self.socket.recv(&mut said).expect("it says something");
        String::from_utf8_lossy(&said[..length]).into_owned()
    }

    /// Waits until the watchdog has heard of it several times.
    pub fn hears_a_pulse(&self) {
        for _ in 0..4 {
            while self.heard() != "WATCHDOG=1\n" {}
        }
    }

    /// A configuration of a server with one export, which listens on `a.sock` here and at `more`.
    pub fn configuration(&self, more: &str) -> PathBuf {
        let file = self.path("serve.toml");
        let place = text(self.place.path()).to_owned();
        let configuration = format!(
            "cache = \"4MiB\"\nlisten = [\"unix:{place}/a.sock\"{more}]\n\
             [[export]]\nname = \"a\"\nsource = \"{place}/a.img\"\n"
        );
        fs::write(&file, configuration).expect("a file");
        file
    }
}

impl Systemd {
    /// What a service says next, and the descriptor that comes with it.
    fn next_with_descriptor(&self) -> (String, Option<OwnedFd>) {
        let mut said = [0; 512];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut said)];
        let got = recvmsg(
            &self.socket,
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        let length = got.expect("it says something").bytes;
        let said = String::from_utf8_lossy(&said[..length]).into_owned();
        let mut descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let descriptor = descriptors.next().and_then(|mut rights| rights.next());
        (said, descriptor)
    }

    /// What a service has systemd keep: its name, and the descriptor.
    pub fn keeps(&self) -> (String, OwnedFd) {
        loop {
            match self.next_with_descriptor() {
                (said, Some(descriptor)) => return (said, descriptor),
                (said, None) => assert_eq!(said, "WATCHDOG=1\n"),
            }
        }
    }

    /// All that a service has systemd keep as it ends, until it waits for that to be done.
    pub fn keeps_until_the_barrier(&self) -> BTreeMap<String, OwnedFd> {
        self.keeps_no_more_than(usize::MAX)
    }

    /// As [`Self::keeps_until_the_barrier`], with FileDescriptorStoreMax=: what comes when so many are kept is closed.
    pub fn keeps_no_more_than(&self, most: usize) -> BTreeMap<String, OwnedFd> {
        let mut kept = BTreeMap::new();
        loop {
            match self.next_with_descriptor() {
                (said, Some(_)) if said == "BARRIER=1" => return kept,
                (said, Some(descriptor)) => {
                    let name = said.strip_prefix("FDSTORE=1\nFDNAME=");
                    let name = name.expect("it is to be kept").to_owned();
                    if kept.len() < most {
                        kept.insert(name, descriptor);
                    }
                }
                (said, None) => {
                    assert!(said == "STOPPING=1\n" || said == "WATCHDOG=1\n", "{said:?}");
                }
            }
        }
    }

    /// What a service that starts has systemd close, until it is ready.
    pub fn forgets_until_ready(&self) -> BTreeSet<String> {
        let mut forgotten = BTreeSet::new();
        loop {
            let said = self.hears();
            if said.starts_with("READY=1") {
                return forgotten;
            }
            let name = said.strip_prefix("FDSTOREREMOVE=1\nFDNAME=");
            forgotten.insert(name.unwrap_or_else(|| panic!("{said:?}")).to_owned());
        }
    }
}

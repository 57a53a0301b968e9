//! Feeds: reports of evicted pages from agents in guests become notices to the cache.
//!
//! Each feed is a socket that belongs to the exports that are the disks of one guest: its clients can affect only those
//! exports' volumes. [`futae_agent_protocol::receiver`] reads it, accepts each frame once, finds which disk is which
//! export and keeps ranges within the volume. Notices are hints from a sender that may be wrong or hostile. The reads that
//! they cause are few at a time, so that the requests of clients go first. A cache does not use
//! samples; they are relayed to an allocator ([`RelayOptions`]), if there is one.

use crate::channel::{Channel, ChannelReport};
use crate::demoter::Demoter;
use crate::feed_options::{FeedOptions, RelayOptions};
use crate::in_place::{InPlace, InPlaceReport, Rings};
use crate::options::ServerOptions;
use crate::registry::Registry;
use crate::{Export, HostError};
use futae_agent_protocol::receiver::{
    AgentStatus, Allowance, Dispatch, Endpoint, NoticeSink, Receiver, Relay, RelayStatus, Stop,
    serial_of,
};
use futae_agent_protocol::{Device, Hello, SECTOR_BYTES, Source};
use futae_control::UnixSocket;
use futae_units::Size;
use rustix::fd::BorrowedFd;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The name of a feed's socket in a directory.
const SOCKET_NAME: &str = "agent.sock";
/// Blocks passed to the cache at a time.
const BLOCKS_AT_ONCE: u64 = 32;
/// Number of store reads under way from which on notices wait.
const READS_MAX: usize = 8;
/// How long they wait before the next check.
const PAUSE: Duration = Duration::from_millis(1);
/// The largest number of such waits. Then the rest of the notices is dropped, since a store that
/// does not answer must neither end the feed nor accumulate reads.
const PAUSES_MAX: u32 = 1000;

/// Counters of a feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FeedReport {
    /// The first of its exports. All of them are in the state of the agent.
    pub export: String,
    /// The state of the agent.
    #[serde(flatten)]
    pub agent: AgentStatus,
    /// The state of the relay of samples; `None` without a relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_to: Option<RelayStatus>,
    /// Counters of the feed's channel disk; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelReport>,
    /// Counters of in-place reads from the guest's memory; `None` if no agent has offered them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceReport>,
}

/// How the evicted pages of one feed get into the cache.
pub(crate) struct Route {
    demoter: Arc<Demoter>,
    channel: Option<Arc<Channel>>,
}

impl Route {
    /// One for each feed.
    pub(crate) fn of_all(
        options: &ServerOptions,
        exports: &[Export],
    ) -> Result<Vec<Self>, HostError> {
        let find = |name: &String| {
            let export = exports.iter().find(|export| export.name == *name);
            let unknown = || HostError::NoSuchExport { name: name.clone() };
            export.cloned().ok_or_else(unknown)
        };
        let route = |feed: &FeedOptions| -> Result<Self, HostError> {
            let exports: Vec<_> = feed.exports.iter().map(find).collect::<Result<_, _>>()?;
            let demoter = Demoter::new(exports).ok_or_else(|| HostError::EmptyFeed {
                path: feed.path.display().to_string(),
            })?;
            let demoter = Arc::new(demoter);
            let channel = options.channels.then(|| Channel::new(&demoter));
            Ok(Self { demoter, channel })
        };
        options.feeds.iter().map(route).collect()
    }

    /// Its channel disk, if it has one, with the name of the export where that is served.
    pub(crate) fn disk(&self) -> Option<Result<(String, Export), HostError>> {
        let disk = self.channel.as_ref()?.export();
        Some(disk.map(|disk| (self.demoter.first().name.clone(), disk)))
    }
}

struct Feed {
    export: String,
    receiver: Receiver,
    relay: Option<Relay>,
    channel: Option<Arc<Channel>>,
    in_place: Arc<InPlace>,
}

impl Feed {
    fn report(&self) -> FeedReport {
        FeedReport {
            export: self.export.clone(),
            agent: self.receiver.status(),
            samples_to: self.relay.as_ref().map(Relay::status),
            channel: self.channel.as_ref().map(|channel| channel.report()),
            in_place: self.in_place.report(),
        }
    }
}

/// All feeds of a server; they end when the server stops.
pub(crate) struct Feeds(Vec<Feed>);

impl Feeds {
    /// Binds every socket, then begins to listen. `routes` are those of the feeds, in their order. `stop` becomes
    /// readable when all feeds are to end.
    pub(crate) fn start(
        (options, relays): (&[FeedOptions], &[RelayOptions]),
        routes: Vec<Route>,
        registry: &Arc<Registry>,
        stop: BorrowedFd<'_>,
    ) -> Result<Self, HostError> {
        let has_feed = |relay: &&RelayOptions| options.iter().any(|feed| feed.has(&relay.export));
        if let Some(relay) = relays.iter().find(|relay| !has_feed(relay)) {
            let name = relay.export.clone();
            return Err(HostError::NoFeed { name });
        }
        let mut ready = Vec::new();
        for (feed, route) in options.iter().zip(routes) {
            let socket = UnixSocket::bind_for(&feed.path, SOCKET_NAME, &feed.access)?;
            ready.push((feed, route, socket));
        }
        let stop = Stop::from(stop.try_clone_to_owned()?);
        let mut feeds = Self(Vec::new());
        for (feed, Route { demoter, channel }, socket) in ready {
            let in_place = InPlace::new(&demoter, registry, &stop);
            let mut dispatch = Dispatch::default().rings_to(Rings::new(&in_place));
            for (number, export) in demoter.exports().enumerate() {
                dispatch = dispatch.notices_to(CacheSink {
                    export: export.clone(),
                    demoter: Arc::clone(&demoter),
                    number,
                    warned: None,
                });
            }
            let mut relay = None;
            if let Some(to) = relays.iter().find(|relay| feed.has(&relay.export)) {
                let (started, sink) = Relay::start(&to.path, &stop)?;
                relay = Some(started);
                dispatch = dispatch.samples_to(sink);
            }
            let endpoint = Endpoint::Listen(Box::new(socket));
            feeds.0.push(Feed {
                export: demoter.first().name.clone(),
                receiver: Receiver::start(endpoint, dispatch, Allowance::a_second(), &stop)?,
                relay,
                channel,
                in_place,
            });
        }
        Ok(feeds)
    }

    /// Their counters.
    pub(crate) fn reports(&self) -> Vec<FeedReport> {
        self.0.iter().map(Feed::report).collect()
    }

    /// Whether an agent reports this export's evictions.
    pub(crate) fn sees(&self, export: &str) -> bool {
        let tells = |feed: &Feed| {
            let agent = feed.receiver.status();
            let counts = agent.source != Some(Source::Vmstat);
            let mut volumes = agent.volumes.iter();
            let has_disk = volumes.any(|it| it.name == export && !it.disk.is_empty());
            agent.connected && counts && has_disk
        };
        self.0.iter().any(tells)
    }

    /// Waits for the threads, which have been asked to stop.
    pub(crate) fn join(self) {
        for feed in self.0 {
            feed.receiver.join();
            if let Some(relay) = feed.relay {
                relay.join();
            }
        }
    }
}

/// The agent's view of the cache: the volume of one export of a feed.
struct CacheSink {
    export: Export,
    /// Demotes pages with their data.
    demoter: Arc<Demoter>,
    /// The number of the export in the feed.
    number: usize,
    /// The run of the agent for which a warning about missing evictions was logged.
    warned: Option<u64>,
}

impl CacheSink {
    /// Warns once of a connected agent that looks healthy, but reports nothing that this cache can use: without eBPF,
    /// or without a disk that is the export.
    fn warn_of(&mut self, hello: &Hello, has_disk: bool) {
        if self.warned == Some(hello.run) {
            return;
        }
        let problem = if hello.source == Source::Vmstat {
            "counts by /proc/vmstat and sends no evictions, so the cache is blind; it needs root, and Linux 6.1 or \
             later with /sys/kernel/btf/vmlinux"
                .to_owned()
        } else if !has_disk {
            format!(
                "has no disk that is this export, so the cache is blind; give its disk the serial number {:?} (QEMU: \
                 -device virtio-blk-pci,serial=); it has {}",
                String::from_utf8_lossy(serial_of(&self.export.name)),
                listed(&hello.devices)
            )
        } else {
            return;
        };
        self.warned = Some(hello.run);
        warn!(
            export = self.export.name,
            "the agent of {} {problem}", hello.guest
        );
    }
}

impl NoticeSink for CacheSink {
    fn volume_name(&self) -> &str {
        &self.export.name
    }

    fn hello(&mut self, hello: &Hello, disk: Option<&Device>) {
        self.warn_of(hello, disk.is_some());
        self.demoter.is_disk(self.number, disk.map(|disk| disk.id));
    }

    fn volume_bytes(&self) -> u64 {
        self.export.engine.volume_bytes(self.export.volume)
    }

    fn step_bytes(&self) -> u64 {
        BLOCKS_AT_ONCE * self.export.engine.block_bytes()
    }

    fn evicted(&mut self, bytes: Range<u64>, stop: &Stop) -> bool {
        if !wait_for_room(&self.export, stop) {
            return false;
        }
        let length = bytes.end - bytes.start;
        self.export
            .engine
            .notice(self.export.volume, bytes.start, length);
        true
    }
}

/// Waits until few store reads are under way. Returns false if the server stops meanwhile, or the
/// reads do not end.
fn wait_for_room(export: &Export, stop: &Stop) -> bool {
    let is_full = || export.engine.reads_under_way() >= READS_MAX;
    let mut pauses = 0;
    while is_full() && pauses < PAUSES_MAX {
        if stop.within(PAUSE) {
            return false;
        }
        pauses += 1;
    }
    pauses < PAUSES_MAX
}

/// Disks as a guest's administrator knows them.
fn listed(disks: &[Device]) -> String {
    const LISTED_MAX: usize = 8;
    let one = |disk: &Device| {
        let serial = match disk.serial.as_str() {
            "" => "no serial number".to_owned(),
            serial => format!("serial number {serial:?}"),
        };
        let bytes = Size::Bytes(disk.sectors.saturating_mul(SECTOR_BYTES));
        format!("{} ({bytes}, {serial})", disk.name)
    };
    let few: Vec<String> = disks.iter().take(LISTED_MAX).map(one).collect();
    match (few.is_empty(), disks.len().saturating_sub(LISTED_MAX)) {
        (true, _) => "no disk".to_owned(),
        (false, 0) => few.join(", "),
        (false, more) => format!("{}, and {more} more", few.join(", ")),
    }
}

/// The path for [`FeedOptions`] of an export beside a server's own socket: its name, made safe for
/// a path.
#[must_use]
pub fn feed_path(beside: &Path, export: &str) -> PathBuf {
    let directory = if beside.is_dir() {
        beside
    } else {
        beside.parent().unwrap_or(beside)
    };
    directory.join(format!("{}.agent.sock", export.replace('/', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_has_its_place_beside_the_server() {
        let path = feed_path(Path::new("/run/futae/vm.sock"), "a/b");
        assert_eq!(path, Path::new("/run/futae/a_b.agent.sock"));
    }
}

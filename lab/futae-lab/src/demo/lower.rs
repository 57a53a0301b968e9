//! What is below the guests: images alone, the host's page cache, or `futae serve`.

use super::images::Images;
use super::plan::{BLOCK_BYTES, GuestsPlan};
use super::store::Delayed;
use super::way::{Transport, Way};
use crate::live::cgroup::{Bound, Group};
use crate::live::process::{Background, futae};
use anyhow::Context;
use futae_control::{EngineReport, ask};
use futae_engine::EngineStatus;
use futae_machine::{Disk, HostCache};
use futae_terminal::failure::Failure;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// It, running, above the store.
pub struct Lower {
    /// Ended before the store.
    cache: Cache,
    /// None: the images themselves are the store.
    store: Option<Delayed>,
}

enum Cache {
    /// QEMU reads the store past the host's page cache.
    None,
    /// QEMU reads it through the host's page cache, in a memory cgroup.
    Kernel(Group),
    /// A server.
    Futae(Server),
}

/// `futae serve`, running.
struct Server {
    _serve: Background,
    control: PathBuf,
    uris: Vec<String>,
    transport: Transport,
    place: PathBuf,
}

impl Lower {
    /// Starts it.
    pub fn start(
        plan: &GuestsPlan,
        way: Way,
        place: &Path,
        images: &Images,
    ) -> Result<Self, Failure> {
        images.drop_cached()?;
        let store = Delayed::start(plan, way, place, images)?;
        let cache = match (way, way.served_policy()) {
            (_, Some(policy)) => {
                let sources = images.paths.iter().enumerate();
                let sources = sources.map(|(number, image)| match &store {
                    Some(store) => store.uri(number),
                    None => image.display().to_string(),
                });
                let sources: Vec<String> = sources.collect();
                Cache::Futae(Server::start(plan, way, policy, place, &sources)?)
            }
            (Way::Writeback, None) => {
                Cache::Kernel(Group::new(&[Bound::PageCache(plan.lower_bytes())])?)
            }
            (_, None) => Cache::None,
        };
        Ok(Self { cache, store })
    }

    /// The disk of guest `number`.
    pub fn disk(&self, number: usize, images: &Images) -> Disk {
        let image = |cache| Disk::Image {
            path: match &self.store {
                Some(store) => store.file(number),
                None => images.paths[number].clone(),
            },
            cache,
        };
        match (&self.cache, &self.store) {
            (Cache::None, None) => image(HostCache::None),
            (Cache::None, Some(store)) => Disk::Nbd {
                uri: store.uri(number),
            },
            (Cache::Kernel(_), _) => image(HostCache::Writeback),
            (Cache::Futae(server), _) => match server.transport {
                Transport::Nbd => Disk::Nbd {
                    uri: server.uris[number].clone(),
                },
                Transport::VhostUser => Disk::VhostUser {
                    socket: disk_socket(&server.place, number),
                },
            },
        }
    }

    /// The channel disk of guest `number`, if there is a server that cannot see its memory: only agents use it.
    pub fn channel(&self, number: usize) -> Option<Disk> {
        let Cache::Futae(server) = &self.cache else {
            return None;
        };
        if server.transport == Transport::VhostUser {
            return None;
        }
        let uri = server.uris[number].replacen('?', ".evictions?", 1);
        Some(Disk::Nbd { uri })
    }

    /// A guest runs; what it reads from now on counts against the host's memory.
    pub fn add_guest(&self, process: u32) -> anyhow::Result<()> {
        match &self.cache {
            Cache::Kernel(group) => Ok(group.add(process)?),
            Cache::None | Cache::Futae(_) => Ok(()),
        }
    }

    /// What the server has counted, if there is one.
    pub fn engine(&self) -> anyhow::Result<Option<EngineStatus>> {
        match &self.cache {
            Cache::Futae(server) => server.engine().map(Some),
            Cache::None | Cache::Kernel(_) => Ok(None),
        }
    }

    /// Blocks that were read from a store that delays; none if the images are the store.
    pub fn delayed_reads(&self) -> anyhow::Result<Option<u64>> {
        self.store.as_ref().map(Delayed::read_blocks).transpose()
    }

    /// Whether an export of the server has not heard of evictions yet.
    pub fn is_blind(&self) -> anyhow::Result<bool> {
        let Cache::Futae(server) = &self.cache else {
            return Ok(true);
        };
        let status = server.status()?;
        let exports = status["exports"].as_array();
        let exports = exports.context("the server does not list its exports")?;
        let is_blind = exports.iter().any(|export| export["is_blind"] != false);
        let is_unread = |feed: &Value| feed["in_place"]["reading"] != true;
        let feeds = status["feeds"].as_array();
        let waits = server.transport == Transport::VhostUser
            && feeds.is_some_and(|feeds| feeds.iter().any(is_unread));
        Ok(is_blind || waits)
    }
}

impl Server {
    fn start(
        plan: &GuestsPlan,
        way: Way,
        policy: &str,
        place: &Path,
        sources: &[String],
    ) -> anyhow::Result<Self> {
        let control = place.join("control.sock");
        let mut serve = futae(["serve", "--json", "--policy", policy])?;
        if way == Way::Exclusive {
            serve.args(["--feed", "agent", "--verify-evictions"]);
            if plan.transport == Transport::Nbd {
                serve.arg("--evictions-disk");
            }
        }
        serve.args(["--cache", &format!("{}blocks", plan.lower_blocks)]);
        serve.args(["--block", &BLOCK_BYTES.to_string()]);
        let listen = place.join("futae.sock");
        serve
            .arg("--listen")
            .arg(format!("unix:{}", listen.display()));
        serve
            .arg("--control")
            .arg(format!("unix:{}", control.display()));
        for (number, source) in sources.iter().enumerate() {
            serve.arg("--export").arg(format!("vm{number}={source}"));
            if plan.transport == Transport::VhostUser {
                let socket = disk_socket(place, number);
                let listen = format!("vm{number}=vhost-user:{}", socket.display());
                serve.arg("--listen").arg(listen);
            }
        }
        let (serve, ready) = Background::start("futae serve", serve)?;
        let uri = |number: usize| {
            ready["exports"][number]["uris"][0]
                .as_str()
                .map(str::to_owned)
        };
        let uris: Option<Vec<String>> = (0..sources.len()).map(uri).collect();
        Ok(Self {
            _serve: serve,
            control,
            transport: plan.transport,
            place: place.to_owned(),
            uris: uris.context("the server does not name its addresses")?,
        })
    }

    fn status(&self) -> anyhow::Result<Value> {
        Ok(ask(&self.control, &json!({ "command": "status" }))?)
    }

    fn engine(&self) -> anyhow::Result<EngineStatus> {
        let engines = self.status()?["engines"].take();
        let engines: Vec<EngineReport> = serde_json::from_value(engines)?;
        let first = engines.into_iter().next();
        Ok(first.context("the server has no cache")?.engine)
    }
}

/// Where guest `number` finds its disk as a vhost-user device.
fn disk_socket(place: &Path, number: usize) -> PathBuf {
    place.join(format!("vm{number}.disk.sock"))
}

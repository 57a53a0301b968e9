//! The two caches, set up as an operator would: a server on a socket, a mount on top of it.

use crate::defaults::MOUNT_POLICY;
use crate::demo::DemoPlan;
use crate::demo::delayed::Delayed;
use crate::demo::descriptors;
use anyhow::Context;
use futae_engine::{
    ClientId, Engine, EngineOptions, EngineStatus, FileStore, IoBuf, OnEviction, Operation,
    Request, Store,
};
use futae_guest::{Mount, MountError, MountOptions, ShownFile, TransportChoice};
use futae_host::{Export, Listen, RateLimits, Server, ServerOptions};
use futae_nbd::NbdUri;
use futae_nbd_store::NbdStore;
use futae_policy::{Class, Kind, Trait, VolumeId};
use futae_terminal::failure::Failure;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

/// Both caches, running.
pub struct Stage {
    upper: Arc<Engine>,
    volume: VolumeId,
    client: ClientId,
    lower: Arc<Engine>,
    /// Dropped in this order: the mount before what is below it.
    mount: Option<Mount>,
    server: Server,
    carrier: String,
    file: PathBuf,
}

impl Stage {
    /// Serves `image` from a lower cache of policy `lower` and mounts it through an upper one.
    pub fn set(place: &Path, image: &Path, plan: &DemoPlan, lower: Kind) -> Result<Self, Failure> {
        let exclusive = lower.traits().contains(&Trait::LivesOnDemotions);
        let below = cache(plan, lower.name(), plan.lower_blocks, OnEviction::None)?;
        let mut store: Arc<dyn Store> = Arc::new(FileStore::open(image, false)?);
        if !plan.store_latency.is_zero() {
            store = Arc::new(Delayed::new(store, plan.store_latency)?);
        }
        let disk = below.add_volume("demo", store, Class::NORMAL)?;
        // Each part has a socket of its own: the kernel may keep the mount of the part before for a while (another mount
        // namespace has it, too), and then its store would connect to this server and be a second client.
        let socket = place.join(format!("{}.sock", lower.name()));
        let server = serve(&socket, &below, disk, exclusive)?;
        let on_eviction = if exclusive {
            OnEviction::Demote
        } else {
            OnEviction::None
        };
        let upper = cache(plan, MOUNT_POLICY, plan.upper_blocks, on_eviction)?;
        let uri = uri_of(&server)?;
        let wanted = exclusive.then_some(plan.block_bytes as u32);
        let nbd: Arc<dyn Store> = Arc::new(NbdStore::connect(&uri, wanted)?);
        let volume = upper.add_volume("demo", nbd, Class::NORMAL)?;
        let client = upper.join(volume);
        let point = place.join("mnt");
        std::fs::create_dir_all(&point).with_context(|| point.display().to_string())?;
        let (mount, carrier) = mount(&upper, volume, &point)?;
        let file = point.join("demo.img");
        Ok(Self {
            upper,
            volume,
            client,
            lower: below,
            mount,
            server,
            carrier,
            file,
        })
    }

    /// How requests travel.
    pub fn carrier(&self) -> &str {
        &self.carrier
    }

    /// A way to read, for the calling thread, which has opened nothing so far and loses its access to all that others opened.
    pub fn reader(&self) -> Result<Reader<'_>, Failure> {
        if self.mount.is_none() {
            return Ok(Reader::InProcess(self));
        }
        // On a kernel that cannot, all is well unless this process is killed.
        let _ = descriptors::leave_all();
        let mode = rustix::fs::Mode::empty();
        let flags =
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.file, flags, mode)
            .with_context(|| format!("{}: cannot open", self.file.display()))?;
        Ok(Reader::Mounted(File::from(file)))
    }

    /// The upper cache's counters.
    pub fn upper_status(&self) -> EngineStatus {
        self.upper.status()
    }

    /// The lower cache's counters.
    pub fn lower_status(&self) -> EngineStatus {
        self.lower.status()
    }

    /// Takes everything down, the mount first.
    pub fn strike(self) -> Result<(), Failure> {
        let Self {
            upper,
            mount,
            server,
            ..
        } = self;
        if let Some(mount) = mount {
            mount.unmount()?;
        }
        // Its store says goodbye, so that it does not miss the server.
        drop(upper);
        let report = server.stop();
        if let Some((export, problem)) = report.flush_errors.first() {
            return Err(anyhow::anyhow!("{export}: {problem}").into());
        }
        Ok(())
    }
}

fn cache(
    plan: &DemoPlan,
    policy: &str,
    blocks: u32,
    on_eviction: OnEviction,
) -> Result<Arc<Engine>, Failure> {
    let options = EngineOptions {
        block_bytes: plan.block_bytes,
        capacity_blocks: blocks,
        policy: policy.parse()?,
        seed: plan.seed,
        on_eviction,
        decision_log: None,
        write_back: None,
    };
    Ok(Engine::new(&options)?)
}

fn serve(
    socket: &Path,
    engine: &Arc<Engine>,
    volume: VolumeId,
    demotion: bool,
) -> Result<Server, Failure> {
    let options = ServerOptions {
        listen: vec![format!("unix:{}", socket.display()).parse::<Listen>()?],
        demotion,
        ..ServerOptions::default()
    };
    let export = Export {
        name: "demo".to_owned(),
        description: "the demonstration's disk image".to_owned(),
        engine: Arc::clone(engine),
        volume,
        read_only: false,
        connections_max: None,
        requests_max: None,
        rates: RateLimits::default(),
    };
    Ok(Server::start(options, vec![export])?)
}

fn uri_of(server: &Server) -> Result<NbdUri, Failure> {
    let address = server
        .addresses()
        .first()
        .context("the server listens nowhere")?;
    let path = address.to_string();
    let path = path
        .strip_prefix("unix:")
        .context("the server's socket is not a unix socket")?;
    Ok(format!("nbd+unix:///demo?socket={path}").parse()?)
}

/// Mounts if this machine permits it; otherwise the readers call the upper cache directly, and
/// the report says so.
fn mount(
    upper: &Arc<Engine>,
    volume: VolumeId,
    point: &Path,
) -> Result<(Option<Mount>, String), Failure> {
    let options = MountOptions {
        mountpoint: point.to_owned(),
        source: "futae-demo".to_owned(),
        join_reads_bytes: 0,
        kernel_cache: false,
        threads: None,
        transport: TransportChoice::Auto,
        access: None,
    };
    let shown = ShownFile {
        volume,
        name: "demo.img".to_owned(),
    };
    match Mount::start(upper, &[shown], &options) {
        Ok(mount) => Ok((Some(mount), "a FUSE mount over an NBD socket".to_owned())),
        Err(error @ MountError::NoFuse(_)) => {
            let carrier = format!("in-process clients over an NBD socket, since {error}");
            eprintln!("futae: no FUSE mount: {error}; reading through in-process clients instead");
            Ok((None, carrier))
        }
        Err(error) => Err(error.into()),
    }
}

/// How one thread reads.
pub enum Reader<'a> {
    /// Through the mounted file, past the kernel's page cache.
    Mounted(File),
    /// By calling the upper cache.
    InProcess(&'a Stage),
}

impl Reader<'_> {
    /// Fills `buffer` from `offset` on.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Mounted(file) => Ok(file.read_exact_at(buffer, offset)?),
            Self::InProcess(stage) => {
                let (sender, receiver) = mpsc::sync_channel(1);
                stage.upper.submit(Request {
                    volume: stage.volume,
                    client: stage.client,
                    sequence: 0,
                    operation: Operation::Read {
                        offset,
                        length: buffer.len() as u64,
                    },
                    done: Box::new(move |result| drop(sender.send(result))),
                });
                let data: IoBuf = receiver.recv()??;
                buffer.copy_from_slice(data.as_slice());
                Ok(())
            }
        }
    }
}

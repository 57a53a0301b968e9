//! What the arguments of `futae serve` come to, checked before anything is opened or made.

use super::super::observe_args::Observe;
use super::super::volumes::{ClassNames, VolumeSpec, expand, refuse_twice};
use super::args::{Args, Demotion};
use super::memory::KeptMemory;
use super::opener::{OpenSource, Opener};
use super::state::KeptState;
use super::{clashes, feeds, tls};
use crate::defaults::SERVE_POLICY;
use crate::save::check_place;
use futae_control::check_cache_bytes;
use futae_engine::{EngineOptions, OnEviction, PAGE_BYTES};
use futae_host::{Access, BUFFER_MEMORY_MIN, Export, Gate, Listen, OpenExport, ServerOptions};
use futae_observe::Snapshot;
use futae_policy::{PolicySpec, Shape};
use futae_terminal::failure::Failure;
use futae_units::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

/// One `--export`.
pub(super) fn export(text: &str) -> Result<VolumeSpec, String> {
    let (name, rest) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| {
            format!(
                "--export {text}: write NAME=SOURCE[,share=SIZE][,class=local|remote|NAME]\
                 [,connections=N][,requests=N][,iops=N][,bandwidth=SIZE][,weight=N][,protected][,read-only]"
            )
        })?;
    let spec = VolumeSpec::new("export", name, rest)?;
    if name == Snapshot::COMMON && spec.share.is_some() {
        return Err(format!(
            "export {name}: share: in metrics, {name} is the cache of the exports without a share; give the export another name"
        ));
    }
    Ok(spec)
}

/// What the arguments come to, before anything is opened.
pub(super) struct Plan {
    /// What to serve.
    pub(super) exports: Vec<VolumeSpec>,
    /// Blocks of each export's own cache, where it has one.
    own_blocks: Vec<Option<u32>>,
    /// Blocks of the cache that the others use together.
    pub(super) common_blocks: u32,
    /// How exports are opened.
    pub(super) opener: Arc<Opener>,
    /// Where it is shown what the caches do.
    pub(super) observe: Observe,
    /// How to serve.
    pub(super) server: ServerOptions,
}

impl Plan {
    /// Checks the arguments.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        Self::of(args).map_err(|failure| args.placed(failure))
    }

    fn of(args: &Args) -> Result<Self, Failure> {
        let named = args.policy.as_deref();
        let mut policy: PolicySpec = named
            .unwrap_or(SERVE_POLICY)
            .parse()
            .map_err(wrong_policy)?;
        // Clients that demote nothing would find nothing in the cache, ever.
        if named.is_none() || !args.feeds.is_empty() {
            policy.keep_served();
        }
        let block_bytes = parse_block_bytes(&args.block, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
            .map_err(|error| Failure::usage(format!("--block: {error}")))?;
        let cache = args.cache.as_deref();
        let cache =
            cache.ok_or_else(|| Failure::usage("--cache: the size of the cache is missing"))?;
        let cache: Size = cache
            .parse()
            .map_err(|error| Failure::usage(format!("--cache: {error}")))?;
        let total_blocks = blocks_of("--cache", cache, block_bytes)?;
        check_cache_bytes(u64::from(total_blocks) * block_bytes)
            .map_err(|problem| Failure::usage(format!("--cache: {problem}")))?;
        let exports = args.exports.iter().map(|text| export(text));
        let exports: Vec<VolumeSpec> = exports.collect::<Result<_, _>>().map_err(Failure::usage)?;
        let exports = expand("export", exports)?;
        refuse_twice("export", &exports)?;
        let classes = ClassNames::new(&exports, &mut policy)?;
        let shape = Shape {
            slots: 16,
            seed: args.seed,
        };
        futae_policy::build(&policy, &shape).map_err(wrong_policy)?;
        let own_blocks: Vec<Option<u32>> = exports
            .iter()
            .map(|export| {
                let of = format!("export {}: share", export.name);
                export
                    .share
                    .map(|share| blocks_of(&of, share, block_bytes))
                    .transpose()
            })
            .collect::<Result<_, _>>()?;
        let common_blocks = what_is_left(total_blocks, &own_blocks, block_bytes)?;
        args.state.check()?;
        args.memory.check_blocks(block_bytes)?;
        if let Some(log) = &args.decision_log {
            check_place("--decision-log", log)?;
        }
        let gates = args.listen.iter().map(|text| gate(text, &exports));
        let gates: Vec<Gate> = gates.collect::<Result<_, _>>().map_err(Failure::usage)?;
        let control = args.control.as_deref().map(control).transpose();
        let control = control.map_err(Failure::usage)?;
        let buffer_memory_bytes = buffer_memory(&args.buffer_memory)?;
        // A quarter is set aside for all connections, each of which needs some for its handshake.
        let connections_fit = buffer_memory_bytes / 4 / (16 << 10);
        if u64::from(args.connections_max) > connections_fit {
            return Err(Failure::usage(format!(
                "--connections-max {}: with --buffer-memory {} there may be {connections_fit}; give them more memory",
                args.connections_max, args.buffer_memory
            )));
        }
        let feeds = feeds::feeds(&args.feeds, &exports, &gates).map_err(Failure::usage)?;
        let mut server = ServerOptions {
            connections_max: args.connections_max as usize,
            keeps_clients: args.clients.keep_clients,
            buffer_memory_bytes,
            requests_together: args.requests_max.map(|most| most as usize),
            relays: feeds::relays(&args.samples_to, &feeds).map_err(Failure::usage)?,
            feeds,
            channels: args.evictions_disk,
            gates,
            insecure_tcp: args.insecure_tcp,
            tls: args.tls.options().map_err(Failure::usage)?,
            control_access: control
                .as_ref()
                .map(|(_, access)| *access)
                .unwrap_or_default(),
            control: control.map(|(address, _)| address),
            demotion: match args.demotion {
                Demotion::Auto => policy.wants_demotions(),
                Demotion::On => true,
                Demotion::Off => false,
            },
            ..ServerOptions::default()
        };
        for export in &exports {
            let checked = server.check_rates(&export.name, export.rates);
            checked.map_err(|error| Failure::usage(error.to_string()))?;
        }
        let cache = EngineOptions {
            block_bytes,
            capacity_blocks: total_blocks,
            policy,
            seed: args.seed,
            on_eviction: OnEviction::None,
            decision_log: args.decision_log.clone(),
            write_back: args.writes.options(block_bytes)?,
        };
        args.evictions.check(block_bytes, server.demotion)?;
        let opener = Arc::new(Opener {
            cache,
            classes,
            timeout: args.store.timeout()?,
            unclean: args.unclean.clone(),
            privileges: args.privileges.clone(),
            evictions: args.evictions.clone(),
            demotion: server.demotion,
            memory: KeptMemory::new(&args.memory, &args.privileges),
            state: Arc::new(KeptState::new(&args.state)),
            otlp: args.otlp.plan()?,
            tracing: OnceLock::new(),
            opened: Mutex::default(),
        });
        opener.plan_common(common_blocks);
        let adding = Arc::clone(&opener);
        server.open_export = Some(OpenExport::new(move |text| adding.open_text(text)));
        let plan = Self {
            exports,
            own_blocks,
            common_blocks,
            opener,
            observe: args.observe.plan(args.insecure_tcp)?,
            server,
        };
        clashes::refuse(args, &plan)?;
        Ok(plan)
    }

    /// The blocks of the cache of each export.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (&str, u32)> {
        let own = self.exports.iter().zip(&self.own_blocks);
        own.map(|(export, own)| (export.name.as_str(), own.unwrap_or(self.common_blocks)))
    }

    /// An export by its name.
    pub(super) fn spec_of(&self, name: &str) -> Option<&VolumeSpec> {
        self.exports.iter().find(|export| export.name == name)
    }

    /// The policy of the caches.
    pub(super) fn policy(&self) -> &PolicySpec {
        &self.opener.cache.policy
    }

    /// Whether the export has an address of its own, or a feed.
    pub(super) fn has_own_socket(&self, export: &str) -> bool {
        let mut gates = self.server.gates.iter();
        let mut feeds = self.server.feeds.iter();
        gates.any(|gate| gate.export.as_deref() == Some(export))
            || feeds.any(|feed| feed.has(export))
    }

    /// Why no page that an agent sends with its data enters the cache; none if they may.
    pub(super) fn refuses_pages(&self) -> Option<String> {
        let opener = &self.opener;
        let (bytes, policy) = (opener.cache.block_bytes, &opener.cache.policy);
        if !opener.demotion {
            Some(format!(
                "the policy {policy} takes no demotions; choose another --policy, or --demotion on"
            ))
        } else if bytes != PAGE_BYTES as u64 {
            let (block, page) = (Size::Bytes(bytes), Size::Bytes(PAGE_BYTES as u64));
            Some(format!(
                "a page of {page} is no whole block of {block} (--block)"
            ))
        } else if opener.evictions.is_off() {
            Some("--evictions-memory off: none can be verified".to_owned())
        } else {
            None
        }
    }

    /// The unix sockets that are made besides those of clients, each with its option.
    pub(super) fn further_sockets(&self) -> Vec<(&'static str, &Path)> {
        let control = self.server.control.iter();
        let control = control.filter_map(|address| match address {
            Listen::Unix(path) => Some(("--control", path.as_path())),
            Listen::VhostUser(_) | Listen::Tcp { .. } => None,
        });
        let feeds = self.server.feeds.iter();
        let feeds = feeds.map(|feed| ("--feed", feed.path.as_path()));
        control.chain(feeds).chain(self.observe.sockets()).collect()
    }

    /// Opens the sources of the exports.
    pub(super) fn open(&self) -> Result<Vec<OpenSource>, Failure> {
        self.opener.open_sources(&self.exports)
    }

    /// Makes the caches of the exports.
    pub(super) fn place(&self, sources: Vec<OpenSource>) -> Result<Vec<Export>, Failure> {
        self.opener.start_tracing()?;
        self.opener
            .place_all(&self.exports, &self.own_blocks, sources)
    }
}

/// What addresses begin with.
const KINDS: [&str; 3] = ["unix:", "tcp:", "vhost-user:"];

/// One `--listen`.
fn gate(text: &str, exports: &[VolumeSpec]) -> Result<Gate, String> {
    let wrong = |problem: String| format!("--listen {text}: {problem}");
    let (rest, in_the_clear) = tls::take_off(text);
    let (rest, access) = Access::take_from(rest).map_err(wrong)?;
    // An address begins with its kind; what is before it is an export.
    let is_plain = KINDS.iter().any(|kind| rest.starts_with(kind));
    let named = KINDS
        .iter()
        .filter_map(|kind| rest.find(&format!("={kind}")))
        .min()
        .filter(|_| !is_plain);
    let (export, address) = match named {
        Some(at) => (Some(rest[..at].to_owned()), &rest[at + 1..]),
        None => (None, rest),
    };
    let address: Listen = address
        .parse()
        .map_err(|error: futae_host::HostError| wrong(error.to_string()))?;
    if access != Access::default() && matches!(address, Listen::Tcp { .. }) {
        let problem = "mode, owner and group are those of a unix socket";
        return Err(wrong(problem.to_owned()));
    }
    if let Some(name) = &export
        && !exports.iter().any(|known| known.name == *name)
    {
        return Err(wrong(format!("no export is named {name:?}")));
    }
    if matches!(address, Listen::VhostUser(_)) && export.is_none() && exports.len() > 1 {
        let problem = "a vhost-user socket serves one export; write EXPORT=vhost-user:PATH";
        return Err(wrong(problem.to_owned()));
    }
    Ok(Gate {
        address,
        export,
        access,
        in_the_clear,
    })
}

/// The `--control`.
fn control(text: &str) -> Result<(Listen, Access), String> {
    let wrong = |problem: String| format!("--control {text}: {problem}");
    let (rest, access) = Access::take_from(text).map_err(wrong)?;
    let address = rest.parse();
    match address.map_err(|error: futae_host::HostError| wrong(error.to_string()))? {
        address @ Listen::Unix(_) => Ok((address, access)),
        Listen::Tcp { .. } | Listen::VhostUser(_) => Err(wrong(
            "a control socket is a unix socket; write unix:PATH".to_owned(),
        )),
    }
}

fn wrong_policy(problem: impl fmt::Display) -> Failure {
    Failure::usage(format!("--policy: {problem}"))
}

/// What clients may make the server hold.
fn buffer_memory(text: &str) -> Result<u64, Failure> {
    let wrong = |problem: String| Failure::usage(format!("--buffer-memory: {problem}"));
    let size: Size = text.parse().map_err(|error| wrong(format!("{error}")))?;
    let bytes = size.bytes(1).map_err(|error| wrong(error.to_string()))?;
    if bytes < BUFFER_MEMORY_MIN {
        return Err(wrong(format!(
            "{size} is less than {}, so the longest requests would not fit",
            Size::Bytes(BUFFER_MEMORY_MIN)
        )));
    }
    Ok(bytes)
}

pub(super) fn blocks_of(what: &str, size: Size, block_bytes: u64) -> Result<u32, Failure> {
    let blocks = size
        .blocks(block_bytes)
        .map_err(|error| Failure::usage(format!("{what}: {error}")))?;
    match u32::try_from(blocks) {
        Ok(0) => Err(Failure::usage(format!(
            "{what}: a cache has at least one block"
        ))),
        Ok(blocks) => Ok(blocks),
        Err(_) => Err(Failure::usage(format!(
            "{what}: {size} are {blocks} blocks, but a cache has at most {}; use a larger --block",
            u32::MAX
        ))),
    }
}

/// Blocks for the exports without a share.
fn what_is_left(total: u32, own: &[Option<u32>], block_bytes: u64) -> Result<u32, Failure> {
    let shares: u64 = own.iter().flatten().map(|&blocks| u64::from(blocks)).sum();
    let left = u64::from(total)
        .checked_sub(shares)
        .and_then(|left| u32::try_from(left).ok());
    let Some(left) = left else {
        let (shares, total) = (
            shares.saturating_mul(block_bytes),
            u64::from(total) * block_bytes,
        );
        return Err(Failure::usage(format!(
            "the shares are {} together, more than --cache {}",
            Size::Bytes(shares),
            Size::Bytes(total)
        )));
    };
    if left == 0 && own.iter().any(Option::is_none) {
        return Err(Failure::usage(
            "the shares leave nothing of --cache for the exports without one",
        ));
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_read_as_written() {
        let spec = export("a=b=c").expect("valid");
        assert_eq!(spec.name, "a");
        assert_eq!(spec.source.to_string(), "b=c");
        for text in [
            "",
            "disk.img",
            "=x",
            "a=",
            "a\u{1}=x",
            "a\u{202e}=x",
            "common=x,share=1MiB",
        ] {
            assert!(export(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sockets_are_read_as_written() {
        let exports = ["a=x", "b=y"].map(|text| export(text).expect("valid"));
        let read = |text: &str| {
            let gate = gate(text, &exports)?;
            let access = gate.access.mode;
            Ok::<_, String>((gate.export, gate.address.to_string(), access))
        };
        let plain = |address: &str| Ok((None, address.to_owned(), 0o600));
        assert_eq!(read("unix:/s"), plain("unix:/s"));
        assert_eq!(read("unix:/a=unix:b,c"), plain("unix:/a=unix:b,c"));
        assert_eq!(read("tcp:localhost:1"), plain("tcp:localhost:1"));
        let disk = (Some("a".to_owned()), "vhost-user:/v".to_owned(), 0o600);
        assert_eq!(read("a=vhost-user:/v"), Ok(disk));
        let of_b = Ok((Some("b".to_owned()), "unix:/s".to_owned(), 0o660));
        assert_eq!(read("b=unix:/s,group=0,mode=0660"), of_b);
        for text in [
            "",
            "c=unix:/s",
            "vhost-user:/which",
            "a=vhost-user:",
            "a=/s",
            "a=unix:",
            "unix:/s,mode=x",
            "tcp:h:1,mode=0660",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert!(control("unix:/s,mode=0660").is_ok_and(|(_, access)| access.mode == 0o660));
        for text in ["tcp:127.0.0.1:1", "vhost-user:/s"] {
            let problem = control(text).expect_err(text);
            assert!(problem.ends_with("; write unix:PATH"), "{problem}");
        }
    }

    #[test]
    fn only_an_exclusive_cache_that_does_not_say_otherwise_keeps_what_it_served() {
        for (before, after) in [
            ("exclusive", "exclusive(keep_served=true)"),
            ("exclusive(lfu)", "exclusive(lfu,keep_served=true)"),
            (
                "exclusive(keep_served=false)",
                "exclusive(keep_served=false)",
            ),
            ("lru", "lru"),
            (
                "directory(cost(exclusive))",
                "directory(cost(exclusive(keep_served=true)))",
            ),
        ] {
            let mut policy: PolicySpec = before.parse().expect("valid");
            policy.keep_served();
            assert_eq!(policy.to_string(), after);
        }
    }

    #[test]
    fn shares_must_fit_and_leave_something() {
        assert_eq!(what_is_left(10, &[Some(4), None], 4096).ok(), Some(6));
        assert_eq!(what_is_left(10, &[Some(4), Some(6)], 4096).ok(), Some(0));
        assert!(what_is_left(10, &[Some(10), None], 4096).is_err());
        assert!(what_is_left(10, &[Some(11)], 4096).is_err());
    }
}

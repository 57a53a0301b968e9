//! What the arguments of `futae serve` come to, checked before anything is opened or made.

use super::args::Args;
use super::clashes;
use super::exports::{blocks_of, divide, export};
use super::memory::KeptMemory;
use super::opener::{OpenSource, Opener};
use super::reach::Reach;
use super::server_options::server_options;
use super::state::KeptState;
use crate::command::observe_args::Observe;
use crate::command::volumes::{ClassNames, VolumeSpec, expand, refuse_twice};
use crate::defaults::SERVE_POLICY;
use crate::save::check_place;
use futae_control::check_cache_bytes;
use futae_engine::{EngineOptions, OnEviction, PAGE_BYTES};
use futae_host::{Export, Listen, OpenExport, ServerOptions};
use futae_policy::{PolicySpec, Shape};
use futae_terminal::failure::Failure;
use futae_units::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

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
        let (own_blocks, common_blocks) = divide(total_blocks, &exports, block_bytes)?;
        args.state.check()?;
        args.memory.check_blocks(block_bytes)?;
        if let Some(log) = &args.decision_log {
            check_place("--decision-log", log)?;
        }
        let mut server = server_options(args, &exports, &policy)?;
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
            reach: Reach::of(&server.gates),
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
        let observe = args.observe.plan(args.insecure_tcp)?;
        clashes::refuse(args, &server, &observe)?;
        Ok(Self {
            exports,
            own_blocks,
            common_blocks,
            opener,
            observe,
            server,
        })
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

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> u64 {
        self.opener.cache.block_bytes
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

fn wrong_policy(problem: impl fmt::Display) -> Failure {
    Failure::usage(format!("--policy: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

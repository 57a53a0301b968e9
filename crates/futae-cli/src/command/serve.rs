//! `futae serve`: the lower cache, for every client that speaks NBD.

use crate::failure::Failure;
use futae_engine::{Engine, EngineOptions, FileStore, HandDown};
use futae_host::{Export, Listen, Server, ServerOptions, StopReport, check_cache_bytes};
use futae_policy::{Class, PolicySpec, Shape};
use futae_trace::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use futae_wire::{NbdUri, Transport};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Serve disk images over NBD from one cache
#[derive(clap::Args)]
pub struct Args {
    /// Memory for all caches together, e.g. 4GiB
    #[arg(long, value_name = "SIZE")]
    cache: String,
    /// Size of a block, a power of two from 4KiB to 256MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: String,
    /// Who chooses what stays; `futae policies` lists them
    #[arg(long, default_value = "exclusive")]
    policy: String,
    /// What to serve: NAME=FILE[,share=SIZE][,read-only]. An export with a share has that much of
    /// the cache for itself; the others have the rest together
    #[arg(long = "export", value_name = "NAME=FILE", required = true)]
    exports: Vec<String>,
    /// Where: unix:PATH (a socket, or a directory to make futae.sock in) or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<String>,
    /// Take orders (status, resize) on this unix socket, unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
    /// Write every decision of the cache to FILE; of an export with a share, to FILE.NAME
    #[arg(long, value_name = "FILE")]
    decision_log: Option<PathBuf>,
    /// Take no evicted blocks from clients
    #[arg(long)]
    no_demotion: bool,
    /// Seed for policies that draw lots
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    json: bool,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    // Before anything exists that a signal would leave behind.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    raise_descriptor_limit();
    let exports = plan.open()?;
    let server = Server::start(plan.server, exports).map_err(anyhow::Error::from)?;
    announce(&server, args.json)?;
    signals.forever().next();
    let report = server.stop();
    say_goodbye(&report, args.json)?;
    let Some((name, problem)) = report.flush_errors.first() else {
        return Ok(());
    };
    Err(
        anyhow::anyhow!("export {name}: the last writes may not be on stable storage: {problem}")
            .into(),
    )
}

/// One `--export`.
#[derive(Debug, PartialEq)]
struct ExportSpec {
    name: String,
    path: PathBuf,
    share: Option<Size>,
    read_only: bool,
}

impl FromStr for ExportSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, mut rest) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("--export {text}: write NAME=FILE[,share=SIZE][,read-only]"))?;
        let (mut share, mut read_only) = (None, false);
        // From the end, so that a file's name may have commas in it.
        while let Some((before, option)) = rest.rsplit_once(',') {
            if option == "read-only" {
                read_only = true;
            } else if let Some(size) = option.strip_prefix("share=") {
                share = Some(
                    size.parse()
                        .map_err(|error| format!("export {name}: {error}"))?,
                );
            } else if Path::new(rest).exists() {
                break;
            } else {
                return Err(format!(
                    "export {name}: {option:?} is not an option, and no file is named {rest:?}; \
                     the options are share=SIZE and read-only"
                ));
            }
            rest = before;
        }
        if rest.is_empty() {
            return Err(format!(
                "export {name}: the file is missing; write {name}=FILE"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            path: rest.into(),
            share,
            read_only,
        })
    }
}

/// What the arguments come to, before anything is opened.
struct Plan {
    exports: Vec<ExportSpec>,
    /// Blocks of each export's own cache, where it has one.
    own_blocks: Vec<Option<u32>>,
    /// Blocks of the cache that the others use together.
    common_blocks: u32,
    cache: EngineOptions,
    server: ServerOptions,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, Failure> {
        let policy: PolicySpec = args.policy.parse().map_err(Failure::usage)?;
        futae_policy::build(
            &policy,
            &Shape {
                slots: 16,
                seed: args.seed,
            },
        )
        .map_err(Failure::usage)?;
        let block_bytes = parse_block_bytes(&args.block, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
            .map_err(|error| Failure::usage(format!("--block: {error}")))?;
        let cache: Size = args
            .cache
            .parse()
            .map_err(|error| Failure::usage(format!("--cache: {error}")))?;
        let total_blocks = blocks_of("--cache", cache, block_bytes)?;
        check_cache_bytes(u64::from(total_blocks) * block_bytes).map_err(Failure::usage)?;
        let exports: Vec<ExportSpec> = args
            .exports
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, String>>()
            .map_err(Failure::usage)?;
        for (at, export) in exports.iter().enumerate() {
            if exports[..at].iter().any(|other| other.name == export.name) {
                return Err(Failure::usage(format!(
                    "two exports are named {:?}",
                    export.name
                )));
            }
        }
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
        let listen = args.listen.iter().map(|text| text.parse::<Listen>());
        let control = args.control.as_deref().map(str::parse::<Listen>);
        let server = ServerOptions {
            listen: listen.collect::<Result<_, _>>().map_err(Failure::usage)?,
            control: control.transpose().map_err(Failure::usage)?,
            demotion: !args.no_demotion,
            ..ServerOptions::default()
        };
        let cache = EngineOptions {
            block_bytes,
            capacity_blocks: total_blocks,
            policy,
            seed: args.seed,
            hand_down: HandDown::Nothing,
            decision_log: args.decision_log.clone(),
        };
        Ok(Self {
            exports,
            own_blocks,
            common_blocks,
            cache,
            server,
        })
    }

    /// Opens the images, then makes the caches.
    fn open(&self) -> Result<Vec<Export>, Failure> {
        self.refuse_double_use()?;
        let mut stores = Vec::new();
        for spec in &self.exports {
            stores.push(Arc::new(FileStore::open(&spec.path, spec.read_only)?));
        }
        let mut common = None;
        let mut exports = Vec::new();
        for ((spec, own), store) in self.exports.iter().zip(&self.own_blocks).zip(stores) {
            let engine = match (own, &common) {
                (Some(blocks), _) => self.engine(*blocks, Some(&spec.name))?,
                (None, Some(engine)) => Arc::clone(engine),
                (None, None) => Arc::clone(common.insert(self.engine(self.common_blocks, None)?)),
            };
            let volume = engine.add_volume(&spec.name, store, Class::NORMAL)?;
            exports.push(Export {
                name: spec.name.clone(),
                description: spec.path.display().to_string(),
                engine,
                volume,
                read_only: spec.read_only,
            });
        }
        Ok(exports)
    }

    /// Two exports of one file would each cache it, and not see what is written to the other.
    fn refuse_double_use(&self) -> Result<(), Failure> {
        for (at, one) in self.exports.iter().enumerate() {
            let Ok(path) = one.path.canonicalize() else {
                continue;
            };
            let other = self.exports[..at].iter().find(|other| {
                !(one.read_only && other.read_only)
                    && other.path.canonicalize().is_ok_and(|found| found == path)
            });
            if let Some(other) = other {
                return Err(Failure::usage(format!(
                    "exports {} and {} are the same file; serve it once, several clients may \
                     connect, or make both read-only",
                    other.name, one.name
                )));
            }
        }
        Ok(())
    }

    fn engine(&self, capacity_blocks: u32, owner: Option<&str>) -> Result<Arc<Engine>, Failure> {
        let log = self.cache.decision_log.as_ref();
        let decision_log = log.map(|path| match owner {
            None => path.clone(),
            Some(name) => with_suffix(path, name),
        });
        Ok(Engine::new(&EngineOptions {
            capacity_blocks,
            decision_log,
            ..self.cache.clone()
        })?)
    }
}

fn with_suffix(path: &Path, name: &str) -> PathBuf {
    let mut full = OsString::from(path);
    // A name may contain what a file's name may not.
    full.push(format!(".{}", name.replace('/', "_")));
    full.into()
}

fn blocks_of(what: &str, size: Size, block_bytes: u64) -> Result<u32, Failure> {
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

/// A thousand clients need more descriptors than a shell's usual soft limit.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // The server runs with fewer, too.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

fn uri(address: &Listen, export: &str) -> String {
    let transport = match address {
        Listen::Unix(path) => Transport::Unix {
            socket: path.clone(),
        },
        Listen::Tcp { host, port } => Transport::Tcp {
            host: host.clone(),
            port: *port,
        },
    };
    NbdUri {
        transport,
        export: export.to_owned(),
    }
    .to_string()
}

fn announce(server: &Server, as_json: bool) -> Result<(), Failure> {
    let status = server.status();
    let uris = |name: &str| -> Vec<String> {
        server
            .addresses()
            .iter()
            .map(|address| uri(address, name))
            .collect()
    };
    let mut out = std::io::stdout().lock();
    if as_json {
        let exports: Vec<_> = status
            .exports
            .iter()
            .map(|export| {
                json!({
                    "name": export.name,
                    "size_bytes": export.size_bytes,
                    "read_only": export.read_only,
                    "uris": uris(&export.name),
                })
            })
            .collect();
        let control = server.control_address().map(ToString::to_string);
        writeln!(out, "{}", json!({ "exports": exports, "control": control }))?;
    } else {
        for export in &status.exports {
            let size = Size::Bytes(export.size_bytes);
            let mode = if export.read_only { ", read-only" } else { "" };
            writeln!(
                out,
                "{} ({size}{mode}): {}",
                export.name,
                uris(&export.name).join(" ")
            )?;
        }
    }
    out.flush()?;
    Ok(())
}

fn say_goodbye(report: &StopReport, as_json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let errors: Vec<_> = report
            .flush_errors
            .iter()
            .map(|(export, problem)| json!({ "export": export, "problem": problem }))
            .collect();
        let line = json!({
            "status": report.status,
            "abandoned_connections": report.abandoned_connections,
            "flush_errors": errors,
        });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let (mut requests, mut hits, mut demotions, mut reads) = (0, 0, 0, 0);
    for cache in &report.status.engines {
        requests += cache.engine.counters.requests;
        hits += cache.engine.counters.hits;
        demotions += cache.engine.counters.demotions_in;
        reads += cache.engine.store_reads;
    }
    let ratio = if requests == 0 {
        0.0
    } else {
        100.0 * hits as f64 / requests as f64
    };
    writeln!(
        out,
        "served {requests} blocks in {:.1} s: {ratio:.1} % hits, {reads} store reads, \
         {demotions} demotions taken, {} connections",
        report.status.uptime_seconds, report.status.accepted
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_read_as_written() {
        let spec: ExportSpec = "vm1=disk.img,share=1GiB,read-only".parse().expect("valid");
        let expected = ExportSpec {
            name: "vm1".into(),
            path: "disk.img".into(),
            share: Some(Size::Bytes(1 << 30)),
            read_only: true,
        };
        assert_eq!(spec, expected);
        let plain: ExportSpec = "a=b=c".parse().expect("valid");
        assert_eq!(
            (plain.name.as_str(), plain.path),
            ("a", PathBuf::from("b=c"))
        );
        for text in ["", "disk.img", "=x", "a=", "a=x,share=lots", "a=x,readonly"] {
            assert!(text.parse::<ExportSpec>().is_err(), "{text:?}");
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

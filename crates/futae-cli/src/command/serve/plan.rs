//! What the arguments of `futae serve` come to, checked before anything is opened or made.

use super::{Args, Demotion};
use crate::failure::Failure;
use futae_control::check_cache_bytes;
use futae_engine::{Engine, EngineOptions, FileStore, HandDown};
use futae_host::{Export, Listen, ServerOptions};
use futae_policy::{Class, PolicySpec, Shape};
use futae_trace::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

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
pub(super) struct Plan {
    exports: Vec<ExportSpec>,
    /// Blocks of each export's own cache, where it has one.
    own_blocks: Vec<Option<u32>>,
    /// Blocks of the cache that the others use together.
    common_blocks: u32,
    cache: EngineOptions,
    /// How to serve.
    pub(super) server: ServerOptions,
}

impl Plan {
    /// Checks the arguments.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
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
            demotion: match args.demotion {
                Demotion::Auto => policy.name == "exclusive",
                Demotion::On => true,
                Demotion::Off => false,
            },
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
    pub(super) fn open(&self) -> Result<Vec<Export>, Failure> {
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

//! The volumes of a mount: which they are, their stores, and what those are told of evicted blocks.

use super::super::volumes::{Source, VolumeSpec, expand, refuse_twice};
use super::args::{Args, Tell};
use anyhow::Context;
use futae_engine::{FileStore, OnEviction, Store};
use futae_guest::default_file_name;
use futae_host::RateLimits;
use futae_nbd::NbdUri;
use futae_nbd_store::NbdStore;
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// The largest blocks that are demoted unless the command says otherwise.
const DEMOTED_BYTES_MAX: u64 = 1 << 20;

/// The volumes that were asked for.
pub(super) fn volumes(args: &Args) -> Result<Vec<VolumeSpec>, Failure> {
    if let [only] = &args.sources[..] {
        let named = named(only).filter(|_| !Path::new(only).exists());
        let Some((name, text)) = named else {
            let source = Source::new(only).map_err(Failure::usage)?;
            let own_name = match &source {
                Source::Nbd(uri) => default_file_name(OsStr::new(&uri.export)),
                Source::File(path) => default_file_name(path.as_os_str()),
            };
            let name = args.name.as_deref().unwrap_or(&own_name);
            return Ok(vec![VolumeSpec::plain(name, source)]);
        };
        return expand("volume", vec![volume(args, name, text)?]);
    }
    let volumes = args.sources.iter().map(|text| {
        let (name, text) = named(text).ok_or_else(|| {
            Failure::usage(format!(
                "{text}: of several sources each has a name; write NAME={text}"
            ))
        })?;
        volume(args, name, text)
    });
    let volumes = expand("volume", volumes.collect::<Result<_, _>>()?)?;
    refuse_twice("volume", &volumes)?;
    Ok(volumes)
}

/// `NAME=SOURCE`. Paths and addresses have no name, even if they have a `=` in them.
fn named(text: &str) -> Option<(&str, &str)> {
    let named = text.split_once('=');
    named.filter(|(name, _)| !name.is_empty() && !name.contains('/'))
}

fn volume(args: &Args, name: &str, text: &str) -> Result<VolumeSpec, Failure> {
    let volume = VolumeSpec::new("volume", name, text).map_err(Failure::usage)?;
    if args.name.is_some() {
        return Err(Failure::usage(format!(
            "--name and {name}={text} both name the file; leave out --name"
        )));
    }
    if volume.share.is_some() {
        return Err(Failure::usage(format!(
            "volume {name}: the volumes of a mount have one cache together; leave out share=SIZE, or \
             mount it by itself"
        )));
    }
    let is_of_serve = volume.connections.is_some()
        || volume.requests.is_some()
        || volume.is_incoming
        || volume.rates != RateLimits::default();
    if is_of_serve {
        return Err(Failure::usage(format!(
            "volume {name}: connections=N, requests=N, iops=N, bandwidth=SIZE, weight=N and incoming are for futae serve; leave them out"
        )));
    }
    Ok(volume)
}

/// Opens every store, and finds out what to tell them of evicted blocks.
pub(super) fn open(
    args: &Args,
    volumes: &[VolumeSpec],
    block_bytes: u64,
) -> Result<(Vec<Arc<dyn Store>>, OnEviction), Failure> {
    let is_nbd = |volume: &VolumeSpec| matches!(volume.source, Source::Nbd(_));
    if matches!(args.on_eviction, Tell::Demote | Tell::Notice) && !volumes.iter().any(is_nbd) {
        return Err(Failure::usage(format!(
            "{}: there is no cache below a file or device; leave out --on-eviction",
            args.source()
        )));
    }
    let (mut stores, mut on_eviction) = (Vec::new(), OnEviction::None);
    for volume in volumes {
        let read_only = args.read_only || volume.read_only;
        let store: Arc<dyn Store> = match &volume.source {
            Source::File(path) => {
                refuse_inside(path, &args.mountpoint)?;
                Arc::new(FileStore::open(path, read_only)?)
            }
            Source::Nbd(uri) => {
                let (store, takes) = open_nbd(uri, args, read_only, block_bytes)?;
                // Each store passes over what it does not take.
                if takes != OnEviction::None {
                    on_eviction = takes;
                }
                store
            }
        };
        stores.push(store);
    }
    Ok((stores, on_eviction))
}

/// A source in the mountpoint would disappear behind the mount.
fn refuse_inside(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let (Ok(source), Ok(mountpoint)) = (source.canonicalize(), mountpoint.canonicalize()) else {
        return Ok(());
    };
    if source.starts_with(&mountpoint) {
        let message = format!("{}: the source is in the mountpoint", source.display());
        return Err(Failure::usage(message));
    }
    Ok(())
}

fn open_nbd(
    uri: &NbdUri,
    args: &Args,
    read_only: bool,
    block_bytes: u64,
) -> Result<(Arc<dyn Store>, OnEviction), Failure> {
    // A large block would be copied and sent while somebody waits: only where that is asked for.
    let is_small = block_bytes <= DEMOTED_BYTES_MAX;
    let wants_demotions =
        args.on_eviction == Tell::Demote || args.on_eviction == Tell::Auto && is_small;
    let block_bytes = u32::try_from(block_bytes).context("the block is too large")?;
    let timeout = args.store.timeout()?;
    let wanted = wants_demotions.then_some(block_bytes);
    let mut store = NbdStore::connect_with_timeout(uri, wanted, timeout)?;
    if read_only {
        store = store.read_only();
    }
    let on_eviction = match args.on_eviction {
        Tell::Auto | Tell::Demote if store.takes_demotions() => OnEviction::Demote,
        Tell::Demote => {
            return Err(anyhow::anyhow!(
                "{uri}: the server takes no evicted blocks of {}; use --on-eviction auto",
                Size::Bytes(block_bytes.into())
            )
            .into());
        }
        Tell::Notice if store.takes_notices() => OnEviction::Notice,
        Tell::Notice => {
            return Err(anyhow::anyhow!(
                "{uri}: the server does not offer CACHE, which notices need; use --on-eviction auto"
            )
            .into());
        }
        Tell::Auto | Tell::None => OnEviction::None,
    };
    Ok((Arc::new(store), on_eviction))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn paths_and_addresses_have_no_name() {
        assert_eq!(named("a=disk.img"), Some(("a", "disk.img")));
        let far = "b=nbd+unix:///x?socket=/run/s";
        assert_eq!(named(far), Some(("b", "nbd+unix:///x?socket=/run/s")));
        for text in ["disk.img", "=x", "nbd+unix:///x?socket=/run/s", "/a=b/c"] {
            assert_eq!(named(text), None, "{text}");
        }
    }
}

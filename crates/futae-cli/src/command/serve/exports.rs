//! What `--export` says, and how `--cache` is divided among exports.

use crate::command::volumes::VolumeSpec;
use futae_observe::Snapshot;
use futae_terminal::failure::Failure;
use futae_units::Size;

/// One `--export`.
pub(super) fn export(text: &str) -> Result<VolumeSpec, String> {
    let (name, rest) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| {
            format!(
                "--export {text}: write NAME=SOURCE[,share=SIZE][,class=local|remote|NAME]\
                 [,connections=N][,requests=N][,iops=N][,bandwidth=SIZE][,weight=N][,protected][,read-only][,incoming]"
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

/// The whole blocks in a size, at least one.
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

/// Blocks of each export's own cache, where it has a share of the `total`, and of the cache of the others.
pub(super) fn divide(
    total: u32,
    exports: &[VolumeSpec],
    block_bytes: u64,
) -> Result<(Vec<Option<u32>>, u32), Failure> {
    let own = exports.iter().map(|export| {
        let of = format!("export {}: share", export.name);
        let share = export.share;
        share
            .map(|share| blocks_of(&of, share, block_bytes))
            .transpose()
    });
    let own: Vec<Option<u32>> = own.collect::<Result<_, _>>()?;
    let common = what_is_left(total, &own, block_bytes)?;
    Ok((own, common))
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
    fn shares_must_fit_and_leave_something() {
        assert_eq!(what_is_left(10, &[Some(4), None], 4096).ok(), Some(6));
        assert_eq!(what_is_left(10, &[Some(4), Some(6)], 4096).ok(), Some(0));
        assert!(what_is_left(10, &[Some(10), None], 4096).is_err());
        assert!(what_is_left(10, &[Some(11)], 4096).is_err());
    }
}

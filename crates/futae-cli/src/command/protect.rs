//! `futae protect` and `futae unprotect`: which directories of a mounted tree have priority.

use futae_control::ask_for;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use serde::Deserialize;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Longest path of a control socket.
const PATH_BYTES_MAX: usize = 4096;

/// Protect the files of a directory in a mounted tree
///
/// Blocks of files directly in DIR move to the protected pool at their next use. The cache evicts
/// them only when it has no blocks of other files. The policy of the mount must be `directory`.
#[derive(clap::Args)]
pub struct ProtectArgs {
    /// Where the tree is mounted
    mountpoint: PathBuf,
    /// The directory, relative to the root of the tree, or as an absolute path in the mount or its
    /// source
    directory: PathBuf,
    /// Move the blocks that are in the cache at once, not at their next use
    #[arg(long)]
    now: bool,
}

/// End the protection that `futae protect` or --protect gave to a directory
#[derive(clap::Args)]
pub struct UnprotectArgs {
    /// Where the tree is mounted
    mountpoint: PathBuf,
    /// The directory, as for `futae protect`
    directory: PathBuf,
}

/// Protects.
pub fn protect(args: &ProtectArgs) -> Result<(), Failure> {
    let directory = meant(&args.mountpoint, &args.directory);
    let order = json!({ "command": "protect", "directory": directory, "now": args.now });
    give(&args.mountpoint, &order)
}

/// Takes it back.
pub fn unprotect(args: &UnprotectArgs) -> Result<(), Failure> {
    let directory = meant(&args.mountpoint, &args.directory);
    let order = json!({ "command": "unprotect", "directory": directory });
    give(&args.mountpoint, &order)
}

/// A path that leads into the mount from here is meant so; any other is from the root on.
fn meant(mountpoint: &Path, directory: &Path) -> PathBuf {
    match (mountpoint.canonicalize(), directory.canonicalize()) {
        (Ok(mountpoint), Ok(directory)) if directory.starts_with(&mountpoint) => directory,
        _ => directory.to_owned(),
    }
}

/// What an order came to.
#[derive(Deserialize)]
struct Answer {
    protected: Vec<String>,
    /// Why that has no effect.
    idle: Option<String>,
}

fn give(mountpoint: &Path, order: &serde_json::Value) -> Result<(), Failure> {
    let socket = control_of(mountpoint)?;
    let answer: Answer = ask_for(&socket, order)?;
    if let Some(idle) = answer.idle {
        eprintln!("futae: warning: {idle}");
    }
    let mut out = output();
    if answer.protected.is_empty() {
        writeln!(out, "no directory is protected")?;
    }
    for directory in answer.protected {
        writeln!(out, "protected: {directory}")?;
    }
    Ok(())
}

/// Where a mounted tree takes orders: an attribute of its root tells.
fn control_of(mountpoint: &Path) -> Result<PathBuf, Failure> {
    let mut path = vec![0; PATH_BYTES_MAX];
    let name = futae_guest::control_attribute();
    match rustix::fs::getxattr(mountpoint, &name, &mut path[..]) {
        Ok(length) => {
            path.truncate(length);
            Ok(OsString::from_vec(path).into())
        }
        Err(errno) => Err(anyhow::anyhow!(
            "{}: no tree is mounted here by futae mount ({errno}); give the mountpoint itself",
            mountpoint.display()
        )
        .into()),
    }
}

//! What `futae check` says of a file for `futae serve`.

use super::args::Args;
use super::config::ConfigFile;
use super::exports::export;
use super::plan::Plan;
use crate::command::volumes::Source;
use anyhow::{Context, anyhow};
use futae_control::UnixSocket;
use futae_engine::{Engine, FileStore};
use futae_host::TlsOptions;
use futae_sim::WriteMode;
use futae_terminal::failure::Failure;
use futae_units::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, parse_block_bytes};
use std::path::Path;

/// Stands for the name of a socket in a directory: which name that is makes no difference here.
const SOCKET_NAME: &str = "futae.sock";

/// The caches of a configuration.
pub struct Caches {
    /// Bytes of a block; none if this is a part of a configuration that does not say.
    pub block_bytes: Option<u64>,
    /// The exports with a cache of their own, their share of `cache`.
    pub shares: Vec<String>,
    /// When written data goes to the stores.
    pub write_mode: WriteMode,
}

/// Checks what a configuration file says by itself, with this text in place of that of the file.
///
/// # Errors
///
/// What is wrong with it: an option, or options that exclude each other.
pub fn check_options(path: &Path, text: &str) -> Result<Caches, Failure> {
    let args = Args::of_text(path, text)?;
    let plan = Plan::new(&args)?;
    let shares = plan.exports.iter().filter(|export| export.share.is_some());
    Ok(Caches {
        block_bytes: Some(plan.block_bytes()),
        shares: shares.map(|export| export.name.clone()).collect(),
        write_mode: args.writes.write_mode,
    })
}

/// What a file says of caches that is only a part of a configuration, such as one without a `listen`.
///
/// # Errors
///
/// It is no part of a configuration.
pub fn caches_in_part(path: &Path, text: &str) -> Result<Caches, Failure> {
    let file = ConfigFile::take(path, text, &Args::options())?;
    let exports = file.values("export").filter_map(|text| export(text).ok());
    let shares = exports.filter(|export| export.share.is_some());
    let block = file.values("block").last();
    let block =
        block.and_then(|text| parse_block_bytes(text, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).ok());
    let write_mode = file.values("write-mode").last();
    let write_mode = write_mode.and_then(|text| text.parse().ok());
    Ok(Caches {
        block_bytes: block,
        shares: shares.map(|export| export.name).collect(),
        write_mode: write_mode.unwrap_or_default(),
    })
}

/// Checks a file, and says what it comes to. Nothing is made, locked or listened on; NBD sources are not connected to.
///
/// # Errors
///
/// What is wrong with the file; or an image that cannot be read, or a directory that is missing.
pub fn check(path: &Path) -> Result<String, Failure> {
    let args = Args::of_file(path)?;
    let plan = Plan::new(&args)?;
    let at = |message: String| args.placed(anyhow!(message).into());
    for export in &plan.exports {
        if let Source::File(image) = &export.source {
            let name = format!("export {}", export.name);
            let found = FileStore::check(image).map_err(|error| at(format!("{name}: {error}")))?;
            let fits = Engine::check_size(&name, found, plan.block_bytes());
            fits.map_err(|error| at(error.to_string()))?;
        }
    }
    let user = args.privileges.check();
    user.map_err(|failure| args.placed(failure))?;
    let tls = plan.server.tls.as_ref().map_or(Ok(()), TlsOptions::check);
    tls.map_err(|error| at(error.to_string()))?;
    let addresses = plan.server.check_addresses().context("--listen");
    addresses.map_err(|error| args.placed(error.into()))?;
    for (option, socket) in plan.further_sockets() {
        let socket = UnixSocket::check(socket, SOCKET_NAME).context(option);
        socket.map_err(|error| args.placed(error.into()))?;
    }
    args.unclean
        .check()
        .map_err(|failure| args.placed(failure))?;
    args.memory
        .check()
        .map_err(|failure| args.placed(failure))?;
    let names: Vec<&str> = plan
        .exports
        .iter()
        .map(|export| export.name.as_str())
        .collect();
    let cache = args.cache.as_deref().unwrap_or_default();
    let noun = if names.len() == 1 {
        "export"
    } else {
        "exports"
    };
    Ok(format!(
        "{} {noun} ({}), a cache of {cache}",
        names.len(),
        names.join(", ")
    ))
}

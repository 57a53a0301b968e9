//! `futae export`: orders about one export of a running server.

use crate::failure::Failure;
use futae_control::ask;
use futae_units::Size;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Change an export of a running server
///
/// The server must have been started with --control.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    order: Order,
}

#[derive(clap::Subcommand)]
enum Order {
    Resize(Resize),
}

/// Change the size of the cache of an export
///
/// An export with a share has a cache of its own; the others have one together, which is resized whichever of them is
/// named. Contents and their order are kept, but for what no longer fits.
#[derive(clap::Args)]
struct Resize {
    /// The control socket of the server: unix:PATH or PATH
    control: String,
    /// The export
    export: String,
    /// Memory for the cache, e.g. 4GiB
    size: Size,
}

/// The path of a control socket, as command lines write it.
pub fn control_path(text: &str) -> PathBuf {
    PathBuf::from(text.strip_prefix("unix:").unwrap_or(text))
}

/// Gives the order, and says what it came to.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Order::Resize(order) = &args.order;
    let path = control_path(&order.control);
    let line = json!({ "command": "resize", "export": order.export, "cache": order.size });
    let answer = ask(&path, &line)?;
    let blocks = &answer["capacity_blocks"];
    let (export, size) = (&order.export, order.size);
    writeln!(
        std::io::stdout().lock(),
        "{export}: a cache of {size}, {blocks} blocks"
    )?;
    Ok(())
}

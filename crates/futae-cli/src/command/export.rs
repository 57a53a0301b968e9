//! `futae export`: orders about one export of a running server.

use futae_control::{ask_for, ask_for_within};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_units::Size;
use serde::Deserialize;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How long to wait for an order that waits for a store: the server opens an export, or flushes it. It goes on when this is over.
const STORE_TIMEOUT: Duration = Duration::from_secs(3600);

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
    Add(Add),
    Remove(Remove),
    Resize(Resize),
    Limit(Limit),
    Lengthen(Lengthen),
}

/// Add an export while clients are connected to others
///
/// Clients find it at the sockets that serve all exports. Without a share it joins the cache of the
/// exports without one, or the server creates that cache; a share is memory in addition to --cache.
/// A source that another export uses is refused, unless both are read-only.
#[derive(clap::Args)]
struct Add {
    /// The control socket of the server: unix:PATH or PATH
    control: String,
    /// The export, as for --export of `futae serve`:
    /// `NAME=SOURCE[,share=SIZE][,class=local|remote|CLASS][,connections=N][,requests=N][,iops=N][,bandwidth=SIZE][,weight=N][,protected][,read-only][,incoming]`. The server
    /// opens a relative SOURCE in its own directory
    export: String,
}

/// Remove an export, once what its clients wrote is on stable storage
///
/// It stays if a client has it open, or if it cannot be flushed.
#[derive(clap::Args)]
struct Remove {
    /// The control socket of the server: unix:PATH or PATH
    control: String,
    /// The export
    export: String,
    /// Disconnect the clients that have it open. Acknowledged writes are flushed nevertheless
    #[arg(long)]
    force: bool,
}

/// Change the size of the cache of an export
///
/// An export with a share has its own cache; the others share one, which is resized if any of them
/// is named. Blocks that still fit stay, in their order.
#[derive(clap::Args)]
struct Resize {
    /// The control socket of the server: unix:PATH or PATH
    control: String,
    /// The export
    export: String,
    /// Memory for the cache, e.g. 4GiB
    size: Size,
}

/// Change the limits of an export's requests and bytes per second
///
/// A limit that is not given is removed. The new limits also apply to requests that wait. With
/// --config, the next SIGHUP restores the limits of the file.
#[derive(clap::Args)]
struct Limit {
    /// The control socket of the server: unix:PATH or PATH
    control: String,
    /// The export
    export: String,
    /// Requests a second
    #[arg(long, value_name = "N")]
    iops: Option<u64>,
    /// Bytes a second of READ, WRITE and demotions, e.g. 64MiB
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<Size>,
    /// Its weight for the server's --requests-max, from 1 to 1000; refused without that limit
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
}

/// Adopt the new size of an image or device that was extended
///
/// Make the image longer first (`truncate -s +4G vm1.img`, `lvextend`). A guest whose disk is a
/// vhost-user socket then sees the new size at once; an NBD client sees it when it connects again.
/// A disk never becomes shorter.
#[derive(clap::Args)]
struct Lengthen {
    /// The control socket of the server: unix:PATH or PATH
    control: String,
    /// The export
    export: String,
}

/// The path of a control socket, as command lines write it.
pub fn control_path(text: &str) -> PathBuf {
    PathBuf::from(text.strip_prefix("unix:").unwrap_or(text))
}

/// Gives the order, and says what it came to.
pub fn run(args: &Args) -> Result<(), Failure> {
    let said = match &args.order {
        Order::Add(order) => order.run(),
        Order::Remove(order) => order.run(),
        Order::Resize(order) => order.run(),
        Order::Limit(order) => order.run(),
        Order::Lengthen(order) => order.run(),
    }?;
    writeln!(output(), "{said}")?;
    Ok(())
}

/// An export that was added.
#[derive(Deserialize)]
struct Added {
    name: String,
    size_bytes: u64,
    read_only: bool,
}

/// An export that was removed.
#[derive(Deserialize)]
struct Removed {
    disconnected: u64,
}

/// An export that may be longer.
#[derive(Deserialize)]
struct Lengthened {
    before_bytes: u64,
    size_bytes: u64,
    told: u64,
}

/// An export with limits.
#[derive(Deserialize)]
struct Limited {
    #[serde(rename = "changed")]
    _changed: bool,
}

/// A cache of another size.
#[derive(Deserialize)]
struct Resized {
    capacity_blocks: u64,
}

impl Add {
    fn run(&self) -> Result<String, Failure> {
        let line = json!({ "command": "export-add", "export": self.export });
        let added: Added = ask_for_within(&control_path(&self.control), &line, STORE_TIMEOUT)?;
        let (name, size) = (added.name, Size::Bytes(added.size_bytes));
        let mode = if added.read_only { ", read-only" } else { "" };
        Ok(format!("{name}: added ({size}{mode})"))
    }
}

impl Remove {
    fn run(&self) -> Result<String, Failure> {
        let Self { export, force, .. } = self;
        let line = json!({ "command": "export-remove", "export": export, "force": force });
        let removed: Removed = ask_for_within(&control_path(&self.control), &line, STORE_TIMEOUT)?;
        let ended = match removed.disconnected {
            0 => String::new(),
            count => format!(", {count} connections ended"),
        };
        Ok(format!("{export}: removed{ended}"))
    }
}

impl Lengthen {
    fn run(&self) -> Result<String, Failure> {
        let export = &self.export;
        let line = json!({ "command": "export-lengthen", "export": export });
        let answer: Lengthened =
            ask_for_within(&control_path(&self.control), &line, STORE_TIMEOUT)?;
        let (before, after) = (
            Size::Bytes(answer.before_bytes),
            Size::Bytes(answer.size_bytes),
        );
        if before == after {
            return Ok(format!(
                "{export}: {after}, as it was; make the image longer first"
            ));
        }
        let told = match answer.told {
            0 => "clients see it when they connect again".to_owned(),
            1 => "1 guest was told".to_owned(),
            count => format!("{count} guests were told"),
        };
        Ok(format!("{export}: {before}, now {after}; {told}"))
    }
}

impl Limit {
    fn run(&self) -> Result<String, Failure> {
        let Self {
            export,
            iops,
            bandwidth,
            weight,
            ..
        } = self;
        let line = json!({ "command": "export-limit", "export": export, "iops": iops, "bandwidth": bandwidth, "weight": weight });
        let _: Limited = ask_for(&control_path(&self.control), &line)?;
        let iops = iops.map(|iops| format!("{iops} requests"));
        let bandwidth = bandwidth.map(|size| size.to_string());
        let limits: Vec<String> = iops.into_iter().chain(bandwidth).collect();
        let weight = weight.map_or_else(String::new, |weight| format!(", weight {weight}"));
        Ok(if limits.is_empty() {
            format!("{export}: no limit{weight}")
        } else {
            format!(
                "{export}: at most {} a second{weight}",
                limits.join(" and ")
            )
        })
    }
}

impl Resize {
    fn run(&self) -> Result<String, Failure> {
        let (export, size) = (&self.export, self.size);
        let line = json!({ "command": "resize", "export": export, "cache": size });
        let resized: Resized = ask_for(&control_path(&self.control), &line)?;
        let blocks = resized.capacity_blocks;
        Ok(format!("{export}: a cache of {size}, {blocks} blocks"))
    }
}

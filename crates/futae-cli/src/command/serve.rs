//! `futae serve`: the lower cache, for every client that speaks NBD.

mod descriptors;
mod plan;
mod remarks;
mod unclean;

use super::write_args::{StoreArgs, WriteArgs};
use crate::failure::Failure;
use futae_host::{Listen, Server, StopReport};
use futae_log::LogArgs;
use futae_trace::Size;
use futae_wire::{NbdUri, Transport};
use plan::Plan;
use rustix::system::uname;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use tracing::{info, warn};
use unclean::UncleanArgs;

/// Serve disk images over NBD from one cache
#[derive(clap::Args)]
pub struct Args {
    /// Memory for all caches together, e.g. 4GiB
    #[arg(long, value_name = "SIZE")]
    cache: String,
    /// Size of a block, a power of two from 4KiB to 256MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: String,
    /// Who chooses what stays; `futae policies` lists them. Unless one is named, an exclusive cache that keeps
    /// what it has just served where nothing that a client evicted needs the room, so that it also
    /// works for clients that hand nothing down
    #[arg(long)]
    policy: Option<String>,
    /// What to serve:
    /// `NAME=SOURCE[,share=SIZE][,class=local|remote|CLASS][,connections=N][,requests=N][,protected][,read-only]`. SOURCE is a file,
    /// a block device or an NBD address. An export with a share has that much of the cache for itself;
    /// the others have the rest together. The class tells the policy `cost` how far the store is:
    /// remote for NBD addresses, otherwise local, unless said otherwise, or a name of your own. Blocks of
    /// a protected one stay under the policy `directory` while there are blocks of others. At most N connections
    /// use it at a time, and have N requests under way together
    #[arg(long = "export", value_name = "NAME=SOURCE", required = true)]
    exports: Vec<String>,
    /// Where: `[EXPORT=]unix:PATH[,mode=OCTAL][,owner=NAME][,group=NAME]` (a socket, or a directory to make
    /// futae.sock in) or `[EXPORT=]tcp:HOST:PORT`. With an export, clients see and open that one alone.
    /// Unless a mode is given, only the user that runs the server may connect
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<String>,
    /// Listen on TCP addresses that other machines can reach: there is neither encryption nor authentication
    #[arg(long)]
    insecure_tcp: bool,
    /// Take orders (status, resize) on this unix socket, unix:PATH, with mode, owner and group as above
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
    /// Where the agent in a guest tells what its page cache evicts: [EXPORT=]unix:PATH, a socket for the
    /// export that is the guest's disk; or `agent`, a socket for each export beside the first unix socket of
    /// --listen, named EXPORT.agent.sock. An exclusive cache then keeps what it has just served until
    /// it is told
    #[arg(long = "feed", value_name = "ADDRESS")]
    feeds: Vec<String>,
    /// Memory beside the caches for what clients send and have not received, all together, at least 64MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    buffer_memory: String,
    /// Connections that use exports at a time. One more takes the place of one of the peer that has most
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections_max: u32,
    /// Write every decision of the cache to FILE; of an export with a share, to FILE.NAME
    #[arg(long, value_name = "FILE")]
    decision_log: Option<PathBuf>,
    #[command(flatten)]
    writes: WriteArgs,
    #[command(flatten)]
    unclean: UncleanArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Whether to take evicted blocks from clients that offer them. auto: if the policy is
    /// exclusive, which lives on them
    #[arg(long, value_name = "WHETHER", default_value = "auto")]
    demotion: Demotion,
    /// Seed for policies that draw lots
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    json: bool,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Whether clients may hand evicted blocks down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Demotion {
    Auto,
    On,
    Off,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    // Before anything exists that a signal would leave behind.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    descriptors::raise_limit();
    let exports = plan.open()?;
    let (specs, mut options) = (plan.exports, plan.server);
    let lives_on_evictions = options.lives_on_evictions;
    let wanted = options.connections_max;
    options.connections_max = descriptors::affordable(wanted, options.handshakes_max());
    if options.connections_max < wanted {
        warn!(
            "serving {} connections instead of {wanted}: the limit of open files allows no more; \
             raise it (ulimit -n, LimitNOFILE=)",
            options.connections_max
        );
    }
    let server = Server::start(options, exports).map_err(anyhow::Error::from)?;
    let writes = args.writes.write_mode.name();
    remarks::at_start(&specs, &server.status(), lives_on_evictions, writes);
    announce(&server, args.json)?;
    let signal = signals.forever().next();
    let name = signal.and_then(signal_hook::low_level::signal_name);
    info!("{} received", name.unwrap_or("a signal"));
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

fn uri(address: &Listen, export: &str) -> String {
    let transport = match address {
        Listen::Unix(path) => Transport::Unix {
            socket: path.clone(),
        },
        Listen::Tcp { host, port } => Transport::Tcp {
            host: reachable(host),
            port: *port,
        },
    };
    NbdUri {
        transport,
        export: export.to_owned(),
    }
    .to_string()
}

/// A name by which clients find this host: the address that stands for all of its own is none.
fn reachable(host: &str) -> String {
    let is_any = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    if is_any {
        uname().nodename().to_string_lossy().into_owned()
    } else {
        host.to_owned()
    }
}

fn announce(server: &Server, as_json: bool) -> Result<(), Failure> {
    let status = server.status();
    let uris = |name: &str| -> Vec<String> {
        server
            .addresses_of(name)
            .into_iter()
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
        let control = server.control_path();
        let control = control.map(|path| format!("unix:{}", path.display()));
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

//! `futae serve`: the lower cache, for every client that speaks NBD, and for virtual machines by vhost-user.

mod check;
mod clashes;
mod clients;
mod config;
mod descriptors;
mod evictions;
mod feeds;
mod filter;
mod memory;
mod opener;
mod plan;
mod privileges;
mod reload;
mod remarks;
mod service;
mod state;
mod tls;
mod unclean;

use super::observe_args::{ObserveArgs, Observing};
use super::otlp::OtlpArgs;
use super::state::StateArgs;
use super::write_args::{StoreArgs, WriteArgs};
use anyhow::anyhow;
pub use check::{check, check_options};
use clients::ClientArgs;
use config::ConfigFile;
use evictions::EvictionArgs;
use futae_host::{Listen, Server, StopReport};
use futae_log::LogArgs;
use futae_nbd::{ClientTls, NbdUri, Transport};
use futae_observe::Snapshot;
use futae_terminal::failure::Failure;
use futae_units::Size;
use memory::MemoryArgs;
use plan::Plan;
use privileges::PrivilegeArgs;
use reload::Running;
use rustix::system::uname;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use state::Saver;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tls::TlsArgs;
use tracing::{info, warn};
use unclean::UncleanArgs;

/// Serve disk images over NBD and vhost-user from one cache
#[derive(clap::Args)]
pub struct Args {
    /// TOML file with options by their long names (cache = "4GiB") and exports as `[[export]]`
    /// tables. Options on the command line take precedence over it, and extend its lists. On SIGHUP
    /// the server reads it again: exports, sizes of caches and the policy change at once; other
    /// changes are logged and need a restart
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(skip)]
    file: Option<ConfigFile>,
    /// Memory for all caches together, e.g. 4GiB
    #[arg(long, value_name = "SIZE", required_unless_present = "config")]
    cache: Option<String>,
    /// Size of a block, a power of two from 4KiB to 256MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: String,
    /// Replacement policy; `futae policies` lists them [default: an exclusive cache that also keeps the blocks it
    /// serves, until blocks that clients evict need the room]
    #[arg(long)]
    policy: Option<String>,
    /// An export:
    /// `NAME=SOURCE[,share=SIZE][,class=local|remote|CLASS][,connections=N][,requests=N][,iops=N][,bandwidth=SIZE][,weight=N][,protected][,read-only]`.
    /// SOURCE is a file, a block device or an NBD address. An export with a share has a cache of
    /// that size of its own; the other exports share the rest. The policy `cost` groups stores by
    /// class; the default is remote for NBD addresses and local for others. The policy `directory`
    /// evicts blocks of protected exports last. connections limits the connections of the export,
    /// requests their requests in flight, iops their requests per second, and bandwidth their bytes
    /// of READ, WRITE and demotions per second; weight, from 1 to 1000, is the export's share of
    /// --requests-max relative to the weights of others [default: 1]
    #[arg(
        long = "export",
        value_name = "NAME=SOURCE",
        required_unless_present = "config"
    )]
    exports: Vec<String>,
    /// Address to listen on: `[EXPORT=]unix:PATH[,mode=OCTAL][,owner=NAME][,group=NAME]` (a socket, or a directory to make
    /// futae.sock in), `[EXPORT=]tcp:HOST:PORT`, or
    /// `[EXPORT=]vhost-user:PATH[,mode=...]`, the disk of a virtual machine with shared memory. With an export, clients of this address see and open that export only.
    /// A unix socket has mode 0600 unless another mode is given
    #[arg(long, value_name = "ADDRESS", required_unless_present = "config")]
    listen: Vec<String>,
    /// Allow TCP addresses that other machines can reach although clients need neither a certificate nor a key there
    /// (see --tls-client-ca and --tls-psk)
    #[arg(long)]
    insecure_tcp: bool,
    #[command(flatten)]
    tls: TlsArgs,
    /// Unix socket for orders (status, resize, policy, exports): unix:PATH, with mode, owner and group as for --listen
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
    /// Address at which the agent in a guest reports what its page cache evicts:
    /// [EXPORTS=]unix:PATH, a socket for the exports that are the guest's disks, with commas
    /// between them; or `agent`, a socket for each export beside the first unix socket of --listen,
    /// named EXPORT.agent.sock. Options with the same PATH are one socket. An exclusive cache then
    /// keeps the blocks that it has just served until the agent reports their evictions
    #[arg(long = "feed", value_name = "ADDRESS")]
    feeds: Vec<String>,
    /// Offer a channel disk of 4 MiB for each --feed, named EXPORT.evictions after its first
    /// export. Attach it to the guest as an additional disk: its agent (`futae agent --evictions`)
    /// writes evicted pages with their data to it, so that the server need not read them from the
    /// store. Data enters the cache only if it is verified (see --evictions-memory)
    #[arg(long, requires = "feeds")]
    evictions_disk: bool,
    /// Pass the samples of an agent on to `futae balance`, so that one agent serves both:
    /// [EXPORT=]unix:PATH, the socket that balance listens on (`agent = { listen = "PATH" }`), for
    /// the --feed of that export. While no program listens there, samples are dropped and the
    /// server tries the socket again; the cache never waits for it
    #[arg(long = "samples-to", value_name = "ADDRESS")]
    samples_to: Vec<String>,
    /// Memory for requests and replies of all clients, in addition to the caches; at least 64MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    buffer_memory: String,
    /// Maximum number of connections. When it is reached, a new client replaces a connection of the client with
    /// the most connections
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections_max: u32,
    /// Maximum number of requests in flight of all exports together. When exports have more, each
    /// gets a share by its weight; others use the share of an idle export [default: no limit]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests_max: Option<u32>,
    /// Log every decision of the cache to FILE; the caches of exports with a share log to FILE.NAME
    #[arg(long, value_name = "FILE")]
    decision_log: Option<PathBuf>,
    #[command(flatten)]
    writes: WriteArgs,
    #[command(flatten)]
    unclean: UncleanArgs,
    #[command(flatten)]
    privileges: PrivilegeArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    clients: ClientArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// Accept blocks that clients evict (demotions). auto: if the policy needs them, as exclusive does
    #[arg(long, value_name = "WHETHER", default_value = "auto")]
    demotion: Demotion,
    #[command(flatten)]
    evictions: EvictionArgs,
    #[command(flatten)]
    observe: ObserveArgs,
    #[command(flatten)]
    otlp: OtlpArgs,
    /// Seed of randomised policies
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    json: bool,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Whether clients may demote evicted blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Demotion {
    Auto,
    On,
    Off,
}

impl Args {
    /// With what the file says that `--config` names.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn with_file(self) -> Result<Self, Failure> {
        match &self.config {
            None => Ok(self),
            // Behind the program and the command.
            Some(path) => ConfigFile::read(path)?.with(std::env::args_os().skip(2)),
        }
    }

    /// What a file alone says.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn of_file(path: &Path) -> Result<Self, Failure> {
        ConfigFile::read(path)?.with([])
    }

    /// A failure about an option, with the line of the file that has it.
    fn placed(&self, failure: Failure) -> Failure {
        match (&self.file, failure) {
            (Some(file), Failure::Usage(message)) => Failure::usage(file.place(&message)),
            (Some(file), Failure::Failed(error)) => {
                anyhow!(file.place(&format!("{error:#}"))).into()
            }
            (None, failure) => failure,
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    args.privileges.check()?;
    // Before anything exists that a signal would leave behind.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    if args.file.is_some() {
        signals.add_signal(SIGHUP)?;
    }
    let (is_opening, is_stopping) = (Arc::new(AtomicBool::new(true)), Arc::default());
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, Arc::clone(&is_stopping))?;
        flag::register_conditional_shutdown(signal, 0, Arc::clone(&is_opening))?;
    }
    descriptors::raise_limit();
    let _starting = plan.opener.memory.starting();
    // A source may be silent for long, and until all are open, there is nothing to flush or to remove.
    let sources = plan.open()?;
    is_opening.store(false, Ordering::Release);
    let exports = plan.place(sources)?;
    let mut running = Running::new(args, &plan, is_stopping);
    let opener = Arc::clone(&plan.opener);
    let lives_on_evictions = plan.policy().lives_on_demotions();
    let refuses_pages = plan.refuses_pages();
    let (specs, mut options) = (plan.exports, plan.server);
    let wanted = options.connections_max;
    options.connections_max = descriptors::affordable(wanted, options.handshakes_max());
    if options.connections_max < wanted {
        warn!(
            "serving {} connections instead of {wanted}: the limit of open files allows no more; \
             raise it (ulimit -n, LimitNOFILE=)",
            options.connections_max
        );
    }
    options.heartbeat = service::heartbeat();
    let server = Server::start(options, exports).map_err(anyhow::Error::from)?;
    let writes = args.writes.write_mode.name();
    remarks::at_start(&specs, &server.status(), lives_on_evictions, writes);
    remarks::of_feeds(&server.status(), refuses_pages.as_deref());
    args.clients.warn_at_start();
    let watched = server.watcher();
    let look = move || Snapshot::of_server(watched());
    let observing = plan
        .observe
        .start(args.insecure_tcp, look, server.caches())?;
    let saver = Saver::start(&opener.state, server.exports())?;
    args.privileges.give_up()?;
    clients::go_on(&server, args.clients.keep_clients);
    announce(&server, &observing, opener.state.warm_blocks(), args.json)?;
    opener.memory.settle();
    service::ready(&server);
    let signal = signals.forever().find(|&signal| {
        if let (SIGHUP, Some(running)) = (signal, &mut running) {
            let _reloading = service::reloading(&server);
            running.reload(&server);
        }
        signal != SIGHUP
    });
    let name = signal.and_then(signal_hook::low_level::signal_name);
    info!("{} received", name.unwrap_or("a signal"));
    futae_systemd::stopping();
    drop(observing);
    let leaving = opener.memory.leaving();
    let exports = server.exports()();
    let (report, kept) = server.stop_and_keep();
    memory::leave(&leaving);
    if let Some(saver) = saver {
        saver.end(&exports);
    }
    clients::keep(kept);
    opener.end_tracing();
    say_goodbye(&report, args.json)?;
    let Some((name, problem)) = report.flush_errors.first() else {
        return Ok(());
    };
    Err(
        anyhow::anyhow!("export {name}: the last writes may not be on stable storage: {problem}")
            .into(),
    )
}

fn uri(address: &Listen, tls: bool, export: &str) -> String {
    let transport = match address {
        // There is no URI of such a socket, which serves this export only.
        Listen::VhostUser(_) => return address.to_string(),
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
        tls: tls.then(ClientTls::default),
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

fn announce(
    server: &Server,
    observing: &Observing,
    warm_blocks: u64,
    as_json: bool,
) -> Result<(), Failure> {
    let status = server.status();
    let uris = |name: &str| -> Vec<String> {
        server
            .addresses_of(name)
            .into_iter()
            .map(|address| uri(address, server.needs_tls(address), name))
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
        let mut line =
            json!({ "exports": exports, "control": control, "warm_blocks": warm_blocks });
        if let Some(address) = observing.metrics() {
            line["metrics"] = address.into();
        }
        if let Some(address) = observing.web() {
            line["web"] = address.into();
        }
        writeln!(out, "{line}")?;
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

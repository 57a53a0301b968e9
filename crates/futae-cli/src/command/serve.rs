//! `futae serve`: the lower cache, for every client that speaks NBD, and for virtual machines by vhost-user.

mod addresses;
mod args;
mod check;
mod clashes;
mod clients;
mod config;
mod descriptors;
mod evictions;
mod exports;
mod feeds;
mod filter;
mod memory;
mod opener;
mod plan;
mod privileges;
mod reach;
mod reload;
mod remarks;
mod server_options;
mod service;
mod state;
mod tls;
mod unclean;

use super::observe_args::Observing;
pub use args::Args;
pub use check::{Caches, caches_in_part, check, check_options};
use futae_host::{Listen, Server, StopReport};
use futae_nbd::{ClientTls, NbdUri, Transport};
use futae_observe::Snapshot;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_units::Size;
use plan::Plan;
use reload::Running;
use rustix::system::uname;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use state::Saver;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{info, warn};

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
    let running = Running::new(args, &plan, is_stopping);
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
        if let (SIGHUP, Some(running)) = (signal, &running) {
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
    let mut out = output();
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
    let mut out = output();
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

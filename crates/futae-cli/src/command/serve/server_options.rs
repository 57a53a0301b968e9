//! How the exports are served: addresses, clients, feeds, limits.

use super::addresses::{control, gate};
use super::args::{Args, Demotion};
use super::feeds;
use crate::command::volumes::VolumeSpec;
use futae_host::{BUFFER_MEMORY_MIN, Gate, ServerOptions};
use futae_policy::PolicySpec;
use futae_terminal::failure::Failure;
use futae_units::Size;

/// What the arguments say of it. Exports cannot be added yet.
///
/// # Errors
///
/// The option that is wrong, and why.
pub(super) fn server_options(
    args: &Args,
    exports: &[VolumeSpec],
    policy: &PolicySpec,
) -> Result<ServerOptions, Failure> {
    let gates = args.listen.iter().map(|text| gate(text, exports));
    let gates: Vec<Gate> = gates.collect::<Result<_, _>>().map_err(Failure::usage)?;
    let control = args.control.as_deref().map(control).transpose();
    let control = control.map_err(Failure::usage)?;
    let buffer_memory_bytes = buffer_memory(&args.buffer_memory)?;
    // A quarter is set aside for all connections, each of which needs some for its handshake.
    let connections_fit = buffer_memory_bytes / 4 / (16 << 10);
    if u64::from(args.connections_max) > connections_fit {
        return Err(Failure::usage(format!(
            "--connections-max {}: with --buffer-memory {} there may be {connections_fit}; give them more memory",
            args.connections_max, args.buffer_memory
        )));
    }
    let feeds = feeds::feeds(&args.feeds, exports, &gates).map_err(Failure::usage)?;
    let server = ServerOptions {
        connections_max: args.connections_max as usize,
        keeps_clients: args.clients.keep_clients,
        buffer_memory_bytes,
        requests_together: args.requests_max.map(|most| most as usize),
        relays: feeds::relays(&args.samples_to, &feeds).map_err(Failure::usage)?,
        feeds,
        channels: args.evictions_disk,
        gates,
        insecure_tcp: args.insecure_tcp,
        tls: args.tls.options().map_err(Failure::usage)?,
        control_access: control
            .as_ref()
            .map(|(_, access)| *access)
            .unwrap_or_default(),
        control: control.map(|(address, _)| address),
        demotion: match args.demotion {
            Demotion::Auto => policy.wants_demotions(),
            Demotion::On => true,
            Demotion::Off => false,
        },
        ..ServerOptions::default()
    };
    for export in exports {
        let checked = server.check_rates(&export.name, export.rates);
        checked.map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(server)
}

/// What clients may make the server hold.
fn buffer_memory(text: &str) -> Result<u64, Failure> {
    let wrong = |problem: String| Failure::usage(format!("--buffer-memory: {problem}"));
    let size: Size = text.parse().map_err(|error| wrong(format!("{error}")))?;
    let bytes = size.bytes(1).map_err(|error| wrong(error.to_string()))?;
    if bytes < BUFFER_MEMORY_MIN {
        return Err(wrong(format!(
            "{size} is less than {}, so the longest requests would not fit",
            Size::Bytes(BUFFER_MEMORY_MIN)
        )));
    }
    Ok(bytes)
}

//! Addresses that two parts of one server would listen on: only one of them could.

use super::args::Args;
use crate::command::observe_args::Observe;
use futae_host::{Listen, ServerOptions};
use futae_terminal::failure::Failure;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// An address, and by what option the server has it.
struct Claim<'a> {
    option: &'static str,
    /// As it was written, where it is known.
    text: String,
    /// The exports whose address it is, if it is not that of all.
    exports: &'a [String],
    address: Listen,
}

/// Refuses options by which an address is taken twice.
///
/// # Errors
///
/// The later of the two options, and what has its address.
pub(super) fn refuse(
    args: &Args,
    server: &ServerOptions,
    observe: &Observe,
) -> Result<(), Failure> {
    let claims = claims(args, server, observe);
    for (at, claim) in claims.iter().enumerate() {
        let mut others = claims[..at].iter();
        let Some(other) = others.find(|it| is_same(&it.address, &claim.address)) else {
            continue;
        };
        let of_export = match other.exports {
            [] => String::new(),
            names => format!(" of export {}", names.join(", ")),
        };
        return Err(Failure::usage(format!(
            "{} {}: the {}{of_export} has this address, too; give each its own",
            claim.option, claim.text, other.option
        )));
    }
    Ok(())
}

fn claims<'a>(args: &'a Args, server: &'a ServerOptions, observe: &'a Observe) -> Vec<Claim<'a>> {
    let listen = args.listen.iter().zip(&server.gates);
    let listen = listen.map(|(text, gate)| Claim {
        option: "--listen",
        text: text.clone(),
        exports: gate.export.as_slice(),
        address: gate.address.clone(),
    });
    let plain = |option, address: &Listen| Claim {
        option,
        text: address.to_string(),
        exports: &[],
        address: address.clone(),
    };
    let control = server.control.iter().map(|it| plain("--control", it));
    let feeds = server.feeds.iter().map(|feed| Claim {
        exports: &feed.exports,
        ..plain("--feed", &Listen::Unix(feed.path.clone()))
    });
    let watched = observe.addresses();
    let watched = watched.map(|(option, address)| plain(option, address));
    listen.chain(control).chain(feeds).chain(watched).collect()
}

/// Whether a second socket could not be made at this address.
fn is_same(one: &Listen, other: &Listen) -> bool {
    use Listen::{Tcp, Unix, VhostUser};
    match (one, other) {
        (Unix(one), Unix(other)) | (VhostUser(one), VhostUser(other)) => real(one) == real(other),
        // In a directory, they have different names.
        (Unix(one), VhostUser(other)) | (VhostUser(one), Unix(other)) => {
            !one.is_dir() && real(one) == real(other)
        }
        (
            Tcp { host, port },
            Tcp {
                host: other,
                port: other_port,
            },
        ) => *port != 0 && port == other_port && have_one_address(host, other),
        _ => false,
    }
}

/// The place of a socket that need not be there yet.
fn real(path: &Path) -> PathBuf {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_owned();
    };
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    let directory = directory.canonicalize();
    directory.map_or_else(|_| path.to_owned(), |directory| directory.join(name))
}

/// Whether two names of this host are the same, or one of them stands for all addresses.
fn have_one_address(one: &str, other: &str) -> bool {
    let both = (one.parse::<IpAddr>(), other.parse::<IpAddr>());
    let (Ok(first), Ok(second)) = both else {
        return one == other;
    };
    let is_any = first.is_unspecified() || second.is_unspecified();
    first == second || (is_any && first.is_ipv4() == second.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_same_if_only_one_can_be_had() {
        let same = |one: &str, other: &str| {
            let read = |text: &str| text.parse::<Listen>().expect("valid");
            is_same(&read(one), &read(other))
        };
        for (one, other) in [
            ("unix:/tmp/a", "unix:/tmp/a"),
            ("unix:/tmp/a", "unix:/tmp/../tmp/a"),
            ("unix:/none/a", "unix:/none/a"),
            ("unix:/tmp/a", "vhost-user:/tmp/a"),
            ("tcp:localhost:9", "tcp:localhost:9"),
            ("tcp:0.0.0.0:9", "tcp:127.0.0.1:9"),
        ] {
            assert!(same(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("unix:/tmp/a", "unix:/tmp/b"),
            ("unix:/tmp", "vhost-user:/tmp"),
            ("tcp:localhost:0", "tcp:localhost:0"),
            ("tcp:127.0.0.1:9", "tcp:127.0.0.2:9"),
            ("tcp:127.0.0.1:9", "tcp:127.0.0.1:8"),
            ("unix:/tmp/a", "tcp:localhost:9"),
        ] {
            assert!(!same(one, other), "{one} {other}");
        }
    }
}

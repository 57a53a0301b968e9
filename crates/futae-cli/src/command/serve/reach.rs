//! From where clients reach an export, and whether those of an earlier server can still be there.
//!
//! A client on the machine of a server ends with that machine, and forgets what it had written, as it would with a disk that
//! loses power. Only a client that is still there has to learn of lost writes.

use super::super::names::checksum;
use futae_host::{Gate, Listen};
use std::fmt;

/// The beginning of the line of a mark that says that all clients were on the machine, up to what the machine is called.
const LOCAL: &str = "All clients are on this machine: ";
/// What is between that and what its start is called.
const BOOT: &str = ", boot ";

/// The exports that clients on other machines reach.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// The export of each address of a network; `None`: all.
    networked: Vec<Option<String>>,
}

impl Reach {
    /// By the addresses at which a server listens. One at loopback counts as one of a network: what listens behind it may pass on what
    /// comes from other machines.
    pub(super) fn of(gates: &[Gate]) -> Self {
        let networked = gates.iter().filter(|gate| match gate.address {
            Listen::Tcp { .. } => true,
            Listen::Unix(_) | Listen::VhostUser(_) => false,
        });
        Self {
            networked: networked.map(|gate| gate.export.clone()).collect(),
        }
    }

    /// The line of the mark of an export; empty if a client may be elsewhere.
    pub(super) fn line(&self, export: &str) -> String {
        match Start::now() {
            Some(now) if !self.is_networked(export) => format!("{LOCAL}{now}\n"),
            _ => String::new(),
        }
    }

    fn is_networked(&self, export: &str) -> bool {
        let mut networked = self.networked.iter();
        networked.any(|one| one.as_deref().is_none_or(|one| one == export))
    }
}

/// Whether a mark with this text says of all clients that they are on a machine, and `line` does not say so of those to come.
pub(super) fn differs(note: &str, line: &str) -> bool {
    let mut lines = note.lines().filter(|said| said.starts_with(LOCAL));
    lines.any(|said| said != line.trim_end())
}

/// Whether all clients of the server that made a mark with this text have ended, since their machine has been started again. Of another
/// machine it is not known whether it has.
pub(super) fn has_ended(note: &str) -> bool {
    Start::now().is_some_and(|now| now.is_after(note))
}

/// What this start of the machine is called.
pub(super) fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| is_boot_id(id))
}

/// Whether it is one, and whole.
fn is_boot_id(text: &str) -> bool {
    text.len() == 36
        && text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// One start of one machine.
struct Start {
    /// A checksum of the machine's ID, which itself is nobody's business.
    machine: u64,
    boot: String,
}

impl Start {
    /// This one; none on a machine without an ID, as a container may be.
    fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/etc/machine-id").ok()?;
        let id = Some(text.trim()).filter(|id| id.len() == 32)?;
        Some(Self {
            machine: checksum(id),
            boot: boot_id()?,
        })
    }

    /// Whether a mark is of clients on this machine, in an earlier start.
    fn is_after(&self, note: &str) -> bool {
        let mut lines = note.lines();
        let line = lines.find_map(|line| line.strip_prefix(LOCAL));
        line.and_then(|line| line.split_once(BOOT))
            .is_some_and(|(machine, boot)| {
                let is_here = machine == format!("{:016x}", self.machine);
                is_here && is_boot_id(boot) && boot != self.boot
            })
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{BOOT}{}", self.machine, self.boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTS: [&str; 2] = [
        "00000000-1111-2222-3333-444444444444",
        "00000000-1111-2222-3333-555555555555",
    ];

    fn start(machine: u64, boot: &str) -> Start {
        let boot = boot.to_owned();
        Start { machine, boot }
    }

    fn tcp(export: Option<&str>) -> Gate {
        Gate {
            export: export.map(str::to_owned),
            ..Listen::Tcp {
                host: "127.0.0.1".into(),
                port: 10809,
            }
            .into()
        }
    }

    #[test]
    fn an_export_on_a_network_is_never_only_of_this_machine() {
        let local = || [Listen::Unix("/s".into()), Listen::VhostUser("/v".into())];
        let reach = |tcp: Option<Gate>| {
            let gates: Vec<Gate> = local().map(Gate::from).into_iter().chain(tcp).collect();
            let reach = Reach::of(&gates);
            assert!(!reach.is_networked("a") || reach.line("a").is_empty());
            (reach.is_networked("a"), reach.is_networked("b"))
        };
        assert_eq!(reach(None), (false, false));
        assert_eq!(reach(Some(tcp(None))), (true, true));
        assert_eq!(reach(Some(tcp(Some("b")))), (false, true));
    }

    #[test]
    fn clients_have_ended_only_if_the_mark_names_another_start_of_this_machine() {
        let now = start(7, BOOTS[1]);
        let note = |start: &Start| format!("It has answered.\n{LOCAL}{start}\nMarked as x\n");
        assert!(now.is_after(&note(&start(7, BOOTS[0]))));
        assert!(!now.is_after(&note(&now)), "the same start");
        assert!(!now.is_after(&note(&start(8, BOOTS[0]))), "another machine");
        assert!(!now.is_after(&note(&start(7, &BOOTS[0][..20]))), "torn");
        assert!(
            !now.is_after("It has answered.\nMarked as x\n"),
            "networked"
        );
        assert!(!now.is_after(""));
        let line = format!("{LOCAL}{now}\n");
        assert!(differs(&note(&now), "") && !differs(&note(&now), &line));
        assert!(differs(&note(&start(7, BOOTS[0])), &line));
        assert!(!differs("It has answered.\n", &line), "it says nothing");
    }
}

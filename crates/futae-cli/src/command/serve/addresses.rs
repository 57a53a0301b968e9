//! `--listen` and `--control`.

use super::tls;
use crate::command::volumes::VolumeSpec;
use futae_host::{Access, Gate, HostError, Listen};

/// What addresses begin with.
const KINDS: [&str; 3] = ["unix:", "tcp:", "vhost-user:"];

/// One `--listen`.
pub(super) fn gate(text: &str, exports: &[VolumeSpec]) -> Result<Gate, String> {
    let wrong = |problem: String| format!("--listen {text}: {problem}");
    let (rest, in_the_clear) = tls::take_off(text);
    let (rest, access) = Access::take_from(rest).map_err(wrong)?;
    // An address begins with its kind; what is before it is an export.
    let is_plain = KINDS.iter().any(|kind| rest.starts_with(kind));
    let named = KINDS
        .iter()
        .filter_map(|kind| rest.find(&format!("={kind}")))
        .min()
        .filter(|_| !is_plain);
    let (export, address) = match named {
        Some(at) => (Some(rest[..at].to_owned()), &rest[at + 1..]),
        None => (None, rest),
    };
    let address: Listen = address
        .parse()
        .map_err(|error: HostError| wrong(error.to_string()))?;
    if access != Access::default() && matches!(address, Listen::Tcp { .. }) {
        let problem = "mode, owner and group are those of a unix socket";
        return Err(wrong(problem.to_owned()));
    }
    if let Some(name) = &export
        && !exports.iter().any(|known| known.name == *name)
    {
        return Err(wrong(format!("no export is named {name:?}")));
    }
    if matches!(address, Listen::VhostUser(_)) && export.is_none() && exports.len() > 1 {
        let problem = "a vhost-user socket serves one export; write EXPORT=vhost-user:PATH";
        return Err(wrong(problem.to_owned()));
    }
    Ok(Gate {
        address,
        export,
        access,
        in_the_clear,
    })
}

/// The `--control`.
pub(super) fn control(text: &str) -> Result<(Listen, Access), String> {
    let wrong = |problem: String| format!("--control {text}: {problem}");
    let (rest, access) = Access::take_from(text).map_err(wrong)?;
    let address = rest.parse();
    match address.map_err(|error: HostError| wrong(error.to_string()))? {
        address @ Listen::Unix(_) => Ok((address, access)),
        Listen::Tcp { .. } | Listen::VhostUser(_) => Err(wrong(
            "a control socket is a unix socket; write unix:PATH".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::exports::export;
    use super::*;

    #[test]
    fn sockets_are_read_as_written() {
        let exports = ["a=x", "b=y"].map(|text| export(text).expect("valid"));
        let read = |text: &str| {
            let gate = gate(text, &exports)?;
            let access = gate.access.mode;
            Ok::<_, String>((gate.export, gate.address.to_string(), access))
        };
        let plain = |address: &str| Ok((None, address.to_owned(), 0o600));
        assert_eq!(read("unix:/s"), plain("unix:/s"));
        assert_eq!(read("unix:/a=unix:b,c"), plain("unix:/a=unix:b,c"));
        assert_eq!(read("tcp:localhost:1"), plain("tcp:localhost:1"));
        let disk = (Some("a".to_owned()), "vhost-user:/v".to_owned(), 0o600);
        assert_eq!(read("a=vhost-user:/v"), Ok(disk));
        let of_b = Ok((Some("b".to_owned()), "unix:/s".to_owned(), 0o660));
        assert_eq!(read("b=unix:/s,group=0,mode=0660"), of_b);
        for text in [
            "",
            "c=unix:/s",
            "vhost-user:/which",
            "a=vhost-user:",
            "a=/s",
            "a=unix:",
            "unix:/s,mode=x",
            "tcp:h:1,mode=0660",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert!(control("unix:/s,mode=0660").is_ok_and(|(_, access)| access.mode == 0o660));
        for text in ["tcp:127.0.0.1:1", "vhost-user:/s"] {
            let problem = control(text).expect_err(text);
            assert!(problem.ends_with("; write unix:PATH"), "{problem}");
        }
    }
}

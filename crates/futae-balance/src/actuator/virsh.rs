//! libvirt, by its own command, which need not be there.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What a domain has and may have, in bytes.
pub struct Memory {
    pub used: u64,
    pub maximum: u64,
}

pub fn achieved(domain: &str, uri: Option<&str>, timeout: Duration) -> Result<u64, String> {
    memory(domain, uri, timeout).map(|memory| memory.used)
}

/// The names of the domains that run.
pub fn running(uri: Option<&str>, timeout: Duration) -> Result<Vec<String>, String> {
    let said = virsh(uri, &["list", "--name"], timeout)?;
    let names = said.lines().map(str::trim).filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

/// Both sizes of a domain's memory.
pub fn memory(domain: &str, uri: Option<&str>, timeout: Duration) -> Result<Memory, String> {
    let said = virsh(uri, &["dominfo", domain], timeout)?;
    let bytes = |what: &str| {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
        let kib = line.and_then(|line| {
            line.trim()
                .trim_end_matches("KiB")
                .trim()
                .parse::<u64>()
                .ok()
        });
        let bytes = kib.and_then(|kib| kib.checked_mul(1024));
        bytes.ok_or_else(|| format!("virsh dominfo {domain} does not tell its {what}"))
    };
    Ok(Memory {
        used: bytes("Used memory")?,
        maximum: bytes("Max memory")?,
    })
}

pub fn order(domain: &str, uri: Option<&str>, bytes: u64, timeout: Duration) -> Result<(), String> {
    let kib = (bytes / 1024).to_string();
    virsh(uri, &["setmem", domain, &kib, "--live"], timeout).map(drop)
}

/// Whether the balloon gives the host the pages that the guest frees; none if there is no balloon.
pub fn reports_free_pages(
    domain: &str,
    uri: Option<&str>,
    timeout: Duration,
) -> Result<Option<bool>, String> {
    let xml = virsh(uri, &["dumpxml", domain], timeout)?;
    Ok(reports_in(&xml))
}

/// The same, in libvirt's own layout of a domain.
fn reports_in(xml: &str) -> Option<bool> {
    let (_, rest) = xml.split_once("<memballoon ")?;
    let (attributes, _) = rest.split_once('>')?;
    let is_balloon = !attributes.contains("model='none'");
    is_balloon.then(|| attributes.contains("freePageReporting='on'"))
}

/// A virsh with these words, whose messages are English.
pub fn command(uri: Option<&str>, words: &[&str]) -> Command {
    let mut command = Command::new("virsh");
    if let Some(uri) = uri {
        command.args(["--connect", uri]);
    }
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

fn virsh(uri: Option<&str>, words: &[&str], timeout: Duration) -> Result<String, String> {
    let mut command = command(uri, words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        format!("virsh cannot be started: {error}; install libvirt's clients, or use qmp")
    })?;
    let deadline = Instant::now() + timeout;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_INTERVAL),
            _ => {
                // What is killed ends; it may have ended just now.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "virsh {} took longer than {timeout:?}",
                    words.join(" ")
                ));
            }
        }
    };
    // What a query says fits into a pipe.
    let mut text = String::new();
    let said = if status.success() {
        child
            .stdout
            .take()
            .map(|mut out| out.read_to_string(&mut text))
    } else {
        child
            .stderr
            .take()
            .map(|mut errors| errors.read_to_string(&mut text))
    };
    match said {
        Some(Ok(_)) if status.success() => Ok(text),
        _ => Err(format!("virsh {}: {}", words.join(" "), text.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_page_reporting_is_an_attribute_of_the_balloon() {
        for (xml, expected) in [
            ("<domain/>", None),
            ("<memballoon model='none'/>", None),
            (
                "<devices><memballoon model='virtio'>\n<stats/>",
                Some(false),
            ),
            (
                "<memballoon model='virtio' autodeflate='on' freePageReporting='off'/>",
                Some(false),
            ),
            (
                "<memballoon model='virtio' freePageReporting='on'/>",
                Some(true),
            ),
        ] {
            assert_eq!(reports_in(xml), expected, "{xml}");
        }
    }
}

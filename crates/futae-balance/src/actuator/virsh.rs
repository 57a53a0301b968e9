//! libvirt, by its own command, which need not be there.

use std::io::{self, Read};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::Builder;
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
    let said = of_domain(domain, uri, &["dominfo"], timeout)?;
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
    of_domain(domain, uri, &["setmem", &kib, "--live"], timeout).map(drop)
}

/// Bytes that a domain shall start with, by what is set up: `currentMemory`.
pub fn set_up(domain: &str, uri: Option<&str>, timeout: Duration) -> Option<u64> {
    let xml = of_domain(domain, uri, &["dumpxml", "--inactive"], timeout);
    current_in(&xml.ok()?)
}

/// The same, in libvirt's own layout, which is in KiB.
fn current_in(xml: &str) -> Option<u64> {
    let (_, rest) = xml.split_once("<currentMemory unit='KiB'>")?;
    let (kib, _) = rest.split_once('<')?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether no driver in the guest has ever answered for the balloon, so that the balloon is empty whatever it was told.
pub fn has_no_driver(domain: &str, uri: Option<&str>, timeout: Duration) -> bool {
    let said = of_domain(domain, uri, &["dommemstat"], timeout);
    said.is_ok_and(|said| said.lines().any(|line| line.trim() == "last_update 0"))
}

/// Whether the balloon gives the host the pages that the guest frees; none if there is no balloon.
pub fn reports_free_pages(
    domain: &str,
    uri: Option<&str>,
    timeout: Duration,
) -> Result<Option<bool>, String> {
    let xml = of_domain(domain, uri, &["dumpxml"], timeout)?;
    Ok(reports_in(&xml))
}

/// The same, in libvirt's own layout of a domain.
fn reports_in(xml: &str) -> Option<bool> {
    let (_, rest) = xml.split_once("<memballoon ")?;
    let (attributes, _) = rest.split_once('>')?;
    let is_balloon = !attributes.contains("model='none'");
    is_balloon.then(|| attributes.contains("freePageReporting='on'"))
}

/// What virsh says to a command and its arguments about a domain that runs, by its name.
fn of_domain(
    domain: &str,
    uri: Option<&str>,
    words: &[&str],
    timeout: Duration,
) -> Result<String, String> {
    // Most commands take a number for the ID of a domain, which may be another. This one takes names only.
    let id = match domain.parse::<i64>() {
        Ok(_) => Some(virsh(uri, &["domid", domain], timeout)?),
        Err(_) => None,
    };
    let domain = id.as_deref().map_or(domain, str::trim);
    let (command, arguments) = words.split_at(1);
    virsh(uri, &[command, &[domain], arguments].concat(), timeout)
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
    // A description of a domain may be longer than a pipe has room for. An error is not.
    let said = child.stdout.take().map(read);
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
    if status.success() {
        let left = deadline.saturating_duration_since(Instant::now());
        let said = said.transpose()?;
        let said = said.and_then(|said| said.recv_timeout(left.max(LOOK_INTERVAL)).ok());
        return match said {
            Some(Ok(text)) => Ok(text),
            _ => Err(format!("virsh {}: its answer broke off", words.join(" "))),
        };
    }
    let mut text = String::new();
    let errors = child.stderr.take();
    // What cannot be read is not told.
    let _ = errors.map(|mut errors| errors.read_to_string(&mut text));
    Err(format!("virsh {}: {}", words.join(" "), text.trim()))
}

/// All that is written to a pipe, once its writers have closed it.
fn read(mut pipe: ChildStdout) -> Result<Receiver<io::Result<String>>, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let read = move || {
        let mut text = String::new();
        let read = pipe.read_to_string(&mut text).map(|_| text);
        // If the send fails, nobody waits any longer.
        drop(sender.send(read));
    };
    let thread = Builder::new().name("virsh".to_owned()).spawn(read);
    thread.map_err(|error| format!("virsh cannot be read: {error}"))?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_domain_is_set_up_with_is_in_its_description() {
        let xml = "<domain>\n  <memory unit='KiB'>262144</memory>\n  <currentMemory unit='KiB'>98304</currentMemory>";
        assert_eq!(current_in(xml), Some(96 << 20));
        assert_eq!(current_in("<domain/>"), None);
    }

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

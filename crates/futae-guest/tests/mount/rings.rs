//! The same tests once more with FUSE over io_uring, and what is said of it.

use std::fs;
use std::process::Command;

use futae_guest::{Mount, MountError, MountOptions, Transport, TransportChoice};

use crate::common::{MemoryStore, Place, TRANSPORT, engine, has_fuse, shown};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel's switch as it was, at the end.
struct Switched(String);

impl Switched {
    /// None, and it says why, where it cannot be switched.
    fn to(wanted: &str) -> Option<Self> {
        let before = match fs::read_to_string(SWITCH) {
            Ok(before) => before,
            Err(error) => {
                futae_testkit::need::skip(
                    futae_testkit::need::Need::Rings,
                    &format!("no FUSE over io_uring: {SWITCH}: {error}"),
                );
                return None;
            }
        };
        if let Err(error) = fs::write(SWITCH, wanted) {
            futae_testkit::need::skip(
                futae_testkit::need::Need::Rings,
                &format!("{SWITCH}: {error}; run as root"),
            );
            return None;
        }
        Some(Self(before))
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, &self.0);
    }
}

/// How a mount gets its requests.
fn mounted(choice: TransportChoice) -> Result<Transport, MountError> {
    let place = Place::new();
    let (engine, volume) = engine(MemoryStore::new(vec![0; 1 << 20]), 16);
    let options = MountOptions {
        transport: choice,
        ..place.options()
    };
    let mount = Mount::start(&engine, &shown(volume), &options)?;
    let negotiated = mount.negotiated();
    assert!(negotiated.shared_mmap || negotiated.protocol < (7, 39));
    mount.unmount()?;
    Ok(negotiated.transport)
}

/// One test, since the switch is one for the whole machine.
#[test]
fn by_ring_all_is_as_by_the_device() {
    if !has_fuse() {
        return;
    }
    let Some(switched) = Switched::to("N") else {
        return;
    };
    assert_eq!(mounted(TransportChoice::Auto).ok(), Some(Transport::Device));
    let refused = mounted(TransportChoice::Ring);
    assert!(matches!(refused, Err(MountError::RingsOff)), "{refused:?}");
    let said = refused.map_or_else(|error| error.to_string(), |_| String::new());
    assert!(said.contains(&format!("echo Y > {SWITCH}")), "{said}");
    drop(switched);

    let Some(_switched) = Switched::to("Y") else {
        return;
    };
    for (choice, transport) in [
        (TransportChoice::Auto, Transport::Ring),
        (TransportChoice::Ring, Transport::Ring),
        (TransportChoice::Device, Transport::Device),
    ] {
        assert_eq!(mounted(choice).ok(), Some(transport));
    }
    let program = std::env::current_exe().expect("this program");
    let mut again = Command::new(program);
    again.args(["--skip", "rings::"]).env(TRANSPORT, "ring");
    let output = again.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.contains("test contents::"), "none has run: {said}");
}

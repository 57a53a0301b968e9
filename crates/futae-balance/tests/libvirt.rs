//! Guests by their names: of libvirt's own test driver, which reads its domains from a file, and of a libvirt with QEMU.

use futae_balance::{Config, Controller};
use futae_testkit::need::{Need, skip};
use futae_testkit::wait::eventually;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Has these domains run, each with 1 GiB.
fn run(node: &Path, names: &[&str]) {
    let domain = |name: &&str| {
        format!(
            "<domain type='test'><name>{name}</name><memory>1048576</memory><os><type>hvm</type></os></domain>"
        )
    };
    let domains: String = names.iter().map(domain).collect();
    fs::write(node, format!("<node>{domains}</node>")).expect("a file");
}

#[test]
fn domains_that_start_and_stop_are_followed() {
    if Command::new("virsh").arg("--version").output().is_err() {
        skip(Need::Tools, "there is no virsh (libvirt-clients)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let node = folder.path().join("node.xml");
    let agents = folder.path().display();
    let config = format!(
        "total = \"3GiB\"\nreserve = \"0MiB\"\nevaluator = \"static\"\n[libvirt]\nuri = \"test://{}\"\nminimum = \"512MiB\"\n\
         agent = {{ listen = \"{agents}/%n.agent\" }}\n",
        node.display()
    );
    let config = Config::parse(&config).expect("good");
    run(&node, &[]);
    // Nothing runs yet, and nobody is told anything: each virsh has domains of its own.
    let mut controller = Controller::new(&config, true).expect("it begins");
    let mut period = || {
        let report = controller.period();
        let guests = report.decision.guests.iter();
        let names: Vec<_> = guests.map(|guest| guest.name.clone()).collect();
        let guests = report.decision.guests.iter();
        let targets: Vec<u64> = guests.map(|guest| guest.target).collect();
        (names.join(" "), report.changes, report.problems, targets)
    };
    assert_eq!(period().0, "");
    run(&node, &["web", "db"]);
    let (names, changes, problems, targets) = period();
    assert_eq!(
        (names.as_str(), changes.len()),
        ("db web", 2),
        "{changes:?} {problems:?}"
    );
    assert_eq!(targets, [1 << 30; 2]);
    assert!(
        folder.path().join("db.agent").exists(),
        "its agent is heard"
    );
    // Those that were there keep their places.
    run(&node, &["web", "db", "a", "b"]);
    let (names, changes, problems, targets) = period();
    assert_eq!(
        (names.as_str(), changes.len()),
        ("db web a b", 2),
        "{changes:?} {problems:?}"
    );
    let sum: u64 = targets.iter().sum();
    assert!(sum <= 3 << 30 && sum > (3 << 30) - 4, "{targets:?}");
    // Seven have minimums of 3.5 GiB: the last one does not fit.
    run(&node, &["web", "db", "a", "b", "c", "d", "e"]);
    let (names, changes, problems, targets) = period();
    assert_eq!((names.as_str(), changes.len()), ("db web a b c d", 2));
    assert_eq!(targets, [512 << 20; 6]);
    assert!(
        problems
            .iter()
            .any(|why| why.contains("e is left alone: the minimums of all")),
        "{problems:?}"
    );
    // A guest that is stopped or has migrated away makes room.
    run(&node, &["web", "a"]);
    let (names, changes, _, _) = period();
    assert_eq!((names.as_str(), changes.len()), ("web a", 4), "{changes:?}");
    assert!(
        !folder.path().join("db.agent").exists(),
        "nobody listens for it any more"
    );
    // libvirt does not answer: nobody is forgotten.
    fs::remove_file(&node).expect("there");
    let (names, changes, problems, _) = period();
    assert_eq!((names.as_str(), changes.len()), ("web a", 0));
    assert!(
        problems.iter().any(|why| why.starts_with("libvirt: ")),
        "{problems:?}"
    );
}

/// Who has no rights.
const NOBODY: u32 = 65_534;

/// A libvirt of the test's own, with emulated guests.
struct Libvirt {
    place: TempDir,
    daemon: Option<Child>,
}

impl Libvirt {
    /// Starts it as a user without rights; root would have that of the machine. None, and the reason is printed, without the
    /// programs.
    fn start() -> Option<Self> {
        for (program, package) in [
            ("virsh", "libvirt-clients"),
            ("libvirtd", "libvirt-daemon-driver-qemu"),
            ("qemu-system-x86_64", "qemu-system-x86"),
        ] {
            if Command::new(program).arg("--version").output().is_err() {
                skip(Need::Tools, &format!("there is no {program} ({package})"));
                return None;
            }
        }
        let place = tempfile::tempdir().expect("a folder");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("allowed");
        let mut libvirt = Self {
            place,
            daemon: None,
        };
        for name in ["run", "home"] {
            fs::create_dir(libvirt.path(name)).expect("a folder");
            if rustix::process::geteuid().is_root() {
                chown(libvirt.path(name), Some(NOBODY), Some(NOBODY)).expect("allowed");
            }
        }
        libvirt.run();
        Some(libvirt)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts the daemon, and waits until it answers.
    fn run(&mut self) {
        let mut daemon = if rustix::process::geteuid().is_root() {
            let mut drop = Command::new("setpriv");
            let id = NOBODY.to_string();
            drop.args(["--reuid", &id, "--regid", &id, "--clear-groups", "libvirtd"]);
            drop
        } else {
            Command::new("libvirtd")
        };
        daemon.env("HOME", self.path("home"));
        daemon.env("XDG_RUNTIME_DIR", self.path("run"));
        for variable in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"] {
            daemon.env(variable, self.path("home"));
        }
        let log = fs::File::create(self.path("log")).expect("a file");
        daemon
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.daemon = Some(daemon.spawn().expect("libvirtd"));
        eventually("libvirt answers", || self.virsh(&["list"]));
    }

    fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    fn uri(&self) -> String {
        let socket = self.path("run/libvirt/libvirt-sock");
        format!("qemu+unix:///session?socket={}", socket.display())
    }

    /// Whether this succeeds.
    fn virsh(&self, words: &[&str]) -> bool {
        let mut virsh = Command::new("virsh");
        virsh.args(["--connect", &self.uri()]).args(words);
        virsh.output().expect("virsh").status.success()
    }

    /// Starts a domain of 64 MiB, in which nothing runs.
    fn create(&self, name: &str) {
        let domain = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><os><type arch='x86_64'>hvm</type></os>\
             <devices><memballoon model='virtio'/></devices></domain>"
        );
        let file = self.path("domain.xml");
        fs::write(&file, domain).expect("a file");
        let log = || fs::read_to_string(self.path("log")).unwrap_or_default();
        let file = file.to_str().expect("UTF-8");
        assert!(self.virsh(&["create", file]), "{}", log());
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        for name in ["web", "db"] {
            self.virsh(&["destroy", name]);
        }
        self.stop();
    }
}

#[test]
fn domains_of_a_real_libvirt_are_followed_at_once() {
    let Some(mut libvirt) = Libvirt::start() else {
        return;
    };
    let config = format!(
        "total = \"1GiB\"\nreserve = \"0MiB\"\nevaluator = \"static\"\n[libvirt]\nuri = \"{}\"\nminimum = \"32MiB\"\n",
        libvirt.uri()
    );
    let config = Config::parse(&config).expect("good");
    let mut controller = Controller::new(&config, false).expect("it begins");
    // It is told of domains from now on; until it listens, periods find them.
    let report = controller.period();
    assert_eq!(
        (report.decision.guests.len(), report.problems),
        (0, Vec::<String>::new())
    );
    libvirt.create("web");
    eventually("web is found", || {
        controller.heed_events() + controller.period().changes.len() > 0
    });
    libvirt.create("db");
    eventually("db is found between periods", || {
        controller.heed_events() == 1
    });
    let report = controller.period();
    let targets: Vec<(&str, u64)> = report
        .decision
        .guests
        .iter()
        .map(|guest| (guest.name.as_str(), guest.target))
        .collect();
    assert_eq!(targets, [("web", 64 << 20), ("db", 64 << 20)]);
    assert_eq!(report.changes.len(), 1, "{:?}", report.changes);
    assert!(libvirt.virsh(&["destroy", "web"]));
    eventually("web is gone between periods", || {
        controller.heed_events() == 1
    });
    // libvirt is upgraded: its guests go on.
    libvirt.stop();
    let report = controller.period();
    let problems = report.problems.join("; ");
    assert!(problems.contains("libvirt: "), "{problems}");
    assert_eq!(report.decision.guests.len(), 1, "nobody is forgotten");
    libvirt.run();
    eventually("it answers, and tells again", || {
        let report = controller.period();
        report.decision.guests.len() == 1 && report.problems.is_empty()
    });
    assert!(libvirt.virsh(&["destroy", "db"]));
    eventually("db is gone", || {
        controller.heed_events() + controller.period().changes.len() > 0
    });
}

//! A Debian with nothing but what it needs, and its systemd as the first process: in namespaces of its own, on the kernel of this
//! machine, and seen through an overlay that nothing leaves.
//!
//! Its packages are downloaded once, into the cache of guests (`FUTAE_GUEST_CACHE`).

use crate::process::Running;
use crate::tidy::root;
use crate::tools::{Need, has, has_root, skip, text};
use futae_testkit::wait::{eventually, within};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

/// Packages beside what every Debian has.
const PACKAGES: &str = "systemd-sysv";
/// In the name of what is kept, so that another list of packages is another Debian.
const EDITION: u32 = 1;
/// A machine with a slow network downloads some 60 MB.
const DOWNLOAD_PATIENCE: Duration = Duration::from_secs(900);

/// A Debian that runs. It is gone when this is dropped.
pub struct Debian {
    place: TempDir,
    group: PathBuf,
    manager: Running,
    /// The process number of systemd, here.
    first: u32,
}

impl Debian {
    /// Boots one; none, and it says why, where that cannot be had.
    #[must_use]
    pub fn boot() -> Option<Self> {
        let tools = ["mmdebstrap", "unshare", "nsenter", "setpriv", "findmnt"];
        if !has_root() || !tools.into_iter().all(has) {
            return None;
        }
        let groups = output(Command::new("findmnt").args(["-nfo", "TARGET", "-t", "cgroup2"]));
        let Some(groups) = groups.ok().filter(|path| !path.trim().is_empty()) else {
            skip(
                Need::Systemd,
                "no control groups of the second version are mounted",
            );
            return None;
        };
        let base = match base() {
            Ok(base) => base,
            Err(why) => {
                skip(Need::Systemd, &why);
                return None;
            }
        };
        let place = tempfile::tempdir().expect("a directory");
        for name in ["srv", "own"] {
            fs::create_dir(place.path().join(name)).expect("made");
        }
        // As unlike those of others as the directory is.
        let name = place.path().file_name().unwrap_or_default();
        let name = format!("futae-test-{}", name.to_string_lossy());
        let group = Path::new(groups.trim()).join(name);
        fs::create_dir(&group).expect("a control group");
        let mut unshare = Command::new("sh");
        unshare.args([
            "-ec",
            "echo $$ >\"$1/cgroup.procs\"; exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net \
             sh \"$2\" \"$3\" \"$4\"",
            "sh",
            text(&group),
            text(&root().join("tests/programs/debian.sh")),
            text(&base),
            text(place.path()),
        ]);
        let mut manager = Running::start("a Debian's systemd", unshare);
        let parent = manager.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let first = within(futae_testkit::wait::PATIENCE, || {
            let children = fs::read_to_string(&children).unwrap_or_default();
            children
                .split_whitespace()
                .next()
                .and_then(|id| id.parse().ok())
                .ok_or(())
        });
        let Ok(first) = first else {
            panic!("a Debian does not start: {:?}", manager.wait());
        };
        let debian = Self {
            place,
            group,
            manager,
            first,
        };
        eventually("the Debian is up", || {
            let state = debian.command("systemctl is-system-running").output();
            state.is_ok_and(|state| matches!(state.stdout.as_slice(), b"running\n" | b"degraded\n"))
        });
        Some(debian)
    }

    /// A file of the test, which is `/srv/futae/NAME` in it.
    #[must_use]
    pub fn shared(&self, name: &str) -> PathBuf {
        self.place.path().join("srv").join(name)
    }

    /// Where a file of it is, seen from here.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first))
    }

    /// A program of this machine with the network of the Debian.
    #[must_use]
    pub fn on_its_network(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.first.to_string(), program]);
        command
    }

    /// A script in it.
    #[must_use]
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string()]);
        command.args([
            "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net", "--root",
        ]);
        command.args(["sh", "-ec", &format!("cd /; {script}")]);
        command.env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a script in it, which must succeed, and says what it printed.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        let output = self.command(script).output().expect("nsenter");
        assert!(
            output.status.success(),
            "{script}: {output:?}\n{}",
            self.journal()
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a script in it, which must fail.
    #[track_caller]
    pub fn fails(&self, script: &str) -> Output {
        let output = self.command(script).output().expect("nsenter");
        assert!(!output.status.success(), "{script}: {output:?}");
        output
    }

    /// What a unit's property is.
    #[track_caller]
    pub fn property(&self, unit: &str, name: &str) -> String {
        let value = self.run(&format!("systemctl show --value --property {name} {unit}"));
        value.trim().to_owned()
    }

    /// The end of its log.
    #[must_use]
    pub fn journal(&self) -> String {
        let log = self.command("journalctl --no-pager --lines 40").output();
        log.map_or_else(
            |_| String::new(),
            |log| String::from_utf8_lossy(&log.stdout).into_owned(),
        )
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        // Its first process ends with this one's, and all others with that.
        self.manager.signal(rustix::process::Signal::KILL);
        self.manager.wait();
        let gone = || remove_groups(&self.group);
        let _ = within(Duration::from_secs(10), gone);
    }
}

/// Control groups can be removed from below only, once nobody is in them.
fn remove_groups(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_groups(&path)?;
        }
    }
    fs::remove_dir(group)
}

/// The files of a Debian of this machine's release.
fn base() -> Result<PathBuf, String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let mut lines = release.lines();
    let codename = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let is_debian = release.lines().any(|line| line == "ID=debian");
    let Some(codename) = codename.filter(|_| is_debian) else {
        return Err("this machine is no Debian, so its programs may not run in one".to_owned());
    };
    let cache = futae_machine::default_cache();
    let place = cache.join(format!("debian-{codename}-{EDITION}"));
    let failed = |error: std::io::Error| format!("{}: {error}", cache.display());
    fs::create_dir_all(&cache).map_err(failed)?;
    let lock = File::create(cache.join("debian.lock")).map_err(failed)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    if place.is_dir() {
        return Ok(place);
    }
    let work = tempfile::tempdir_in(&cache).map_err(failed)?;
    let made = work.path().join("root");
    let mut make = Command::new("timeout");
    make.arg(DOWNLOAD_PATIENCE.as_secs().to_string());
    make.args([
        "mmdebstrap",
        "--quiet",
        "--variant=apt",
        "--aptopt=APT::Sandbox::User \"root\"",
    ]);
    make.arg(format!("--include={PACKAGES}"))
        .arg(codename)
        .arg(&made);
    output(&mut make)?;
    // Each boot is a first boot, of a machine without a name.
    fs::write(made.join("etc/hostname"), "debian\n").map_err(failed)?;
    fs::rename(&made, &place).map_err(failed)?;
    Ok(place)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let why = String::from_utf8_lossy(&output.stderr);
    let last = why.trim().lines().next_back().unwrap_or_default();
    Err(format!("{program}: {last}"))
}

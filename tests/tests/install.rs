//! The packages installed, started, upgraded and removed in a Debian of their own: this machine's, seen through an overlay that
//! nothing leaves. systemd is played: the server's command line, capabilities and directories are those of the installed unit.
//!
//! The packages are built here from what Cargo.toml says to cargo-deb, with the binary under test, since cargo-deb links for
//! minutes. `FUTAE_DEBS` names a directory with packages that `make deb` has built, to be installed in their place.

use futae_testkit::need::{Need, skip};
use futae_testkit::wait::PATIENCE;
use futae_tests::binary::{binary, run};
use futae_tests::process::Running;
use futae_tests::tidy::root;
use futae_tests::tools::{has, text};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Where packages are that cargo-deb has built.
const BUILT: &str = "FUTAE_DEBS";

/// A Debian of its own. It is gone when this is dropped.
struct Debian {
    holder: Running,
    place: TempDir,
}

impl Debian {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        fs::create_dir(place.path().join("srv")).expect("made");
        fs::create_dir(place.path().join("own")).expect("made");
        let script = "set -e; cd \"$0/own\"; mount -t tmpfs none .; cd \"$0/own\"; mkdir upper work root
            mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
            mount --rbind /dev root/dev; mount -t proc none root/proc; mount -t tmpfs none root/run
            mkdir root/srv/futae; mount --bind ../srv root/srv/futae; echo here; exec sleep infinity";
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "sh", "-c", script])
            .arg(place.path());
        let mut holder = Running::start("a Debian", unshare);
        assert_eq!(holder.line(), "here");
        Self { holder, place }
    }

    /// A file of the test, which is `/srv/futae/NAME` in it.
    fn shared(&self, name: &str) -> PathBuf {
        self.place.path().join("srv").join(name)
    }

    /// A command line in it.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        command
            .args(["chroot", text(&self.place.path().join("own/root"))])
            .args(["sh", "-ec", script]);
        command.env("LC_ALL", "C");
        command
    }

    /// Runs a script in it, which must succeed, and says what it printed.
    fn run(&self, script: &str) -> String {
        let output = self.command(script).output().expect("nsenter");
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn fails(&self, script: &str) -> Output {
        let output = self.command(script).output().expect("nsenter");
        assert!(!output.status.success(), "{script}: {output:?}");
        output
    }
}

/// A package of one crate, as its Cargo.toml describes it.
fn package(crate_name: &str, version: &str, place: &Path, manual: &Path) -> PathBuf {
    let name = crate_name.replace("futae-cli", "futae");
    let tree = place.join(format!("{name}-{version}"));
    if let Some(built) = std::env::var_os(BUILT) {
        let start = format!("{name}_");
        let mut all = fs::read_dir(built).expect("the packages").flatten();
        let built = all.find(|file| file.file_name().to_string_lossy().starts_with(&start));
        let built = built.expect("a package of this name").path();
        tool(Command::new("dpkg-deb").arg("-R").args([&built, &tree]));
        let control = tree.join("DEBIAN/control");
        let said = fs::read_to_string(&control).expect("its control file");
        let said = said.lines().map(|line| match line.split_once(": ") {
            Some(("Version", _)) => format!("Version: {version}\n"),
            _ => format!("{line}\n"),
        });
        fs::write(control, said.collect::<String>()).expect("a file");
    } else {
        let crate_root = root().join("crates").join(crate_name);
        let manifest = fs::read_to_string(crate_root.join("Cargo.toml")).expect("the manifest");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        let deb = &manifest["package"]["metadata"]["deb"];
        for asset in deb["assets"].as_array().expect("assets") {
            let at = |index: usize| asset[index].as_str().expect("text");
            for source in sources(at(0), &crate_root, manual) {
                let mut to = tree.join(at(1));
                if at(1).ends_with('/') {
                    // The binary under test has the name of the program that it stands for.
                    let named = if source == binary() {
                        Path::new(at(0))
                    } else {
                        &source
                    };
                    to.push(named.file_name().expect("a name"));
                }
                fs::create_dir_all(to.parent().expect("a directory")).expect("made");
                fs::copy(&source, &to)
                    .unwrap_or_else(|error| panic!("{}: {error}", source.display()));
                let mode = u32::from_str_radix(at(2), 8).expect("a mode");
                fs::set_permissions(&to, fs::Permissions::from_mode(mode)).expect("a mode");
            }
        }
        let architecture = tool(Command::new("dpkg").arg("--print-architecture"));
        let maintainer = deb["maintainer"].as_str().expect("a maintainer");
        fs::create_dir(tree.join("DEBIAN")).expect("made");
        let control = format!(
            "Package: {}\nVersion: {version}\nArchitecture: {architecture}Maintainer: {maintainer}\nDescription: {name}\n",
            deb["name"].as_str().expect("a name")
        );
        fs::write(tree.join("DEBIAN/control"), control).expect("a file");
    }
    let file = place.join(format!("{name}-{version}.deb"));
    tool(
        Command::new("dpkg-deb")
            .args(["-Znone", "--root-owner-group", "--build"])
            .args([&tree, &file]),
    );
    file
}

/// The files that an asset names. The binary under test stands for each program.
fn sources(asset: &str, crate_root: &Path, manual: &Path) -> Vec<PathBuf> {
    if asset.starts_with("target/release/") {
        return vec![binary().to_owned()];
    }
    let Some(written) = asset.strip_prefix("../../target/manual/") else {
        return vec![crate_root.join(asset)];
    };
    match written.split_once('*') {
        None => vec![manual.join(written)],
        Some((directory, end)) => {
            let entries = fs::read_dir(manual.join(directory))
                .expect("pages")
                .flatten();
            let files = entries.map(|entry| entry.path());
            files.filter(|file| text(file).ends_with(end)).collect()
        }
    }
}

fn tool(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What the unit that is installed says for a key.
fn of_unit(debian: &Debian, key: &str) -> String {
    let unit = debian.run("cat /usr/lib/systemd/system/futae-serve@.service");
    let start = format!("{key}=");
    let found = unit.lines().find_map(|line| line.strip_prefix(&start));
    let found = found.unwrap_or_else(|| panic!("the unit has no {key}"));
    found.replace("%i", "vm1")
}

/// Starts the server as its unit does, and waits until it is ready.
fn start(debian: &Debian, systemd: &UnixDatagram) -> Running {
    let capabilities = of_unit(debian, "CapabilityBoundingSet").to_lowercase();
    let kept = capabilities.replace("cap_", "+").replace(' ', ",");
    let (check, serve) = (
        of_unit(debian, "ExecStartPre"),
        of_unit(debian, "ExecStart"),
    );
    let directory = of_unit(debian, "RuntimeDirectory");
    let script = format!(
        "mkdir -p /run/{directory}; {check} >&2; exec setpriv --no-new-privs --bounding-set=-all,{kept} {serve}"
    );
    let mut command = debian.command(&script);
    command.env("NOTIFY_SOCKET", "/srv/futae/notify");
    let server = Running::start("the server", command);
    assert!(hears(systemd).starts_with("READY=1"));
    server
}

fn hears(systemd: &UnixDatagram) -> String {
    let mut said = [0; 512];
    let length = systemd.recv(&mut said).expect("it says something");
    String::from_utf8_lossy(&said[..length]).into_owned()
}

#[test]
fn packages_are_installed_started_upgraded_and_removed() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "root is needed for a Debian of its own");
    }
    let tools = [
        "dpkg", "dpkg-deb", "unshare", "nsenter", "setpriv", "nbdcopy",
    ];
    if !tools.into_iter().all(has) {
        return;
    }
    let debian = Debian::new();
    let manual = debian.shared("manual");
    let output = run(&["reference", "manual", text(&manual)]);
    assert!(output.status.success(), "{output:?}");
    let place = debian.shared("");
    package("futae-cli", "1.0", &place, &manual);
    package("futae-cli", "1.1", &place, &manual);
    package("futae-agent", "1.0", &place, &manual);
    let systemd = UnixDatagram::bind(debian.shared("notify")).expect("a socket");
    systemd.set_read_timeout(Some(PATIENCE)).expect("a limit");

    // Both at once, so that no file is in both.
    debian.run("dpkg --no-triggers -i /srv/futae/futae-1.0.deb /srv/futae/futae-agent-1.0.deb");
    debian.run("dpkg --verify futae; futae --version; test -x /usr/sbin/mount.futae; test -x /usr/bin/futae-agent");
    debian.run(
        "cd /srv/futae; head -c 4M /dev/urandom > vm1.img; mkdir -p /var/lib/libvirt/images
         install -m 600 -o nobody vm1.img /var/lib/libvirt/images/vm1.img
         install -D -m 644 /usr/share/doc/futae/examples/serve.toml /etc/futae/vm1.toml",
    );
    let read = "rm -f out; nbdcopy 'nbd+unix:///vm1?socket=/run/futae/vm1/vm1.sock' /srv/futae/out; \
                cmp /srv/futae/out /srv/futae/vm1.img";
    let mut server = start(&debian, &systemd);
    debian.run(read);
    server.signal(Signal::HUP);
    assert!(hears(&systemd).starts_with("RELOADING=1"));
    assert!(hears(&systemd).starts_with("READY=1"));

    // An upgrade lets the server run until it is started again.
    debian.run("dpkg --no-triggers -i /srv/futae/futae-1.1.deb");
    assert_eq!(debian.run("dpkg-query -W -f '${Version}' futae"), "1.1");
    debian.run(read);
    server.signal(Signal::TERM);
    assert_eq!(hears(&systemd), "STOPPING=1\n");
    assert!(server.wait().status.success());
    let server = start(&debian, &systemd);
    debian.run(read);
    assert!(server.stop().status.success());

    let files = "dpkg -L futae futae-agent | while read file; do test ! -f \"$file\" || echo \"$file\"; done";
    let files = debian.run(files);
    assert!(files.lines().count() > 30, "{files}");
    debian.run("dpkg --no-triggers -r futae; dpkg --no-triggers -P futae-agent; test -f /etc/futae/vm1.toml");
    for file in files.lines() {
        debian.fails(&format!("test -e '{file}'"));
    }
    debian.fails("futae --version");
}

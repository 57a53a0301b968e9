//! The packages on a Debian that has nothing else, with its systemd: installed, started, watched, upgraded, killed, removed.

use futae_testkit::nbd::Plain as Client;
use futae_testkit::wait::{eventually, obtain};
use futae_tests::binary::run;
use futae_tests::book;
use futae_tests::debian::Debian;
use futae_tests::package::package;
use futae_tests::process::Running;
use futae_tests::tidy::root;
use futae_tests::tools::{Need, has, skip, text};
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

const UNIT: &str = "futae-serve@vm1";
const SOCKET: &str = "/run/futae/vm1/vm1.sock";
const CONTROL: &str = "/run/futae/vm1/control.sock";
const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;
/// What a guest prints that has booted from the image.
const GREETING: &str = "this guest has booted from its disk";
/// The sector that the greeting is in.
const GREETING_AT: u64 = 2048;

/// The first sector of a disk, which prints a sector of the disk on the serial port and ends the machine.
fn boot_sector() -> Vec<u8> {
    let mut code = vec![
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0x8e, 0xd0, // mov ss, ax
        0xbc, 0x00, 0x7c, // mov sp, 0x7c00
        0xbe, 0x40, 0x7c, // mov si, 0x7c40: what to read
        0xb4, 0x42, // mov ah, 0x42
        0xcd, 0x13, // int 0x13
        0xbe, 0x00, 0x80, // mov si, 0x8000
        0xba, 0xf8, 0x03, // mov dx, 0x3f8: the serial port
        0xac, // lodsb
        0x08, 0xc0, // or al, al
        0x74, 0x03, // jz: the text is over
        0xee, // out dx, al
        0xeb, 0xf8, // jmp: the next letter
        0xba, 0xf4, 0x00, // mov dx, 0xf4: the port that ends QEMU
        0xee, // out dx, al
        0xf4, // hlt
    ];
    code.resize(0x40, 0);
    // One sector, to 0x8000.
    code.extend([0x10, 0, 1, 0, 0x00, 0x80, 0, 0]);
    code.extend(GREETING_AT.to_le_bytes());
    code.resize(510, 0);
    code.extend([0x55, 0xaa]);
    code
}

fn image() -> Vec<u8> {
    let mut image: Vec<u8> = (0..BLOCKS * BLOCK)
        .map(|at| (at / BLOCK % 251) as u8)
        .collect();
    image[..512].copy_from_slice(&boot_sector());
    let at = GREETING_AT as usize * 512;
    image[at..at + GREETING.len()].copy_from_slice(GREETING.as_bytes());
    image[at + GREETING.len()] = 0;
    image
}

/// A Debian with the packages in `/srv/futae`, the image of a guest, and nothing of futae.
fn debian() -> Option<Debian> {
    if !["dpkg-deb", "curl", "qemu-system-x86_64"]
        .into_iter()
        .all(has)
    {
        return None;
    }
    let debian = Debian::boot()?;
    let manual = debian.shared("manual");
    let output = run(&["reference", "manual", text(&manual)]);
    assert!(output.status.success(), "{output:?}");
    let place = debian.shared("");
    let _ = package("futae", "1.0", &place, &manual);
    fs::write(debian.shared("vm1.img"), image()).expect("an image");
    debian.run("install -D -m 600 -o nobody /srv/futae/vm1.img /var/lib/libvirt/images/vm1.img");
    Some(debian)
}

/// The commands of a page for a machine with the package, which this file runs.
fn commands(page: &str) -> Vec<String> {
    commands_of(&fs::read_to_string(root().join(page)).expect("the page"))
}

fn commands_of(page: &str) -> Vec<String> {
    let steps = book::page(page).steps.into_iter();
    let is_ours = |step: &book::Step| {
        let not_run = step.not_run.as_deref();
        not_run.is_some_and(|why| why.contains("tests/tests/install.rs"))
    };
    steps
        .filter(is_ours)
        .map(|step| step.command.replace("sudo ", ""))
        .collect()
}

fn client(debian: &Debian) -> Client {
    obtain("clients are served", || {
        Client::connect(&debian.path(SOCKET), "vm1")
    })
}

/// Reads all blocks.
fn read_all(debian: &Debian, image: &[u8]) {
    let mut client = client(debian);
    for (at, block) in image.chunks(BLOCK).enumerate() {
        let read = client.read((at * BLOCK) as u64, BLOCK);
        let read = read.expect("connected").expect("read");
        assert!(read == block, "block {at} is another");
    }
}

/// What the server says of its cache.
fn cache(debian: &Debian) -> Value {
    let status = debian.run(&format!("futae top --json {CONTROL}"));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    status["engines"][0].clone()
}

/// All blocks are still there, and are read without the disk.
#[track_caller]
fn is_warm(debian: &Debian, image: &[u8], after: &str) {
    drop(client(debian));
    let found = cache(debian);
    assert_eq!(
        found["memory_found_blocks"],
        BLOCKS,
        "after {after}: {}",
        debian.journal()
    );
    read_all(debian, image);
    let now = cache(debian);
    assert_eq!(now["hits"], BLOCKS, "after {after}");
    assert_eq!(
        (&now["store_reads"], &now["memory_refused_blocks"]),
        (&0.into(), &0.into())
    );
}

fn fetch(debian: &Debian, url: &str) -> String {
    let mut curl = debian.on_its_network("curl");
    let output = curl
        .args(["--silent", "--show-error", "--fail", url])
        .output();
    let output = output.expect("curl");
    assert!(output.status.success(), "{url}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Boots a guest from the export, and says what it printed.
fn boot(debian: &Debian) -> String {
    let path = debian.path(SOCKET);
    let disk = format!(
        "driver=nbd,node-name=vm1,server.type=unix,server.path={},export=vm1,reconnect-delay=60",
        text(&path)
    );
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args([
        "-accel",
        "tcg",
        "-m",
        "32",
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
    ]);
    qemu.args([
        "-serial",
        "stdio",
        "-device",
        "isa-debug-exit,iobase=0xf4,iosize=1",
    ]);
    qemu.args(["-blockdev", &disk, "-device", "virtio-blk-pci,drive=vm1"]);
    let ended = Running::start("a guest", qemu).wait();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    ended.lines.concat()
}

#[test]
fn four_commands_serve_a_disk_that_a_guest_boots_from_and_keep_its_cache_until_the_package_goes() {
    let Some(debian) = debian() else { return };
    let image = image();
    debian.fails("futae --version");

    let commands = commands("docs/how-to/install.md");
    assert_eq!(commands.len(), 4, "{commands:?}");
    let mut shown = String::new();
    for command in &commands {
        shown = debian.run(&format!("cd /srv/futae; {command}"));
    }
    assert!(shown.contains("vm1"), "{shown}");
    debian.run("dpkg --verify futae");
    assert_eq!(debian.property(UNIT, "StatusText"), "serving 1 export");
    assert_eq!(boot(&debian), GREETING);
    let metrics = fetch(&debian, "http://127.0.0.1:9815/metrics");
    assert!(
        metrics.contains("futae_export_requests_total{"),
        "{metrics}"
    );
    let page = fetch(&debian, "http://127.0.0.1:9816/");
    assert!(page.contains("<table") && page.contains("vm1"), "{page}");

    // Contents outlive whatever happens to the process.
    read_all(&debian, &image);
    debian.run(&format!("systemctl restart {UNIT}"));
    is_warm(&debian, &image, "a restart");
    let place = debian.shared("");
    let _ = package("futae", "1.1", &place, &debian.shared("manual"));
    let before = debian.property(UNIT, "MainPID");
    debian.run("apt-get install --quiet /srv/futae/futae_1.1.deb");
    assert_eq!(debian.run("dpkg-query -W -f '${Version}' futae"), "1.1");
    assert_eq!(
        debian.property(UNIT, "MainPID"),
        before,
        "an upgrade restarts nothing"
    );
    debian.run(&format!("systemctl restart {UNIT}"));
    is_warm(&debian, &image, "an upgrade");
    debian.run(&format!("systemctl kill --signal KILL {UNIT}"));
    eventually("systemd starts it again", || {
        debian.property(UNIT, "NRestarts") == "1"
    });
    is_warm(&debian, &image, "a kill");

    // A server that is stuck is killed by the watchdog.
    debian.run(&format!(
        "mkdir /run/systemd/system/{UNIT}.service.d
         printf '[Service]\\nWatchdogSec=1s\\n' >/run/systemd/system/{UNIT}.service.d/watchdog.conf
         systemctl daemon-reload; systemctl restart {UNIT}; systemctl kill --signal STOP --kill-who main {UNIT}"
    ));
    eventually("systemd starts it again", || {
        debian.property(UNIT, "NRestarts") == "1"
    });
    is_warm(&debian, &image, "the watchdog");

    debian.run(&format!(
        "sed -i s/1GiB/512MiB/ /etc/futae/vm1.toml; systemctl reload {UNIT}"
    ));
    eventually("the new size", || {
        cache(&debian)["capacity_blocks"] == (512 << 20) / BLOCK
    });
    read_all(&debian, &image);

    hooks(&debian, &image);
    mounts(&debian, &image);

    let files = debian
        .run("dpkg -L futae | while read file; do test ! -f \"$file\" || echo \"$file\"; done");
    assert!(files.lines().count() > 30, "{files}");
    debian.run(&format!("systemctl stop {UNIT}; systemctl start {UNIT}"));
    debian.run("apt-get remove --quiet --yes futae");
    assert_eq!(
        debian.property(UNIT, "ActiveState"),
        "inactive",
        "{}",
        debian.journal()
    );
    for file in files.lines() {
        debian.fails(&format!("test -e '{file}'"));
    }
    debian.run("test -f /etc/futae/vm1.toml; test -h /etc/systemd/system/multi-user.target.wants/futae-serve@vm1.service");
    debian.run("apt-get purge --quiet --yes futae; test ! -h /etc/systemd/system/multi-user.target.wants/futae-serve@vm1.service");
}

/// The `.mount` unit of the book: started, written through, and stopped, after which everything is in the image.
fn mounts(debian: &Debian, image: &[u8]) {
    if !Path::new("/dev/fuse").exists() {
        return skip(Need::Fuse, "no /dev/fuse");
    }
    let _ = package(
        "futae-mount",
        "1.0",
        &debian.shared(""),
        &debian.shared("manual"),
    );
    debian.run("apt-get install --quiet /srv/futae/futae-mount_1.0.deb; test -x /usr/sbin/mount.futae; dpkg --verify futae-mount");
    let page = "docs/how-to/mounts-and-trees.md";
    let page = fs::read_to_string(root().join(page)).expect("the page");
    let unit = page.split("```").find(|part| part.contains("[Mount]"));
    let unit = unit.expect("a unit").strip_prefix("ini\n").expect("a unit");
    fs::write(debian.shared("mnt-vm2.mount"), unit).expect("a file");
    fs::write(debian.shared("vm2.img"), image).expect("an image");
    let commands = commands_of(&page);
    debian.run(&format!(
        "install -D -m 644 /srv/futae/mnt-vm2.mount /etc/systemd/system/mnt-vm2.mount
         install -D -m 600 /srv/futae/vm2.img /srv/vm2.img; systemctl daemon-reload; {}",
        commands[0]
    ));
    assert_eq!(debian.property("mnt-vm2.mount", "ActiveState"), "active");
    debian.run(
        "cmp /srv/vm2.img /mnt/vm2/vm2.img; findmnt --noheadings --types fuse.futae,fuse /mnt/vm2",
    );
    debian.run("printf changed | dd of=/mnt/vm2/vm2.img conv=notrunc bs=4096 seek=9 status=none");
    // Its file system does without the package.
    let said = debian.run("apt-get remove --quiet --yes futae-mount");
    assert!(said.contains("  /mnt/vm2"), "{said}");
    debian.run("test ! -e /usr/sbin/mount.futae; cmp /srv/vm2.img /mnt/vm2/vm2.img");
    debian.run(&commands[1]);
    debian.fails("findmnt /mnt/vm2");
    eventually("what was written is in the image", || {
        debian.run("tail -c +36865 /srv/vm2.img | head -c 7") == "changed"
    });
    debian.run("systemctl disable mnt-vm2.mount");
}

/// A hypervisor starts the server of a guest's disk before the guest, and stops it after.
fn hooks(debian: &Debian, image: &[u8]) {
    debian.run(&format!("systemctl stop {UNIT}"));
    debian.run("install -D /usr/share/futae/hooks/libvirt /etc/libvirt/hooks/qemu.d/futae");
    let libvirt = "echo '<domain/>' | /etc/libvirt/hooks/qemu.d/futae";
    let proxmox = "/usr/share/futae/hooks/proxmox";
    for (before, after) in [
        (
            format!("{libvirt} vm1 prepare begin -"),
            format!("{libvirt} vm1 release end -"),
        ),
        (
            format!("{proxmox} vm1 pre-start"),
            format!("{proxmox} vm1 post-stop"),
        ),
    ] {
        debian.run(&before);
        // At once: a guest that starts now finds its disk.
        let mut client = Client::connect(&debian.path(SOCKET), "vm1").expect("it is served");
        let read = client
            .read(BLOCK as u64, BLOCK)
            .expect("connected")
            .expect("read");
        assert_eq!(read, &image[BLOCK..2 * BLOCK], "{before}");
        debian.run(&after);
        assert_eq!(debian.property(UNIT, "ActiveState"), "inactive", "{after}");
    }
    // Other phases, and guests without a configuration, are none of its business.
    for other in [
        format!("{libvirt} vm1 started begin -"),
        format!("{libvirt} vm2 prepare begin -"),
        format!("{proxmox} vm1 post-start"),
        format!("{proxmox} 102 pre-start"),
    ] {
        debian.run(&other);
        assert_eq!(debian.property(UNIT, "ActiveState"), "inactive", "{other}");
    }
    // A name that no unit can have is written as systemd does, and a configuration without that is no reason to start without it.
    debian.run(
        r#"cp /etc/futae/vm1.toml "/etc/futae/my vm.toml"; sed -i "s,/vm1/,/my\\\\\\\\x20vm/,g" "/etc/futae/my vm.toml""#,
    );
    let failed = debian.fails(&format!("{libvirt} 'my vm' prepare begin -"));
    let why = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(why.contains(r"my\x20vm.toml"), "{why}");
    debian.run(r#"mv "/etc/futae/my vm.toml" '/etc/futae/my\x20vm.toml'"#);
    let unit = r"'futae-serve@my\x20vm'";
    debian.run(&format!("{libvirt} 'my vm' prepare begin -"));
    assert_eq!(debian.property(unit, "ActiveState"), "active");
    debian.run(&format!("{libvirt} 'my vm' release end -"));
    assert_eq!(debian.property(unit, "ActiveState"), "inactive");
    // A guest without its disk does not start.
    debian
        .run("mv /etc/futae/vm1.toml /etc/futae/vm1.whole; echo 'cache = 1' >/etc/futae/vm1.toml");
    debian.fails(&format!("{libvirt} vm1 prepare begin -"));
    debian.fails(&format!("{proxmox} vm1 pre-start"));
    debian.run("mv /etc/futae/vm1.whole /etc/futae/vm1.toml");
}

#[test]
fn a_socket_starts_its_server_and_clients_wait_while_it_restarts() {
    let Some(debian) = debian() else { return };
    let image = image();
    let place = debian.shared("");
    let _ = package("futae-agent", "1.0", &place, &debian.shared("manual"));
    // Both at once, so that no file is in both.
    debian.run("apt-get install --quiet /srv/futae/futae_1.0.deb /srv/futae/futae-agent_1.0.deb; test -x /usr/bin/futae-agent");
    debian.run(
        "install -D -m 644 /usr/share/futae/examples/serve.toml /etc/futae/vm1.toml
         sed -i 's/1GiB/8MiB/; s,/run/futae/vm1/vm1.sock,/run/futae/vm1.sock,' /etc/futae/vm1.toml
         systemctl enable --now futae-serve@vm1.socket",
    );
    assert_eq!(debian.property(UNIT, "ActiveState"), "inactive");
    let path = debian.path("/run/futae/vm1.sock");
    let mut first = Client::connect(&path, "vm1").expect("the socket is there");
    assert_eq!(
        first.read(0, BLOCK).expect("connected").expect("read"),
        &image[..BLOCK]
    );
    assert_eq!(debian.property(UNIT, "ActiveState"), "active");

    // A client that connects while it restarts is not refused once.
    let mut restart = debian
        .command(&format!("systemctl restart {UNIT}"))
        .spawn()
        .expect("it starts");
    let mut clients = 0;
    while restart.try_wait().expect("a child").is_none() || clients == 0 {
        drop(UnixStream::connect(&path).expect("never refused"));
        // It may be the old server that accepts, and is told to end during the handshake.
        let client = Client::connect(&path, "vm1");
        clients += usize::from(client.is_ok_and(|mut client| client.read(0, BLOCK).is_ok()));
    }
    assert_eq!(
        first
            .read(0, BLOCK)
            .expect("its connection outlives the server")
            .expect("read"),
        &image[..BLOCK]
    );
    debian.run(&format!("systemctl kill --signal KILL {UNIT}"));
    let read = || Client::connect(&path, "vm1")?.read(0, BLOCK);
    let read = obtain("the next server answers", read);
    assert_eq!(read.expect("read"), &image[..BLOCK]);
    assert!(
        first.read(0, BLOCK).is_err(),
        "a server that is killed hands nothing on"
    );
    debian.run("apt-get purge --quiet --yes futae futae-agent; test ! -e /usr/bin/futae-agent");
    debian.fails("systemctl is-active futae-serve@vm1.socket");
}

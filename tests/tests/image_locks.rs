//! QEMU's programs and futae keep out of each other's images, and servers out of each other's states.

use futae_tests::binary::futae;
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, has_fuse, has_root, text};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const CACHE: [&str; 2] = ["--cache", "4MiB"];

fn has_qemu_io() -> bool {
    has("qemu-io")
}

fn qemu_io(stage: &Stage, words: &[&str]) -> Output {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]).args(words).arg(&stage.image);
    command.output().expect("qemu-io starts")
}

fn says(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A `qemu-io` that has the image open until it is dropped.
struct Holder(Child);

impl Holder {
    fn new(stage: &Stage, words: &[&str]) -> Self {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]).args(words).arg(&stage.image);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("qemu-io starts");
        let mut orders = child.stdin.as_ref().expect("piped");
        orders.write_all(b"read 0 512\n").expect("it reads");
        let out = BufReader::new(child.stdout.as_mut().expect("piped"));
        let has_read = |line: Result<String, _>| line.is_ok_and(|line| line.contains("512/512"));
        assert!(out.lines().any(has_read), "qemu-io does not open the image");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn qemu_does_not_write_under_a_running_server() {
    if !has_qemu_io() {
        return;
    }
    let mut stage = Stage::new(64);
    stage.serve(&CACHE);
    let before = fs::read(&stage.image).expect("the image");
    let output = qemu_io(&stage, &["-c", "write -P 7 0 4096"]);
    assert!(says(&output).contains("lock"), "{}", says(&output));
    assert!(before == fs::read(&stage.image).expect("the image"));
    // It may read if it knows that somebody writes.
    let output = qemu_io(&stage, &["-U", "-r", "-c", "read 0 4096"]);
    assert!(says(&output).contains("4096/4096"), "{}", says(&output));
    stage.stop_serve();
    let output = qemu_io(&stage, &["-c", "write -P 7 0 4096"]);
    assert!(output.status.success(), "{}", says(&output));
}

#[test]
fn an_image_that_qemu_writes_is_not_served_and_one_that_it_reads_is_served_read_only() {
    if !has_qemu_io() {
        return;
    }
    let stage = Stage::new(64);
    let image = text(&stage.image);
    let writable = format!("{EXPORT}={image}");
    let read_only = format!("{writable},read-only");
    let listen = format!("unix:{}", stage.socket.display());
    let start = |export: &str| {
        let words = ["serve", "--json", "--export", export, "--listen", &listen];
        let mut command = futae(&words);
        command.args(CACHE);
        Running::start("futae serve", command)
    };
    let refused = |export: &str, holder: &Holder| {
        let ended = start(export).wait();
        assert!(!ended.status.success(), "{export} is served");
        let name = format!("in use by another process: qemu-io ({})", holder.0.id());
        assert!(ended.errors.contains(&name), "{}", ended.errors);
    };
    let writer = Holder::new(&stage, &[]);
    refused(&writable, &writer);
    refused(&read_only, &writer);
    drop(writer);
    // It only reads, and lets others write.
    let _reader = Holder::new(&stage, &["-r"]);
    let mut server = start(&read_only);
    server.line();
    let output = qemu_io(&stage, &["-r", "-c", "read 0 4096"]);
    assert!(output.status.success(), "{}", says(&output));
    let output = qemu_io(&stage, &["-c", "write -P 7 0 4096"]);
    assert!(says(&output).contains("lock"), "{}", says(&output));
    let ended = server.stop();
    assert!(ended.status.success(), "{}", ended.errors);
}

/// A FUSE file system whose server never answers, and its root, which this process has open.
struct Silent {
    server: Option<File>,
    _root: OwnedFd,
    place: TempDir,
}

impl Silent {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let server = File::options().read(true).write(true).open("/dev/fuse");
        let server = server.expect("FUSE");
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        let options = CString::new(options).expect("options");
        let flags = MountFlags::empty();
        mount(
            "futae-test",
            place.path(),
            "fuse",
            flags,
            options.as_c_str(),
        )
        .expect("mounted");
        let root = rustix::fs::open(place.path(), OFlags::PATH, Mode::empty());
        Self {
            server: Some(server),
            _root: root.expect("it is there"),
            place,
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // What waits for it fails.
        drop(self.server.take());
        // The directory can then be removed.
        let _ = unmount(self.place.path(), UnmountFlags::DETACH);
    }
}

/// This process has files open that no other one could look at without end.
#[test]
fn the_holder_of_a_lock_is_named_beside_a_file_system_that_hangs() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut stage = Stage::new(64);
    stage.serve(&CACHE);
    let _silent = Silent::new();
    let export = format!("{EXPORT}={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.path("second.sock")));
    let mut second = futae(&["serve", "--export", &export, "--listen", &listen]);
    second.args(CACHE);
    let mut second = Running::start("the second server", second);
    let said = second.try_line().expect_err("it is refused").errors;
    let name = format!("({}); stop that one first", stage.serve_id());
    assert!(said.contains(&name), "{said}");
    stage.stop_serve();
}

/// An overlay of two file systems: `stat` tells another device of its files than their locks do.
struct Overlay(TempDir);

impl Overlay {
    fn new() -> Self {
        let overlay = Self(tempfile::tempdir().expect("a directory"));
        let [lower, top, merged] = ["lower", "top", "merged"].map(|name| {
            let path = overlay.0.path().join(name);
            fs::create_dir(&path).expect("a directory");
            path
        });
        for place in [&lower, &top] {
            mount("none", place, "tmpfs", MountFlags::empty(), None).expect("a file system");
        }
        let [upper, work] = ["upper", "work"].map(|name| {
            let path = top.join(name);
            fs::create_dir(&path).expect("a directory");
            path
        });
        let [lower, upper, work] = [&lower, &upper, &work].map(|path| text(path));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let options = CString::new(options).expect("a text");
        let mounted = mount("none", &merged, "overlay", MountFlags::empty(), &*options);
        mounted.expect("an overlay");
        overlay
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("merged").join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        for place in ["merged", "top", "lower"] {
            // The directory can then be removed.
            let _ = unmount(self.0.path().join(place), UnmountFlags::DETACH);
        }
    }
}

#[test]
fn the_holder_of_a_state_is_named_in_a_container() {
    if !has_root() {
        return;
    }
    let overlay = Overlay::new();
    let mut stage = Stage::new(64);
    let state = overlay.path("state");
    stage.serve(&[&CACHE[..], &["--state", text(&state)]].concat());
    let export = format!("{EXPORT}={}", text(&stage.path("second.img")));
    fs::copy(&stage.image, stage.path("second.img")).expect("a copy");
    let listen = format!("unix:{}", text(&stage.path("second.sock")));
    let mut second = futae(&["serve", "--export", &export, "--listen", &listen]);
    second.args(CACHE).args(["--state", text(&state)]);
    let said = Running::start("the second server", second).wait().errors;
    let name = format!("process {}", stage.serve_id());
    assert!(said.contains(&name), "{said}");
    stage.stop_serve();
}

#[test]
fn two_servers_do_not_save_to_the_same_file() {
    let mut stage = Stage::new(64);
    let [one, two] = ["one.img", "two.img"].map(|name| {
        let path = stage.path(name);
        fs::copy(&stage.image, &path).expect("a copy");
        path
    });
    let own = format!("one={},share=4blocks", text(&one));
    let state = stage.path("state");
    let words = ["--cache", "12blocks", "--export", &own, "--state"];
    let words = [&words[..], &[text(&state)]].concat();
    stage.serve(&words);
    let first = stage.serve_id();
    let listen = format!("unix:{}", text(&stage.path("second.sock")));
    let two = format!("two={}", text(&two));
    // The file of the common cache, and that of an export with a share.
    for state in ["state", "state.one"].map(|name| stage.path(name)) {
        let mut second = futae(&["serve", "--cache", "8blocks", "--export", &two]);
        second.args(["--listen", &listen, "--state", text(&state)]);
        let ended = Running::start("the second server", second).wait();
        let said = ended.errors;
        assert_eq!(ended.status.code(), Some(1), "{said}");
        for part in [
            format!("--state {}:", text(&state)),
            format!("process {first}"),
        ] {
            assert!(said.contains(&part), "{part}: {said}");
        }
    }
    // An export that comes again has its file again, while the server has it.
    for order in [
        r#"{"command":"export-remove","export":"one"}"#.to_owned(),
        serde_json::json!({ "command": "export-add", "export": own }).to_string(),
    ] {
        let answer = stage.order(&order);
        assert!(answer["error"].is_null(), "{answer}");
    }
    stage.kill_serve();
    stage.serve(&words);
    stage.stop_serve();
}

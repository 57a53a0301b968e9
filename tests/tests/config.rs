//! `futae serve --config`, `futae check` and `futae export`: a server from a file, checked, reloaded and told.

use futae_testkit::wait::eventually;
use futae_tests::binary::{futae, run, run_json};
use futae_tests::process::Running;
use futae_tests::tools::text;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

const FILE: &str = r#"# Two exports, one with a cache of its own.
cache = "4MiB"
control = "unix:DIR/control.sock"
json = true

[[export]]
name = "vm1"
source = "DIR/one.img"
share = "1MiB"
listen = "unix:DIR/vm1.sock"

[[export]]
name = "vm2"
source = "DIR/two.img"
read-only = true
listen = ["unix:DIR/vm2.sock"]
"#;

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for image in ["one.img", "two.img"] {
            fs::write(directory.path().join(image), vec![7; 1 << 20]).expect("an image");
        }
        let place = Self { directory };
        place.write(FILE);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the configuration.
    fn write(&self, configuration: &str) {
        let directory = text(self.directory.path());
        let configuration = configuration.replace("DIR", directory);
        fs::write(self.path("serve.toml"), configuration).expect("a file");
    }

    /// Starts the server, whose log goes to `log`.
    fn serve(&self) -> (Running, Value) {
        let mut command = futae(&["serve", "--config", text(&self.path("serve.toml"))]);
        // Past the pipe of the test, so that it can be read while the server runs.
        let log = fs::File::create(self.path("log")).expect("a file");
        let quoted = format!("exec \"$0\" \"$@\" 2>{}", text(&self.path("log")));
        drop(log);
        let (program, arguments) = (command.get_program().to_owned(), command.get_args());
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(quoted).arg(program).args(arguments);
        command = shell;
        command.stdin(Stdio::null());
        let mut running = Running::start("futae serve", command);
        let ready = serde_json::from_str(&running.line()).expect("JSON");
        (running, ready)
    }

    fn logged(&self, what: &str) {
        let log = self.path("log");
        eventually(&format!("the log says {what:?}"), || {
            fs::read_to_string(&log).is_ok_and(|log| log.contains(what))
        });
    }

    fn capacities(&self) -> (u64, u64) {
        let status = run_json(&["top", text(&self.path("control.sock")), "--json"]);
        let blocks = |at: usize| status["engines"][at]["capacity_blocks"].as_u64();
        (blocks(0).expect("a number"), blocks(1).expect("a number"))
    }
}

/// The exit status of `futae check`, and what it says.
fn check(path: &Path) -> (Option<i32>, String) {
    let output = run(&["check", text(path)]);
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn a_server_is_started_from_a_file_told_and_reloaded() {
    let place = Place::new();
    let (mut server, ready) = place.serve();
    assert_eq!(ready["exports"][0]["name"], "vm1", "{ready}");
    assert_eq!(ready["exports"][1]["read_only"], true, "{ready}");
    let uri = ready["exports"][1]["uris"][0].as_str().unwrap_or_default();
    assert!(uri.ends_with("vm2.sock"), "{ready}");
    assert_eq!(place.capacities(), (256, 768));

    let control = format!("unix:{}", text(&place.path("control.sock")));
    let resized = run(&["export", "resize", &control, "vm1", "2MiB"]);
    assert!(resized.status.success(), "{resized:?}");
    assert_eq!(place.capacities(), (512, 768));
    let unknown = run(&["export", "resize", &control, "vm3", "2MiB"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        said.contains("vm3") && unknown.status.code() == Some(1),
        "{said}"
    );

    let changed = FILE
        .replace("\"1MiB\"", "\"3MiB\"")
        .replace("\"4MiB\"", "\"8MiB\"");
    place.write(&format!(
        "seed = 3\n{}",
        changed.replace("read-only = true\n", "")
    ));
    server.signal(Signal::HUP);
    place.logged("2 caches resized, 0 with another policy, 2 changes need a restart");
    place.logged("seed has changed");
    place.logged("export vm2 has changed");
    assert_eq!(place.capacities(), (768, 1280));

    // A cache of its own is made at the next start only; until then the common one keeps its size.
    let parted = changed.replace("read-only = true\n", "share = \"2MiB\"\n");
    place.write(&parted);
    server.signal(Signal::HUP);
    place.logged("0 caches resized, 0 with another policy, 1 changes need a restart");
    assert_eq!(place.capacities(), (768, 1280));

    // One that is to have none any more has it until then, and no other cache takes its memory.
    let joined = changed.replace("share = \"3MiB\"\n", "");
    place.write(&joined.replace("read-only = true\n", ""));
    server.signal(Signal::HUP);
    place.logged("export vm1 has changed");
    assert_eq!(place.capacities(), (768, 1280));

    place.write(&FILE.replace("cache =", "chache ="));
    server.signal(Signal::HUP);
    place.logged("serve.toml:2: chache: no option");
    assert_eq!(place.capacities(), (768, 1280));
    assert!(server.stop().status.success());
}

#[test]
fn exports_come_and_go_with_the_files_that_are_included() {
    let place = Place::new();
    fs::create_dir(place.path("vm.d")).expect("a directory");
    let export = |name: &str, image: &str| {
        let image = place.path(image);
        let text = format!(
            "[[export]]\nname = \"{name}\"\nsource = \"{}\"\n",
            text(&image)
        );
        fs::write(place.path(&format!("vm.d/{name}.toml")), text).expect("a file");
    };
    let main = "include = \"vm.d/*.toml\"\ncache = \"4MiB\"\ncontrol = \"unix:DIR/control.sock\"\n\
                json = true\nlisten = \"unix:DIR/all.sock\"\n";
    place.write(main);
    export("vm1", "one.img");
    let (mut server, ready) = place.serve();
    let names = |value: &Value| {
        let exports = value["exports"].as_array().cloned().unwrap_or_default();
        let names = exports.iter().map(|it| it["name"].to_string());
        names.collect::<Vec<String>>().join(" ")
    };
    assert_eq!(names(&ready), "\"vm1\"", "{ready}");
    export("vm2", "two.img");
    server.signal(Signal::HUP);
    place.logged("1 exports added, 0 removed");
    // A cache of its own is made at the next start, and so is a socket; until then the common cache keeps its blocks.
    let before = fs::read_to_string(place.path("vm.d/vm1.toml")).expect("a file");
    fs::write(
        place.path("vm.d/vm1.toml"),
        format!("{before}share = \"3MiB\"\n"),
    )
    .expect("a file");
    let own = format!(
        "[[export]]\nname = \"own\"\nsource = \"{}\"\nlisten = \"unix:{}\"\n",
        text(&place.path("own.img")),
        text(&place.path("own.sock"))
    );
    fs::write(place.path("own.img"), vec![7; 1 << 20]).expect("an image");
    fs::write(place.path("vm.d/own.toml"), own).expect("a file");
    server.signal(Signal::HUP);
    place.logged("export vm1 has changed");
    place.logged("export own is not added: it has a socket of its own");
    let status = run_json(&["top", text(&place.path("control.sock")), "--json"]);
    assert_eq!(status["engines"][0]["capacity_blocks"], 1024, "{status}");
    assert_eq!(names(&status), "\"vm1\" \"vm2\"", "{status}");
    fs::write(place.path("vm.d/vm1.toml"), before).expect("a file");
    fs::remove_file(place.path("vm.d/own.toml")).expect("removed");
    fs::remove_file(place.path("vm.d/vm1.toml")).expect("removed");
    server.signal(Signal::HUP);
    place.logged("0 exports added, 1 removed");
    let status = run_json(&["top", text(&place.path("control.sock")), "--json"]);
    assert_eq!(names(&status), "\"vm2\"", "{status}");

    fs::write(place.path("vm.d/vm3.toml"), "[[export]]\nname = \"vm3\"\n").expect("a file");
    let (code, said) = check(&place.path("serve.toml"));
    assert_eq!(code, Some(2), "{said}");
    let place_of_error = "vm.d/vm3.toml:1: export: source is missing";
    assert!(said.contains(place_of_error), "{said}");
    server.signal(Signal::HUP);
    place.logged(place_of_error);
    assert!(server.stop().status.success());
}

/// The limits a second of the first export, as the server says them.
fn limits(place: &Place) -> (Option<u64>, Option<u64>) {
    let status = run_json(&["top", text(&place.path("control.sock")), "--json"]);
    let export = &status["exports"][0];
    (
        export["iops_limit"].as_u64(),
        export["bandwidth_limit_bytes"].as_u64(),
    )
}

#[test]
fn limits_a_second_change_by_sighup_and_by_an_order() {
    let place = Place::new();
    let limited =
        |lines: &str| FILE.replace("share = \"1MiB\"\n", &format!("share = \"1MiB\"\n{lines}"));
    place.write(&limited("iops = 500\n"));
    let (mut server, _) = place.serve();
    assert_eq!(limits(&place), (Some(500), None));
    place.write(&limited("bandwidth = \"8MiB\"\niops = 700\n"));
    server.signal(Signal::HUP);
    place.logged(
        "1 with other limits a second, 0 caches resized, 0 with another policy, 0 changes need",
    );
    place.logged("export vm1: at most 700 requests a second, at most 8388608 bytes a second");
    assert_eq!(limits(&place), (Some(700), Some(8 << 20)));
    let control = place.path("control.sock");
    let order =
        |arguments: &[&str]| run(&[&["export", "limit", text(&control)], arguments].concat());
    let told = order(&["vm1", "--bandwidth", "1MiB"]);
    assert_eq!(told.stdout, b"vm1: at most 1MiB a second\n", "{told:?}");
    assert_eq!(limits(&place), (None, Some(1 << 20)));
    assert_eq!(order(&["vm1"]).stdout, b"vm1: no limit\n");
    assert_eq!(limits(&place), (None, None));
    for (wrong, why) in [
        (["vm1", "--iops", "0"], "nothing would be served"),
        (["vm9", "--iops", "1"], "vm9"),
        (["vm1", "--weight", "5"], "start it with --requests-max"),
    ] {
        let told = order(&wrong);
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(
            told.status.code() == Some(1) && said.contains(why),
            "{said}"
        );
    }
    // The file has the last word when it is read again, and nothing has changed in it.
    server.signal(Signal::HUP);
    eventually("the file's limits", || {
        limits(&place) == (Some(700), Some(8 << 20))
    });
    assert!(server.stop().status.success());
}

#[test]
fn a_file_is_checked_beside_the_server_that_uses_it() {
    let place = Place::new();
    let file = place.path("serve.toml");
    let (server, _) = place.serve();
    let (status, said) = check(&file);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("2 exports (vm1, vm2), a cache of 4MiB"),
        "{said}"
    );
    assert!(server.stop().status.success());

    fs::hard_link(place.path("one.img"), place.path("hard.img")).expect("a link");
    symlink("one.img", place.path("soft.img")).expect("a link");
    fs::write(place.path("empty.img"), "").expect("a file");
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    let too_long = format!("DIR/{}.sock", "x".repeat(108));
    for (from, to, code, line) in [
        (
            "share = \"1MiB\"",
            "share = \"5MiB\"",
            2,
            "serve.toml:2: the shares are 5MiB together, more than --cache",
        ),
        (
            "vm2.sock",
            "vm1.sock",
            2,
            "serve.toml:16: --listen vm2=unix:",
        ),
        (
            "DIR/control.sock",
            "DIR/vm1.sock",
            2,
            "serve.toml:3: --control unix:",
        ),
        (
            "json = true",
            "metrics = \"unix:DIR/control.sock\"",
            2,
            "serve.toml:4: --metrics unix:",
        ),
        ("two.img", "hard.img", 2, "serve.toml:12: export vm2: "),
        (
            "two.img",
            "pipe",
            1,
            "is neither a regular file nor a block device",
        ),
        ("two.img", "empty.img", 1, "is empty; give it a size first"),
        (
            "json = true",
            "user = \"nosuchuser\"",
            2,
            "no user of this machine has this name",
        ),
        (
            "two.img",
            "soft.img",
            2,
            "is the same file or server as export vm1",
        ),
        (
            "\"4MiB\"",
            "\"15TiB\"",
            2,
            "serve.toml:2: --cache: a cache of 15TiB is more than",
        ),
        (
            "json = true",
            "policy = \"lruu\"",
            2,
            "serve.toml:4: --policy: ",
        ),
        (
            "json = true",
            "config = \"other.toml\"",
            2,
            "serve.toml:4: config: a file names others by include",
        ),
        (
            "json = true",
            "metrics = \"127.0.0.1:1\"",
            2,
            "its kind is missing (tcp:127.0.0.1:1)",
        ),
        (
            "json = true",
            "include = \".\"",
            2,
            "serve.toml:4: include: ",
        ),
        (
            "share = \"1MiB\"",
            "shares = \"1MiB\"",
            2,
            "serve.toml:9: export: shares",
        ),
        ("\"4MiB\"", "\"4XiB\"", 2, "serve.toml:2: --cache"),
        ("json = true", "json = 1", 2, "serve.toml:4: json"),
        (
            "json = true",
            "demotion = \"maybe\"",
            2,
            "serve.toml:4: invalid value 'maybe'",
        ),
        (
            "read-only = true",
            "weight = 0",
            2,
            "serve.toml:15: export vm2: weight=0: write a number",
        ),
        (
            "read-only = true",
            "weight = 5000",
            2,
            "serve.toml:15: export vm2: weight: write a number from 1 to 1000",
        ),
        (
            "\"1MiB\"",
            "\"1XiB\"",
            2,
            "serve.toml:9: export vm1: share: ",
        ),
        (
            "json = true",
            "memory-file = \"/usr/memory\"",
            1,
            "serve.toml:4: --memory-file /usr/memory: is not on tmpfs",
        ),
        (
            "json = true",
            "memory-file = \"/dev/shm/none/memory\"",
            1,
            "its directory does not exist",
        ),
        (
            "json = true",
            "state = \"DIR/none/state\"",
            1,
            "there is no directory",
        ),
        (
            "json = true",
            "share-equal = true\nevictions-memory = \"off\"",
            2,
            "--share-equal finds",
        ),
        (
            "json = true",
            "verify-evictions = true\npolicy = \"lru\"",
            2,
            "--verify-evictions: nothing",
        ),
        (
            "json = true",
            "evictions-memory = \"100TiB\"",
            2,
            "--evictions-memory: a table of",
        ),
        (
            "json = true",
            "metrics = \"tcp:0.0.0.0:0\"",
            2,
            "--metrics tcp:0.0.0.0:0: other",
        ),
        (
            "json = true",
            "decision-log = \"DIR/none/log\"",
            1,
            "there is no directory",
        ),
        (
            "json = true",
            "state-dir = \"DIR/one.img/marks\"",
            1,
            "one.img is no directory",
        ),
        (
            "unix:DIR/control.sock",
            "tcp:127.0.0.1:1",
            2,
            "serve.toml:3: --control tcp:127.0.0.1:1: a control socket is a unix socket; write unix:PATH",
        ),
        ("one.img", "none.img", 1, "none.img: No such file"),
        (
            "DIR/vm1.sock",
            "DIR/none/vm1.sock",
            1,
            "there is no directory",
        ),
        (
            "DIR/vm1.sock",
            "DIR/one.img",
            1,
            "exists and is not a socket",
        ),
        ("DIR/vm1.sock", too_long.as_str(), 1, "at most 107 bytes"),
        (
            "unix:DIR/vm1.sock",
            "tcp:0.0.0.0:10809",
            1,
            "give --tls-cert",
        ),
    ] {
        place.write(&FILE.replace(from, to));
        let (status, said) = check(&file);
        assert_eq!(status, Some(code), "{to}: {said}");
        assert!(said.contains(line), "{to}: {said}");
    }
    // Two who only read may have one image.
    let read_only = FILE.replace("share =", "read-only = true\nshare =");
    place.write(&read_only.replace("two.img", "hard.img"));
    let (status, said) = check(&file);
    assert_eq!(status, Some(0), "{said}");
    place.write("total = \"1GiB\"\n[[guest]]\nname = \"a\"\n");
    let (status, said) = check(&file);
    assert!(status == Some(2) && said.contains("minimum"), "{said}");
    let (status, said) = check(&place.path("nothing.toml"));
    assert!(status == Some(1) && said.contains("nothing.toml"), "{said}");
}

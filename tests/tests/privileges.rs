//! What a server has given up once it serves: `--user` and `--seccomp`.

use futae_testkit::nbd::Plain as Client;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run};
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has_root, text};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// A field of the status of every thread of a process.
fn of_threads(process: u32, field: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let statuses = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let start = format!("{field}:");
    let value = |status: String| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .map(str::trim);
        line.expect("the field").to_owned()
    };
    statuses.map(value).collect()
}

fn serve(stage: &Stage, more: &[&str]) -> Running {
    started(serving(stage, more))
}

fn started(command: Command) -> Running {
    let mut server = Running::start("futae serve", command);
    server.line();
    server
}

fn serving(stage: &Stage, more: &[&str]) -> Command {
    let export = format!("{EXPORT}={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.socket));
    let control = format!("unix:{}", text(&stage.control));
    let mut command = futae(&["serve", "--policy", "lru", "--export", &export]);
    if !more.contains(&"--cache") {
        command.args(["--cache", "1MiB"]);
    }
    command
        .args(["--listen", &listen, "--control", &control])
        .args(more);
    command
}

fn write_and_read(socket: &Path, export: &str) {
    let mut client = Client::connect(socket, export).expect("connected");
    let data = vec![0x5a; BLOCK];
    client.write(0, &data).expect("connected").expect("written");
    client.flush().expect("connected").expect("flushed");
    let read = client.read(0, BLOCK).expect("connected").expect("read");
    assert_eq!(read, data);
    // What the cache does not have, by io_uring.
    for block in 1..64u64 {
        client
            .read(block * BLOCK as u64, BLOCK)
            .expect("connected")
            .expect("read");
    }
}

#[test]
fn a_server_goes_on_as_another_user_without_a_right_of_root() {
    if !has_root() {
        return;
    }
    let stage = Stage::new(64);
    let place = stage.image.parent().expect("a directory");
    // The user may pass, and own its images.
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).expect("passable");
    let (own, of_root) = (stage.path("own.img"), stage.path("root.img"));
    for image in [&own, &of_root] {
        fs::copy(&stage.image, image).expect("a copy");
        fs::set_permissions(image, fs::Permissions::from_mode(0o600)).expect("private");
    }
    let nobody = run_id("-u", "nobody");
    chown(&own, Some(nobody), None).expect("given away");
    fs::set_permissions(&stage.image, fs::Permissions::from_mode(0o600)).expect("private");
    let server = serve(&stage, &["--user", "nobody", "--seccomp"]);
    for (field, expected) in [
        ("Uid", format!("{nobody}\t{nobody}\t{nobody}\t{nobody}")),
        ("CapEff", "0000000000000000".to_owned()),
        ("CapPrm", "0000000000000000".to_owned()),
        ("NoNewPrivs", "1".to_owned()),
        ("Seccomp", "2".to_owned()),
    ] {
        let all = of_threads(server.id(), field);
        assert!(
            !all.is_empty() && all.iter().all(|value| *value == expected),
            "{field}: {all:?}"
        );
    }
    let groups = of_threads(server.id(), "Groups");
    let group = run_id("-g", "nobody").to_string();
    assert!(
        groups
            .iter()
            .all(|groups| groups.split_whitespace().all(|one| one == group)),
        "{groups:?}"
    );
    // The image of root was opened before.
    write_and_read(&stage.socket, EXPORT);

    let add = |export: &str| run(&["export", "add", text(&stage.control), export]);
    let refused = add(&format!("root={}", text(&of_root)));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("Permission denied"),
        "{said}"
    );
    let added = add(&format!("own={}", text(&own)));
    assert!(added.status.success(), "{added:?}");
    let twice = add(&format!("twice={}", text(&own)));
    let said = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(
        said.contains("own.img is the same file or server as export own"),
        "{said}"
    );
    write_and_read(&stage.socket, "own");
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fs::read(&own).expect("the image")[..BLOCK], [0x5a; BLOCK]);
    // Its socket is left behind in a directory of root, and the next server takes the place.
    let again = serve(&stage, &[]);
    write_and_read(&stage.socket, EXPORT);
    assert!(again.stop().status.success());
}

/// Marks of unwritten data are made by the user that the server goes on as.
#[test]
fn a_mark_that_the_other_user_cannot_make_is_refused_at_the_start() {
    if !has_root() {
        return;
    }
    let stage = Stage::new(64);
    let place = stage.image.parent().expect("a directory");
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).expect("passable");
    let back = ["--write-mode", "write-back", "--user", "nobody"];
    let state = stage.path("state");
    let export = format!("{EXPORT}={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.socket));
    let words = [
        "serve", "--cache", "1MiB", "--policy", "lru", "--export", &export, "--listen", &listen,
    ];
    let refused = run(&[&words[..], &back[..]].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("futae-unclean cannot be made: Permission denied")
            && said.contains("--state-dir"),
        "{said}"
    );
    assert!(!stage.socket.exists());
    // A directory that the server makes is for that user.
    let server = serve(
        &stage,
        &[&back[..], &["--state-dir", text(&state)]].concat(),
    );
    let mut client = Client::connect(&stage.socket, EXPORT).expect("connected");
    let marks = || fs::read_dir(&state).expect("a directory").count();
    // Until the mark is there, writes go to the disk.
    eventually("a write is not on the disk yet", || {
        let write = client.write(0, &[7; BLOCK]);
        write.expect("connected").expect("written");
        marks() == 1
    });
    assert!(server.stop().status.success());
    assert_eq!(marks(), 0);
    assert_eq!(
        fs::read(&stage.image).expect("the image")[..BLOCK],
        [7; BLOCK]
    );
}

/// Where marks are not made, a server need not be allowed to look for them.
#[test]
fn a_state_directory_of_another_user_is_no_obstacle() {
    if !has_root() {
        return;
    }
    let stage = Stage::new(64);
    let place = stage.image.parent().expect("a directory");
    let nobody = run_id("-u", "nobody");
    let own = stage.path("own.img");
    fs::copy(&stage.image, &own).expect("a copy");
    for path in [place, &stage.image, &own] {
        chown(path, Some(nobody), None).expect("given away");
    }
    let state = stage.path("state");
    fs::create_dir(&state).expect("a directory");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("private");
    let back = ["--write-mode", "write-back", "--user", "nobody"];
    let mut command = serving(&stage, &back);
    command.env("STATE_DIRECTORY", &state);
    let server = started(command);
    let export = format!("own={}", text(&own));
    let added = run(&["export", "add", text(&stage.control), &export]);
    assert!(added.status.success(), "{added:?}");
    write_and_read(&stage.socket, "own");
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.errors.contains("cannot be seen"), "{}", ended.errors);
}

/// What an export's own cache had is there again for the next server, also if it was made, or opened again, by the user that the server
/// goes on as.
#[test]
fn memory_of_an_added_export_is_kept_for_the_next_server() {
    if !has_root() {
        return;
    }
    let stage = Stage::new(64);
    let place = stage.image.parent().expect("a directory");
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).expect("passable");
    let own = stage.path("own.img");
    fs::copy(&stage.image, &own).expect("a copy");
    chown(&own, Some(run_id("-u", "nobody")), None).expect("given away");
    // As /dev/shm is.
    let shared = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).expect("shared");
    let memory = shared.path().join("memory");
    let kept = ["--user", "nobody", "--memory-file", text(&memory)];
    let export = format!("own={},share=1MiB", text(&own));
    let order = |words: &[&str]| {
        let said = run(&[&["export", words[0], text(&stage.control)], &words[1..]].concat());
        assert!(said.status.success(), "{words:?}: {said:?}");
    };
    let found = || {
        let status = run(&["top", "--json", text(&stage.control)]);
        let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        let caches = status["engines"].as_array().expect("caches");
        let found = caches.iter().map(|cache| &cache["memory_found_blocks"]);
        found
            .map(|blocks| blocks.as_u64().unwrap_or_default())
            .sum::<u64>()
    };
    let server = serve(&stage, &kept);
    order(&["add", &export]);
    write_and_read(&stage.socket, "own");
    assert!(server.stop().status.success());

    let with_own = [&["--cache", "2MiB", "--export", &export], &kept[..]].concat();
    let server = serve(&stage, &with_own);
    assert_eq!(found(), 64);
    order(&["remove", "own"]);
    order(&["add", &export]);
    write_and_read(&stage.socket, "own");
    assert!(server.stop().status.success());
}

/// A number of a user, by id(1).
fn run_id(what: &str, user: &str) -> u32 {
    let output = futae_tests::tools::run("id", &[what, user]);
    let number = String::from_utf8_lossy(&output.stdout).trim().parse();
    number.expect("a number")
}

#[test]
fn users_that_are_not_there_are_named() {
    let stage = Stage::new(8);
    let export = format!("{EXPORT}={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.socket));
    let words = [
        "serve",
        "--cache",
        "1MiB",
        "--export",
        &export,
        "--listen",
        &listen,
        "--user",
        "nemo-nusquam",
    ];
    let output = run(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--user nemo-nusquam: no user of this machine"),
        "{said}"
    );
    assert!(!stage.socket.exists());
}

/// Everything that changes while a server runs works under the filter.
#[test]
fn a_filtered_server_is_told_and_reloaded() {
    let stage = Stage::new(64);
    let path = |name: &str| text(&stage.path(name)).to_owned();
    let second = path("second.img");
    fs::copy(&stage.image, &second).expect("a copy");
    let file = stage.path("serve.toml");
    let first = format!(
        "cache = \"1MiB\"\nseccomp = true\nmetrics = \"unix:{}\"\nlisten = \"unix:{}\"\ncontrol = \"unix:{}\"\n\
         [[export]]\nname = \"{EXPORT}\"\nsource = \"{}\"\n",
        path("metrics.sock"),
        text(&stage.socket),
        text(&stage.control),
        text(&stage.image)
    );
    fs::write(&file, &first).expect("a file");
    let mut server = Running::start("futae serve", futae(&["serve", "--config", text(&file)]));
    server.line();
    assert!(
        of_threads(server.id(), "Seccomp")
            .iter()
            .all(|mode| mode == "2")
    );
    fs::write(
        &file,
        format!("{first}[[export]]\nname = \"second\"\nsource = \"{second}\"\n"),
    )
    .expect("a file");
    server.signal(rustix::process::Signal::HUP);
    eventually("the second export", || {
        Client::connect(&stage.socket, "second").is_ok()
    });
    write_and_read(&stage.socket, "second");
    write_and_read(&stage.socket, EXPORT);
    for order in [
        &["export", "resize", text(&stage.control), EXPORT, "2MiB"][..],
        &["policy", text(&stage.control), EXPORT, "arc"],
        &["export", "remove", text(&stage.control), "second"],
    ] {
        let told = run(order);
        assert!(told.status.success(), "{order:?}: {told:?}");
    }
    assert!(server.stop().status.success());
    assert!(!stage.socket.exists(), "sockets are removed");
}

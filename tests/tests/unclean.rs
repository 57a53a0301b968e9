//! What a client learns when a server that wrote back was killed, and the client reconnects by itself.

use futae_testkit::nbd::{Outcome as Answer, Plain as Client};
use futae_testkit::wait::{eventually, obtain};
use futae_tests::BLOCK;
use futae_tests::binary::futae;
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{Need, has, has_fuse, has_root, run, skip, text};
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::symlink;

/// Nothing but a flush brings anything to the image.
const LATE: [&str; 10] = [
    "--cache",
    "16MiB",
    "--policy",
    "lru",
    "--write-mode",
    "write-back",
    "--dirty-max",
    "100%",
    "--dirty-age-max",
    "1h",
];
const THROUGH: [&str; 4] = ["--cache", "16MiB", "--policy", "lru"];
const BLOCKS: u64 = 2048;
const MARK: &str = ".disk.img.futae-unclean";

fn connect(stage: &Stage) -> Client {
    Client::connect(&stage.socket, EXPORT).expect("a connection")
}

fn good(answer: Answer<()>) {
    answer.expect("a connection").expect("a good answer");
}

fn is_refused(answer: Answer<()>) -> bool {
    answer.expect("a connection").is_err()
}

fn volume(stage: &Stage) -> serde_json::Value {
    stage.status()["engines"][0]["volumes"][0].clone()
}

/// Waits until the server keeps writes: from then on no write goes through.
fn fill(stage: &Stage, client: &mut Client) -> u64 {
    let block = [7; BLOCK];
    let mut blocks = (0..BLOCKS / 2).cycle();
    obtain("writes are kept", || {
        let at = blocks.next().unwrap_or_default();
        good(client.write(at * BLOCK as u64, &block));
        let dirty = volume(stage)["dirty_blocks"].as_u64().expect("a number");
        (dirty >= 8).then_some(dirty).ok_or(format!("only {dirty}"))
    })
}

#[test]
fn the_first_flush_after_a_kill_fails_and_the_second_does_not() {
    let mut stage = Stage::new(BLOCKS);
    for (back_again, words) in [(true, &LATE[..]), (false, &THROUGH[..])] {
        stage.serve(&LATE);
        let mut client = connect(&stage);
        fill(&stage, &mut client);
        assert!(stage.path(MARK).exists(), "dirty and unmarked");
        stage.kill_serve();
        stage.serve(words);
        assert_eq!(volume(&stage)["unclean"], true);
        let mut client = connect(&stage);
        assert!(
            is_refused(client.flush()),
            "a flush says that lost data is safe"
        );
        good(client.flush());
        assert_eq!(volume(&stage)["unclean"], false);
        // Once it is known and nothing is dirty, the mark goes by itself.
        eventually(&format!("the mark goes, {back_again}"), || {
            !stage.path(MARK).exists()
        });
        drop(client);
        stage.kill_serve();
    }
    stage.serve(&THROUGH);
    good(connect(&stage).flush());
    stage.stop_serve();
}

/// Gives a mark the look of one that was made before this machine was started. How many lines said which start it was.
fn age_mark(stage: &Stage) -> usize {
    let boot =
        fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a kernel that says it");
    let note = fs::read_to_string(stage.path(MARK)).expect("a mark");
    let old = note.replace(boot.trim(), "00000000-1111-2222-3333-444444444444");
    fs::write(stage.path(MARK), &old).expect("room");
    note.lines()
        .filter(|line| line.contains(boot.trim()))
        .count()
}

#[test]
fn clients_that_ended_with_their_machine_need_not_be_told() {
    if fs::metadata("/etc/machine-id").is_err() {
        skip(Need::Systemd, "this machine has no /etc/machine-id");
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&LATE);
    fill(&stage, &mut connect(&stage));
    stage.kill_serve();
    assert_eq!(age_mark(&stage), 1);
    // Of a cache that writes through, too.
    for words in [&LATE[..], &THROUGH[..]] {
        let mut server = Server::start(&stage, words);
        server.ready();
        good(connect(&stage).flush());
        let errors = server.stop();
        let is_told = errors.contains("not flushed") && errors.contains("started again");
        assert_eq!(is_told, words == LATE, "{errors}");
        assert!(!stage.path(MARK).exists(), "it is of no use any more");
    }
}

#[test]
fn a_client_of_another_machine_is_told_though_this_one_was_started_again() {
    let mut stage = Stage::new(BLOCKS);
    let mut networked = LATE.to_vec();
    networked.extend(["--listen", "tcp:127.0.0.1:0"]);
    stage.serve(&networked);
    fill(&stage, &mut connect(&stage));
    stage.kill_serve();
    assert_eq!(age_mark(&stage), 0, "its clients may be there yet");
    stage.serve(&LATE);
    let mut client = connect(&stage);
    assert!(is_refused(client.flush()));
    good(client.flush());
    stage.kill_serve();
}

/// What an earlier server's mark says of its clients is not true of those of the next server, which keeps the mark until somebody has
/// been told, and writes while it is there.
#[test]
fn clients_of_another_machine_are_told_though_the_mark_was_made_for_those_of_this_one() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&LATE);
    fill(&stage, &mut connect(&stage));
    stage.kill_serve();
    let mut networked = LATE.to_vec();
    networked.extend(["--listen", "tcp:127.0.0.1:0"]);
    stage.serve(&networked);
    fill(&stage, &mut connect(&stage));
    stage.kill_serve();
    assert_eq!(
        age_mark(&stage),
        0,
        "clients of the second server may be there yet"
    );
    stage.serve(&LATE);
    let mut client = connect(&stage);
    assert!(is_refused(client.flush()));
    good(client.flush());
    stage.kill_serve();
}

/// A server that keeps the option after the guest has come is killed, and started again as it was.
#[test]
fn a_guest_that_came_from_another_server_is_told_of_what_this_one_lost() {
    let stage = Stage::new(BLOCKS);
    let source = format!("{},incoming", text(&stage.image));
    for words in [&LATE[..], &THROUGH[..]] {
        let mut server = Server::start_over(&stage, &source, &LATE);
        server.ready();
        fill(&stage, &mut connect(&stage));
        server.kill();
        let mut server = Server::start_over(&stage, &source, words);
        server.ready();
        let mut client = connect(&stage);
        assert!(is_refused(client.flush()));
        good(client.flush());
        drop(client);
        server.stop_that_told();
        assert!(!stage.path(MARK).exists());
    }
}

/// The server that a guest is to leave is killed before, and the guest comes nevertheless.
#[test]
fn a_guest_is_told_of_what_the_server_that_it_left_has_lost() {
    let mut there = Stage::new(BLOCKS);
    there.serve(&LATE);
    fill(&there, &mut connect(&there));
    let here = Stage::bare();
    let source = format!("{},incoming", text(&there.image));
    let mut server = Server::start_over(&here, &source, &LATE);
    server.ready();
    let mut client = connect(&here);
    good(client.flush());
    there.kill_serve();
    fill(&here, &mut client);
    assert!(is_refused(client.flush()));
    good(client.flush());
    drop(client);
    server.stop_that_told();
    assert!(!there.path(MARK).exists());
}

#[test]
fn a_write_with_fua_learns_it_as_a_flush_does() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&LATE);
    fill(&stage, &mut connect(&stage));
    stage.kill_serve();
    stage.serve(&LATE);
    let mut client = connect(&stage);
    let block = [9; BLOCK];
    good(client.write(0, &block));
    assert!(is_refused(client.write_fua(0, &block)));
    good(client.write_fua(0, &block));
    good(client.flush());
    stage.kill_serve();
}

#[test]
fn a_clean_end_leaves_no_mark_and_an_end_without_a_word_to_a_client_keeps_it() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&LATE);
    let mut client = connect(&stage);
    fill(&stage, &mut client);
    drop(client);
    stage.stop_serve();
    assert!(!stage.path(MARK).exists(), "clean and marked");
    stage.serve(&LATE);
    let mut client = connect(&stage);
    good(client.flush());
    fill(&stage, &mut client);
    stage.kill_serve();
    // No client flushes under this one: the next one still has to tell.
    let mut silent = Server::start(&stage, &LATE);
    silent.ready();
    let errors = silent.stop();
    assert!(
        errors.contains("not flushed") && errors.contains(EXPORT),
        "{errors}"
    );
    assert!(stage.path(MARK).exists(), "nobody knows of it");
    stage.serve(&LATE);
    let mut client = connect(&stage);
    assert!(is_refused(client.flush()));
    good(client.flush());
    stage.kill_serve();
}

/// A program that others' closes came before: a child's, which ends, and those of a foreign one.
#[test]
fn closes_do_not_use_up_what_a_flush_has_to_say() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&LATE);
    // To start a program closes its copies of this process's files, which is not to wait for the server.
    stage.mount(&["--cache", "1MiB", "--store-timeout", "0"]);
    let path = stage.file();
    let open = || fs::File::options().read(true).write(true).open(&path);
    let file = open().expect("it opens");
    file.write_all_at(&[1; BLOCK], 0).expect("written");
    file.sync_all().expect("synced");
    file.write_all_at(&[2; BLOCK], 0).expect("written");
    stage.kill_serve();
    stage.serve(&LATE);
    // A read makes the mount connect again.
    obtain("the mount is back", || {
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, BLOCK as u64 * (BLOCKS - 1))
    });
    for _ in 0..4 {
        drop(open().expect("it opens"));
    }
    assert!(file.sync_all().is_err(), "the write may be lost");
    obtain("the loss is told once for each cache", || file.sync_all());
    drop(file);
    stage.stop_mount_that_said("a flush failed");
    stage.stop_serve_that_said("the first FLUSH");
}

#[test]
fn an_operator_can_accept_the_loss() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&LATE);
    fill(&stage, &mut connect(&stage));
    stage.kill_serve();
    let mut server = Server::start(&stage, &[&LATE[..], &["--accept-lost-writes"]].concat());
    server.ready();
    good(connect(&stage).flush());
    let errors = server.stop();
    assert!(errors.contains("accepted"), "{errors}");
    assert!(!stage.path(MARK).exists());
}

#[test]
fn marks_of_what_is_no_file_are_in_the_state_directory() {
    let mut below = Stage::new(BLOCKS);
    below.serve(&THROUGH);
    let stage = Stage::bare();
    let state = stage.path("state");
    let words = [&LATE[..], &["--state-dir", state.to_str().expect("UTF-8")]].concat();
    let uri = below.uri();
    let mut server = Server::start_over(&stage, &uri, &words);
    server.ready();
    let mut client = connect(&stage);
    fill(&stage, &mut client);
    let marks = || fs::read_dir(&state).expect("the directory").count();
    // Under the name as it is written, and as it is.
    assert_eq!(marks(), 2);
    server.kill();
    let mut server = Server::start_over(&stage, &uri, &words);
    server.ready();
    let mut client = connect(&stage);
    assert!(is_refused(client.flush()));
    good(client.flush());
    drop(client);
    server.stop();
    assert_eq!(marks(), 0);
}

/// Leaves unwritten data of the source under `first`, and says whether the server of it under `second` tells.
fn tells_under_another_name(first: &str, second: &str) -> bool {
    let stage = Stage::bare();
    let state = stage.path("state");
    let words = [&LATE[..], &["--state-dir", state.to_str().expect("UTF-8")]].concat();
    let mut server = Server::start_over(&stage, first, &words);
    server.ready();
    fill(&stage, &mut connect(&stage));
    server.kill();
    let mut server = Server::start_over(&stage, second, &words);
    server.ready();
    let mut client = connect(&stage);
    let tells = is_refused(client.flush());
    good(client.flush());
    drop(client);
    server.stop();
    assert_eq!(fs::read_dir(&state).expect("the directory").count(), 0);
    tells
}

#[test]
fn the_mark_of_a_socket_is_found_under_another_name_of_it() {
    let mut below = Stage::new(BLOCKS);
    below.serve(&THROUGH);
    let link = below.path("link.sock");
    symlink(&below.socket, &link).expect("a link");
    let other = format!("nbd+unix:///{EXPORT}?socket={}", link.display());
    assert!(tells_under_another_name(&below.uri(), &other));
    assert!(tells_under_another_name(&other, &below.uri()));
}

#[test]
fn the_mark_of_a_device_is_found_under_another_name_and_a_device_that_refuses_writes_is_said_to() {
    let tools = ["losetup", "blockdev"];
    if !has_root() || !tools.iter().all(|tool| has(tool)) {
        return;
    }
    let image = Stage::new(BLOCKS);
    let attached = run("losetup", &["--find", "--show", text(&image.image)]);
    let device = Detached(String::from_utf8_lossy(&attached.stdout).trim().to_owned());
    let link = image.path("device");
    symlink(&device.0, &link).expect("a link");
    assert!(tells_under_another_name(&device.0, text(&link)));
    assert!(tells_under_another_name(text(&link), &device.0));

    let stage = Stage::bare();
    let state = stage.path("state");
    let words = [&LATE[..], &["--state-dir", text(&state)]].concat();
    let mut server = Server::start_over(&stage, &device.0, &words);
    server.ready();
    let mut client = connect(&stage);
    fill(&stage, &mut client);
    run("blockdev", &["--setro", &device.0]);
    assert!(is_refused(client.flush()));
    drop(client);
    let ended = server.running.stop();
    assert!(
        ended.errors.contains("a write-back failed"),
        "{}",
        ended.errors
    );
    let ended = Server::start_over(&stage, &device.0, &words).running.wait();
    assert!(!ended.status.success());
    assert!(
        ended.errors.contains("is a read-only device"),
        "{}",
        ended.errors
    );
}

/// A loop device that may be written again, and is detached, when the test ends.
struct Detached(String);

impl Drop for Detached {
    fn drop(&mut self) {
        // The kernel keeps that it may not be written for the next one who gets this device.
        run("blockdev", &["--setrw", &self.0]);
        run("losetup", &["--detach", &self.0]);
    }
}

#[test]
fn where_no_mark_can_be_made_nothing_is_written_back() {
    let stage = Stage::new(BLOCKS);
    let words = [&LATE[..], &["--state-dir", "/proc/self/futae"]].concat();
    let ended = Server::start(&stage, &words).running.wait();
    assert!(!ended.status.success());
    let says = |word: &str| ended.errors.contains(word);
    assert!(
        says("--state-dir") && says("write-through"),
        "{}",
        ended.errors
    );
    let words = [&THROUGH[..], &["--state-dir", "/proc/self/futae"]].concat();
    let mut server = Server::start(&stage, &words);
    server.ready();
    server.stop();
}

/// A server whose standard error is looked at.
struct Server {
    running: Running,
}

impl Server {
    fn start(stage: &Stage, words: &[&str]) -> Self {
        Self::start_over(stage, stage.image.to_str().expect("UTF-8"), words)
    }

    fn start_over(stage: &Stage, source: &str, words: &[&str]) -> Self {
        let export = format!("{EXPORT}={source}");
        let listen = format!("unix:{}", stage.socket.display());
        let control = format!("unix:{}", stage.control.display());
        let mut command = futae(&["serve", "--json", "--export", &export, "--listen", &listen]);
        command.args(["--control", &control]).args(words);
        let running = Running::start("futae serve", command);
        Self { running }
    }

    fn ready(&mut self) {
        self.running.line();
    }

    fn stop(self) -> String {
        let ended = self.running.stop();
        assert!(ended.status.success(), "{}", ended.errors);
        ended.errors
    }

    /// Stops it, whatever it has said.
    fn stop_that_told(self) {
        assert!(self.running.stop().status.success());
    }

    fn kill(self) {
        self.running.kill();
    }
}

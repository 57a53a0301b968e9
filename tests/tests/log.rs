//! What `futae serve` and `futae mount` write to standard error for an operator.

use futae_testkit::nbd::Plain as Client;
use futae_tests::binary::futae;
use futae_tests::process::{Ended, Running};
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::has_fuse;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// Serves the image of a stage with a log that is set up so, has one client come and go, and ends.
fn serve(stage: &Stage, arguments: &[&str], wish: Option<&str>) -> Ended {
    let export = format!("{EXPORT}={}", stage.image.display());
    let listen = format!("unix:{}", stage.socket.display());
    let mut command = futae(&["serve", "--json", "--cache", "1MiB", "--export", &export]);
    command.args(["--listen", &listen]).args(arguments);
    match wish {
        Some(wish) => command.env("RUST_LOG", wish),
        None => command.env_remove("RUST_LOG"),
    };
    let mut running = Running::start("futae serve", command);
    running.line();
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    client.read(0, 4096).expect("a connection").expect("data");
    drop(client);
    running.stop()
}

#[test]
fn lines_of_json_can_be_read_by_a_program() {
    let ended = serve(&Stage::new(64), &["--log-format", "json"], None);
    let lines = ended.errors.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<_> = lines.collect::<Result<_, _>>().expect("each line is JSON");
    for line in &lines {
        for key in ["time", "level", "target", "message"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
        assert!(line["fields"].is_object(), "{line}");
        assert_eq!(line["level"], "info", "nothing is wrong: {line}");
    }
    let policy = lines
        .iter()
        .find(|line| line["fields"]["policy"].is_string());
    let policy = policy.expect("it says what its cache does");
    let message = policy["message"].as_str().expect("a message");
    assert!(message.contains("caches what is served until"), "{message}");
    let last = lines.last().expect("a last line");
    assert!(last["fields"]["flushed_seconds"].is_number(), "{last}");
}

#[test]
fn connections_are_shown_to_those_who_ask() {
    let usual = serve(&Stage::new(64), &[], None).errors;
    assert!(!usual.contains("opened export"), "{usual}");
    let debug = serve(&Stage::new(64), &[], Some("debug")).errors;
    assert!(debug.contains("opened export disk"), "{debug}");
    assert!(
        debug.contains("left export disk after 1 requests"),
        "{debug}"
    );
    let quiet = serve(&Stage::new(64), &[], Some("warn")).errors;
    assert_eq!(quiet, "");
    let wrong = serve(&Stage::new(64), &[], Some("a=b=c")).errors;
    assert!(wrong.contains("RUST_LOG=a=b=c"), "{wrong}");
}

#[test]
fn the_journal_gets_priorities_instead_of_times() {
    let stage = Stage::new(64);
    let log = stage.path("journal");
    let file = fs::File::create(&log).expect("a file");
    let about = file.metadata().expect("a file");
    let image = stage.image.display();
    let mut command = futae(&[
        "serve",
        "--cache",
        "1MiB",
        "--export",
        &format!("a={image}"),
    ]);
    let listen = format!("unix:{}", stage.socket.display());
    command.args(["--listen", &listen]).stdout(Stdio::piped());
    command.env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()));
    let mut child = command.stderr(file).spawn().expect("it starts");
    while !stage.socket.exists() {
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
        std::thread::yield_now();
    }
    let stopped = Command::new("kill").arg(child.id().to_string()).status();
    assert!(stopped.is_ok_and(|status| status.success()));
    assert!(child.wait().expect("a child").success());
    let text = fs::read_to_string(&log).expect("lines");
    assert!(text.lines().count() > 1, "{text}");
    let is_prefixed = |line: &str| line.starts_with("<6>INFO futae");
    assert!(text.lines().all(is_prefixed), "{text}");
}

#[test]
fn a_container_that_is_served_as_it_is_is_warned_of() {
    let stage = Stage::new(64);
    fs::write(
        &stage.image,
        [b"QFI\xfb".as_slice(), &[0; (1 << 18) - 4]].concat(),
    )
    .expect("an image");
    let errors = serve(&stage, &[], None).errors;
    let warnings: Vec<_> = errors
        .lines()
        .filter(|line| line.contains(" WARN "))
        .collect();
    assert_eq!(warnings.len(), 1, "{errors}");
    let says = |words: &str| assert!(warnings[0].contains(words), "{words}: {errors}");
    says("looks like a qcow2 image");
    says("qemu-img convert");
}

#[test]
fn a_store_that_is_lost_and_back_is_in_the_log() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(64);
    stage.serve(&["--cache", "1MiB"]);
    stage.mount(&["--cache", "1MiB", "--store-timeout", "30"]);
    stage.kill_serve();
    stage.serve(&["--cache", "1MiB"]);
    // Waits for the new connection.
    fs::read(stage.file()).expect("it is served again");
    stage.stop_mount_that_said("connected again after");
    stage.stop_serve();
}

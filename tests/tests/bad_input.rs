//! Whatever is asked wrongly gets one sentence that names it, exit status 1 or 2, and leaves
//! nothing behind.

use futae_tests::binary::{binary, futae, run};
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage, is_mountpoint};
use futae_tests::tools::{has_fuse, text, without_fuse};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs;
use std::os::fd::AsRawFd;
use std::process::Output;

/// A command line, its exit status, and what its one line of complaint must contain.
struct Case<'a> {
    arguments: Vec<&'a str>,
    status: i32,
    contains: &'a [&'a str],
}

fn case<'a>(arguments: &[&'a str], status: i32, contains: &'a [&'a str]) -> Case<'a> {
    Case {
        arguments: arguments.to_vec(),
        status,
        contains,
    }
}

fn check_output(output: &Output, case: &Case<'_>) {
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let what = format!("futae {}\n{complaint}", case.arguments.join(" "));
    assert_eq!(output.status.code(), Some(case.status), "{what}");
    assert_eq!(complaint.lines().count(), 1, "one line, not more: {what}");
    assert!(complaint.starts_with("futae: "), "{what}");
    for expected in case.contains {
        assert!(
            complaint.contains(expected),
            "does not say {expected:?}: {what}"
        );
    }
    assert!(output.stdout.is_empty(), "says more on its output: {what}");
}

/// Runs every case; afterwards nothing is mounted and there is no socket.
fn check(stage: &Stage, cases: &[Case<'_>]) {
    for case in cases {
        check_output(&run(&case.arguments), case);
        let what = case.arguments.join(" ");
        assert!(!is_mountpoint(&stage.mountpoint), "still mounted: {what}");
        assert!(!stage.socket.exists(), "a socket is left: {what}");
        assert!(!stage.control.exists(), "a control socket is left: {what}");
    }
}

#[test]
fn sim() {
    let two = ["--level", "lru:1GiB", "--level", "exclusive:1GiB"];
    let sim = |rest: &[&'static str]| [&["sim"], rest].concat();
    let with = |workload: &'static str| [&["sim", workload][..], &two].concat();
    let cases = [
        case(&with("unifrom:10GiB"), 2, &["unifrom", "uniform"]),
        case(&with("uniform:10GB"), 2, &["10GB"]),
        case(&with("uniform:10000"), 2, &["10000"]),
        case(&with("zipf(exponent):1GiB"), 2, &["zipf(exponent)"]),
        case(&with("/etc/passwd"), 2, &["/etc/passwd"]),
        case(&sim(&["uniform:1GiB"]), 2, &["--level"]),
        case(
            &sim(&["uniform:1GiB", "--level", "lru"]),
            2,
            &["\"lru\"", "POLICY:SIZE"],
        ),
        case(
            &sim(&["uniform:1GiB", "--level", "lruu:1MiB"]),
            2,
            &["lruu", "lru"],
        ),
        case(
            &sim(&["uniform:1GiB", "--level", "exklusive:1MiB"]),
            2,
            &["exclusive"],
        ),
        case(&sim(&["uniform:1GiB", "--level", "lru:6000"]), 2, &["6000"]),
        case(&sim(&["uniform:1GiB", "--level", "lru:0"]), 2, &["lru:0"]),
        case(
            &sim(&["uniform:1MiB", "--level", "lru:1%", "--windows", "4"]),
            2,
            &["--windows", "--json"],
        ),
        case(
            &sim(&["uniform:1GiB", "--level", "lru(k=1):1MiB"]),
            2,
            &["\"k\""],
        ),
        case(
            &[&with("uniform:1GiB")[..], &["--block", "5000"]].concat(),
            2,
            &["5000"],
        ),
        case(
            &[&with("uniform:1GiB")[..], &["--guests", "0"]].concat(),
            2,
            &["guest"],
        ),
        case(
            &[&with("uniform:1GiB")[..], &["--ttl", "1h"]].concat(),
            2,
            &["--ttl", "--objects"],
        ),
        case(
            &[&with("uniform:1GiB")[..], &["--admit-size-max", "1MiB"]].concat(),
            2,
            &["--admit-size-max", "--objects"],
        ),
    ];
    check(&Stage::bare(), &cases);
}

#[test]
fn policies() {
    check(
        &Stage::bare(),
        &[case(
            &["policies", "exklusive"],
            2,
            &["exklusive", "exclusive"],
        )],
    );
}

#[test]
fn serve() {
    let stage = Stage::new(64);
    let image = text(&stage.image);
    let export = format!("{EXPORT}={image}");
    let nowhere = format!("{EXPORT}={image}.not");
    let twice = format!("other={image}");
    let odd_share = format!("{EXPORT}={image},share=5000");
    let large_share = format!("{EXPORT}={image},share=2MiB");
    let directory = format!("{EXPORT}={}", stage.mountpoint.display());
    let listen = format!("unix:{}", stage.socket.display());
    let deep = format!("unix:{image}/x/futae.sock");
    let control = format!("unix:{}", stage.control.display());
    let serve = |cache: &'static str, export: &str, listen: &str| {
        let words = [
            "serve", "--cache", cache, "--export", export, "--listen", listen,
        ];
        words.map(str::to_owned).to_vec()
    };
    let usual = |rest: &[&str]| {
        let mut words = serve("1MiB", &export, &listen);
        words.extend(["--control".to_owned(), control.clone()]);
        words.extend(rest.iter().map(|&word| word.to_owned()));
        words
    };
    let table: [(Vec<String>, i32, &[&str]); 17] = [
        (
            usual(&["--policy", "exklusive"]),
            2,
            &["exklusive", "exclusive"],
        ),
        (usual(&["--policy", "lru("]), 2, &["lru("]),
        (usual(&["--block", "6KiB"]), 2, &["--block", "6KiB"]),
        (usual(&["--block", "512"]), 2, &["--block", "512"]),
        (
            serve("1000000", &export, &listen),
            2,
            &["--cache", "1000000"],
        ),
        (serve("0", &export, &listen), 2, &["--cache"]),
        (serve("lots", &export, &listen), 2, &["--cache", "lots"]),
        (serve("8192GiB", &export, &listen), 2, &["memory"]),
        (serve("1MiB", &nowhere, &listen), 1, &["disk.img.not"]),
        (serve("1MiB", &directory, &listen), 1, &["mnt"]),
        (serve("1MiB", image, &listen), 2, &["NAME=SOURCE"]),
        (serve("1MiB", "disk=", &listen), 2, &["disk"]),
        (serve("1MiB", &odd_share, &listen), 2, &["share", "5000"]),
        (
            serve("1MiB", &large_share, &listen),
            2,
            &["share", "--cache"],
        ),
        (serve("1MiB", &export, "nowhere"), 2, &["nowhere"]),
        (serve("1MiB", &export, &deep), 1, &["futae.sock"]),
        (usual(&["--export", &twice]), 2, &["same file"]),
    ];
    let words = |(words, status, contains): &'_ (Vec<String>, i32, &'static [&'static str])| {
        (words.clone(), *status, *contains)
    };
    for (arguments, status, contains) in table.iter().map(words) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        check(&stage, &[case(&arguments, status, contains)]);
    }
}

#[test]
fn an_image_of_more_blocks_than_have_numbers() {
    let stage = Stage::new(64);
    let image = memfd_create("long", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&image, (1 << 60) + 4096).expect("a length");
    let (own, descriptor) = (std::process::id(), image.as_raw_fd());
    let export = format!("long=/proc/{own}/fd/{descriptor}");
    let listen = format!("unix:{}", stage.socket.display());
    let file = stage.mountpoint.with_file_name("serve.toml");
    let lines = format!("cache = \"1MiB\"\nlisten = \"{listen}\"\nexport = \"{export}\"\n");
    fs::write(&file, lines).expect("a file");
    let said = [
        "long: 1152921504606851072 bytes are more than",
        "a larger --block",
    ];
    check(
        &stage,
        &[
            case(
                &[
                    "serve", "--cache", "1MiB", "--export", &export, "--listen", &listen,
                ],
                1,
                &said,
            ),
            case(&["check", text(&file)], 1, &said),
        ],
    );
}

#[test]
fn a_socket_in_use_stays_in_use() {
    let mut stage = Stage::new(64);
    stage.serve(&["--cache", "1MiB"]);
    let other = Stage::new(64);
    let export = format!("{EXPORT}={}", other.image.display());
    let listen = format!("unix:{}", stage.socket.display());
    let arguments = [
        "serve", "--cache", "1MiB", "--export", &export, "--listen", &listen,
    ];
    let second = case(&arguments, 1, &["futae.sock", "in use"]);
    check_output(&run(&arguments), &second);
    assert!(stage.socket.exists(), "it took the socket away");
    assert_eq!(
        stage.status()["exports"][0]["name"],
        EXPORT,
        "the first still serves"
    );
    stage.stop_serve();
}

#[test]
fn a_socket_of_a_killed_server_is_used_again() {
    let mut stage = Stage::new(64);
    stage.serve(&["--cache", "1MiB"]);
    stage.kill_serve();
    assert!(stage.socket.exists(), "a killed server cannot clean up");
    stage.serve(&["--cache", "1MiB"]);
    stage.stop_serve();
}

#[test]
fn mount() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(64);
    let full = stage.path("full");
    fs::create_dir(&full).expect("a directory");
    fs::write(full.join("file"), "x").expect("a file");
    let (image, point) = (
        text(&stage.image).to_owned(),
        text(&stage.mountpoint).to_owned(),
    );
    let (full, absent) = (text(&full), stage.path("absent"));
    let missing = format!("{image}.not");
    let uri = stage.uri();
    let arguments = |words: &[&'static str]| [&["--cache", "1MiB"], words].concat();
    let mount = |source: &'static str, point: &'static str, words: &[&'static str]| {
        [&["mount", source, point][..], &arguments(words)].concat()
    };
    // The table is read after the strings in it were made.
    let leak = |text: &str| -> &'static str { text.to_owned().leak() };
    let (image, point, uri) = (leak(&image), leak(&point), leak(&uri));
    let absent = leak(text(&absent));
    let absent_file = leak(&format!("{absent}/state"));
    let cases = [
        case(&mount(image, leak(full), &[]), 1, &["full", "not empty"]),
        case(&mount(image, absent, &[]), 1, &["absent"]),
        case(&mount(image, image, &[]), 1, &["disk.img", "directory"]),
        case(&mount(leak(&missing), point, &[]), 1, &["disk.img.not"]),
        case(&mount(point, point, &[]), 2, &["mnt"]),
        case(&mount(uri, point, &[]), 1, &["futae.sock"]),
        case(&mount("nbd://", point, &[]), 2, &["nbd://"]),
        case(&mount("nbds://host/x", point, &[]), 2, &["nbds"]),
        case(
            &mount(image, point, &["--policy", "lruu"]),
            2,
            &["lruu", "lru"],
        ),
        case(
            &mount(image, point, &["--block", "6KiB"]),
            2,
            &["--block", "6KiB"],
        ),
        case(
            &mount(image, point, &["--name", "a/b"]),
            2,
            &["a/b", "--name"],
        ),
        case(
            &mount(image, point, &["--on-eviction", "demote"]),
            2,
            &["--on-eviction"],
        ),
        case(
            &["mount", image, point, "--cache", "1000000"],
            2,
            &["--cache", "1000000"],
        ),
        case(&["mount", image, point, "--cache", "0"], 2, &["--cache 0"]),
        case(
            &[
                "mount", image, point, "--cache", "64MiB", "--block", "128MiB",
            ],
            2,
            &["--cache 64MiB", "128MiB", "--block"],
        ),
        case(
            &mount(image, point, &["--policy", "lfu-history(hysteria=3)"]),
            2,
            &["--policy", "hysteria", "history"],
        ),
        case(
            &mount(image, point, &["--policy", "exclusive"]),
            2,
            &["--policy exclusive", "no cache is above a mount"],
        ),
        case(
            &mount(image, point, &["--history", "100"]),
            2,
            &["--history", "--policy lfu-history"],
        ),
        case(
            &mount(image, point, &["--policy", "lfu-history", "--history", "0"]),
            2,
            &["history"],
        ),
        case(
            &mount(image, point, &["--policy", "const", "--pin", "0-9,5"]),
            2,
            &["--pin", "5 overlaps 0-9"],
        ),
        case(
            &mount(image, point, &["--policy", "const", "--pin", "9-0"]),
            2,
            &["--pin", "9-0"],
        ),
        case(
            &mount(image, point, &["--policy", "const", "--pin", "60-64"]),
            2,
            &["--pin 60-64", "block 64", "64 blocks"],
        ),
        case(
            &mount(image, point, &["--policy", "const", "--pin", "0-256"]),
            2,
            &["--pin 0-256", "257 blocks", "--cache"],
        ),
        case(
            &mount(
                image,
                point,
                &["--policy", "const", "--pin-file", leak(&missing)],
            ),
            2,
            &["--pin-file", "disk.img.not"],
        ),
        case(
            &mount(image, point, &["--state", absent_file]),
            1,
            &["--state", "absent"],
        ),
        case(
            &mount(image, point, &["--join-reads", "many"]),
            2,
            &["--join-reads many", "1MiB"],
        ),
        case(
            &["mount", image, point, "--cache", "8192GiB"],
            2,
            &["memory"],
        ),
    ];
    check(&stage, &cases);
    stage.serve(&["--cache", "1MiB"]);
    let other = uri.replace("/disk?", "/disc?");
    let wrong = mount(leak(&other), point, &[]);
    check_output(&run(&wrong), &case(&wrong, 1, &["disc", "no export"]));
    assert!(!is_mountpoint(&stage.mountpoint), "still mounted");
    stage.stop_serve();
}

#[test]
fn a_mountpoint_in_use_stays_in_use() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(64);
    stage.serve(&["--cache", "1MiB"]);
    stage.mount(&["--cache", "1MiB"]);
    let (uri, point) = (stage.uri(), text(&stage.mountpoint).to_owned());
    let arguments = ["mount", &uri, &point, "--cache", "1MiB"];
    check_output(
        &run(&arguments),
        &case(&arguments, 1, &["mnt", "not empty"]),
    );
    assert!(stage.file().exists(), "the first is still mounted");
    stage.stop_mount();
    stage.stop_serve();
}

#[test]
fn a_dead_mount_is_no_obstacle() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(64);
    let arguments = [
        "mount",
        text(&stage.image),
        text(&stage.mountpoint),
        "--cache",
        "1MiB",
    ];
    let mut first = Running::start("futae mount", futae(&arguments));
    first.line();
    // The kernel knows the root's attributes for a while, and answers for the dead mount.
    fs::metadata(&stage.mountpoint).expect("the root");
    first.kill();
    assert!(
        is_mountpoint(&stage.mountpoint),
        "a killed mount cannot clean up"
    );
    stage.serve(&["--cache", "1MiB"]);
    stage.mount(&["--cache", "1MiB"]);
    stage.stop_mount();
    stage.stop_serve();
}

#[test]
fn a_machine_without_fuse() {
    let stage = Stage::new(64);
    let arguments = [
        "mount",
        text(&stage.image),
        text(&stage.mountpoint),
        "--cache",
        "1MiB",
    ];
    let Some(mut command) = without_fuse() else {
        return;
    };
    let output = command.arg(binary()).args(arguments).output();
    let output = output.expect("unshare starts");
    check_output(
        &output,
        &case(&arguments, 1, &["/dev/fuse", "modprobe fuse"]),
    );
    assert!(!is_mountpoint(&stage.mountpoint), "still mounted");
}

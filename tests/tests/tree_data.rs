//! The data of files in a mounted tree: every way to read and write it, changes underneath, and
//! programs that depend on it.

use futae_testkit::wait::{eventually, obtain};
use futae_tests::binary::cargo;
use futae_tests::kernel_pages;
use futae_tests::programs::exercise;
use futae_tests::rings;
use futae_tests::tools::Need;
use futae_tests::tools::{has, has_fuse, skip, text};
use futae_tests::tree::{Tree, read};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::SystemTime;

/// Random operations on a file, and the same below in the end.
fn exercised(tree: &Tree, operations: u32, seed: u32) {
    let file = tree.upper("file");
    exercise(&file, operations, seed, false);
    assert_eq!(read(&file), read(&tree.lower("file")), "written through");
}

/// With a cache smaller than the file, so that blocks come and go all the time.
#[test]
fn seventy_thousand_random_operations_with_maps_in_a_small_cache() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "128KiB"]);
    exercised(&tree, 70_000, 1);
    tree.stop();
}

#[test]
fn thirty_thousand_random_operations_with_maps_in_large_blocks() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "4MiB", "--block", "64KiB", "--policy", "arc"]);
    exercised(&tree, 30_000, 2);
    tree.stop();
}

#[test]
fn what_is_changed_underneath_is_seen_at_the_next_open() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let (lower, upper) = (tree.lower("file"), tree.upper("file"));
    fs::write(&lower, vec![1; 50_000]).expect("a file");
    tree.mount(&["--cache", "4MiB"]);
    assert_eq!(read(&upper), vec![1; 50_000]);
    // In place and of the same size.
    let below = OpenOptions::new().write(true).open(&lower).expect("opened");
    below.write_all_at(&[2; 10], 20_000).expect("written");
    assert_eq!(read(&upper)[20_000..20_010], [2; 10]);
    // Its time put back, which only the time of change shows.
    let then = fs::metadata(&lower)
        .expect("there")
        .modified()
        .expect("a time");
    below.write_all_at(&[3; 10], 20_000).expect("written");
    below.set_modified(then).expect("set");
    assert_eq!(read(&upper)[20_000..20_010], [3; 10]);
    // Longer and shorter.
    below.set_len(60_000).expect("longer");
    assert_eq!(read(&upper).len(), 60_000);
    below.set_len(10).expect("shorter");
    assert_eq!(read(&upper), [1; 10]);
    // Another file of this name. Names may be believed for a second.
    fs::write(tree.lower("other"), "another").expect("a file");
    fs::rename(tree.lower("other"), &lower).expect("renamed");
    eventually("the other file is seen", || read(&upper) == b"another");
    // Appending goes to the end as it is now.
    let mut below = OpenOptions::new()
        .append(true)
        .open(&lower)
        .expect("opened");
    below.write_all(b" more").expect("written");
    let mut above = OpenOptions::new()
        .append(true)
        .open(&upper)
        .expect("opened");
    above.write_all(b" and more").expect("written");
    assert_eq!(read(&lower), b"another more and more");
    assert_eq!(read(&upper), b"another more and more");
    tree.stop();
}

/// Others change a file in the source directory while it is open here: the next write here finds it as it is there.
#[test]
fn a_write_goes_to_the_file_as_others_have_left_it() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "4MiB"]);
    let same = |name: &str, expected: &[u8]| {
        assert_eq!(fs::read(tree.lower(name)).expect("below"), expected);
        assert_eq!(read(&tree.upper(name)), expected);
    };
    let appending = |path: &Path| OpenOptions::new().append(true).create(true).open(path);
    let mut log = appending(&tree.upper("log")).expect("it opens");
    let mut append = |text: &[u8]| {
        log.write_all(text).expect("written");
        log.sync_all().expect("synced");
    };
    append(b"one ");
    let mut below = appending(&tree.lower("log")).expect("it opens");
    below.write_all(b"below ").expect("written");
    append(b"two ");
    same("log", b"one below two ");
    below.set_len(0).expect("cut, as by logrotate");
    append(b"three");
    same("log", b"three");

    // A cut file grows by a hole.
    let file = |name: &str, content: &[u8]| {
        fs::write(tree.lower(name), content).expect("a file");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(tree.upper(name));
        let file = file.expect("it opens");
        let mut all = vec![0; content.len()];
        file.read_exact_at(&mut all, 0).expect("read");
        file
    };
    let cut = file("cut", &[1; 20_000]);
    let lower = OpenOptions::new().write(true).open(tree.lower("cut"));
    lower.expect("it opens").set_len(5_000).expect("cut");
    cut.write_all_at(b"W", 15_000).expect("written");
    cut.sync_all().expect("synced");
    same("cut", &[&[1; 5_000][..], &[0; 10_000], b"W"].concat());

    // One that was written anew keeps nothing of what it held.
    let anew = file("anew", &[1; 40_960]);
    let lower = OpenOptions::new().write(true).open(tree.lower("anew"));
    let lower = lower.expect("it opens");
    lower.write_all_at(&[2; 40_960], 0).expect("written");
    let later = SystemTime::now() + std::time::Duration::from_secs(1);
    lower.set_modified(later).expect("its time");
    anew.write_all_at(b"W", 8_192).expect("written");
    anew.sync_all().expect("synced");
    same("anew", &[&[2; 8_192][..], b"W", &[2; 32_767]].concat());
    drop((cut, anew, log));
    tree.stop();
}

#[test]
fn a_file_cut_underneath_while_it_is_read_ends_where_it_ends() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    fs::write(tree.lower("file"), vec![7; 100_000]).expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    let above = File::open(tree.upper("file")).expect("opened");
    fs::write(tree.lower("file"), [8; 1000]).expect("cut");
    let mut bytes = vec![0; 5000];
    let length = above.read_at(&mut bytes, 0).expect("read");
    assert_eq!(bytes[..length], [8; 1000]);
    tree.stop();
}

#[test]
fn our_own_changes_do_not_cost_the_cache() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let upper = tree.upper("file");
    fs::write(tree.lower("file"), vec![1; 40_960]).expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    assert_eq!(read(&upper).len(), 40_960);
    fs::hard_link(&upper, tree.upper("link")).expect("a link");
    fs::set_permissions(&upper, fs::metadata(&upper).expect("there").permissions()).expect("set");
    fs::rename(&upper, tree.upper("moved")).expect("renamed");
    fs::remove_file(tree.upper("link")).expect("removed");
    let moved = OpenOptions::new()
        .write(true)
        .open(tree.upper("moved"))
        .expect("opened");
    moved.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    moved.write_all_at(&[2; 4096], 4096).expect("written");
    drop(moved);
    assert_eq!(read(&tree.upper("moved"))[4095..4098], [1, 2, 2]);
    let (_, last) = tree.stop();
    // Ten blocks were read from below, once.
    assert_eq!(last["status"]["store_read_blocks"], 10, "{last}");
}

#[test]
fn two_who_append_lose_nothing() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "1MiB"]);
    let path = tree.upper("log");
    let shell = |name: &str| {
        let script = format!(
            "for i in $(seq 1 400); do echo {name}$i >> {}; done",
            path.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).spawn().expect("a shell")
    };
    for mut writer in [shell("a"), shell("b")] {
        assert!(writer.wait().expect("it ends").success());
    }
    let text = String::from_utf8(read(&path)).expect("text");
    for name in ["a", "b"] {
        let lines = text.lines().filter(|line| line.starts_with(name));
        let wanted: Vec<_> = (1..=400).map(|i| format!("{name}{i}")).collect();
        assert_eq!(lines.collect::<Vec<_>>(), wanted);
    }
    assert_eq!(read(&tree.lower("log")), text.as_bytes());
    tree.stop();
}

#[test]
fn a_name_that_is_replaced_all_the_time_is_always_whole() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "1MiB"]);
    let path = tree.upper("current");
    fs::write(&path, vec![0; 9000]).expect("a file");
    thread::scope(|scope| {
        for number in 1..=2u8 {
            let (path, next) = (&path, tree.upper(&format!("next-{number}")));
            scope.spawn(move || {
                for _ in 0..300 {
                    fs::write(&next, vec![number; 9000]).expect("written");
                    fs::rename(&next, path).expect("renamed");
                }
            });
        }
        for _ in 0..600 {
            let bytes = read(&path);
            assert!(bytes.len() == 9000 && bytes.iter().all(|&byte| byte == bytes[0]));
        }
    });
    tree.stop();
}

/// Bytes of lower files that are in the page cache, by `fincore`.
fn in_page_cache(paths: &[PathBuf]) -> u64 {
    let words = ["--bytes", "--noheadings", "--output", "RES"];
    let told = Command::new("fincore").args(words).args(paths).output();
    let told = told.expect("fincore starts").stdout;
    let said = String::from_utf8(told).expect("text");
    let sizes = said.split_whitespace().map(|word| word.parse::<u64>());
    sizes.map(|size| size.expect("a number")).sum()
}

/// Appending, writing parts of blocks, cutting and punching go through the page cache below; a moment
/// later nothing of it is there.
#[test]
fn what_goes_through_the_page_cache_below_leaves_it_again() {
    if !has_fuse() || !has("fincore") {
        return;
    }
    let mut tree = Tree::new();
    let probe = tree.beside("probe");
    let direct = OFlags::DIRECT | OFlags::CREATE | OFlags::RDWR;
    if rustix::fs::open(&probe, direct, Mode::RWXU).is_err() {
        return skip(
            Need::Direct,
            "no O_DIRECT in the directory for temporary files",
        );
    }
    tree.mount(&["--cache", "4MiB"]);
    let names: Vec<_> = (0..20).map(|number| format!("{number}")).collect();
    for name in &names {
        let mut file = File::create(tree.upper(name)).expect("made");
        file.write_all(&[1; 300_001]).expect("written");
        file.write_all(&[2; 77]).expect("appended");
        file.write_all_at(&[3; 5], 100_000).expect("in the middle");
        file.set_len(250_003).expect("cut");
    }
    let lower: Vec<_> = names.iter().map(|name| tree.lower(name)).collect();
    assert!(in_page_cache(&lower) > 0, "nothing went through it");
    obtain("bytes leave the page cache", || {
        match in_page_cache(&lower) {
            0 => Ok(()),
            left => Err(format!("{left} are still there")),
        }
    });
    let bytes = read(&tree.upper("7"));
    assert_eq!(
        (bytes.len(), bytes[100_004], bytes[100_005]),
        (250_003, 3, 1)
    );
    let (_, last) = tree.stop();
    let below = &last["page_cache_below"];
    assert!(below["bytes"].as_u64().expect("a count") > 0, "{last}");
    assert!(
        below["ranges_swept"].as_u64().expect("a count") > 0,
        "{last}"
    );
}

#[test]
fn a_removed_file_lives_while_it_is_open() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "1MiB"]);
    let path = tree.upper("file");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = file.expect("made");
    file.write_all_at(&[5; 10_000], 0).expect("written");
    fs::remove_file(&path).expect("removed");
    assert!(!tree.lower("file").exists());
    file.write_all_at(&[6; 10_000], 5000).expect("written");
    file.set_len(12_000).expect("cut");
    let mut bytes = vec![0; 20_000];
    assert_eq!(file.read_at(&mut bytes, 0).expect("read"), 12_000);
    assert!(bytes[..5000] == [5; 5000] && bytes[5000..12_000] == [6; 7000]);
    assert_eq!(file.metadata().expect("there").len(), 12_000);
    drop(file);
    // A new file of this name has nothing of it.
    fs::write(&path, "new").expect("made");
    assert_eq!(read(&path), b"new");
    tree.stop();
}

#[test]
fn a_full_disk_below_is_enospc_and_a_line_that_names_the_file() {
    if !has_fuse() || !futae_tests::tools::has_root() {
        return;
    }
    let mut tree = Tree::new();
    let lower = text(&tree.source).to_owned();
    futae_tests::tools::run("mount", &["-t", "tmpfs", "-o", "size=1m", "none", &lower]);
    tree.mount(&["--cache", "1MiB"]);
    let path = tree.upper("file");
    let full = fs::write(&path, vec![1; 2 << 20]).expect_err("no room");
    assert_eq!(full.raw_os_error(), Some(28));
    // What is there can be read, and there is room again.
    assert!(read(&path).iter().all(|&byte| byte == 1));
    fs::remove_file(&path).expect("removed");
    // The kernel says a moment later that nobody has the removed file any more.
    obtain("there is room again", || fs::write(&path, "fits"));
    assert_eq!(read(&path), b"fits");
    let (ended, _) = tree.stop();
    futae_tests::stage::detach(Path::new(&lower));
    assert!(
        ended.errors.contains("/file: writing: No space left"),
        "{}",
        ended.errors
    );
}

#[test]
fn a_database_survives_the_kill_of_the_mount() {
    if !has_fuse() || !has("sqlite3") {
        return;
    }
    let mut tree = Tree::new();
    for round in 1..=3u32 {
        tree.mount(&["--cache", "256KiB"]);
        let database = tree.upper("data.db");
        let below = tree.lower("data.db");
        let length = || fs::metadata(&below).map_or(0, |metadata| metadata.len());
        let mut script = String::from("create table if not exists t(round, i, text);\n");
        for i in 0..4000 {
            script.push_str(&format!(
                "insert into t values({round}, {i}, hex(randomblob(200)));\n"
            ));
        }
        let path = tree.beside("script.sql");
        fs::write(&path, script).expect("a script");
        let mut sqlite = Command::new("sqlite3");
        sqlite
            .arg(&database)
            .stdin(File::open(&path).expect("opened"));
        let mut sqlite = sqlite
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        // Some fifty transactions later, in the middle of one.
        let grown = length() + 20_000;
        eventually("fifty transactions", || length() >= grown);
        tree.kill_and_leave();
        let _ = sqlite.wait();
        tree.kill();
        tree.mount(&["--cache", "256KiB"]);
        let mut sqlite = Command::new("sqlite3");
        let check = "pragma integrity_check; select count(*) > 0, count(*) = max(i) + 1 from t \
                     where round = (select max(round) from t);";
        let output = sqlite.arg(&database).arg(check).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said,
            "ok\n1|1\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        tree.stop();
    }
}

#[test]
fn git_clones_and_cargo_builds_in_it() {
    if !has_fuse() || !has("git") {
        return;
    }
    let mut tree = Tree::new();
    let work = tree.beside("work");
    fs::create_dir_all(work.join("src")).expect("a directory");
    let manifest = "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    fs::write(work.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(
        work.join("src/main.rs"),
        "fn main() { println!(\"built\"); }\n",
    )
    .expect("a program");
    let git = |directory: &Path, arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args([
            "-c",
            "user.name=n",
            "-c",
            "user.email=e",
            "-c",
            "safe.directory=*",
        ]);
        let output = git.args(arguments).current_dir(directory).output();
        let output = output.expect("git starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    git(&work, &["init", "-q"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "tiny"]);
    tree.mount(&["--cache", "16MiB"]);
    git(&tree.mountpoint, &["clone", "-q", text(&work), "copy"]);
    let copy = tree.upper("copy");
    git(&copy, &["fsck", "--strict"]);
    let mut cargo = cargo();
    cargo
        .args(["run", "--offline", "--quiet"])
        .current_dir(&copy);
    cargo.env_remove("CARGO_TARGET_DIR");
    let output = cargo.output().expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        said,
        "built\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    git(&copy, &["status", "--short"]);
    tree.stop();
}

#[test]
fn all_of_it_held_by_the_kernel() {
    // Not `cut_underneath`: the kernel may fill the page at the new end with zeroes once (docs/explanation/kernel-residency.md).
    let written = ["changed_underneath", "append", "database"];
    let names = ["removed_file", "name_that_is_replaced"];
    kernel_pages::again(&[&written[..], &names[..]].concat());
}

#[test]
fn all_of_it_by_ring() {
    let random = "thirty_thousand";
    rings::again(&[random, "append", "database", "git_clones", "removed_file"]);
}

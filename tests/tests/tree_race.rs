//! A file that comes from below just when a user of a mounted tree makes one of the same name: the user
//! never gets it open without the right to.

use futae_tests::tools::{has, has_fuse, has_root, text};
use futae_tests::tree::Tree;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// How often the user tries, and the variable that says otherwise.
const ATTEMPTS: u64 = 20_000;
const ATTEMPTS_VARIABLE: &str = "FUTAE_RACE_ATTEMPTS";

/// Opens a file again and again, making it if it is not there, and counts what comes of it.
const USER: &str = "\
import collections, errno, json, os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
name = sys.argv[1]
met = collections.Counter()
for _ in range(int(sys.argv[2])):
    try:
        file = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        met[errno.errorcode[error.errno]] += 1
    else:
        met['wins' if os.fstat(file).st_uid == 0 else 'own'] += 1
        os.close(file)
    try:
        # Else the kernel believes for a second what it has seen.
        os.unlink(name)
    except OSError:
        pass
print(json.dumps(met))
";

#[test]
fn nobody_opens_a_file_of_root_that_comes_while_one_is_made() {
    if !has_fuse() || !has_root() || !has("python3") {
        return;
    }
    let attempts = std::env::var(ATTEMPTS_VARIABLE).ok();
    let attempts = attempts.map_or(ATTEMPTS, |it| it.parse().expect("a number of attempts"));
    let (mut tree, everybody) = Tree::for_everybody();
    tree.mount(&["--cache", "1MiB"]);
    let (below, above) = (everybody.join("n"), tree.upper("everybody/n"));
    let is_over = AtomicBool::new(false);
    let (done, made) = thread::scope(|scope| {
        let root = scope.spawn(|| {
            let mut made = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let mut new = OpenOptions::new();
                let new = new.write(true).create_new(true).mode(0o600).open(&below);
                made += u64::from(new.is_ok());
                // The user's may be there instead.
                let _ = fs::remove_file(&below);
            }
            made
        });
        let mut user = Command::new("python3");
        user.args(["-c", USER, text(&above), &attempts.to_string()]);
        let done = user.output();
        is_over.store(true, Ordering::Relaxed);
        (done.expect("python3 starts"), root.join().expect("root's"))
    });
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    let met: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    eprintln!("{attempts} attempts while {made} files were made below: {met}");
    let count = |name: &str| met[name].as_u64().unwrap_or(0);
    assert_eq!(count("wins"), 0, "{met}");
    // Else the two have not met, and this has shown nothing.
    assert!(count("own") > 0, "no file was made by the user: {met}");
    assert!(count("EACCES") > 0, "no file of root's was met: {met}");
    tree.stop();
}

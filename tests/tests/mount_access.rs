//! Who may open a mounted file, and what a mount warns of.

use futae_tests::stage::Stage;
use futae_tests::tools::{has, has_fuse, has_root, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A user and a group without rights of their own.
const USER: &str = "12345";
const GROUP: &str = "12346";

/// Whether the user can read the file, as a member of `group`.
fn reads(file: &Path, group: &str) -> bool {
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid", USER, "--regid", group, "--clear-groups"]);
    setpriv.args(["head", "-c", "1", text(file)]);
    let output = setpriv.output().expect("setpriv starts");
    output.status.success() && output.stdout.len() == 1
}

/// A mount with these options: whether a stranger can read the file, and whether the group can.
fn opens(options: &[&str]) -> (bool, bool) {
    let mut stage = Stage::new(64);
    let place = stage.mountpoint.parent().expect("a directory");
    let all = Permissions::from_mode(0o755);
    fs::set_permissions(place, all).expect("it is open to all");
    stage.mount_image(&[&["--cache", "1MiB"], options].concat());
    let file = stage.file();
    let seen = (reads(&file, USER), reads(&file, GROUP));
    stage.stop_mount();
    seen
}

#[test]
fn other_users_open_what_the_mount_allows() {
    if !has_fuse() || !has_root() || !has("setpriv") {
        return;
    }
    assert_eq!(opens(&[]), (false, false));
    assert_eq!(opens(&["--allow-other"]), (true, true));
    let group = format!("--allow-other=mode=0640,group={GROUP}");
    assert_eq!(opens(&[&group]), (false, true));
    let owner = format!("--allow-other=mode=0400,owner={USER}");
    assert_eq!(opens(&[&owner]), (true, true));
}

#[test]
fn a_container_that_is_mounted_as_it_is_is_warned_of() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(64);
    let image = [b"QFI\xfb".as_slice(), &[0; (1 << 18) - 4]].concat();
    fs::write(&stage.image, image).expect("an image");
    stage.mount_image(&["--cache", "1MiB"]);
    stage.stop_mount_that_said("looks like a qcow2 image");
}

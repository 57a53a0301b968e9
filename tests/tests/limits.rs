//! What futae does not do with an image: one test for each sentence of "Not supported" in docs/reference/semantics.md.

use futae_testkit::stamp::Stamp;
use futae_tests::BLOCK;
use futae_tests::binary::run;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, has_fuse, text};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// A stage whose image is mounted without a server.
fn mounted(blocks: u64) -> Stage {
    let mut stage = Stage::new(blocks);
    stage.mount_image(&["--cache", "1MiB"]);
    stage
}

/// The version of a block as a reader of the mount sees it.
fn version(file: &Direct, block: u64) -> u64 {
    let mut buffer = Buffer::new(BLOCK);
    let offset = block * BLOCK as u64;
    file.read(offset, &mut buffer).expect("a read");
    let stamp = Stamp::read(buffer.get()).expect("a whole block");
    assert_eq!(stamp.block, block);
    stamp.version
}

#[test]
fn an_image_is_locked_while_it_is_served() {
    if !has_fuse() {
        return;
    }
    let mut stage = mounted(64);
    let mut second = Stage::bare();
    let image = text(&stage.image).to_owned();
    let point = text(&second.mountpoint).to_owned();
    let (export, listen) = (
        format!("{EXPORT}={image}"),
        format!("unix:{}", second.socket.display()),
    );
    let serve = [
        "serve", "--cache", "1MiB", "--export", &export, "--listen", &listen,
    ];
    let attempts = [
        &serve[..],
        &["mount", &image, &point, "--cache", "1MiB"],
        // Not even to look: what is cached there would become wrong here.
        &["mount", &image, &point, "--cache", "1MiB", "--read-only"],
    ];
    for arguments in attempts {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let names = said.contains("disk.img") && said.contains("is in use by another process");
        assert!(names, "{arguments:?}: {said}");
    }
    stage.stop_mount();
    // Those who only look do not disturb each other.
    stage.mount_image(&["--cache", "1MiB", "--read-only"]);
    second.image.clone_from(&stage.image);
    second.mount_image(&["--cache", "1MiB", "--read-only"]);
    second.stop_mount();
    stage.stop_mount();
}

#[test]
fn what_others_write_underneath_is_not_noticed() {
    if !has_fuse() {
        return;
    }
    let mut stage = mounted(64);
    let file = Direct::open(&stage.file()).expect("the file opens");
    assert_eq!(version(&file, 7), 0);
    let image = File::options().write(true).open(&stage.image);
    let image = image.expect("the lock hinders futae only");
    let mut bytes = vec![0; BLOCK];
    for block in [7, 8] {
        Stamp { block, version: 5 }.fill(&mut bytes);
        image
            .write_all_at(&bytes, block * BLOCK as u64)
            .expect("written");
    }
    image.sync_all().expect("on the disk");
    assert_eq!(version(&file, 7), 0, "noticed; if it is now, say so");
    assert_eq!(version(&file, 8), 5, "what nobody has read yet is read");
    drop(file);
    stage.stop_mount();
}

#[test]
fn a_volume_keeps_its_size_while_its_image_grows() {
    if !has_fuse() || !has("nbdinfo") {
        return;
    }
    let mut stage = Stage::new(64);
    stage.serve(&["--cache", "1MiB"]);
    stage.mount(&["--cache", "1MiB"]);
    let size = 64 * BLOCK as u64;
    let image = File::options().write(true).open(&stage.image);
    image.expect("opened").set_len(2 * size).expect("larger");
    let metadata = stage.file().metadata().expect("its size");
    assert_eq!(metadata.len(), size, "of the mounted file");
    let told = Command::new("nbdinfo")
        .args(["--size", &stage.uri()])
        .output();
    let told = told.expect("nbdinfo starts").stdout;
    assert_eq!(String::from_utf8_lossy(&told).trim(), size.to_string());
    let file = File::open(stage.file()).expect("opened");
    let mut bytes = [0; 16];
    assert_eq!(file.read_at(&mut bytes, size).expect("read"), 0, "its end");
    drop(file);
    stage.stop_mount();
    stage.stop_serve();
    // It is taken up at the next start.
    stage.serve(&["--cache", "1MiB"]);
    let told = Command::new("nbdinfo")
        .args(["--size", &stage.uri()])
        .output();
    let told = told.expect("nbdinfo starts").stdout;
    assert_eq!(
        String::from_utf8_lossy(&told).trim(),
        (2 * size).to_string()
    );
    stage.stop_serve();
}

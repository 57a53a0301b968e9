//! Plain NBD tools work with `futae serve` unchanged, whatever the policy.

use futae_tests::BLOCK;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::Need;
use futae_tests::tools::{has, run, skip, text};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const BLOCKS: u64 = 2048;
/// Less than the image, so that blocks come and go while a tool works.
const CACHE: &str = "2MiB";

fn serving(policy: &str) -> Stage {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE, "--policy", policy]);
    stage
}

/// A file of the image's size with other content than the image.
fn other_content(stage: &Stage) -> Vec<u8> {
    let mut bytes = fs::read(&stage.image).expect("the image");
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = byte.wrapping_add((at / 777) as u8 | 1);
    }
    bytes
}

fn assert_same(a: &Path, b: &Path) {
    let read = |path: &Path| fs::read(path).expect("a file");
    assert!(
        read(a) == read(b),
        "{} and {} differ",
        a.display(),
        b.display()
    );
}

/// The server has seen requests and no errors.
fn assert_used_well(stage: &mut Stage) {
    let last = stage.stop_serve();
    let cache = &last["status"]["engines"][0];
    assert_eq!(cache["errors"], 0, "{cache}");
    assert!(cache["requests"].as_u64() > Some(0), "{cache}");
    assert_eq!(last["status"]["protocol_errors"], 0, "{last}");
}

/// Who starts a server as the README does and reads with any tool finds again what fits.
#[test]
fn a_server_without_a_policy_also_caches_for_plain_clients() {
    if !has("qemu-img") {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", "16MiB"]);
    for _ in 0..2 {
        let copy = stage.path("copy");
        run(
            "qemu-img",
            &["convert", "-O", "raw", &stage.uri(), text(&copy)],
        );
        assert_same(&copy, &stage.image);
    }
    let last = stage.stop_serve();
    let cache = &last["status"]["engines"][0];
    assert_eq!(cache["policy"], "exclusive(keep_served=true)", "{cache}");
    let hits = cache["hits"].as_u64().expect("a number");
    assert!(hits >= BLOCKS, "the second reading found {hits} blocks");
}

#[test]
fn nbdinfo() {
    if !has("nbdinfo") {
        return;
    }
    let mut stage = serving("exclusive");
    let output = run("nbdinfo", &["--json", &stage.uri()]);
    let info: Value = serde_json::from_slice(&output.stdout).expect("nbdinfo prints JSON");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], BLOCKS * BLOCK as u64, "{export}");
    for can in [
        "can_flush",
        "can_fua",
        "can_multi_conn",
        "can_trim",
        "can_zero",
        "can_cache",
    ] {
        assert_eq!(export[can], true, "{can} in {export}");
    }
    assert_eq!(export["contexts"][0], "base:allocation", "{export}");
    let list = run("nbdinfo", &["--list", "--json", &stage.uri()]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("nbdinfo prints JSON");
    assert_eq!(list["exports"][0]["export-name"], EXPORT, "{list}");
    stage.stop_serve();
}

#[test]
fn nbdcopy_out_and_in() {
    if !has("nbdcopy") {
        return;
    }
    for policy in ["lru", "exclusive", "random"] {
        let mut stage = serving(policy);
        let copy = stage.path("copy");
        run("nbdcopy", &[&stage.uri(), text(&copy)]);
        assert_same(&copy, &stage.image);
        let other = stage.path("other");
        fs::write(&other, other_content(&stage)).expect("a file");
        run("nbdcopy", &["--flush", text(&other), &stage.uri()]);
        assert_same(&other, &stage.image);
        assert_used_well(&mut stage);
    }
}

#[test]
fn qemu_img_compares_and_converts() {
    if !has("qemu-img") {
        return;
    }
    for policy in ["lru", "exclusive"] {
        let mut stage = serving(policy);
        let (uri, image) = (stage.uri(), text(&stage.image).to_owned());
        let raw = ["-f", "raw"];
        run(
            "qemu-img",
            &[&["compare"], &raw[..], &["-F", "raw", &image, &uri]].concat(),
        );
        let copy = stage.path("copy.qcow2");
        let convert = ["convert", "-f", "raw", "-O", "qcow2", &uri, text(&copy)];
        run("qemu-img", &convert);
        let compare = ["compare", "-f", "raw", "-F", "qcow2", &image, text(&copy)];
        run("qemu-img", &compare);
        let other = stage.path("other");
        fs::write(&other, other_content(&stage)).expect("a file");
        let convert = [
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            text(&other),
            &uri,
        ];
        run("qemu-img", &convert);
        assert_same(&other, &stage.image);
        assert_used_well(&mut stage);
    }
}

#[test]
fn qemu_io_writes_reads_zeroes_and_discards() {
    if !has("qemu-io") {
        return;
    }
    let mut stage = serving("exclusive");
    let script = [
        "write -P 0xa1 1000 70000",
        "read -P 0xa1 1000 70000",
        "write -f -P 0x33 1048576 4096",
        "write -z 8192 12288",
        "read -P 0 8192 12288",
        "read -P 0xa1 1000 7192",
        "discard 2M 1M",
        "flush",
        "aio_read -P 0x33 1048576 4096",
        "aio_flush",
    ];
    let uri = stage.uri();
    let mut arguments = vec!["-f", "raw", "--cache=none"];
    arguments.extend(script.iter().flat_map(|command| ["-c", command]));
    arguments.push(&uri);
    let output = run("qemu-io", &arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!said.contains("failed"), "{said}");
    assert_used_well(&mut stage);
    let image = fs::read(&stage.image).expect("the image");
    assert!(image[1000..8192].iter().all(|&byte| byte == 0xa1));
    assert!(image[8192..20480].iter().all(|&byte| byte == 0));
    assert!(image[20480..71000].iter().all(|&byte| byte == 0xa1));
    assert!(image[1_048_576..1_052_672].iter().all(|&byte| byte == 0x33));
}

#[test]
fn fio_by_its_nbd_engine() {
    if !has("fio") {
        return;
    }
    let engines = run("fio", &["--enghelp"]);
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        return skip(Need::Tools, "this fio has no nbd engine");
    }
    let mut stage = serving("exclusive");
    let mut fio = Command::new("fio");
    fio.current_dir(stage.path("")).args([
        "--name=verify",
        "--ioengine=nbd",
        &format!("--uri={}", stage.uri()),
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--iodepth=32",
        "--size=8m",
        "--verify=crc32c",
        "--verify_fatal=1",
    ]);
    let output = fio.output().expect("fio starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert_used_well(&mut stage);
}

/// What one client writes, another reads, though both go through caches of their own kind.
#[test]
fn exports_with_shares_do_not_mix() {
    if !has("nbdcopy") {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    let second = stage.path("second.img");
    fs::write(&second, other_content(&stage)).expect("a file");
    let export = format!("second={},share=1MiB", second.display());
    stage.serve(&["--cache", CACHE, "--export", &export]);
    let uri = stage.uri().replace(&format!("/{EXPORT}?"), "/second?");
    for _ in 0..2 {
        let (first_copy, second_copy) = (stage.path("copy1"), stage.path("copy2"));
        run("nbdcopy", &[&stage.uri(), text(&first_copy)]);
        run("nbdcopy", &[&uri, text(&second_copy)]);
        assert_same(&first_copy, &stage.image);
        assert_same(&second_copy, &second);
    }
    let status = stage.stop_serve();
    let caches = status["status"]["engines"].as_array().expect("caches");
    let sizes: Vec<_> = caches
        .iter()
        .map(|cache| cache["capacity_blocks"].as_u64())
        .collect();
    assert_eq!(
        sizes,
        [Some(256), Some(256)],
        "each has its half of {CACHE}"
    );
}

//! The OCI image that `scripts/oci-image` writes: whole, as other programs judge it, and with a futae that runs in it. Each run downloads
//! some 20 MB, so this is for `FUTAE_OCI=1`, which needs root, mmdebstrap, umoci and skopeo.

use futae_tests::binary::run;
use futae_tests::package::package;
use futae_tests::tidy::root;
use futae_tests::tools::{run as tool, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// futae's package, made in a directory.
fn packaged(place: &Path) -> PathBuf {
    let manual = place.join("manual");
    let output = run(&["reference", "manual", text(&manual)]);
    assert!(output.status.success(), "{output:?}");
    package("futae", "1.0", place, &manual)
}

#[test]
fn an_image_is_whole_and_its_futae_runs() {
    if std::env::var_os("FUTAE_OCI").is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let deb = packaged(place.path());
    let archive = path("futae.tar");
    let script = root().join("scripts/oci-image");
    tool(text(&script), &[text(&deb), text(&archive)]);

    // Copying holds every part against its digest.
    let image = format!("oci-archive:{}", text(&archive));
    let copy = path("copy");
    tool(
        "skopeo",
        &[
            "copy",
            "--quiet",
            &image,
            &format!("oci:{}:latest", text(&copy)),
        ],
    );
    let config = tool("skopeo", &["inspect", "--config", &image]).stdout;
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let config = &config["config"];
    assert_eq!(config["Entrypoint"][0], "/usr/bin/futae");
    assert_eq!(config["Cmd"][2], "/etc/futae/serve.toml");
    assert_eq!(config["Labels"]["org.opencontainers.image.version"], "1.0");

    let bundle = path("bundle");
    tool(
        "umoci",
        &[
            "unpack",
            "--image",
            &format!("{}:latest", text(&copy)),
            text(&bundle),
        ],
    );
    let files = bundle.join("rootfs");
    fs::write(files.join("vm1.img"), vec![7; 1 << 20]).expect("an image");
    let mut inside = Command::new("chroot");
    inside
        .arg(&files)
        .args(["/usr/bin/futae", "check", "/etc/futae/serve.toml"]);
    fs::create_dir_all(files.join("etc/futae")).expect("made");
    let configuration =
        "cache = \"4MiB\"\nlisten = \"unix:/run/all.sock\"\nexport = \"vm1=/vm1.img\"\n";
    fs::write(files.join("etc/futae/serve.toml"), configuration).expect("a file");
    let checked = inside.output().expect("chroot");
    assert_eq!(
        String::from_utf8_lossy(&checked.stdout),
        "/etc/futae/serve.toml: 1 export (vm1), a cache of 4MiB\n",
        "{checked:?}"
    );
}

/// What `packaging/oci/Containerfile` runs, in a Debian with the packages of its base image.
#[test]
fn the_container_file_installs_the_package_in_its_base_image() {
    if std::env::var_os("FUTAE_OCI").is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let deb = packaged(place.path());
    let file = root().join("packaging/oci/Containerfile");
    let file = fs::read_to_string(file).expect("the file");
    let word = |name: &str| file.lines().find_map(|line| line.strip_prefix(name));
    let base = word("FROM debian:").and_then(|name| name.strip_suffix("-slim"));
    let files = path("root");
    let options = [
        "--quiet",
        "--variant=minbase",
        "--aptopt=APT::Sandbox::User \"root\"",
    ];
    let target = [base.expect("a release"), text(&files)];
    tool("mmdebstrap", &[&options[..], &target[..]].concat());
    fs::copy(deb, files.join("tmp/futae_1.0.deb")).expect("a copy");
    fs::copy("/etc/resolv.conf", files.join("etc/resolv.conf")).expect("a copy");
    let commands = word("RUN ").expect("commands");
    tool("chroot", &[text(&files), "sh", "-ec", commands]);
    tool("chroot", &[text(&files), "/usr/bin/futae", "--version"]);
}

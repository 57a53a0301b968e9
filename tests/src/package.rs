//! Debian packages, built from what `Cargo.toml` says to cargo-deb, with the binary under test: cargo-deb links for minutes.
//! `FUTAE_DEBS` names a directory with packages that `make deb` has built, to be used in their place.

use crate::binary::binary;
use crate::tidy::root;
use crate::tools::text;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where packages are that cargo-deb has built.
const BUILT: &str = "FUTAE_DEBS";

/// Packages, with the crate whose manifest describes each, and the variant there.
pub const PACKAGES: [(&str, &str, Option<&str>); 3] = [
    ("futae", "futae-cli", None),
    ("futae-mount", "futae-cli", Some("mount")),
    ("futae-agent", "futae-agent", None),
];

/// The directory of the crate that describes a package, and what its manifest says of it to cargo-deb.
///
/// # Panics
///
/// If there is no such package.
#[must_use]
pub fn described(name: &str) -> (PathBuf, toml::Table) {
    let (_, crate_name, variant) = PACKAGES
        .into_iter()
        .find(|(known, ..)| *known == name)
        .expect("a package");
    let crate_root = root().join("crates").join(crate_name);
    let manifest = fs::read_to_string(crate_root.join("Cargo.toml")).expect("the manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let deb = manifest["package"]["metadata"]["deb"]
        .as_table()
        .expect("a table");
    let mut described = deb.clone();
    // A variant says what differs.
    if let Some(variant) = variant {
        let own = deb["variants"][variant].as_table().expect("a table");
        described.extend(own.clone());
    }
    (crate_root, described)
}

/// Writes a package to `place`, as `NAME_VERSION.deb`. `manual` has what `make manual` writes.
///
/// # Panics
///
/// If something that the package should hold is not there.
#[must_use]
pub fn package(name: &str, version: &str, place: &Path, manual: &Path) -> PathBuf {
    let tree = place.join(format!("{name}-{version}"));
    if let Some(built) = std::env::var_os(BUILT) {
        unpack(Path::new(&built), name, version, &tree);
    } else {
        lay_out(name, version, &tree, manual);
    }
    let file = place.join(format!("{name}_{version}.deb"));
    tool(
        Command::new("dpkg-deb")
            .args(["-Znone", "--root-owner-group", "--build"])
            .args([&tree, &file]),
    );
    fs::remove_dir_all(&tree).expect("removed");
    file
}

/// The package of this name that was built, under another version.
fn unpack(built: &Path, name: &str, version: &str, tree: &Path) {
    let start = format!("{name}_");
    let mut all = fs::read_dir(built).expect("the packages").flatten();
    let built = all.find(|file| file.file_name().to_string_lossy().starts_with(&start));
    let built = built.expect("a package of this name").path();
    tool(Command::new("dpkg-deb").arg("-R").args([&built, tree]));
    let control = tree.join("DEBIAN/control");
    let said = fs::read_to_string(&control).expect("its control file");
    let said = said.lines().map(|line| match line.split_once(": ") {
        Some(("Version", _)) => format!("Version: {version}\n"),
        _ => format!("{line}\n"),
    });
    fs::write(control, said.collect::<String>()).expect("a file");
}

/// The files of the package.
fn lay_out(name: &str, version: &str, tree: &Path, manual: &Path) {
    let (crate_root, deb) = described(name);
    let said = |key: &str| deb[key].as_str().expect("text");
    for asset in deb["assets"].as_array().expect("assets") {
        let at = |index: usize| asset[index].as_str().expect("text");
        for source in sources(at(0), &crate_root, manual) {
            let mut to = tree.join(at(1));
            if at(1).ends_with('/') {
                // The binary under test has the name of the program that it stands for.
                let is_program = source == binary();
                let named = if is_program {
                    Path::new(at(0))
                } else {
                    &source
                };
                to.push(named.file_name().expect("a name"));
            }
            copy(&source, &to, u32::from_str_radix(at(2), 8).expect("a mode"));
        }
    }
    let scripts = crate_root.join(said("maintainer-scripts"));
    for script in fs::read_dir(scripts).expect("scripts").flatten() {
        copy(
            &script.path(),
            &tree.join("DEBIAN").join(script.file_name()),
            0o755,
        );
    }
    let architecture = tool(Command::new("dpkg").arg("--print-architecture"));
    assert_eq!(said("name"), name);
    let (depends, maintainer) = (depends(said("depends")), said("maintainer"));
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}Depends: {depends}\nMaintainer: {maintainer}\nDescription: {name}\n"
    );
    fs::write(tree.join("DEBIAN/control"), control).expect("a file");
}

/// For `$auto` the package of the OpenSSL that the binary under test links to; cargo-deb finds all.
fn depends(said: &str) -> String {
    if said != "$auto" {
        return said.to_owned();
    }
    let found = tool(Command::new("dpkg").args(["-S", "*/libssl.so.[0-9]*"]));
    let package = found.split([':', ',']).next();
    package.expect("a package").to_owned()
}

fn copy(source: &Path, to: &Path, mode: u32) {
    fs::create_dir_all(to.parent().expect("a directory")).expect("made");
    fs::copy(source, to).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).expect("a mode");
}

/// The files that an asset names. The binary under test stands for each program.
fn sources(asset: &str, crate_root: &Path, manual: &Path) -> Vec<PathBuf> {
    if asset.starts_with("target/release/") {
        return vec![binary().to_owned()];
    }
    let Some(written) = asset.strip_prefix("../../target/manual/") else {
        return vec![crate_root.join(asset)];
    };
    match written.split_once('*') {
        None => vec![manual.join(written)],
        Some((directory, end)) => {
            let entries = fs::read_dir(manual.join(directory))
                .expect("pages")
                .flatten();
            let files = entries.map(|entry| entry.path());
            files.filter(|file| text(file).ends_with(end)).collect()
        }
    }
}

fn tool(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

//! What packages hold: units that systemd accepts, an example that `futae check` accepts, and files that are there.

use futae_testkit::need::{Need, skip};
use futae_tests::binary::{binary, run};
use futae_tests::package::{PACKAGES, described};
use futae_tests::tidy::root;
use futae_tests::tools::{WITHOUT_OTHERS_MOUNTS, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn units() -> Vec<PathBuf> {
    let directory = fs::read_dir(root().join("packaging/systemd")).expect("the units");
    let units: Vec<_> = directory
        .map(|entry| entry.expect("a unit").path())
        .collect();
    assert_eq!(units.len(), 4, "{units:?}");
    units
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip(Need::Tools, "systemd-analyze is not installed");
    }
    let place = tempfile::tempdir().expect("a directory");
    // With programs that are there; an instance, if it is a template. All at once, since a socket has its service.
    let copies = units().into_iter().map(|unit| {
        let said = fs::read_to_string(&unit).expect("the unit");
        let here = said
            .replace("/usr/bin/futae-agent", "/usr/bin/env")
            .replace("/usr/bin/futae", text(binary()));
        let name = unit.file_name().expect("a name");
        let copy = place
            .path()
            .join(text(Path::new(name)).replace("@.", "@vm1."));
        fs::write(&copy, &here).expect("a copy");
        (copy, here)
    });
    let copies: Vec<(PathBuf, String)> = copies.collect();
    for (copy, here) in copies {
        let name = copy.file_name().map(|name| text(Path::new(name)));
        let name = name.expect("a name");
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output();
        let output = output.expect("it starts");
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && !complaints.contains(name),
            "{name}: {complaints}"
        );
        let wrong = here.replace("[Install]\n", "Restrat=on-failure\n[Install]\n");
        fs::write(&copy, wrong).expect("a copy");
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output();
        let complaints = output.expect("it starts").stderr;
        let complaints = String::from_utf8_lossy(&complaints).into_owned();
        assert!(
            complaints.contains("Restrat"),
            "a wrong key would be seen: {complaints}"
        );
        fs::write(&copy, here).expect("a copy");
    }
}

/// Commands and options in the units are those of futae.
#[test]
fn units_use_commands_that_there_are() {
    for unit in units() {
        let said = fs::read_to_string(&unit).expect("the unit");
        let commands = said
            .lines()
            .filter_map(|line| line.split_once("=/usr/bin/futae "));
        for (_, command) in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            let help = run(&[words[0], "--help"]);
            assert!(help.status.success(), "{command}: {help:?}");
            let help = String::from_utf8_lossy(&help.stdout).into_owned();
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{command}: there is no {option}");
            }
        }
    }
}

/// What `make manual` writes.
fn manual() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let output = run(&["reference", "manual", text(place.path())]);
    assert!(output.status.success(), "{output:?}");
    place
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Each command of the reference has a page with its options, and no page is of another.
#[test]
fn each_command_has_a_manual_page() {
    let manual = manual();
    let reference = root().join("docs/reference/commands.md");
    let reference = fs::read_to_string(reference).expect("the reference");
    let mut commands: Vec<String> = reference
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(" futae "))
        .map(|command| format!("futae-{}.1", command.replace(' ', "-")))
        .collect();
    commands.push("futae.1".to_owned());
    commands.sort();
    assert!(commands.len() > 25, "{commands:?}");
    let mut pages = names_in(&manual.path().join("man1"));
    pages.sort();
    assert_eq!(pages, commands);
    for (page, option) in [
        ("man1/futae-serve.1", "buffer\\-memory"),
        ("man8/futae-agent.8", "notices"),
    ] {
        let said = fs::read_to_string(manual.path().join(page)).expect("a page");
        assert!(
            said.contains(".TH futae") && said.contains(option),
            "{page}"
        );
    }
}

/// What bash offers after some words.
fn offered(manual: &Path, words: &[&str]) -> String {
    let script = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _futae futae \"${@: -1}\" \"${@: -2:1}\"; \
                  echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.arg("-c")
        .arg(script)
        .arg(manual.join("bash/futae.bash"));
    let output = bash.args(words).output().expect("bash");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn bash_completes_commands_and_options() {
    let manual = manual();
    assert_eq!(offered(manual.path(), &["futae", "chec"]), "check");
    let options = offered(manual.path(), &["futae", "serve", "--metr"]);
    assert_eq!(options, "--metrics");
    assert_eq!(offered(manual.path(), &["futae", "refer"]), "");
}

/// Whether a shell is there; if not, the test is skipped.
fn has_shell(name: &str) -> bool {
    let there = Command::new(name).args(["-c", "exit"]).output().is_ok();
    if !there {
        skip(Need::Tools, &format!("{name} is missing"));
    }
    there
}

#[test]
fn fish_completes_commands_and_options() {
    if !has_shell("fish") {
        return;
    }
    let manual = manual();
    let offered = |line: &str| {
        let script = "source $argv[1]; complete --do-complete $argv[2]";
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", script])
            .arg(manual.path().join("fish/futae.fish"))
            .arg(line);
        let output = fish.output().expect("fish");
        assert!(output.stderr.is_empty(), "{output:?}");
        // Behind each word is what it means.
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = said.lines().filter_map(|line| line.split('\t').next());
        words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(offered("futae chec"), "check");
    assert_eq!(offered("futae serve --metr"), "--metrics");
    assert_eq!(offered("futae refer"), "");
}

/// A zsh on a terminal of its own: what a line has become after a tab.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty z "zsh -f -i"
zpty -w z "PS1= RPS1=; unsetopt PROMPT_SP; fpath=(${(q)1} \$fpath); autoload -U compinit; compinit -u -D; print -r -- 'rea'dy"
zpty -r z said $'*ready\r\n*'
zpty -n -w z "$2"$'\t\x01print -r -- @\n'
zpty -r z said $'*\n@*\r\n*'
print -r -- "${${said##*$'\n@'}%%$'\r'*}"
"#;

#[test]
fn zsh_completes_commands_and_options() {
    if !has_shell("zsh") {
        return;
    }
    let manual = manual();
    let completed = |line: &str| {
        let mut zsh = Command::new("zsh");
        zsh.args(["-f", "-c", ZSH, "zsh"])
            .arg(manual.path().join("zsh"))
            .arg(line);
        let output = zsh.output().expect("zsh");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(completed("futae chec"), "futae check");
    assert_eq!(completed("futae serve --metr"), "futae serve --metrics");
    assert_eq!(completed("futae refer"), "futae refer");
}

/// mount(8) with the helper of the package and a line of fstab, where nobody else sees it.
#[test]
fn mount_mounts_a_line_of_fstab() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "root and /dev/fuse are needed to mount");
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| text(&place.path().join(name)).to_owned();
    fs::write(path("vm1.img"), vec![7; 1 << 20]).expect("an image");
    fs::create_dir(path("point")).expect("a directory");
    let helper = fs::read_to_string(root().join("packaging/mount.futae")).expect("the helper");
    let helper = helper.replace("/usr/bin/futae", text(binary()));
    fs::write(path("mount.futae"), helper).expect("a copy");
    let line = format!(
        "{} {} futae ro,noauto,nofail,cache=4MiB,control=unix:{} 0 0\n",
        path("vm1.img"),
        path("point"),
        path("control")
    );
    fs::write(path("fstab"), line).expect("a file");
    let script = "set -e; trap 'umount --lazy point 2>/dev/null || true' EXIT
        mount -t tmpfs none /sbin; install -m 755 mount.futae /sbin/; install -m 755 mount.futae /sbin/mount.fuse.futae
        mount --fstab fstab --target point
        cmp vm1.img point/vm1.img; findmnt --noheadings --output FSTYPE,SOURCE point
        if echo x 2>&- >point/vm1.img; then exit 3; fi
        \"$0\" top --once control >/dev/null
        umount point
        mount -t futae vm1.img point -o cache=4MiB
        echo x 1<>point/vm1.img
        mount -o remount,ro point
        if echo x 2>&- 1<>point/vm1.img; then exit 6; fi
        mount -o remount,rw point; echo y 1<>point/vm1.img
        umount point
        if mount -t futae vm1.img point -o cash=1MiB; then exit 4; fi
        if mount -t futae none.img point -o cache=1MiB; then exit 5; fi";
    let mut unshare = Command::new("unshare");
    unshare
        .args([
            "--mount",
            "sh",
            "-c",
            &format!("{WITHOUT_OTHERS_MOUNTS}\n{script}"),
        ])
        .arg(binary())
        .current_dir(place.path());
    let output = unshare.output().expect("unshare");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(found.starts_with("fuse.futae"), "{found}");
    assert!(found.trim_end().ends_with("vm1.img"), "{found}");
    assert!(
        errors.contains("cash: no option of futae mount"),
        "{errors}"
    );
    assert!(errors.contains("none.img"), "{errors}");
}

#[test]
fn the_example_is_a_configuration() {
    let place = tempfile::tempdir().expect("a directory");
    let example = root().join("packaging/examples/serve.toml");
    let example = fs::read_to_string(example).expect("the example");
    let image = place.path().join("vm1.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let here = example
        .replace("/var/lib/libvirt/images/vm1.img", text(&image))
        .replace("/run/futae/vm1", text(place.path()))
        .replace("/var/lib/futae", text(place.path()));
    assert_ne!(here, example);
    let file = place.path().join("vm1.toml");
    fs::write(&file, here).expect("a copy");
    let output = run(&["check", text(&file)]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_packages_hold_is_there() {
    let manual = manual();
    let mut targets = Vec::new();
    for (package, ..) in PACKAGES {
        let (crate_root, deb) = described(package);
        let assets = deb["assets"].as_array().expect("assets");
        let written = assets
            .iter()
            .map(|asset| (asset[1].as_str(), asset[0].as_str()));
        targets.extend(written.map(|(at, source)| format!("{at:?} {source:?}")));
        for asset in assets {
            let source = asset[0].as_str().expect("a path");
            // Programs are there once they are built, and manual pages once they are written.
            if source.starts_with("target/release/") {
                continue;
            }
            if let Some(written) = source.strip_prefix("../../target/manual/") {
                let (directory, name) = written.split_once('/').expect("a path");
                let names = names_in(&manual.path().join(directory));
                let ending = name.strip_prefix('*');
                let is_it = |there: &String| {
                    there == name || ending.is_some_and(|end| there.ends_with(end))
                };
                assert!(names.iter().any(is_it), "{package}: there is no {written}");
                continue;
            }
            assert!(
                crate_root.join(source).is_file(),
                "{package}: there is no {source}"
            );
        }
    }
    let all = targets.len();
    targets.sort();
    targets.dedup();
    assert_eq!(targets.len(), all, "a file of two packages");
    assert!(all > 15, "{targets:?}");
}

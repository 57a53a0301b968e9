//! `futae balance` with guests that libvirt runs, by a virsh of the test's own.

use futae_testkit::wait::obtain;
use futae_tests::binary::{futae, run};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::text;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A virsh whose domains are the lines of a file: NAME MAXIMUM USED, in KiB, and if it is set up with less than it uses, CURRENT, and a word
/// if its description is long. While there is a pipe beside it, the first two domains
/// are answered for only when both are asked for.
const VIRSH: &str = r#"#!/bin/sh
case "$1" in
list) cut -d' ' -f1 "$DOMAINS" ;;
dominfo)
    line=$(grep "^$2 " "$DOMAINS") || { echo "error: failed to get domain '$2'" >&2; exit 1; }
    if [ -p "$DOMAINS.both" ]; then
        case "$2" in
        a) echo >"$DOMAINS.both" ;;
        b) cat "$DOMAINS.both" >/dev/null ;;
        esac
    fi
    set -- $line
    echo "Max memory:     $2 KiB"
    echo "Used memory:    $3 KiB" ;;
dumpxml)
    set -- $(grep "^$2 " "$DOMAINS")
    echo "<currentMemory unit='KiB'>${4:-$3}</currentMemory>"
    if [ -n "$5" ]; then
        yes "<disk/>" | head -n 20000
        echo "<memballoon model='virtio'/>"
    fi ;;
dommemstat) [ -e "$DOMAINS.driven" ] && echo "last_update 1" || echo "last_update 0" ;;
setmem) echo "$2 $3" >>"$DOMAINS.set" ;;
domid) echo "$2" | tr 1 b ;;
esac
"#;
/// Two domains of 2 GiB.
const TWO: &str = "a 2097152 2097152\nb 2097152 2097152\n";

/// A stage whose libvirt has two domains, and a configuration for all that run.
fn with_domains() -> Stage {
    let stage = Stage::bare();
    let virsh = stage.path("virsh");
    fs::write(&virsh, VIRSH).expect("a file");
    fs::set_permissions(&virsh, Permissions::from_mode(0o755)).expect("allowed");
    fs::write(stage.path("domains"), TWO).expect("a file");
    let body =
        "total = \"8GiB\"\nperiod = 0.2\nreserve = \"1MiB\"\n[libvirt]\nminimum = \"1GiB\"\n";
    fs::write(stage.path("balance.toml"), body).expect("a file");
    stage
}

/// `futae balance` with these domains.
fn of_domains(stage: &Stage, words: &[&str]) -> Command {
    let config = stage.path("balance.toml");
    let given = ["balance", "--config", text(&config)];
    let mut command = futae(&[&given, words].concat());
    let path = std::env::var("PATH").unwrap_or_default();
    let directory = stage.path("virsh");
    let directory = directory.parent().expect("a directory");
    command.env("PATH", format!("{}:{path}", directory.display()));
    command.env("DOMAINS", stage.path("domains"));
    command.env("RUNTIME_DIRECTORY", directory);
    command
}

#[test]
fn domains_are_asked_together_and_one_that_does_not_fit_keeps_no_other_out() {
    let stage = with_domains();
    let pipe = stage.path("domains.both");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let mut balance = Running::start(
        "futae balance",
        of_domains(&stage, &["--dry-run", "--json"]),
    );
    let mut periods = 0;
    let mut next = |balance: &mut Running| -> (String, String) {
        let said: Value = serde_json::from_str(&balance.line()).expect("JSON");
        assert_eq!(said["period"], periods, "{said}");
        periods += 1;
        let guests = said["guests"].as_array().expect("guests");
        let names = guests.iter().filter_map(|guest| guest["name"].as_str());
        let names: Vec<_> = names.collect();
        (names.join(" "), said["problems"].to_string())
    };
    let (names, problems) = next(&mut balance);
    assert_eq!(names, "a b", "{problems}");
    fs::remove_file(&pipe).expect("there");
    let new = stage.path("domains.new");
    fs::write(
        &new,
        "b 2097152 2097152\nsmall 524288 524288\nc 2097152 2097152\n",
    )
    .expect("a file");
    fs::rename(&new, stage.path("domains")).expect("renamed");
    let problems = obtain("a is gone, and c is there", || {
        let (names, problems) = next(&mut balance);
        (names == "b c").then_some(problems.clone()).ok_or(problems)
    });
    assert!(
        problems.contains("small is left alone: ")
            && problems.contains("above its maximum of 512 MiB"),
        "{problems}"
    );
    assert!(balance.stop().status.success());
}

/// Until the driver of its balloon is loaded, a domain has its maximum, whatever it is set up with.
#[test]
fn a_domain_that_starts_is_not_told_to_keep_what_its_balloon_is_yet_to_take() {
    let stage = with_domains();
    let now = |domains: &str| {
        fs::write(stage.path("domains.new"), domains).expect("a file");
        fs::rename(stage.path("domains.new"), stage.path("domains")).expect("renamed");
    };
    now("a 4194304 4194304 2097152\n");
    let config = stage.path("balance.toml");
    let body = fs::read_to_string(&config).expect("there");
    fs::write(&config, format!("return_on_exit = true\n{body}")).expect("a file");
    let mut balance = Running::start("futae balance", of_domains(&stage, &["--json"]));
    let mut next = || -> Value { serde_json::from_str(&balance.line()).expect("JSON") };
    let first = next();
    let problems = first["problems"].to_string();
    assert!(
        problems.contains("a is left alone: ") && problems.contains("2048 MiB"),
        "{problems}"
    );
    fs::write(stage.path("domains.driven"), "").expect("a file");
    now("a 4194304 2097152 2097152\n");
    let guest = obtain("a is balanced", || {
        let said = next();
        let guest = said["guests"][0].clone();
        guest.is_object().then_some(guest).ok_or(said)
    });
    assert_eq!(guest["target"], 2_147_483_648_u64, "{guest}");
    assert!(balance.stop().status.success());
    let told = fs::read_to_string(stage.path("domains.set")).expect("it gives back");
    assert!(told.lines().all(|line| line == "a 2097152"), "{told}");
}

#[test]
fn a_domain_is_asked_whether_it_reports_free_pages_however_long_its_description_is() {
    let stage = with_domains();
    fs::write(stage.path("domains"), "a 2097152 2097152 2097152 long\n").expect("a file");
    let path = stage.path("balance.toml");
    let body = fs::read_to_string(&path).expect("there");
    fs::write(&path, format!("{body}[host]\nidle_after = 600\n")).expect("a file");
    let words = ["--dry-run", "--json", "--periods", "1"];
    let ended = Running::start("futae balance", of_domains(&stage, &words)).wait();
    assert!(ended.status.success(), "{ended:?}");
    let said: Value = serde_json::from_str(&ended.lines[0]).expect("JSON");
    let hints = said["hints"].to_string();
    assert!(
        hints.contains("a: the host does not get the pages"),
        "{said}"
    );
}

/// virsh takes its name for the ID of the other.
#[test]
fn a_domain_whose_name_is_a_number_is_not_taken_for_the_one_with_that_id() {
    let stage = with_domains();
    let domains = "1 2097152 2097152\nb 1572864 1572864\n";
    fs::write(stage.path("domains"), domains).expect("a file");
    let words = ["--dry-run", "--json", "--periods", "1"];
    let ended = Running::start("futae balance", of_domains(&stage, &words)).wait();
    assert!(ended.status.success(), "{ended:?}");
    let said: Value = serde_json::from_str(&ended.lines[0]).expect("JSON");
    assert_eq!(said["guests"][0]["name"], "1", "{said}");
    assert_eq!(said["guests"][0]["achieved"], 1_610_612_736_u64, "{said}");
}

#[test]
fn recorded_domains_are_advised_on_by_the_same_file() {
    let stage = with_domains();
    let samples = stage.path("samples.jsonl");
    let recorded = ["--dry-run", "--periods", "2", "--record", text(&samples)];
    let recorded = of_domains(&stage, &recorded);
    assert!(
        Running::start("futae balance", recorded)
            .wait()
            .status
            .success()
    );
    let config = stage.path("balance.toml");
    let advised = run(&[
        "balance",
        "--config",
        text(&config),
        "--advise",
        text(&samples),
    ]);
    assert!(advised.status.success(), "{advised:?}");
    let said = String::from_utf8_lossy(&advised.stdout);
    assert!(said.contains("2 periods over"), "{said}");
}

#[test]
fn a_file_of_the_balancer_is_known_by_its_keys() {
    let stage = with_domains();
    let path = stage.path("balance.toml");
    let check = || run(&["check", text(&path)]);
    let checked = check();
    assert!(checked.status.success(), "{checked:?}");
    let guest = "name = \"g\", minimum = \"1MiB\", maximum = \"7MiB\", actuator = { kind = \"cgroup2\", path = \"/g\" }";
    fs::write(
        &path,
        format!("guest = [{{ {guest} }}]\ntotal = \"8MiB\"\n"),
    )
    .expect("a file");
    let checked = check();
    assert!(checked.status.success(), "{checked:?}");
    fs::write(&path, "total = \"8MiB\"\n[libvirt]\nminimun = \"1MiB\"\n").expect("a file");
    let checked = check();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains("minimun"), "{said}");
}

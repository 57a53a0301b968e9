//! `futae balance` from the command line: shares of a real `futae serve` are moved and returned.

use futae_agent_protocol::{Counters, Frame, Hello, Message, Sample};
use futae_testkit::nbd::Plain as Client;
use futae_testkit::wait::obtain;
use futae_tests::BLOCK;
use futae_tests::binary::{binary, futae, run};
use futae_tests::browser::{BROWSER, Browser};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{has, text};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
/// Of the exports: one is read in a few blocks, one here and there.
const NAMES: [&str; 2] = ["few", "many"];

fn config(stage: &Stage, head: &str) -> PathBuf {
    let path = stage.path("balance.toml");
    let guest = |name: &str| {
        format!(
            "[[guest]]\nname = \"{name}\"\nminimum = \"1MiB\"\nmaximum = \"7MiB\"\n\
             actuator = {{ kind = \"share\", control = \"{}\", export = \"{name}\" }}\n",
            stage.control.display()
        )
    };
    let body = format!(
        "total = \"8MiB\"\nperiod = 0.2\nreserve = \"0MiB\"\nevaluator = \"paper\"\n\
         return_on_exit = true\n{head}\n[paper]\nmove_when = \"always\"\nstep = \"1MiB\"\n{}{}",
        guest(NAMES[0]),
        guest(NAMES[1])
    );
    fs::write(&path, body).expect("a file");
    path
}

/// A server of two exports with 4 MiB each, beside the stage's own.
fn served() -> Stage {
    let mut stage = Stage::new(4096);
    let exports = NAMES.map(|name| {
        let image = stage.path(name);
        fs::copy(&stage.image, &image).expect("a copy");
        format!("{name}={},share=4MiB", image.display())
    });
    let [few, many] = &exports;
    stage.serve(&[
        "--export", few, "--export", many, "--cache", "9MiB", "--policy", "lru",
    ]);
    stage
}

fn share(stage: &Stage, name: &str) -> u64 {
    let status = stage.status();
    let engines = status["engines"].as_array().expect("engines");
    let its = engines.iter().find(|engine| engine["exports"][0] == name);
    let blocks = its.expect("its engine")["capacity_blocks"].as_u64();
    blocks.expect("a number") * BLOCK as u64 / MIB
}

fn read(socket: &Path) {
    let mut few = Client::connect(socket, NAMES[0]).expect("connects");
    let mut many = Client::connect(socket, NAMES[1]).expect("connects");
    for number in 0..300u64 {
        few.read(number % 8 * BLOCK as u64, BLOCK)
            .expect("reads")
            .expect("data");
        let place = number * 2_654_435_761 % 4096;
        many.read(place * BLOCK as u64, BLOCK)
            .expect("reads")
            .expect("data");
    }
}

#[test]
fn shares_move_and_are_returned() {
    let stage = served();
    let config = config(&stage, "");
    let mut balance = Running::start(
        "futae balance",
        futae(&["balance", "--json", "--config", text(&config)]),
    );
    let mut last = Value::Null;
    for _ in 0..40 {
        read(&stage.socket);
        last = serde_json::from_str(&balance.line()).expect("JSON");
        if share(&stage, NAMES[0]) == 1 {
            break;
        }
    }
    assert_eq!(
        (share(&stage, NAMES[0]), share(&stage, NAMES[1])),
        (1, 7),
        "{last}"
    );
    assert_eq!(last["problems"], serde_json::json!([]), "{last}");
    let ended = balance.stop();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!((share(&stage, NAMES[0]), share(&stage, NAMES[1])), (4, 4));
}

#[test]
fn one_balancer_at_a_time_has_a_configuration() {
    let stage = served();
    let config = config(&stage, "");
    let words = ["balance", "--periods", "1", "--config", text(&config)];
    let mut first = Running::start("futae balance", futae(&[words[0], words[3], words[4]]));
    first.line();
    let refused = run(&words);
    let said = String::from_utf8_lossy(&refused.stderr);
    let holder = format!("(process {})", first.id());
    assert!(said.contains(&holder), "{refused:?}");
    assert!(run(&[&words[..], &["--dry-run"]].concat()).status.success());
    assert!(first.stop().status.success());
}

/// An address of this machine that nobody listens at.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").to_string()
}

fn page(address: &str) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What stands in a table of the page in the row of a name, by its key.
fn cell(page: &str, table: &str, name: &str, key: &str) -> Option<String> {
    let (_, table) = page.split_once(&format!("<table id=\"{table}\">"))?;
    let (table, _) = table.split_once("</table>")?;
    let (_, row) = table.split_once(&format!("<tr data-name=\"{name}\">"))?;
    let (row, _) = row.split_once("</tr>")?;
    let (_, value) = row.split_once(&format!("data-key=\"{key}\" data-value=\""))?;
    Some(value.split_once('"')?.0.to_owned())
}

#[test]
fn the_page_has_the_moves_with_their_reasons() {
    let stage = served();
    let address = free_address();
    let config = config(&stage, &format!("web = \"tcp:{address}\""));
    let words = ["balance", "--json", "--config", text(&config)];
    let mut balance = Running::start("futae balance", futae(&words));
    let moved = (0..40).find_map(|_| {
        read(&stage.socket);
        let said: Value = serde_json::from_str(&balance.line()).expect("JSON");
        (said["reason"]["kind"] == "step").then_some(said)
    });
    let moved = moved.expect("something moves");
    let period = moved["period"].to_string();
    let body = obtain("the page has the move", || {
        let body = page(&address).map_err(|error| error.to_string())?;
        cell(&body, "moves", &period, "bytes").ok_or(body.clone())?;
        Ok::<_, String>(body)
    });
    let shown = |key: &str| cell(&body, "moves", &period, key).unwrap_or_default();
    let reason = &moved["reason"];
    let name = |at: &Value| NAMES[at.as_u64().expect("a guest") as usize];
    assert_eq!(shown("bytes"), reason["bytes"].to_string(), "{body}");
    assert_eq!(shown("from"), name(&reason["from"]));
    assert_eq!(shown("to"), name(&reason["to"]));
    let difference = reason["difference"].as_f64().expect("a number");
    let words = format!("difference {difference:.1} (threshold ");
    assert!(shown("why").contains(&words), "{}", shown("why"));
    assert!(shown("time").ends_with('Z') && shown("sizes").contains("MiB"));
    assert!(cell(&body, "guests", NAMES[1], "has_bytes").is_some());
    assert!(!body.contains("http://") && !body.contains("https://"));
    if has(BROWSER) {
        let seen = Browser::default().visit(&format!("http://{address}/"));
        assert_eq!(seen.console, Vec::<String>::new(), "{}", seen.dom);
        for table in ["guests", "moves"] {
            let there = seen.dom.contains(&format!("<table id=\"{table}\">"));
            assert!(there, "{table}\n{}", seen.dom);
        }
    }
    assert!(balance.stop().status.success());
}

/// A configuration by which nothing moves between guests, with this about the host.
fn for_the_host(stage: &Stage, host: &str) -> PathBuf {
    let path = config(stage, "");
    let text = fs::read_to_string(&path).expect("there");
    let text = text.replace("\"paper\"", "\"static\"");
    let paper = "[paper]\nmove_when = \"always\"\nstep = \"1MiB\"\n";
    let text = text.replacen(paper, &format!("[host]\n{host}\n"), 1);
    fs::write(&path, text).expect("a file");
    path
}

#[test]
fn the_cache_of_an_idle_guest_is_given_back_until_it_reads_again() {
    let stage = served();
    let config = for_the_host(&stage, "idle_after = 0.5");
    let words = ["balance", "--json", "--config", text(&config)];
    let mut balance = Running::start("futae balance", futae(&words));
    let mut few = Client::connect(&stage.socket, NAMES[0]).expect("connects");
    let mut many = Client::connect(&stage.socket, NAMES[1]).expect("connects");
    let busy = |client: &mut Client| {
        for _ in 0..50 {
            client.read(0, BLOCK).expect("reads").expect("data");
        }
    };
    // Who reads keeps what it has; who does not has its minimum.
    let mut said = Value::Null;
    obtain("the idle one has its minimum", || {
        busy(&mut few);
        said = serde_json::from_str(&balance.line()).expect("JSON");
        (share(&stage, NAMES[1]) == 1)
            .then_some(())
            .ok_or(said.to_string())
    });
    assert_eq!(share(&stage, NAMES[0]), 4, "{said}");
    let given = &said["given"][0];
    assert_eq!(
        (&given["cause"]["cause"], &given["guest"]),
        (&"idle".into(), &1.into()),
        "{said}"
    );
    obtain("it reads again and has what it had", || {
        busy(&mut few);
        busy(&mut many);
        let line = balance.line();
        (share(&stage, NAMES[1]) == 4).then_some(()).ok_or(line)
    });
    assert!(balance.stop().status.success());
}

#[test]
fn a_host_that_lacks_memory_gets_it_first() {
    let stage = served();
    let pressure = stage.path("pressure");
    let mut waited = 0u64;
    let mut wait_more = |micros: u64| {
        waited += micros;
        let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={waited}\n");
        fs::write(&pressure, text).expect("a file");
    };
    wait_more(0);
    let host = format!(
        "pressure = 0.2\npressure_file = \"{}\"",
        stage.path("pressure").display()
    );
    let config = for_the_host(&stage, &host);
    let mut balance = Running::start(
        "futae balance",
        futae(&["balance", "--config", text(&config)]),
    );
    let both = || (share(&stage, NAMES[0]), share(&stage, NAMES[1]));
    let mut lines = Vec::new();
    obtain("all have their minimum", || {
        wait_more(3_600_000_000);
        read(&stage.socket);
        lines.push(balance.line());
        (both() == (1, 1)).then_some(()).ok_or(lines.join("\n"))
    });
    let why = "waited for memory in 100.0 % of the period (threshold 20.0 %)";
    assert!(
        lines
            .iter()
            .any(|line| line.contains(why) && line.contains("MiB from few to the host")),
        "{lines:#?}"
    );
    obtain("all have what they had", || {
        lines.push(balance.line());
        (both() == (4, 4)).then_some(()).ok_or(lines.join("\n"))
    });
    assert!(balance.stop().status.success());
}

#[test]
fn a_dry_run_tells_the_numbers_and_moves_nothing() {
    let stage = served();
    let config = config(&stage, "");
    let words = [
        "balance",
        "--dry-run",
        "--periods",
        "8",
        "--config",
        text(&config),
    ];
    let mut balance = Running::start("futae balance", futae(&words));
    let mut said = Vec::new();
    for _ in 0..8 {
        read(&stage.socket);
        said.push(balance.line());
    }
    assert!(balance.wait().status.success());
    let moves = said.iter().filter(|line| line.contains("1.0 MiB from"));
    assert!(moves.count() > 1, "{said:#?}");
    assert!(
        said.iter().all(|line| line.contains("nothing was done")),
        "{said:#?}"
    );
    assert_eq!((share(&stage, NAMES[0]), share(&stage, NAMES[1])), (4, 4));
}

#[test]
fn what_is_wrong_with_a_configuration_is_said() {
    let stage = Stage::bare();
    for (head, said) in [
        ("colour = 1", "colour"),
        ("", "out of sight"),
        ("period = 7", "duplicate key"),
    ] {
        let config = config(&stage, head);
        let output = run(&["balance", "--config", text(&config)]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{said}: {errors}");
    }
    let output = run(&["balance", "--config", "/nowhere.toml"]);
    assert_eq!(output.status.code(), Some(1));
    for (set, said) in [
        ("grain = \"1GiB\"", "above the total"),
        ("step = \"0\"", "mrc.step is above 0"),
    ] {
        let config = stage.path("balance.toml");
        let guest = cgroup(&stage.path(said));
        let body = format!("total = \"16MiB\"\n[mrc]\n{set}\n{guest}");
        fs::write(&config, body).expect("a file");
        let output = run(&["balance", "--config", text(&config)]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{said}: {errors}");
    }
}

#[test]
fn counts_that_no_guest_reaches_are_named() {
    let stage = Stage::bare();
    let (config, agent) = (stage.path("balance.toml"), stage.path("agent.sock"));
    let body = format!(
        "total = \"16MiB\"\nperiod = 0.2\nreserve = \"0MiB\"\n{}agent = {{ listen = {agent:?} }}\n",
        cgroup(&stage.path("group"))
    );
    fs::write(&config, body).expect("a file");
    let words = ["balance", "--config", text(&config)];
    let mut balance = Running::start("futae balance", futae(&words));
    let mut lies = obtain("it listens", || UnixStream::connect(&agent));
    for sequence in 0.. {
        let message = if sequence == 0 {
            Message::Hello(Hello::default())
        } else {
            let total = Counters {
                accesses: u64::MAX,
                ..Counters::default()
            };
            Message::Sample(Sample {
                total,
                ..Sample::default()
            })
        };
        let frame = Frame { sequence, message }.encode();
        lies.write_all(&frame).expect("it is heard");
        if sequence > 0 && balance.line().contains("counts that no guest reaches") {
            break;
        }
        assert!(sequence < 100, "it was not named");
    }
    balance.stop();
}

/// A guest that is a directory with the files of a cgroup, and begins with 2 MiB more than it has.
fn cgroup(directory: &Path) -> String {
    fs::create_dir(directory).expect("a directory");
    fs::write(directory.join("memory.high"), (4 * MIB).to_string()).expect("a file");
    fs::write(directory.join("memory.current"), "0").expect("a file");
    format!(
        "[[guest]]\nname = \"group\"\nminimum = \"1MiB\"\nmaximum = \"7MiB\"\nstart = \"6MiB\"\n\
         actuator = {{ kind = \"cgroup2\", path = {directory:?} }}\n"
    )
}

#[test]
fn it_ends_also_while_every_period_takes_too_long() {
    let stage = Stage::bare();
    let (config, group) = (stage.path("balance.toml"), stage.path("group"));
    // A monitor that never says anything: connections stay in the queue of its socket.
    let socket = stage.path("silent.qmp");
    let _silent = UnixListener::bind(&socket).expect("a socket");
    let body = format!(
        "total = \"16MiB\"\nperiod = 1\nreserve = \"0MiB\"\nevaluator = \"static\"\nreturn_on_exit = true\n{}\
         [[guest]]\nname = \"silent\"\nminimum = \"1MiB\"\nmaximum = \"7MiB\"\nstart = \"4MiB\"\n\
         actuator = {{ kind = \"qmp\", socket = {socket:?} }}\n",
        cgroup(&group)
    );
    fs::write(&config, body).expect("a file");
    let words = ["balance", "--config", text(&config)];
    let mut balance = Running::start("futae balance", futae(&words));
    let high = || fs::read_to_string(group.join("memory.high")).expect("a file");
    obtain("it is told, and the other one is late", || {
        let line = balance.line();
        let is_late = line.contains("silent: ") && line.contains("not answered within 2s");
        (is_late && high() == (6 * MIB).to_string())
            .then_some(())
            .ok_or(line)
    });
    let ended = balance.stop();
    assert_eq!(high(), (4 * MIB).to_string());
    assert!(
        ended
            .errors
            .contains("silent: its memory before is not known"),
        "{ended:?}"
    );
}

#[test]
fn a_recording_that_fails_ends_whole_and_the_balancer_goes_on() {
    let stage = Stage::bare();
    let (config, samples) = (stage.path("balance.toml"), stage.path("samples.jsonl"));
    let body = format!(
        "total = \"16MiB\"\nperiod = 0.1\nreserve = \"0MiB\"\n{}",
        cgroup(&stage.path("group"))
    );
    fs::write(&config, body).expect("a file");
    // A file has one block at most: the line that crosses its end is written in part, as on a disk that becomes full.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"",
        text(binary()),
    ]);
    command.args(["balance", "--config", text(&config), "--periods", "12"]);
    let ended = Running::start("futae balance", {
        command.args(["--record", text(&samples)]);
        command
    })
    .wait();
    assert!(ended.status.success(), "{ended:?}");
    let periods = ended
        .lines
        .iter()
        .filter(|line| line.starts_with("period "));
    assert_eq!(periods.count(), 12, "{ended:?}");
    let said = format!("--record {}: ", text(&samples));
    assert_eq!(ended.errors.matches(&said).count(), 1, "{ended:?}");
    let whole = fs::read_to_string(&samples).expect("there");
    assert!(whole.ends_with("}\n"), "{whole}");
    let lines = whole.lines().count();
    assert!((2..12).contains(&lines), "{whole}");

    // Of a line that is cut off nothing is used, and nothing is lost but that line.
    fs::write(&samples, &whole[..whole.len() - 10]).expect("a file");
    let advise = ["balance", "--config", text(&config), "--advise"];
    let output = run(&[&advise[..], &[text(&samples)]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let warning = format!("{}: line {lines} is cut off", text(&samples));
    assert!(errors.contains(&warning), "{errors}");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains(&format!("{} periods", lines - 1)), "{out}");
}

#[test]
fn what_guests_had_is_given_back_at_sighup_and_after_a_kill() {
    let stage = Stage::bare();
    let (config, group) = (stage.path("balance.toml"), stage.path("group"));
    let body = format!(
        "total = \"16MiB\"\nperiod = 0.1\nreserve = \"0MiB\"\nevaluator = \"static\"\nreturn_on_exit = true\n{}",
        cgroup(&group)
    );
    fs::write(&config, body).expect("a file");
    let high = || fs::read_to_string(group.join("memory.high")).expect("a file");
    let kept = stage.path("kept");
    let start = || {
        let mut command = futae(&["balance", "--config", text(&config)]);
        command.env("RUNTIME_DIRECTORY", &kept);
        let mut balance = Running::start("futae balance", command);
        balance.line();
        assert_eq!(high(), (6 * MIB).to_string(), "the guest is told");
        balance
    };
    let had = (4 * MIB).to_string();
    for signals in [&[Signal::HUP][..], &[Signal::KILL, Signal::TERM]] {
        for (at, signal) in signals.iter().enumerate() {
            let mut balance = start();
            // The next one finds the guest as this one has left it.
            balance.signal(*signal);
            let ended = balance.wait();
            let is_last = at + 1 == signals.len();
            assert_eq!(ended.status.success(), is_last, "{ended:?}");
            assert_eq!(high() == had, is_last, "{signal:?}");
        }
        let files = fs::read_dir(&kept).expect("a directory").flatten();
        let mut left = files.filter(|file| file.path().extension() != Some("lock".as_ref()));
        assert!(left.next().is_none(), "nothing is left to give back");
    }
}

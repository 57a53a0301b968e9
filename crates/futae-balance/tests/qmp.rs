//! Against monitors of QEMU that answer, stall, break off and babble; and against a real one.

mod common;

use common::{MIB, Manner, Monitor};
use futae_balance::{Config, Controller};
use futae_testkit::wait::eventually;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An agent that says the same again and again, in frames.
struct Agent(Arc<AtomicBool>);

impl Agent {
    fn start(path: &Path, hits: u64, misses: u64) -> Self {
        use futae_agent_protocol::{Counters, Frame, Hello, Message, Sample};
        let listener = UnixListener::bind(path).expect("a socket");
        let silent = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&silent);
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the allocator");
            let run = hits.wrapping_add(1);
            for sequence in 0.. {
                let message = if sequence == 0 {
                    Message::Hello(Hello {
                        run,
                        ..Hello::default()
                    })
                } else {
                    let total = Counters {
                        accesses: hits + misses,
                        misses,
                        ..Counters::default()
                    };
                    Message::Sample(Sample {
                        total,
                        period_us: 20_000,
                        ..Sample::default()
                    })
                };
                let is_silent = its.load(Ordering::SeqCst) && sequence > 0;
                if !is_silent
                    && stream
                        .write_all(&Frame { sequence, message }.encode())
                        .is_err()
                {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self(silent)
    }
}

fn config(place: &Path, more: &str) -> Config {
    let place = place.display();
    let guest = |name: &str, start: u64| {
        format!(
            "[[guest]]\nname = \"{name}\"\nminimum = \"64MiB\"\nmaximum = \"320MiB\"\n\
             start = \"{start}MiB\"\nagent = {{ connect = \"{place}/{name}.agent\" }}\n\
             actuator = {{ kind = \"qmp\", socket = \"{place}/{name}.qmp\" }}\n"
        )
    };
    let text = format!(
        "total = \"384MiB\"\nperiod = 0.2\nreserve = \"0MiB\"\nevaluator = \"paper\"\n{more}\n\
         [paper]\nmove_when = \"always\"\nstep = \"16MiB\"\n{}{}",
        guest("a", 192),
        guest("b", 192)
    );
    Config::parse(&text).expect("a good configuration")
}

/// Both monitors, both agents.
fn stage(place: &Path) -> ([Monitor; 2], [Agent; 2]) {
    let monitors =
        ["a", "b"].map(|name| Monitor::start(&place.join(format!("{name}.qmp")), 192 * MIB));
    let agents = [("a", 1000, 0), ("b", 100, 900)].map(|(name, hits, misses)| {
        Agent::start(&place.join(format!("{name}.agent")), hits, misses)
    });
    (monitors, agents)
}

/// Periods until this is so; it must be so in the end.
fn until(controller: &mut Controller, what: &str, is_so: impl Fn() -> bool) {
    eventually(what, || {
        controller.period();
        is_so()
    });
}

#[test]
fn balloons_follow_what_agents_tell_and_are_returned() {
    let place = tempfile::tempdir().expect("a directory");
    let ([a, b], _agents) = stage(place.path());
    let mut controller =
        Controller::new(&config(place.path(), "return_on_exit = true"), false).expect("starts");
    until(&mut controller, "moved to the minimum", || {
        a.mib() == 64 && b.mib() == 320
    });
    assert_eq!(controller.end(), Vec::<String>::new());
    assert_eq!((a.mib(), b.mib()), (192, 192));
}

#[test]
fn a_dry_run_says_and_does_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let ([a, b], _agents) = stage(place.path());
    let mut controller = Controller::new(&config(place.path(), ""), true).expect("starts");
    let mut said = 0;
    eventually("it says so again and again", || {
        let report = controller.period();
        if report.decision.moves() {
            said += 1;
            assert_eq!(report.decision.guests[0].target, 176 * MIB);
        }
        said > 3
    });
    assert_eq!((a.mib(), b.mib()), (192, 192));
}

#[test]
fn a_silent_agent_freezes_its_guest() {
    let place = tempfile::tempdir().expect("a directory");
    let ([a, b], agents) = stage(place.path());
    let mut controller = Controller::new(&config(place.path(), ""), false).expect("starts");
    until(&mut controller, "moved", || a.mib() < 192);
    agents[1].0.store(true, Ordering::SeqCst);
    eventually("b's samples have run out", || {
        controller.period().decision.guests[1].activity.is_none()
    });
    let before = (a.mib(), b.mib());
    for _ in 0..5 {
        controller.period();
    }
    assert_eq!((a.mib(), b.mib()), before);
}

#[test]
fn a_monitor_that_does_not_behave_costs_its_time_limit_and_nobody_else() {
    let place = tempfile::tempdir().expect("a directory");
    let ([a, b], _agents) = stage(place.path());
    let mut controller = Controller::new(&config(place.path(), ""), false).expect("starts");
    until(&mut controller, "moved", || a.mib() < 192);
    for manner in [
        Manner::Stalls,
        Manner::Gone,
        Manner::Babbles,
        Manner::Floods,
    ] {
        b.is(manner);
        let before = (a.mib(), b.mib());
        // A monitor that stalls does so for longer than any test waits.
        let report = controller.period();
        assert!(
            report
                .problems
                .iter()
                .any(|problem| problem.starts_with("b: ")),
            "{manner:?}"
        );
        assert_eq!(report.decision.guests[1].achieved, None);
        // What may still be b's is not given to a.
        assert!(a.mib() <= before.0 && b.mib() == before.1, "{manner:?}");
    }
    b.is(Manner::Good);
    until(&mut controller, "recovered", || {
        a.mib() == 64 && b.mib() == 320
    });
}

#[test]
fn a_guest_out_of_sight_without_a_start_is_refused() {
    let text = "total = \"1GiB\"\n[[guest]]\nname = \"x\"\nminimum = \"1MiB\"\nmaximum = \"1GiB\"\n\
                actuator = { kind = \"qmp\", socket = \"/nowhere/qmp.sock\" }";
    let config = Config::parse(text).expect("good");
    let error = Controller::new(&config, false)
        .err()
        .expect("refused")
        .to_string();
    assert!(
        error.contains("\"x\"") && error.contains("start"),
        "{error}"
    );
}

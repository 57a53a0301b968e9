//! The balloon of a real guest: down and up, and returned.

use futae_balance::actuator::Actuator;
use futae_balance::{Config, Controller};
use futae_machine::{Guest, Kernel, Plan};
use futae_testkit::wait::eventually;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// MiB that the guest's kernel manages.
fn total(guest: &mut Guest) -> u64 {
    let said = guest.run("grep MemTotal /proc/meminfo").expect("it runs");
    let kib = said.stdout.split_whitespace().nth(1).expect("a number");
    kib.parse::<u64>().expect("a number") / 1024
}

#[test]
fn a_real_balloon_is_filled_emptied_and_returned() {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let plan = Plan::new(Kernel::Debian61)
        .cache(cache)
        .free_page_reporting();
    let mut guest = match plan.boot() {
        Ok(guest) => guest,
        Err(error) if error.is_missing() => {
            // Past the capturing of tests' output; nobody misses what nobody can read.
            futae_testkit::need::skip(futae_testkit::need::Need::Qemu, &error.to_string());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let before = total(&mut guest);
    let socket = guest.monitor();
    let actuator = Actuator::Qmp {
        socket: socket.clone(),
    };
    let has = || actuator.achieved().expect("it answers") / MIB;
    assert_eq!(has(), 512);
    actuator.order(384 * MIB).expect("it is told");
    eventually("384 MiB", || has() == 384);
    let less = total(&mut guest);
    assert!(before - less >= 120, "{before} MiB became {less}");
    actuator.order(448 * MIB).expect("it is told");
    eventually("448 MiB", || has() == 448);
    assert!(total(&mut guest) > less);
    // What the guest frees is the host's, and the balloon stays as it is.
    let resident = |guest: &Guest| guest.resident_bytes().expect("it runs") / MIB;
    let fill = guest.run("dd if=/dev/zero of=/fill bs=1M count=128");
    assert_eq!(fill.expect("it runs").status, 0);
    let full = resident(&guest);
    guest.run("rm /fill").expect("it runs");
    eventually("the host has what was freed", || {
        resident(&guest) + 96 <= full
    });
    assert_eq!(has(), 448);
    // A guest begins with what the configuration says, and has back what it had before.
    let text = format!(
        "total = \"1GiB\"\nperiod = 0.2\nreserve = \"0MiB\"\nreturn_on_exit = true\n[host]\npressure = 1\n[[guest]]\n\
         name = \"a\"\nminimum = \"256MiB\"\nmaximum = \"512MiB\"\nstart = \"320MiB\"\n\
         actuator = {{ kind = \"qmp\", socket = \"{}\" }}\n",
        socket.display()
    );
    let config = Config::parse(&text).expect("good");
    let mut controller = Controller::new(&config, false).expect("starts");
    let report = controller.period();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.hints, Vec::<String>::new());
    eventually("320 MiB", || has() == 320);
    assert_eq!(controller.end(), Vec::<String>::new());
    eventually("448 MiB again", || has() == 448);
    // QEMU ends: it is out of sight, and that is said.
    drop(guest);
    let error = actuator.achieved().expect_err("it is gone");
    assert!(error.contains("qmp.sock"), "{error}");
}

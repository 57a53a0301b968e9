//! `futae balance` with real guests and everything against it: Debian kernels in QEMU with balloons and agents, under loads that
//! change, while agents are killed, guests are killed and booted again, QEMU is stopped, and somebody with the port of an
//! agent lies in every way. In every period the bounds hold, by what `futae balance` says and by what QEMU says; nobody in
//! a guest is ever killed by the OOM killer; and in the end memory still moves.
//!
//! `FUTAE_SOAK_PERIODS` says how many periods have disturbances, and `FUTAE_SOAK_SEED` which; every kind comes at least once, however
//! few periods there are. Half an hour is 180: it is counted in periods, since the allocator knows no other time, and by
//! default a period is 10 seconds. Here it is half a second. What takes its own time (a boot, the start of an agent, a
//! stalled monitor) so takes more periods than it would, and the guests do less in each.

mod driver;
mod ledger;
mod lies;
mod machine;
mod schedule;
mod watch;

use driver::{Driver, Order};
use futae_machine::GuestError;
use futae_policy::Prng;
use futae_testkit::wait::PATIENCE;
use futae_tests::binary::futae;
use futae_tests::process::Running;
use futae_tests::tools::Need;
use futae_tests::tools::{skip, text};
use ledger::Ledger;
use machine::Place;
use rustix::process::Signal;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{Write, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const GUESTS: usize = 2;
/// With 128 MiB, of which the kernel and the program in the guest's memory take 90, the guest once ran out of memory and killed its agent as it
/// started.
const LEAST: u64 = 144 * MIB;
const MOST: u64 = 224 * MIB;
const START: u64 = 176 * MIB;
const TOTAL: u64 = GUESTS as u64 * START;
/// Moves in a period.
const STEP: u64 = 16 * MIB;
/// By so much each guest may be off what it was told without being told again.
const SLACK: u64 = GUESTS as u64 * MIB;
/// Unless `FUTAE_SOAK_PERIODS` says otherwise.
const PERIODS: u64 = 40;
/// In these all that can be had must move to a guest that needs it, when all is calm.
const CALM_PERIODS: u64 = 200;
/// When the other has its minimum, it keeps it for this many.
const FURTHER_PERIODS: u64 = 8;
/// What a guest then reads, in MiB: more than it can have, or next to nothing.
const MUCH: u64 = 176;
const LITTLE: u64 = 8;

fn number(name: &str, otherwise: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => otherwise,
    }
}

fn config(directory: &Path, places: &[Place; GUESTS]) -> String {
    let mib = |bytes: u64| format!("\"{}MiB\"", bytes / MIB);
    let mut config = format!(
        "total = {}\nperiod = 0.5\nreserve = \"0MiB\"\nreturn_on_exit = true\n[mrc]\nstep = {}\n",
        mib(TOTAL),
        mib(STEP)
    );
    for place in places {
        let written = write!(
            config,
            "[[guest]]\nname = \"{}\"\nminimum = {}\nmaximum = {}\nstart = {}\nagent = {{ listen = {:?} }}\n\
             actuator = {{ kind = \"qmp\", socket = {:?} }}\n",
            place.name,
            mib(LEAST),
            mib(MOST),
            mib(START),
            text(&place.agent),
            text(&place.monitor)
        );
        written.expect("a string takes it");
    }
    let path = directory.join("balance.toml");
    fs::write(&path, config).expect("a file");
    text(&path).to_owned()
}

/// A guest's driver, from here.
struct Reins {
    orders: Sender<Order>,
    done: Receiver<Result<u64, GuestError>>,
}

impl Reins {
    /// Whether it has done what it was told; it says how much memory the guest had left at the worst.
    fn is_done(&self) -> Option<u64> {
        match self.done.try_recv() {
            Ok(done) => Some(done.unwrap_or_else(|error| panic!("{error}"))),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the driver of a guest broke off"),
        }
    }

    fn tell(&self, order: Order) {
        self.orders
            .send(order)
            .expect("the driver of a guest listens");
    }
}

/// Has all threads end, however the test does.
struct Over<'a>(&'a AtomicBool, &'a Mutex<Ledger>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            // A guest whose port nobody reads would not answer its driver.
            let ledger = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            for process in ledger.processes() {
                machine::signal(process, Signal::KILL);
            }
        }
    }
}

/// A soak under way.
struct Soak<'a> {
    ledger: &'a Mutex<Ledger>,
    reins: [Reins; GUESTS],
    balance: Running,
    available_kib: u64,
}

impl Soak<'_> {
    /// Waits for the next decision and checks it.
    fn period(&mut self) {
        let line = self.balance.line();
        let line = serde_json::from_str(&line).expect("JSON");
        let mut ledger = self.ledger.lock().expect("a lock");
        ledger.line(&line);
        let wrong = ledger.wrong();
        drop(ledger);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Until all drivers have done what they were told.
    fn until_done(&mut self) {
        let mut waiting: Vec<usize> = (0..GUESTS).collect();
        while !waiting.is_empty() {
            self.period();
            let (reins, least) = (&self.reins, &mut self.available_kib);
            waiting.retain(|&at| match reins[at].is_done() {
                Some(available) => {
                    *least = available.min(*least);
                    false
                }
                None => true,
            });
        }
    }

    fn book<T>(&self, what: impl FnOnce(&Ledger) -> T) -> T {
        what(&self.ledger.lock().expect("a lock"))
    }

    /// MiB that `futae balance` had at most.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.balance.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("a number") >> 10
    }

    /// All that can be had moves to the guest that has less and needs more. Returns how many periods that took.
    fn moves_still(&mut self) -> u64 {
        let targets: Vec<u64> =
            self.book(|ledger| (0..GUESTS).map(|at| ledger.target(at)).collect());
        let needy = usize::from(targets[1] < targets[0]);
        for (at, reins) in self.reins.iter().enumerate() {
            reins.tell(Order::Calm(if at == needy { MUCH } else { LITTLE }));
        }
        self.until_done();
        let begin = self.book(Ledger::lines);
        loop {
            self.period();
            let (now, has, target) =
                self.book(|ledger| (ledger.lines(), ledger.has(needy), ledger.target(needy)));
            // All that the other has above its minimum, but for a grain.
            let wanted = TOTAL - LEAST - MIB;
            if target >= wanted && has.is_some_and(|has| has + SLACK >= wanted) {
                // It gets no more than that.
                (0..FURTHER_PERIODS).for_each(|_| self.period());
                return now - begin;
            }
            assert!(
                now < begin + CALM_PERIODS,
                "nothing moves any more: {has:?} {target}"
            );
        }
    }
}

#[test]
fn bounds_hold_with_real_guests_and_everything_against_them() {
    let periods = number("FUTAE_SOAK_PERIODS", PERIODS);
    let seed = number("FUTAE_SOAK_SEED", 1);
    let stage = tempfile::tempdir().expect("a directory");
    let places: [Place; GUESTS] =
        std::array::from_fn(|at| Place::new(stage.path(), &format!("g{at}")));
    let (ledger, is_over) = (Mutex::new(Ledger::new(START)), AtomicBool::new(false));
    let mut random = Prng::new(seed);
    std::thread::scope(|scope| {
        let over = Over(&is_over, &ledger);
        let reins = std::array::from_fn(|guest| {
            let (orders, told) = channel();
            let (doing, done) = channel();
            let (place, ledger, is_over) = (&places[guest], &ledger, &is_over);
            let driver = Driver {
                guest,
                place,
                ledger,
                is_over,
                random: Prng::new(random.bits()),
                unheard: 0,
            };
            scope.spawn(move || driver.run(&told, &doing));
            Reins { orders, done }
        });
        for one in &reins {
            match one.done.recv().expect("the driver of a guest breaks off") {
                Err(error) if error.is_missing() => return skip(Need::Qemu, &error.to_string()),
                Err(error) => panic!("{error}"),
                Ok(_) => {}
            }
        }
        let words = [
            "balance",
            "--json",
            "--config",
            &config(stage.path(), &places),
        ];
        let balance = Running::start("futae balance", futae(&words));
        scope.spawn(|| watch::watch(&places, &ledger, &is_over));
        let mut soak = Soak {
            ledger: &ledger,
            reins,
            balance,
            available_kib: u64::MAX,
        };
        for (reins, musts) in soak.reins.iter().zip(schedule::musts(&mut random)) {
            reins.tell(Order::Disturb(musts, periods));
        }
        soak.until_done();
        let calm = soak.moves_still();
        let report = soak.book(|ledger| format!(
            "seed {seed}, {periods} periods of disturbances: {ledger}\n\
             {} MiB could be had in a guest at the worst; {calm} periods after the last disturbance a guest had all that another could give; futae balance \
                 itself had {} MiB at most",
            soak.available_kib >> 10,
            soak.memory()
        ));
        let _ = writeln!(stderr(), "{report}");
        let kinds = soak.book(|ledger| ledger.events().len());
        assert_eq!(kinds, 5 + lies::Lie::ALL.len(), "{report}");
        assert!(soak.book(Ledger::frozen) > 0, "{report}");
        // 32 MiB of each agent, and what is made of them.
        assert!(soak.memory() < 512, "{report}");
        // The guests live, and get back what they had.
        let ended = soak.balance.stop();
        assert!(ended.status.success(), "{ended:?}");
        drop(over);
        for place in &places {
            let end = Instant::now() + PATIENCE;
            while watch::has(&place.watch).expect("it is there") != machine::BOOT_MIB * MIB {
                assert!(
                    Instant::now() < end,
                    "{}: it does not get back what it had",
                    place.name
                );
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
}

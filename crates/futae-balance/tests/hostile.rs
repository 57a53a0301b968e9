//! Half an hour of periods with everything at once, over real sockets: loads that change, agents that crash,
//! lie, play again what they said, flood and babble; guests that die and are started again; monitors that
//! are slow, gone or talk nonsense; balloons that stop half-way. Whatever happens, no order is ever out of
//! bounds.

mod common;

use common::{MIB, Manner, Monitor};
use futae_agent_protocol::{Counters, Frame, Hello, Memory, Message, Pressure, References, Sample};
use futae_balance::{Config, Controller};
use futae_policy::Prng;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GUESTS: usize = 3;
const LEAST: u64 = 64 * MIB;
const MOST: u64 = 400 * MIB;
const START: u64 = 200 * MIB;
const TOTAL: u64 = GUESTS as u64 * START;
/// By so much each guest may be off what it was told without being told again.
const SLACK: u64 = GUESTS as u64 * MIB;
/// Half an hour of ten seconds each.
const PERIODS: u64 = 180;
const PERIOD: Duration = Duration::from_millis(15);

/// How an agent behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Honest,
    Silent,
    /// Counts that cannot be.
    Huge,
    /// More misses than reads, more waiting than time.
    Negative,
    /// The same frame again and again.
    Replays,
    /// As much as the socket takes.
    Floods,
    /// Frames that announce more than there may be, and bytes that are no frames.
    Oversized,
    /// Breaks off; another run begins with the next connection.
    Crashes,
}

const MOODS: [Mood; 8] = [
    Mood::Honest,
    Mood::Silent,
    Mood::Huge,
    Mood::Negative,
    Mood::Replays,
    Mood::Floods,
    Mood::Oversized,
    Mood::Crashes,
];

/// An agent, and the load of its guest.
struct Agent {
    mood: Arc<Mutex<Mood>>,
    /// MiB that are read evenly.
    set: Arc<AtomicU64>,
}

impl Agent {
    fn start(path: &Path, has: &Arc<AtomicU64>, seed: u64) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let (mood, set) = (
            Arc::new(Mutex::new(Mood::Honest)),
            Arc::new(AtomicU64::new(100)),
        );
        let mut voice = Voice {
            mood: Arc::clone(&mood),
            set: Arc::clone(&set),
            has: Arc::clone(has),
            random: Prng::new(seed),
            sequence: 0,
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that does not listen is not waited for.
                let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
                voice.sequence = 0;
                let _ = voice.talk(stream);
            }
        });
        Self { mood, set }
    }
}

struct Voice {
    mood: Arc<Mutex<Mood>>,
    set: Arc<AtomicU64>,
    has: Arc<AtomicU64>,
    random: Prng,
    sequence: u64,
}

impl Voice {
    fn frame(&mut self, message: Message) -> Vec<u8> {
        let sequence = self.sequence;
        self.sequence += 1;
        Frame { sequence, message }.encode()
    }

    fn talk(&mut self, mut stream: UnixStream) -> std::io::Result<()> {
        let run = self.random.bits();
        let hello = Message::Hello(Hello {
            run,
            ..Hello::default()
        });
        let hello = self.frame(hello);
        stream.write_all(&hello)?;
        loop {
            let mood = *self.mood.lock().expect("a lock");
            let said = match mood {
                Mood::Crashes => return Ok(()),
                Mood::Silent => Vec::new(),
                Mood::Honest => [self.references(400), self.sample()].concat(),
                Mood::Huge => self.lie(u64::MAX, 0, u64::MAX),
                Mood::Negative => self.lie(5, u64::MAX / 2, 0),
                Mood::Replays => hello.repeat(20),
                Mood::Floods => {
                    let much = self.references(References::MAX_PAGES);
                    for _ in 0..20 {
                        stream.write_all(&much)?;
                    }
                    much
                }
                Mood::Oversized => self.oversized(),
            };
            stream.write_all(&said)?;
            std::thread::sleep(PERIOD / 4);
        }
    }

    /// Reads of pages of the set, a quarter of all pages being in the sample.
    fn references(&mut self, count: usize) -> Vec<u8> {
        let pages = self.set.load(Ordering::SeqCst) * MIB / 4096;
        let pages = (0..count).map(|_| {
            let page = self.random.bits() % pages / 4;
            page.wrapping_mul(0x9E37_79B9_7F4A_7C15) << 24
        });
        let pages = pages.collect();
        let threshold = References::ALL / 4;
        self.frame(Message::References(References { threshold, pages }))
    }

    fn sample(&mut self) -> Vec<u8> {
        let (has, set) = (
            self.has.load(Ordering::SeqCst) / MIB,
            self.set.load(Ordering::SeqCst),
        );
        let accesses = 1600;
        let misses = accesses * set.saturating_sub(has) / set;
        self.told(accesses, misses, has * MIB, 0)
    }

    fn lie(&mut self, accesses: u64, misses: u64, period: u64) -> Vec<u8> {
        let cached = self.random.bits();
        let pressure = self.random.bits();
        let mut said = self.told(accesses, misses, cached, pressure);
        said.extend(self.told(accesses, period, cached, 0));
        said
    }

    fn told(&mut self, accesses: u64, misses: u64, cached: u64, full_us: u64) -> Vec<u8> {
        self.frame(Message::Sample(Sample {
            period_us: PERIOD.as_micros() as u64 / 4,
            total: Counters {
                accesses,
                misses,
                ..Counters::default()
            },
            memory: Memory {
                cached,
                ..Memory::default()
            },
            pressure: Some(Pressure {
                some_us: full_us,
                full_us,
            }),
            ..Sample::default()
        }))
    }

    fn oversized(&mut self) -> Vec<u8> {
        let mut said = self.references(10);
        // The length of the payload, with and without a checksum that fits.
        said[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut fitting = said.clone();
        let checksum = crc32fast::hash(&fitting[..24]);
        fitting[24..28].copy_from_slice(&checksum.to_le_bytes());
        said.extend(fitting);
        said.extend((0..5000).map(|_| self.random.bits() as u8));
        said.extend(b"FtRpFtRpFtRp".repeat(50));
        said
    }
}

/// What the guests have in fact, and what was wrong with an order.
#[derive(Default)]
struct Ledger {
    has: Vec<Arc<AtomicU64>>,
    wrong: Vec<String>,
    orders: u64,
}

impl Ledger {
    fn order(&mut self, guest: usize, has: u64, told: u64) {
        self.orders += 1;
        if !(LEAST..=MOST).contains(&told) {
            self.wrong.push(format!("guest {guest} is told {told}"));
        }
        let others = (0..self.has.len()).filter(|&other| other != guest);
        let others: u64 = others.map(|at| self.has[at].load(Ordering::SeqCst)).sum();
        if told > has && told + others > TOTAL + SLACK {
            let wrong = format!("guest {guest} of {has} is told {told} while others have {others}");
            self.wrong.push(wrong);
        }
    }
}

fn config(place: &Path, evaluator: &str) -> Config {
    let guest = |number: usize| {
        let place = place.display();
        format!(
            "[[guest]]\nname = \"g{number}\"\nminimum = \"64MiB\"\nmaximum = \"400MiB\"\nstart = \"200MiB\"\n\
             agent = {{ connect = \"{place}/{number}.agent\" }}\n\
             actuator = {{ kind = \"qmp\", socket = \"{place}/{number}.qmp\" }}\n"
        )
    };
    let guests: String = (0..GUESTS).map(guest).collect();
    let settings = match evaluator {
        "paper" => "[paper]\nmove_when = \"always\"\nstep = \"16MiB\"\n",
        _ => "",
    };
    let text = format!(
        "total = \"600MiB\"\nperiod = 0.1\nreserve = \"0MiB\"\nreturn_on_exit = true\n\
         evaluator = \"{evaluator}\"\n{settings}{guests}"
    );
    Config::parse(&text).expect("a good configuration")
}

/// Whether something of this probability in 1000 happens.
fn happens(random: &mut Prng, in_a_thousand: u64) -> bool {
    random.bits() % 1000 < in_a_thousand
}

fn soak(evaluator: &str, seed: u64) {
    let place = tempfile::tempdir().expect("a directory");
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (mut monitors, mut agents) = (Vec::new(), Vec::new());
    let is_calm = Arc::new(AtomicBool::new(false));
    for guest in 0..GUESTS {
        let book = Arc::clone(&ledger);
        let (told_before, calm) = (AtomicU64::new(0), Arc::clone(&is_calm));
        let balloon = Arc::new(move |has: u64, told: u64| {
            book.lock().expect("a lock").order(guest, has, told);
            // Every third time it stops half-way.
            let third = told_before.fetch_add(1, Ordering::SeqCst) % 3 == 2;
            let stops = third && !calm.load(Ordering::SeqCst);
            if stops { has.midpoint(told) } else { told }
        });
        let path = |end: &str| place.path().join(format!("{guest}.{end}"));
        let monitor = Monitor::with(&path("qmp"), START, balloon);
        agents.push(Agent::start(
            &path("agent"),
            &monitor.actual,
            seed + guest as u64,
        ));
        let has = Arc::clone(&monitor.actual);
        ledger.lock().expect("a lock").has.push(has);
        monitors.push(monitor);
    }
    let mut controller = Controller::new(&config(place.path(), evaluator), false).expect("starts");
    let random = &mut Prng::new(seed);
    let (mut moves, mut frozen, mut dead) = (0, 0, [0; GUESTS]);
    for _ in 0..PERIODS {
        for guest in 0..GUESTS {
            if happens(random, 30) {
                let mib = 32 + random.bits() % 500;
                agents[guest].set.store(mib, Ordering::SeqCst);
            }
            let mut mood = agents[guest].mood.lock().expect("a lock");
            if happens(random, 60) {
                *mood = MOODS[(random.bits() % MOODS.len() as u64) as usize];
            } else if happens(random, 250) {
                *mood = Mood::Honest;
            }
            drop(mood);
            if dead[guest] > 0 {
                dead[guest] -= 1;
                if dead[guest] == 0 {
                    // It is started again, with all of its memory.
                    monitors[guest].actual.store(MOST, Ordering::SeqCst);
                    monitors[guest].is(Manner::Good);
                    *agents[guest].mood.lock().expect("a lock") = Mood::Honest;
                }
            } else if happens(random, 10) {
                dead[guest] = 1 + random.bits() % 10;
                monitors[guest].actual.store(0, Ordering::SeqCst);
                monitors[guest].is(Manner::Gone);
                *agents[guest].mood.lock().expect("a lock") = Mood::Crashes;
            } else if happens(random, 60) {
                let manners = [Manner::Good, Manner::Slow, Manner::Babbles, Manner::Gone];
                monitors[guest].is(manners[(random.bits() % 4) as usize]);
            }
        }
        std::thread::sleep(PERIOD);
        let decision = controller.period().decision;
        moves += u64::from(decision.moves());
        for guest in &decision.guests {
            if guest.activity.is_none() {
                frozen += 1;
                assert_eq!(guest.before, guest.target, "it is not heard: {decision}");
            }
        }
        assert!(
            controller.targets().iter().sum::<u64>() <= TOTAL,
            "{decision}"
        );
        let wrong = std::mem::take(&mut ledger.lock().expect("a lock").wrong);
        assert_eq!(wrong, Vec::<String>::new(), "seed {seed}: {decision}");
    }
    for (monitor, dead) in monitors.iter().zip(dead) {
        monitor.is(Manner::Good);
        if dead > 0 {
            monitor.actual.store(MOST, Ordering::SeqCst);
        }
    }
    let orders = ledger.lock().expect("a lock").orders;
    let seen = format!("{evaluator}: {orders} orders, {moves} moves, {frozen} times left as it is");
    let _ = writeln!(std::io::stderr(), "{seen}");
    assert!(orders > 20 && moves > 3 && frozen > 50, "{seen}");
    is_calm.store(true, Ordering::SeqCst);
    assert_eq!(controller.end(), Vec::<String>::new());
    let returned: Vec<u64> = monitors.iter().map(Monitor::mib).collect();
    assert_eq!(returned, [START / MIB; GUESTS]);
}

#[test]
fn no_order_is_out_of_bounds_whatever_agents_and_monitors_do() {
    std::thread::scope(|scope| {
        scope.spawn(|| soak("mrc", 1));
        scope.spawn(|| soak("paper", 2));
    });
}

//! Does to one guest what is to be done, in a thread of its own: QEMU ends with the thread that booted it.

use crate::ledger::Ledger;
use crate::lies::Lie;
use crate::machine::{DISK_MIB, Machine, Place};
use crate::schedule::{Event, any};
use futae_machine::GuestError;
use futae_policy::Prng;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Until an agent must be heard, or a balloon have its size, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// What may take memory of its own in a guest, in MiB: a guest with its minimum still has it.
const HOG_MIB: u64 = 24;

/// What a driver is told.
pub enum Order {
    /// Disturb the guest: by this, and then by anything until this many periods are over.
    Disturb(Vec<Event>, u64),
    /// Have it read this many MiB in peace.
    Calm(u64),
}

/// Drives one guest.
pub struct Driver<'a> {
    pub guest: usize,
    pub place: &'a Place,
    pub ledger: &'a Mutex<Ledger>,
    pub is_over: &'a AtomicBool,
    pub random: Prng,
    /// Periods in which the guest had been heard when its agent was started.
    pub unheard: u64,
}

impl Driver<'_> {
    /// Boots the guest, and follows orders until there are no more. Says after each that it is done: with the least
    /// memory that the guest could have had without anybody giving any up, in KiB.
    pub fn run(mut self, orders: &Receiver<Order>, done: &Sender<Result<u64, GuestError>>) {
        let mut machine = match Machine::boot(self.place) {
            Ok(machine) => machine,
            Err(error) => return drop(done.send(Err(error))),
        };
        self.book(|ledger, guest| ledger.lives(guest, machine.process()));
        // A caller that no longer waits for this has broken off.
        let mut available = u64::MAX;
        let _ = done.send(Ok(available));
        while let Ok(order) = orders.recv() {
            match order {
                Order::Disturb(musts, periods) => self.disturb(&mut machine, musts, periods),
                Order::Calm(mib) => machine.load(mib, "uniform", 1),
            }
            self.check(&mut machine);
            available = available.min(machine.available_kib);
            let _ = done.send(Ok(available));
        }
        self.check(&mut machine);
        self.book(|ledger, guest| ledger.lives(guest, None));
    }

    fn disturb(&mut self, machine: &mut Machine, musts: Vec<Event>, periods: u64) {
        self.revive(machine);
        self.load(machine);
        self.wait(machine, "have what it shall", |ledger, guest| {
            !ledger.is_fresh(guest)
        });
        for event in musts {
            self.event(machine, &event);
        }
        while self.book(|ledger, _| ledger.lines()) < periods {
            let event = any(&mut self.random);
            self.event(machine, &event);
        }
        self.wait_until_heard(machine);
    }

    fn event(&mut self, machine: &mut Machine, event: &Event) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let pause = self.random.below(500);
        self.rest(pause);
        if !matches!(event, Event::Load | Event::Hog | Event::Stall) {
            self.wait_until_heard(machine);
        }
        match event {
            Event::Load => self.load(machine),
            Event::Hog => {
                let mib = 1 + self.random.below(HOG_MIB);
                self.note("load: a hog", &format!(" of {mib} MiB"));
                machine.hog(mib);
            }
            Event::AgentDies => {
                self.note("agent killed", "");
                machine.kill_agent();
                self.silence(true);
                self.rest(1500);
                self.revive(machine);
            }
            Event::Reboot => self.reboot(machine),
            Event::Stall => {
                let time = Duration::from_millis(700 + self.random.below(3000));
                self.note("QEMU stalled", &format!(" for {time:?}"));
                machine.stall(time);
            }
            Event::Malice(lies) => {
                machine.kill_agent();
                for &lie in lies {
                    self.lie(machine, lie);
                }
                self.revive(machine);
            }
        }
        self.check(machine);
    }

    fn load(&mut self, machine: &mut Machine) {
        let mib = 8 + self.random.below(DISK_MIB - 8);
        let choice = ["uniform", "zipf(0.9)", "loop"][self.random.below(3) as usize];
        self.note("load", &format!(" of {mib} MiB, {choice}"));
        machine.load(mib, choice, self.random.bits() >> 32);
    }

    fn reboot(&mut self, machine: &mut Machine) {
        self.note("killed and rebooted", "");
        self.book(|ledger, guest| ledger.lives(guest, None));
        machine.end();
        self.book(Ledger::boots);
        self.silence(true);
        let before = machine.available_kib;
        *machine = Machine::boot(self.place).unwrap_or_else(|error| panic!("{error}"));
        machine.available_kib = before;
        self.book(|ledger, guest| ledger.lives(guest, machine.process()));
        self.load(machine);
        self.wait(machine, "have what it shall", |ledger, guest| {
            !ledger.is_fresh(guest)
        });
        self.revive(machine);
    }

    fn lie(&mut self, machine: &mut Machine, lie: Lie) {
        if lie == Lie::Replay {
            self.awaken();
            machine.start_recorded_agent();
            self.wait_until_heard(machine);
            machine.kill_agent();
        }
        self.note("malice: ", &lie.to_string());
        self.silence(lie.is_plain());
        if lie == Lie::Replay {
            machine.replay();
        } else {
            machine.lie(lie, &mut self.random);
        }
    }

    /// Starts an agent as it should be.
    fn revive(&mut self, machine: &mut Machine) {
        machine.start_agent();
        self.awaken();
    }

    /// What the guest says may be believed again, and counts from now on.
    fn awaken(&mut self) {
        self.silence(false);
        self.unheard = self.book(|ledger, guest| ledger.heard(guest));
    }

    /// The agent is heard again, whatever was said before it.
    fn wait_until_heard(&self, machine: &mut Machine) {
        let heard = self.unheard + 1;
        self.wait(machine, "speak", |ledger, guest| {
            ledger.heard(guest) > heard
        });
    }

    fn wait(&self, machine: &mut Machine, what: &str, is_so: impl Fn(&Ledger, usize) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !self.book(|ledger, guest| is_so(ledger, guest)) {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if Instant::now() > end {
                let (guest, state) = (self.guest, machine.state());
                panic!(
                    "guest {guest} does not {what}: {:?}
{state}",
                    self.ledger
                );
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn rest(&self, milliseconds: u64) {
        std::thread::sleep(Duration::from_millis(milliseconds));
    }

    fn check(&self, machine: &mut Machine) {
        if let Err(wrong) = machine.check() {
            panic!("{wrong}");
        }
    }

    fn silence(&self, is_silent: bool) {
        self.book(|ledger, guest| ledger.silence(guest, is_silent));
    }

    fn note(&self, kind: &str, more: &str) {
        self.book(|ledger, guest| match kind.strip_suffix(": ") {
            Some(_) => ledger.event(guest, &format!("{kind}{more}"), ""),
            None => ledger.event(guest, kind, more),
        });
    }

    fn book<T>(&self, what: impl FnOnce(&mut Ledger, usize) -> T) -> T {
        what(&mut self.ledger.lock().expect("a lock"), self.guest)
    }
}

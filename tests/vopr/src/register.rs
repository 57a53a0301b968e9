//! The checker: one register for each sector.
//!
//! **Linearizability.** Every write has a number of its own, so the values of a register are told apart. For a value
//! let `first` be the earliest response of an operation that wrote or read it, and `last` the latest invocation of
//! one. The register was this value at `first` at the latest, and still (or only) at `last`. A history is
//! linearizable if and only if no two values *w*, *u* have `w.first < u.last` and `u.first < w.last` (P. Gibbons,
//! E. Korach, *Testing Shared Memories*, SIAM J. Comput. 26(4), 1997, section 4: no two forward zones overlap, and no
//! backward zone lies in a forward zone), and no read ends before its write begins. Zeroes are no value of one write:
//! a read of them must be possible of one of the zeroings, and is not counted as that one's. After a
//! TRIM a sector is zeroes or what it was, until it is written again.
//!
//! **Durability.** After a crash the register is any value that is not definitely older than one which a FLUSH or
//! FUA made durable.

use crate::content::ZERO;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is under way.
    Pending,
    /// It was answered, at this time.
    Done(u64),
    /// It failed, at this time: whether the sector has it nobody knows, but it will not get it later.
    Failed(u64),
}

/// A value that a sector has, had or may get.
#[derive(Clone, Debug)]
struct Value {
    version: u64,
    /// When its write began.
    invoked: u64,
    outcome: Outcome,
    /// The earliest response of its write or of a read of it.
    first: u64,
    /// The latest invocation, likewise.
    last: u64,
    is_durable: bool,
    /// Whether it replaces what was there; a TRIM need not.
    replaces: bool,
    /// Whether it failed, and something else was seen and flushed since: it cannot come back.
    is_buried: bool,
    /// Whether reads may see it; not after a crash that it did not survive.
    is_there: bool,
}

const NEVER: u64 = u64::MAX;

impl Value {
    /// `first`, if a read that ends at `now` were one of it.
    fn first_if_read(&self, now: u64) -> u64 {
        match self.outcome {
            Outcome::Failed(at) => self.first.min(at).min(now),
            _ => self.first.min(now),
        }
    }

    /// Whether a crash that this survives leaves nothing of `older`. A write that failed may be on the
    /// disk beneath the value that the cache holds, until that is flushed.
    fn outlives(&self, older: &Self) -> bool {
        let is_failed = matches!(older.outcome, Outcome::Failed(_));
        let since = if is_failed || !older.replaces {
            self.invoked
        } else {
            self.last
        };
        self.is_durable && self.replaces && older.there_by() < since
    }

    /// When it was there at the latest, if it ever was.
    fn there_by(&self) -> u64 {
        match self.outcome {
            Outcome::Failed(at) => self.first.min(at),
            _ => self.first,
        }
    }
}

/// The history of one sector, as far as it matters. Times are numbers of events.
#[derive(Clone, Debug)]
pub struct Register {
    values: Vec<Value>,
}

impl Register {
    /// A sector that has held the content of write `version` from the beginning, on stable storage.
    pub fn new(version: u64) -> Self {
        let values = vec![settled(version, 0, true)];
        Self { values }
    }

    /// A write begins; one that need not replace anything is a TRIM.
    pub fn begin_write(&mut self, version: u64, now: u64, replaces: bool) {
        self.values.push(Value {
            version,
            invoked: now,
            outcome: Outcome::Pending,
            first: NEVER,
            last: now,
            is_durable: false,
            replaces,
            is_buried: false,
            is_there: true,
        });
    }

    /// The write that began at `invoked` is over. `oldest`: when the oldest read under way began.
    pub fn end_write(&mut self, invoked: u64, now: u64, is_ok: bool, is_fua: bool, oldest: u64) {
        let Some(value) = self.values.iter_mut().find(|v| v.invoked == invoked) else {
            return;
        };
        if is_ok {
            value.outcome = Outcome::Done(now);
            value.first = value.first.min(now);
            value.is_durable |= is_fua;
        } else {
            value.outcome = Outcome::Failed(now);
        }
        self.prune(oldest.min(now));
    }

    /// A read from `invoked` to `now` has brought `version`.
    ///
    /// # Errors
    ///
    /// No order of reads and writes explains that.
    pub fn read(&mut self, version: u64, invoked: u64, now: u64) -> Result<(), String> {
        match self.explain(version, invoked, now) {
            Ok(at) => {
                if version != ZERO {
                    let value = &mut self.values[at];
                    (value.first, value.last) = (value.first_if_read(now), value.last.max(invoked));
                }
                Ok(())
            }
            Err(Some(newer)) => Err(format!("write {newer} had replaced it")),
            Err(None) => Err("no write that had begun wrote it".to_owned()),
        }
    }

    /// Which of the values a read from `invoked` to `now` may have brought that brought `version`; if none, the write that had
    /// replaced it, if there was one.
    fn explain(&self, version: u64, invoked: u64, now: u64) -> Result<usize, Option<u64>> {
        let mut replaced_by = None;
        for at in 0..self.values.len() {
            let value = &self.values[at];
            if value.version != version || !value.is_there || value.invoked >= now {
                continue;
            }
            let (first, last) = (value.first_if_read(now), value.last.max(invoked));
            let replaces = value.replaces;
            let conflict = self.values.iter().enumerate().find(|(other, value)| {
                // What was there before a TRIM may be seen after it, and the other way round.
                let since = if replaces { value.last } else { value.invoked };
                *other != at
                    && value.replaces
                    && value.is_there
                    && first < since
                    && value.first < last
            });
            match conflict {
                Some((_, newer)) => replaced_by = Some(newer.version),
                None => return Ok(at),
            }
        }
        Err(replaced_by)
    }

    /// A FLUSH that began at `invoked` has ended well.
    pub fn flushed(&mut self, invoked: u64) {
        let mut has_failed = false;
        for value in &mut self.values {
            value.is_durable |= matches!(value.outcome, Outcome::Done(at) if at < invoked);
            has_failed |= matches!(value.outcome, Outcome::Failed(_));
        }
        if !has_failed {
            return;
        }
        for at in 0..self.values.len() {
            let value = &self.values[at];
            let is_seen = |newer: &Value| {
                newer.replaces
                    && newer.first < invoked
                    && newer.last < invoked
                    && value.there_by() < newer.last
            };
            let others = self.values.iter().enumerate();
            let mut others = others.filter(|(other, _)| *other != at);
            if matches!(value.outcome, Outcome::Failed(_)) && others.any(|other| is_seen(other.1)) {
                self.values[at].is_buried = true;
            }
        }
    }

    /// After a crash the sector holds `version`.
    ///
    /// # Errors
    ///
    /// Nothing wrote that, or it is older than what was durable.
    pub fn survived(&self, version: u64) -> Result<(), String> {
        let mut replaced_by = None;
        for (at, value) in self.values.iter().enumerate() {
            if value.version != version || value.is_buried {
                continue;
            }
            let newer = self
                .values
                .iter()
                .enumerate()
                .find(|(other, newer)| *other != at && newer.outlives(value));
            match newer {
                None => return Ok(()),
                Some((_, newer)) => replaced_by = Some(newer.version),
            }
        }
        Err(match replaced_by {
            Some(newer) => format!("write {newer} had replaced it and was durable"),
            None => "nothing wrote it".to_owned(),
        })
    }

    /// Whether `version` is the last that was written, or one that was under way.
    pub fn is_current(&self, version: u64, now: u64) -> bool {
        self.explain(version, now, now + 1).is_ok()
    }

    /// A crash: the sector now holds `version`, on stable storage if power was lost. What was
    /// written before can come back only if power is lost, too.
    pub fn settle(&mut self, version: u64, now: u64, is_stable: bool) {
        if is_stable {
            self.values.clear();
        } else {
            self.values.retain(|value| value.version != version);
            for value in &mut self.values {
                value.is_there = false;
            }
        }
        self.values.push(settled(version, now, is_stable));
    }

    /// Forgets what can neither be read nor come back.
    fn prune(&mut self, oldest: u64) {
        if self.values.len() < 4 {
            return;
        }
        let values = &self.values;
        let is_gone = |(at, value): (usize, &Value)| {
            let there = value.there_by();
            let is_before = |(other, newer): (usize, &Value)| {
                let since = if value.replaces {
                    newer.last
                } else {
                    newer.invoked
                };
                other != at && newer.replaces && there < since
            };
            let is_seen = |newer: &Value| newer.is_there && newer.first < oldest;
            let mut newer = values.iter().enumerate();
            let is_over =
                !value.is_there || newer.any(|other| is_before(other) && is_seen(other.1));
            let mut newer = values.iter().enumerate();
            let is_past =
                value.is_buried || newer.any(|(other, newer)| other != at && newer.outlives(value));
            value.outcome != Outcome::Pending && is_over && is_past
        };
        // The first values, one bit each; those beyond stay until some of these are gone.
        let gone = values.iter().enumerate().take(64).map(is_gone);
        let gone = gone
            .enumerate()
            .fold(0, |all, (at, is_gone)| all | u64::from(is_gone) << at);
        if gone == 0 {
            return;
        }
        let mut at = 0;
        self.values.retain(|_| {
            at += 1;
            at > 64 || gone >> (at - 1) & 1 == 0
        });
    }

    /// Values that are known, for messages.
    pub fn describe(&self) -> String {
        let parts = self.values.iter().rev().take(6).map(|value| {
            let state = match value.outcome {
                Outcome::Pending => "under way".to_owned(),
                Outcome::Done(at) => format!("answered at {at}"),
                Outcome::Failed(at) => format!("failed at {at}"),
            };
            let durable = if value.is_durable { ", durable" } else { "" };
            let (version, invoked) = (value.version, value.invoked);
            format!("write {version} begun at {invoked}, {state}{durable}")
        });
        parts.collect::<Vec<_>>().join("; ")
    }
}

fn settled(version: u64, now: u64, is_durable: bool) -> Value {
    Value {
        version,
        invoked: now,
        outcome: Outcome::Done(now),
        first: now,
        last: now,
        is_durable,
        replaces: true,
        is_buried: false,
        is_there: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(register: &mut Register, version: u64, from: u64, to: u64) {
        register.begin_write(version, from, true);
        register.end_write(from, to, true, false, to);
    }

    #[test]
    fn a_read_sees_the_last_write_or_one_under_way() {
        let mut register = Register::new(1);
        written(&mut register, 2, 10, 20);
        assert!(register.read(1, 5, 15).is_ok(), "it began before the write");
        assert!(register.read(1, 21, 22).is_err());
        register.begin_write(3, 30, true);
        assert!(register.read(2, 31, 32).is_ok());
        assert!(register.read(3, 33, 34).is_ok(), "it is under way");
        assert!(register.read(2, 35, 36).is_err(), "it had been seen");
        assert!(register.read(4, 35, 36).is_err(), "nobody wrote it");
    }

    #[test]
    fn concurrent_writes_end_in_one_order() {
        let mut register = Register::new(1);
        register.begin_write(2, 10, true);
        register.begin_write(3, 11, true);
        register.end_write(10, 20, true, false, 20);
        register.end_write(11, 21, true, false, 21);
        assert!(register.read(3, 30, 31).is_ok());
        assert!(
            register.read(2, 32, 33).is_err(),
            "another order than before"
        );
        assert!(register.read(3, 34, 35).is_ok());
    }

    #[test]
    fn a_failed_write_is_there_or_not_and_never_comes_later() {
        let mut register = Register::new(1);
        register.begin_write(2, 10, true);
        register.end_write(10, 20, false, false, 20);
        assert!(register.is_current(1, 30) && register.is_current(2, 30));
        written(&mut register, 3, 40, 50);
        assert!(register.read(2, 60, 61).is_err());
        assert!(register.read(3, 60, 61).is_ok());
    }

    #[test]
    fn zeroes_are_of_one_of_the_zeroings() {
        let mut register = Register::new(1);
        assert!(register.read(ZERO, 5, 6).is_err());
        written(&mut register, ZERO, 10, 20);
        assert!(register.read(ZERO, 21, 22).is_ok());
        written(&mut register, 2, 30, 40);
        assert!(register.read(ZERO, 41, 42).is_err());
        written(&mut register, ZERO, 50, 60);
        assert!(register.read(ZERO, 61, 62).is_ok());
    }

    #[test]
    fn after_a_trim_a_sector_is_zeroes_or_what_it_was() {
        let mut register = Register::new(1);
        written(&mut register, 2, 10, 20);
        register.begin_write(ZERO, 30, false);
        register.end_write(30, 40, true, false, 40);
        register.flushed(50);
        assert!(register.is_current(2, 60) && register.is_current(ZERO, 60));
        assert!(!register.is_current(1, 60));
        assert!(register.survived(2).is_ok() && register.survived(1).is_err());
        written(&mut register, 3, 70, 80);
        assert!(!register.is_current(2, 90) && !register.is_current(ZERO, 90));
    }

    #[test]
    fn a_crash_keeps_what_was_flushed_or_newer() {
        let mut register = Register::new(1);
        written(&mut register, 2, 10, 20);
        assert!(register.survived(1).is_ok() && register.survived(2).is_ok());
        register.flushed(15);
        assert!(register.survived(1).is_ok(), "it began before the answer");
        register.flushed(25);
        assert!(register.survived(1).is_err());
        register.begin_write(3, 30, true);
        assert!(register.survived(2).is_ok() && register.survived(3).is_ok());
        register.end_write(30, 40, true, true, 40);
        assert!(register.survived(2).is_err(), "FUA");
        register.settle(3, 50, true);
        assert!(register.read(3, 51, 52).is_ok() && register.read(2, 53, 54).is_err());
    }

    #[test]
    fn what_a_crash_left_may_be_older_once_power_is_lost() {
        let mut register = Register::new(1);
        written(&mut register, 2, 10, 20);
        register.settle(2, 30, false);
        assert!(
            register.read(1, 31, 32).is_err(),
            "the process died, not the disk"
        );
        assert!(register.survived(1).is_ok());
        register.flushed(40);
        assert!(register.survived(1).is_err());
    }
}

//! What each sector of a volume may hold.
//!
//! A sector is a register. It has *candidates*: the values that a read may return or that the store may hold after a
//! crash. Times are numbers of events in the driver, so an operation takes effect at some time between its `issue` and
//! its `done`.

use crate::reports::{Caller, Reports};
use crate::rules::FIRST_FLUSH_AFTER_LOSS_FAILS;
use crate::sector::{FACTORY, Label, SECTOR, describe, pieces};
use std::ops::Range;

/// Time of what has not happened.
pub const NEVER: u64 = u64::MAX;

/// What was written to a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A labelled sector.
    Labelled { version: u64, writer: u32 },
    /// A sector of a block that other blocks are equal to.
    Common { pattern: u64 },
    /// Zeroes.
    Zero,
    /// Any bytes: a labelled sector that was written over in part.
    Bytes(Box<[u8; SECTOR]>),
}

impl Value {
    fn render(&self, volume: u32, sector: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        match self {
            Self::Labelled { version, writer } => Label {
                volume,
                writer: *writer,
                sector,
                version: *version,
            }
            .fill(&mut bytes),
            Self::Common { pattern } => Label::common(*pattern, sector).fill(&mut bytes),
            Self::Zero => {}
            Self::Bytes(all) => bytes = **all,
        }
        bytes
    }
}

/// A value that a sector may have.
#[derive(Clone, Debug)]
struct Candidate {
    value: Value,
    op: u64,
    issue: u64,
    done: u64,
    /// It was answered with success, so what was written before it is gone.
    definite: bool,
    /// Reads issued later cannot return it.
    until: u64,
    /// The store may hold it after a crash.
    stable: bool,
    /// A flush covers it.
    durable: bool,
}

impl Candidate {
    fn first(value: Value) -> Self {
        Self {
            value,
            op: 0,
            issue: 0,
            done: 0,
            definite: true,
            until: NEVER,
            stable: true,
            durable: true,
        }
    }
}

/// How an operation that changes a volume ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with success; and with FUA.
    Done { fua: bool },
    /// Answered with success, and it says nothing of what is there then (TRIM).
    Loose,
    /// Answered with an error.
    Failed,
}

/// A volume.
pub struct Volume {
    pub id: u32,
    pub bytes: u64,
    writes_back: bool,
    sectors: Vec<Vec<Candidate>>,
    /// When the server last ended.
    ended: u64,
    /// Sectors of which an acknowledged write was found lost since the last FLUSH that said so.
    lost: u64,
    /// The last end may have taken away acknowledged writes, and no FLUSH has failed since.
    owes_failure: bool,
    /// Who has been told of that.
    reports: Reports,
    /// The first FLUSH after the last end succeeded, so nothing may turn out to be lost.
    vouched: bool,
    /// A FLUSH may have failed whose client did not wait for the answer.
    is_excused: bool,
}

impl Volume {
    /// A volume whose sectors have version 0.
    pub fn new(id: u32, bytes: u64, writes_back: bool) -> Self {
        let factory = Candidate::first(Value::Labelled {
            version: 0,
            writer: FACTORY,
        });
        Self {
            id,
            bytes,
            writes_back,
            sectors: vec![vec![factory]; (bytes / SECTOR as u64) as usize],
            ended: 0,
            lost: 0,
            owes_failure: false,
            reports: Reports::default(),
            vouched: false,
            is_excused: false,
        }
    }

    /// The first content of a new image.
    pub fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes as usize];
        for (sector, out) in (0..).zip(bytes.chunks_exact_mut(SECTOR)) {
            Label {
                volume: self.id,
                writer: FACTORY,
                sector,
                version: 0,
            }
            .fill(out);
        }
        bytes
    }

    /// The one value of a sector that is settled: nothing under way, nothing unflushed, nothing unknown.
    fn settled(&self, sector: usize) -> Option<&Value> {
        let live: Vec<_> = self.sectors[sector]
            .iter()
            .filter(|one| one.until == NEVER || one.stable)
            .collect();
        match live[..] {
            [one] if one.done != NEVER && one.durable => Some(&one.value),
            _ => None,
        }
    }

    /// Whether a write may begin or end inside this sector.
    pub fn may_cut(&self, sector: usize) -> bool {
        self.settled(sector).is_some()
    }

    /// Whether a write that begins or ends inside a sector of the range is under way: no other may be.
    pub fn is_being_cut(&self, offset: u64, length: usize) -> bool {
        let is_cut = |one: &Candidate| one.done == NEVER && matches!(one.value, Value::Bytes(_));
        pieces(offset, length).any(|(sector, _, _)| self.sectors[sector].iter().any(is_cut))
    }

    /// Begins an operation that writes `data` (none: zeroes) to a range. Sectors that it covers in part must be settled.
    pub fn begin(
        &mut self,
        op: u64,
        now: u64,
        offset: u64,
        length: usize,
        writer: u32,
        data: Option<&[u8]>,
    ) {
        for (sector, inside, part) in pieces(offset, length) {
            let value = match data {
                _ if part.len() < SECTOR => {
                    let mut bytes = match self.settled(sector) {
                        Some(value) => value.render(self.id, sector as u64),
                        None => panic!("sector {sector} is not settled"),
                    };
                    match data {
                        Some(data) => bytes[inside].copy_from_slice(&data[part]),
                        None => bytes[inside].fill(0),
                    }
                    Value::Bytes(Box::new(bytes))
                }
                Some(data) => match Label::read(&data[part]) {
                    Some(label) if label.is_common() => Value::Common {
                        pattern: label.version,
                    },
                    _ => Value::Labelled {
                        version: op,
                        writer,
                    },
                },
                None => Value::Zero,
            };
            self.sectors[sector].push(Candidate {
                value,
                op,
                issue: now,
                done: NEVER,
                definite: false,
                until: NEVER,
                stable: true,
                durable: false,
            });
        }
    }

    /// Ends an operation that was begun. No read issued before `horizon` is under way.
    pub fn end(
        &mut self,
        op: u64,
        now: u64,
        offset: u64,
        length: usize,
        outcome: Outcome,
        horizon: u64,
    ) {
        let durable = !self.writes_back || outcome == Outcome::Done { fua: true };
        for (sector, _, _) in pieces(offset, length) {
            let candidates = &mut self.sectors[sector];
            let Some(at) = candidates.iter().position(|one| one.op == op) else {
                continue;
            };
            let one = &mut candidates[at];
            one.done = now;
            if let Outcome::Done { .. } = outcome {
                one.definite = true;
                one.durable = durable;
                let issue = one.issue;
                for other in candidates.iter_mut().filter(|other| other.done < issue) {
                    other.until = other.until.min(now);
                    other.stable &= !durable;
                }
            } else {
                // What it left, if anything, is in the store or goes there before a FLUSH succeeds.
                one.durable = !self.writes_back;
            }
            candidates.retain(|one| one.stable || one.until >= horizon);
        }
    }

    /// A FLUSH that was issued at a time has succeeded. If it is not alone, another one may have failed before it, whose
    /// answer is still to come.
    ///
    /// # Errors
    ///
    /// If it should have failed.
    pub fn flushed(&mut self, issue: u64, by: Caller, is_alone: bool) -> Result<(), String> {
        if self.is_strict() && self.reports.owe(issue, by) {
            return Err(
                "FLUSH succeeded on a connection that has not been told of lost writes, and others have"
                    .to_owned(),
            );
        }
        if !is_alone {
            self.keep(issue);
            return Ok(());
        }
        if self.is_strict() && self.owes_failure && self.lost > 0 {
            return Err(format!(
                "FLUSH succeeded, but {} sectors lost acknowledged writes at the last kill, and no FLUSH has failed since",
                self.lost
            ));
        }
        self.vouched |= self.owes_failure;
        self.owes_failure = false;
        self.keep(issue);
        Ok(())
    }

    /// Everything answered before `issue` is in the store for good.
    pub fn keep(&mut self, issue: u64) {
        if !self.writes_back {
            return;
        }
        let ended = self.ended;
        for candidates in &mut self.sectors {
            let covered = |one: &Candidate| one.done < issue;
            let newest = candidates
                .iter()
                .filter(|one| one.definite && covered(one) && one.done > ended)
                .map(|one| one.issue)
                .max();
            for one in candidates.iter_mut().filter(|one| covered(one)) {
                one.durable = true;
                one.stable &= newest.is_none_or(|newest| one.done >= newest);
            }
        }
    }

    /// A FLUSH or a FUA that was issued at a time has failed, so the client knows that writes may be lost.
    ///
    /// # Errors
    ///
    /// If it must not fail, unless its store has faults.
    pub fn reported(
        &mut self,
        issue: u64,
        now: u64,
        by: Caller,
        has_faults: bool,
    ) -> Result<(), String> {
        if self.owes_failure {
            self.owes_failure = false;
            self.lost = 0;
            self.reports.begin(issue, now, by, has_faults);
            self.forgive();
            return Ok(());
        }
        if !self.reports.allow(issue, now, by) && !has_faults {
            return Err(
                "it failed, though no store has failed and no lost write is left to report"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// All losses of the last end are reported, also those that no read has found yet.
    fn forgive(&mut self) {
        let ended = self.ended;
        for candidates in &mut self.sectors {
            let is_alone = candidates.len() == 1;
            for one in candidates.iter_mut().filter(|one| one.done <= ended) {
                one.definite = is_alone;
            }
        }
    }

    /// A FLUSH or a FUA of a connection that was made at a time will never be answered; whether it failed is not known.
    pub fn perhaps_reported(&mut self, connected: u64) {
        self.is_excused = true;
        self.reports.go(connected);
    }

    fn is_strict(&self) -> bool {
        FIRST_FLUSH_AFTER_LOSS_FAILS && !self.is_excused
    }

    /// Whether a FLUSH or a FUA may fail because writes may be lost, of which no client has been told.
    pub fn owes_failure(&self) -> bool {
        self.owes_failure
    }

    /// The server has ended, by itself or killed: what was not answered by now never will be.
    pub fn server_ended(&mut self, now: u64, was_killed: bool) {
        // Also if all was flushed: that a server had no unwritten data is written down some time later.
        // A failure that could not be told is told after the end.
        self.owes_failure |= self.writes_back && (was_killed || self.is_excused);
        for candidates in &mut self.sectors {
            candidates.retain(|one| one.stable);
            let is_alone = candidates.len() == 1;
            for one in candidates.iter_mut() {
                one.done = one.done.min(now);
                one.until = NEVER;
                one.durable = true;
                one.definite |= is_alone;
            }
        }
        self.ended = now;
        self.vouched = false;
        self.is_excused = false;
    }

    /// Whether the bytes that a read returned, or that a store holds (`issue` is now), may be there.
    ///
    /// # Errors
    ///
    /// The sector, and what is wrong with it.
    pub fn check(
        &mut self,
        offset: u64,
        data: &[u8],
        issue: u64,
        now: u64,
    ) -> Result<(), (u64, String)> {
        for (sector, inside, part) in pieces(offset, data.len()) {
            let found = &data[part];
            let id = self.id;
            let matches = |one: &Candidate| is(one, id, sector as u64, inside.clone(), found);
            let mut seen = (0..self.sectors[sector].len()).filter(|&at| {
                self.sectors[sector][at].until >= issue && matches(&self.sectors[sector][at])
            });
            let Some(at) = seen.next() else {
                if self.is_mixed(sector, inside.clone(), found, issue) {
                    continue;
                }
                return Err((sector as u64, self.complain(sector, found, issue)));
            };
            let is_alone = seen.next().is_none();
            if is_alone && inside.len() == SECTOR {
                self.observe(sector, at, issue, now);
                if self.is_strict() && self.vouched && self.lost > 0 {
                    let found = describe(found);
                    let why = format!(
                        "an acknowledged write was lost, but the first FLUSH succeeded: found {found}"
                    );
                    return Err((sector as u64, why));
                }
            }
        }
        Ok(())
    }

    /// Whether a sector was read while it was being changed, and each byte is of a value that it may have: no block
    /// device promises more, and the kernel's page cache, through which ranges that are not whole pages go, keeps no
    /// more.
    fn is_mixed(&self, sector: usize, inside: Range<usize>, found: &[u8], issue: u64) -> bool {
        let allowed = self.sectors[sector].iter().filter(|one| one.until >= issue);
        let is_changing = allowed.clone().any(|one| one.done > issue);
        let values: Vec<_> = allowed
            .map(|one| one.value.render(self.id, sector as u64))
            .collect();
        let is_of_one = |(at, byte): (usize, &u8)| values.iter().any(|value| value[at] == *byte);
        is_changing && inside.zip(found).all(is_of_one)
    }

    /// A value has been seen: what it has replaced cannot be seen any more.
    fn observe(&mut self, sector: usize, at: usize, issue: u64, now: u64) {
        let candidates = &mut self.sectors[sector];
        if candidates.len() == 1 {
            return;
        }
        let one = candidates[at].clone();
        let is_left = one.done <= self.ended;
        let writes_back = self.writes_back;
        let mut is_lost = false;
        for (other_at, other) in candidates.iter_mut().enumerate() {
            if other_at == at {
                continue;
            }
            let was_before = other.done < issue || other.done < one.issue;
            if was_before {
                other.until = other.until.min(now);
                // Under write-through what is seen is in the store; so is what is left of the time before a crash.
                if !writes_back || (is_left && other.done <= self.ended) {
                    other.stable = false;
                }
            }
            is_lost |=
                is_left && other.definite && other.done <= self.ended && other.issue > one.done;
        }
        if is_left {
            candidates[at].definite = true;
            self.lost += u64::from(is_lost);
        }
    }

    fn complain(&self, sector: usize, found: &[u8], issue: u64) -> String {
        let mut text = format!("found {}", describe(found));
        for one in &self.sectors[sector] {
            let may = if one.until >= issue {
                "allowed"
            } else {
                "too old"
            };
            let (issue, done) = (one.issue, one.done);
            let end = if done == NEVER {
                "under way".to_owned()
            } else {
                done.to_string()
            };
            let what = match &one.value {
                Value::Bytes(_) => "in part".to_owned(),
                value => format!("{value:?}"),
            };
            let op = one.op;
            text += &format!("\n  {may}: operation {op} {what}, from {issue} to {end}");
        }
        text
    }
}

fn is(one: &Candidate, volume: u32, sector: u64, inside: Range<usize>, found: &[u8]) -> bool {
    if found.len() == SECTOR
        && let Value::Labelled { version, writer } = one.value
    {
        let label = Label {
            volume,
            writer,
            sector,
            version,
        };
        return Label::read(found) == Some(label);
    }
    one.value.render(volume, sector)[inside] == *found
}

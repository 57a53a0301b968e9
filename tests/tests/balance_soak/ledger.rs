//! What must hold in every period, by what `futae balance` says and by what QEMU says.

use crate::{GUESTS, LEAST, MIB, MOST, SLACK, STEP, TOTAL};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Lines until which what an agent said before it was killed may still be told.
const ECHOES: u64 = 3;

/// What is known of one guest.
#[derive(Clone, Copy, Debug, Default)]
struct Guest {
    /// What it shall have.
    target: u64,
    /// Lines since nothing that it says may be believed.
    silent: Option<u64>,
    /// It was booted with more than its maximum, and has not given it back yet.
    is_fresh: bool,
    /// Lines that told what it did.
    heard: u64,
    /// What it had when it was last seen.
    has: Option<u64>,
    /// Its QEMU.
    process: Option<u32>,
}

/// Keeps book, and finds what is wrong.
#[derive(Debug)]
pub struct Ledger {
    guests: [Guest; GUESTS],
    lines: u64,
    wrong: Vec<String>,
    events: BTreeMap<String, u64>,
    moves: u64,
    frozen: u64,
    problems: u64,
    looks: u64,
    margins: [i64; 3],
}

impl Ledger {
    pub fn new(start: u64) -> Self {
        let guest = Guest {
            target: start,
            is_fresh: true,
            ..Guest::default()
        };
        Self {
            guests: [guest; GUESTS],
            lines: 0,
            wrong: Vec::new(),
            events: BTreeMap::new(),
            moves: 0,
            frozen: 0,
            problems: 0,
            looks: 0,
            margins: [i64::MAX; 3],
        }
    }

    /// Periods so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Periods in which a guest was heard so far.
    pub fn heard(&self, guest: usize) -> u64 {
        self.guests[guest].heard
    }

    /// What a guest shall have.
    pub fn target(&self, guest: usize) -> u64 {
        self.guests[guest].target
    }

    /// What a guest had in fact when it was last looked at.
    pub fn has(&self, guest: usize) -> Option<u64> {
        self.guests[guest].has
    }

    /// Whether a guest still has more than it shall since it was booted.
    pub fn is_fresh(&self, guest: usize) -> bool {
        self.guests[guest].is_fresh
    }

    /// How often a guest whose agent was silent or lied was looked at, and was left as it was.
    pub fn frozen(&self) -> u64 {
        self.frozen
    }

    /// How often something was done to a guest.
    pub fn events(&self) -> &BTreeMap<String, u64> {
        &self.events
    }

    /// Takes what was wrong.
    pub fn wrong(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wrong)
    }

    /// Something is done to a guest.
    pub fn event(&mut self, guest: usize, kind: &str, more: &str) {
        *self.events.entry(kind.to_owned()).or_default() += 1;
        eprintln!("period {}: guest {guest}: {kind}{more}", self.lines);
    }

    /// Nothing that a guest says is to be believed from now on; or it is again.
    pub fn silence(&mut self, guest: usize, is_silent: bool) {
        self.guests[guest].silent = is_silent.then_some(0);
    }

    /// Which process a guest is; none: it is gone.
    pub fn lives(&mut self, guest: usize, process: Option<u32>) {
        self.guests[guest].process = process;
    }

    /// The processes that are guests.
    pub fn processes(&self) -> Vec<u32> {
        self.guests
            .iter()
            .filter_map(|guest| guest.process)
            .collect()
    }

    /// A guest is gone, and comes back with more than its maximum.
    pub fn boots(&mut self, guest: usize) {
        let guest = &mut self.guests[guest];
        (guest.is_fresh, guest.has) = (true, None);
    }

    /// Takes a line of `futae balance --json`.
    pub fn line(&mut self, line: &Value) {
        let mut wrong = Vec::new();
        let mut must = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{what}: {line}"));
            }
        };
        must(line["period"] == self.lines, "a period is missing");
        self.lines += 1;
        let bytes = |value: &Value| value.as_u64();
        let does_move =
            (0..GUESTS).any(|at| line["guests"][at]["before"] != line["guests"][at]["target"]);
        let (mut sum, mut held, mut told, mut growth) = (0, 0, 0, 0);
        for (at, guest) in self.guests.iter_mut().enumerate() {
            let said = &line["guests"][at];
            let (Some(before), Some(target)) = (bytes(&said["before"]), bytes(&said["target"]))
            else {
                must(false, "a guest without a target");
                continue;
            };
            let (achieved, order) = (bytes(&said["achieved"]), bytes(&line["orders"][at]));
            must(before == guest.target, "a target changed by itself");
            must(
                (LEAST..=MOST).contains(&target),
                "a target is out of bounds",
            );
            let near = before.abs_diff(target) <= STEP;
            let between =
                achieved.is_some_and(|has| (before.min(has)..=before.max(has)).contains(&target));
            must(near || between, "a step is too long");
            sum += target;
            let is_heard = !said["activity"].is_null();
            guest.heard += u64::from(is_heard);
            must(is_heard || before == target, "it is not heard and moves");
            must(
                !is_heard || achieved.is_some(),
                "it is not seen and believed",
            );
            if let Some(lines) = &mut guest.silent {
                *lines += 1;
                if *lines > ECHOES {
                    self.frozen += 1;
                    must(!is_heard, "it says nothing that is true and is believed");
                }
            }
            if let (Some(has), Some(order)) = (achieved, order) {
                must((LEAST..=MOST).contains(&order), "an order is out of bounds");
                growth += order.saturating_sub(has);
                told += order.max(has);
            } else {
                // While others move it may come back into sight.
                must(
                    order.is_none() || does_move,
                    "who is not seen is told something",
                );
                told += target;
            }
            held += achieved.unwrap_or(target).max(LEAST);
            guest.target = target;
        }
        self.moves += u64::from(does_move);
        must(sum <= TOTAL, "all targets are more than the total");
        // While nothing moves, orders follow from what everybody has.
        let room = TOTAL.max(held) + SLACK;
        must(
            does_move || told <= room,
            "memory is given that nobody has given back",
        );
        if let Some(free) = bytes(&line["host_free"]) {
            must(growth <= free, "more is given than the host has");
        }
        self.problems += line["problems"].as_array().map_or(0, Vec::len) as u64;
        self.wrong.extend(wrong);
    }

    /// Takes what QEMU says that guests have: looked at twice, one after the other, so that what is the least
    /// of both is what each had at least at some moment in between. None: not to be seen.
    pub fn look(&mut self, first: [Option<u64>; GUESTS], second: [Option<u64>; GUESTS]) {
        let mut sum = 0;
        for (at, guest) in self.guests.iter_mut().enumerate() {
            let (Some(first), Some(second)) = (first[at], second[at]) else {
                // Gone, or stopped: it has what it was told, at the most.
                sum += guest.has.unwrap_or(0).min(guest.target);
                continue;
            };
            let has = first.min(second);
            guest.has = Some(second);
            guest.is_fresh &= second > guest.target + MIB;
            let mut margin = |which: usize, margin: i64| {
                self.margins[which] = self.margins[which].min(margin);
            };
            margin(0, has as i64 - LEAST as i64);
            if has < LEAST {
                let wrong = format!("guest {at} has {has}, less than its minimum");
                self.wrong.push(wrong);
            }
            if guest.is_fresh {
                sum += has.min(guest.target);
                continue;
            }
            margin(1, MOST as i64 - has as i64);
            if has > MOST + SLACK {
                let wrong = format!("guest {at} has {has}, more than its maximum");
                self.wrong.push(wrong);
            }
            sum += has;
        }
        self.looks += 1;
        self.margins[2] = self.margins[2].min(TOTAL as i64 - sum as i64);
        if sum > TOTAL + SLACK {
            let wrong = format!("all have {sum}, more than the total: {:?}", self.guests);
            self.wrong.push(wrong);
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: i64| bytes as f64 / MIB as f64;
        let [least, most, total] = self.margins.map(mib);
        writeln!(
            formatter,
            "{} periods, {} moves, {} times silence or a lie left a guest as it was, {} looks at QEMU, {} problems told",
            self.lines, self.moves, self.frozen, self.looks, self.problems
        )?;
        writeln!(
            formatter,
            "smallest margins: {least:.1} MiB above a minimum, {most:.1} MiB below a maximum, {total:.1} MiB of the \
             total left"
        )?;
        let events = self
            .events
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"));
        write!(formatter, "{}", events.collect::<Vec<_>>().join(", "))
    }
}

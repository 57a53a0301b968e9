//! What comes back, held against the model.

use super::{Driver, READS_AS_ZEROES, Result};
use crate::client::Event;
use crate::config::Kind as Place;
use crate::connection::{Connection, Kind, Pending};
use crate::model::Outcome;
use crate::sector::{SECTOR, pieces};
use crate::server::EXPORTS;
use futae_nbd::ErrorNumber;

impl Driver {
    pub(super) fn take(&mut self, event: Event) -> Result<()> {
        let (connection, cookie, result) = match event {
            Event::Answered {
                connection,
                cookie,
                result,
            } => (connection, cookie, result),
            Event::Gone { connection } => {
                let seat = self.seat_of(connection);
                if let (Some(_), false) = (seat, self.is_ending) {
                    return Err(format!("the server closed connection {connection}"));
                }
                if let Some(seat) = seat
                    && let Some(one) = self.seats[seat].take()
                    && one.is_flushing()
                {
                    self.unanswered.push((one.volume, one.connected));
                }
                return Ok(());
            }
        };
        // Somebody who left needs no answer: then it is as if there had been none.
        let Some(seat) = self.seat_of(connection) else {
            return Ok(());
        };
        let Some(one) = &mut self.seats[seat] else {
            return Ok(());
        };
        let Some(pending) = one.pending.remove(&cookie) else {
            return Err(format!(
                "connection {connection}: an answer to request {cookie}, which was not made"
            ));
        };
        self.now += 1;
        one.since = one.since.min(self.now);
        let volume = one.volume;
        let how = result
            .as_ref()
            .err()
            .map_or("ends".to_owned(), |error| format!("fails: {error}"));
        let fua = if pending.fua { " with FUA" } else { "" };
        let what = format!("{:?}{fua} {cookie} {how}", pending.kind);
        self.log.add(
            self.now,
            connection,
            volume,
            pending.offset,
            pending.length,
            what,
        );
        let outcome = self.conclude(seat, volume, cookie, pending, result);
        outcome.map_err(|error| format!("operation {cookie} of connection {connection}: {error}"))
    }

    fn seat_of(&self, connection: u64) -> Option<usize> {
        let is_it =
            |seat: &Option<Connection>| seat.as_ref().is_some_and(|one| one.id == connection);
        self.seats.iter().position(is_it)
    }

    fn conclude(
        &mut self,
        seat: usize,
        volume: usize,
        op: u64,
        pending: Pending,
        result: std::result::Result<Vec<u8>, ErrorNumber>,
    ) -> Result<()> {
        let place = self.config.kinds[volume];
        if let Err(error) = &result {
            self.counts.failed += 1;
            self.may_fail(seat, volume, &pending, op, *error)?;
        }
        let is_done = result.is_ok();
        if pending.kind.changes() {
            if place == Place::ReadOnly {
                return if is_done {
                    Err("a read-only export was written to".to_owned())
                } else {
                    Ok(())
                };
            }
            let outcome = match (is_done, pending.kind) {
                (false, _) => Outcome::Failed,
                (true, Kind::Trim) => Outcome::Loose,
                (true, _) => Outcome::Done { fua: pending.fua },
            };
            let horizon = self.horizon(volume);
            self.volumes[volume].end(
                op,
                self.now,
                pending.offset,
                pending.length,
                outcome,
                horizon,
            );
            self.note_change(seat, volume, op, is_done);
        }
        let now = self.now;
        let Some(connection) = &mut self.seats[seat] else {
            return Ok(());
        };
        let caller = connection.caller();
        match (pending.kind, result) {
            (Kind::Write, Ok(_)) => {
                let is_newest = connection.is_newest(pending.offset, pending.length, op);
                connection.touch(pending.offset, pending.length, now);
                if is_newest {
                    connection.hold(pending.offset, &pending.data, now);
                }
            }
            (Kind::Write | Kind::Trim | Kind::Zero, _) => {
                connection.touch(pending.offset, pending.length, now);
            }
            (Kind::Read, Ok(data)) => {
                connection.hold(pending.offset, &data, op);
                self.check(volume, pending.offset, &data, op)?;
            }
            (Kind::Status, Ok(extents)) => self.check_extents(volume, &pending, &extents, op)?,
            (Kind::Flush, Ok(_)) => {
                // Answers of several connections may be taken in another order than the server gave them.
                let others = self.seats.iter().flatten();
                let is_alone = !others
                    .filter(|one| one.volume == volume)
                    .any(Connection::is_flushing);
                let flushed = self.volumes[volume].flushed(op, caller, is_alone);
                flushed.map_err(|problem| self.flush_problem(volume, &problem))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a request may have failed.
    fn may_fail(
        &mut self,
        seat: usize,
        volume: usize,
        pending: &Pending,
        op: u64,
        error: ErrorNumber,
    ) -> Result<()> {
        let place = self.config.kinds[volume];
        let is_refused = place == Place::ReadOnly && pending.kind.changes();
        let is_normal = error == ErrorNumber::ShuttingDown && self.is_ending;
        if is_refused || is_normal {
            return Ok(());
        }
        let is_remote = place == Place::Remote;
        if pending.kind == Kind::Flush || pending.fua {
            let before = self.volumes[volume].owes_failure();
            if let Some(one) = &self.seats[seat] {
                let reported = self.volumes[volume].reported(op, self.now, one.caller(), is_remote);
                reported.map_err(|problem| self.flush_problem(volume, &problem))?;
            }
            self.counts.lost_flushes += u64::from(before);
            return Ok(());
        }
        if is_remote {
            return Ok(());
        }
        Err(format!(
            "{:?} failed without a reason: {error}",
            pending.kind
        ))
    }

    /// What is wrong with how a FLUSH ended, and all that had told of lost writes before.
    fn flush_problem(&self, volume: usize, problem: &str) -> String {
        format!(
            "{problem}\n{}: {}",
            EXPORTS[volume],
            self.log.flushes(volume)
        )
    }

    /// Everybody else's right to demote to the volume is gone, if the
    /// server knew of them when the change was asked for.
    fn note_change(&mut self, seat: usize, volume: usize, op: u64, is_done: bool) {
        for (other_seat, other) in self.seats.iter_mut().enumerate() {
            if let Some(other) = other
                && other_seat != seat
                && other.volume == volume
                && other.since < op
                && is_done
            {
                other.others_wrote = true;
            }
        }
    }

    /// The time at which the oldest read under way was issued.
    fn horizon(&self, volume: usize) -> u64 {
        let there = self
            .seats
            .iter()
            .flatten()
            .filter(|one| one.volume == volume);
        let reads = there.flat_map(|one| one.pending.keys().copied());
        reads.min().unwrap_or(self.now)
    }

    pub(super) fn check(
        &mut self,
        volume: usize,
        offset: u64,
        data: &[u8],
        issue: u64,
    ) -> Result<()> {
        self.counts.sectors += pieces(offset, data.len()).count() as u64;
        let checked = self.volumes[volume].check(offset, data, issue, self.now);
        checked.map_err(|(sector, problem)| {
            let history = self.log.history(volume, sector * SECTOR as u64);
            let name = EXPORTS[volume];
            format!("sector {sector} of {name}: {problem}\nits history:{history}")
        })
    }

    /// What is said to read as zeroes may read as zeroes.
    fn check_extents(
        &mut self,
        volume: usize,
        pending: &Pending,
        extents: &[u8],
        issue: u64,
    ) -> Result<()> {
        let end = pending.offset + pending.length as u64;
        let mut offset = pending.offset;
        for extent in extents.chunks_exact(8) {
            let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| extent[at + byte]));
            let next = end.min(offset + u64::from(number(0)));
            if number(4) & READS_AS_ZEROES != 0 {
                self.check(volume, offset, &vec![0; (next - offset) as usize], issue)?;
            }
            offset = next;
        }
        Ok(())
    }
}

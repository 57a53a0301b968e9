//! What happened, and the numbers of it.

use std::collections::VecDeque;
use std::fmt;
use std::ops::AddAssign;

/// Events that are remembered.
const EVENTS_MAX: usize = 200_000;
/// Events of a sector that a message shows.
const SHOWN: usize = 40;

struct Event {
    time: u64,
    connection: u64,
    volume: usize,
    begin: u64,
    end: u64,
    what: String,
}

/// The last events.
#[derive(Default)]
pub struct Log {
    events: VecDeque<Event>,
}

impl Log {
    /// An event in a range of a volume.
    pub fn add(
        &mut self,
        time: u64,
        connection: u64,
        volume: usize,
        offset: u64,
        length: usize,
        what: String,
    ) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event {
            time,
            connection,
            volume,
            begin: offset,
            // What has no range is shown with the first byte.
            end: offset + length.max(1) as u64,
            what,
        });
    }

    /// An event that concerns everything.
    pub fn note(&mut self, time: u64, what: &str) {
        for volume in 0..crate::server::EXPORTS.len() {
            self.add(time, 0, volume, 0, usize::MAX >> 1, what.to_owned());
        }
    }

    /// The last events that touch a byte of a volume.
    pub fn history(&self, volume: usize, byte: u64) -> String {
        let touches =
            |event: &&Event| event.volume == volume && (event.begin..event.end).contains(&byte);
        let mut all: Vec<_> = self
            .events
            .iter()
            .rev()
            .filter(touches)
            .take(SHOWN)
            .collect();
        all.reverse();
        all.iter().map(|event| format!("\n  {event}")).collect()
    }

    /// The last events of a volume by which lost writes are told.
    pub fn flushes(&self, volume: usize) -> String {
        let tells = |event: &&Event| {
            let is_flush = ["Flush", "FUA", "connects"]
                .iter()
                .any(|word| event.what.contains(word));
            event.volume == volume && (event.connection == 0 || is_flush)
        };
        let mut all: Vec<_> = self
            .events
            .iter()
            .rev()
            .filter(tells)
            .take(2 * SHOWN)
            .collect();
        all.reverse();
        all.iter().map(|event| format!("\n  {event}")).collect()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, connection, what) = (self.time, self.connection, &self.what);
        if connection == 0 {
            return write!(f, "{time:>9}  {what}");
        }
        let (begin, bytes) = (self.begin, self.end - self.begin);
        write!(
            f,
            "{time:>9}  connection {connection}: {what}, {bytes} bytes at {begin}"
        )
    }
}

/// What was done, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub rounds: u64,
    pub operations: u64,
    pub sectors: u64,
    pub failed: u64,
    pub kills: u64,
    pub stops: u64,
    pub reconnects: u64,
    pub resizes: u64,
    pub policy_changes: u64,
    pub store_kills: u64,
    pub demotions_sent: u64,
    pub demotions_forged: u64,
    pub demotions_taken: u64,
    /// Of them verified, and held against the store; and refused as different.
    pub verified: u64,
    pub compared: u64,
    pub different: u64,
    pub lost_flushes: u64,
    /// Reads answered with an equal block of elsewhere.
    pub equal_reads: u64,
    /// Blocks of which a server went on with what the last one had in memory.
    pub kept_blocks: u64,
    /// Writes to images while no server ran.
    pub written_outside: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.operations += other.operations;
        self.sectors += other.sectors;
        self.failed += other.failed;
        self.kills += other.kills;
        self.stops += other.stops;
        self.reconnects += other.reconnects;
        self.resizes += other.resizes;
        self.policy_changes += other.policy_changes;
        self.store_kills += other.store_kills;
        self.demotions_sent += other.demotions_sent;
        self.demotions_forged += other.demotions_forged;
        self.demotions_taken += other.demotions_taken;
        self.verified += other.verified;
        self.compared += other.compared;
        self.different += other.different;
        self.lost_flushes += other.lost_flushes;
        self.equal_reads += other.equal_reads;
        self.kept_blocks += other.kept_blocks;
        self.written_outside += other.written_outside;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rounds, {} operations ({} failed as they may), {} sectors checked, {} kills, {} clean stops, \
             {} reconnects, {} resizes, {} changes of policy, {} store kills, {} blocks demoted ({} forged), {} demotions taken, \
             {} verified ({} compared), {} different, {} flushes that reported lost writes, \
             {} reads of equal blocks, {} blocks kept in memory, {} writes from outside",
            self.rounds,
            self.operations,
            self.failed,
            self.sectors,
            self.kills,
            self.stops,
            self.reconnects,
            self.resizes,
            self.policy_changes,
            self.store_kills,
            self.demotions_sent,
            self.demotions_forged,
            self.demotions_taken,
            self.verified,
            self.compared,
            self.different,
            self.lost_flushes,
            self.equal_reads,
            self.kept_blocks,
            self.written_outside,
        )
    }
}

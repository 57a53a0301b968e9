//! Results by guest as a table for other programs.

use super::{Column, GuestResult, LevelResult, Report, Run, Values};

/// A run, one of its guests and one of its levels.
struct GuestRow<'a> {
    report: &'a Report,
    run: (u64, &'a Run),
    guest: &'a GuestResult,
    level: (u64, &'a LevelResult),
}

impl GuestRow<'_> {
    /// Of the guest's own cache, or of the one that it shares.
    fn capacity_blocks(&self) -> u64 {
        let own = self.guest.capacities_blocks.get(self.level.0 as usize);
        own.copied().unwrap_or(self.level.1.capacity_blocks)
    }

    /// Requests of the guest that no level above served.
    fn requests(&self) -> u64 {
        let from = self.guest.served.iter().skip(self.level.0 as usize);
        from.map(|at| at.reads + at.writes).sum()
    }

    /// Requests of the guest that the level served.
    fn hits(&self) -> u64 {
        let at = self.guest.served.get(self.level.0 as usize);
        at.map_or(0, |at| at.reads + at.writes)
    }
}

impl Report {
    /// The results by guest as a table: a row for each level of each guest of each run, numbered from 0, with the
    /// requests of this guest that came to the level. There are no rows with a single guest.
    #[must_use]
    pub fn guest_columns(&self) -> Vec<Column> {
        let rows = (0..).zip(&self.runs).flat_map(|(number, run)| {
            let guests = run.by_guest.iter();
            guests.flat_map(move |guest| {
                let levels = (0..).zip(&run.levels);
                levels.map(move |level| GuestRow {
                    report: self,
                    run: (number, run),
                    guest,
                    level,
                })
            })
        });
        let rows: Vec<GuestRow<'_>> = rows.collect();
        let counts = |name, of: fn(&GuestRow<'_>) -> u64| Column {
            name,
            values: Values::Counts(rows.iter().map(of).collect()),
        };
        let numbers = |name, of: fn(&GuestRow<'_>) -> Option<f64>| Column {
            name,
            values: Values::Numbers(rows.iter().map(of).collect()),
        };
        let texts = |name, of: fn(&GuestRow<'_>) -> String| Column {
            name,
            values: Values::Texts(rows.iter().map(of).collect()),
        };
        vec![
            counts("run", |row| row.run.0),
            counts("guest", |row| u64::from(row.guest.guest)),
            texts("source", |row| row.guest.source.clone()),
            counts("level", |row| row.level.0),
            texts("policy", |row| row.level.1.policy.clone()),
            counts("capacity_blocks", |row| row.capacity_blocks()),
            counts("requests", |row| row.requests()),
            counts("hits", |row| row.hits()),
            counts("misses", |row| row.requests() - row.hits()),
            numbers("hit_ratio", |row| {
                let requests = row.requests();
                (requests > 0).then(|| row.hits() as f64 / requests as f64)
            }),
            counts("all_requests", |row| row.guest.requests),
            counts("all_reads", |row| row.guest.reads),
            counts("all_writes", |row| row.guest.writes),
            numbers("all_miss_ratio", |row| row.guest.miss_ratio),
            numbers("all_byte_miss_ratio", |row| row.guest.byte_miss_ratio),
            numbers("all_read_miss_ratio", |row| row.guest.read_miss_ratio),
            counts("warmup_requests", |row| row.run.1.warmup_requests),
            counts("block_bytes", |row| row.run.1.block_bytes),
            counts("seed", |row| row.report.seed),
            texts("trace_digest", |row| row.report.trace_digest.clone()),
        ]
    }
}

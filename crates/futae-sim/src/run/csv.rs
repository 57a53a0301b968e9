//! Results as a table for other programs.

use super::Report;
use std::fmt::Write;

const HEAD: &str = "run,level,policy,capacity_blocks,copies,requests,hits,misses,hit_ratio,\
    admissions,bypasses,evictions,demotions_in,demotions_declined,demotions_out,notices_in,\
    notices_out,all_requests,all_reads,all_writes,all_miss_ratio,all_byte_miss_ratio,\
    all_read_miss_ratio,store_reads,store_writes,notice_reads,preload_reads,warmup_requests,\
    block_bytes,guests,footprint_blocks,seconds,seed,trace_digest,mean_access_seconds,\
    p50_access_seconds,p90_access_seconds,p99_access_seconds,write_mode,overwrites,\
    dirty_evictions,dirty_blocks,all_dirty_evictions,all_dirty_blocks,\
    all_dirty_blocks_at_start\n";

/// Empty where there is none.
fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| ratio.to_string())
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

impl Report {
    /// The report as CSV: a row for each level of each run, both counted from 0; columns named as
    /// in the JSON, with `all_` before those of the whole run that have a namesake.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = HEAD.to_owned();
        for (number, run) in self.runs.iter().enumerate() {
            let times = run.access_times.map_or([None; 4], |times| {
                [
                    times.mean_access_seconds,
                    times.p50_access_seconds,
                    times.p90_access_seconds,
                    times.p99_access_seconds,
                ]
            });
            for (at, level) in run.levels.iter().enumerate() {
                let c = &level.counters;
                let mut cells = vec![
                    number.to_string(),
                    at.to_string(),
                    quoted(&level.policy),
                    level.capacity_blocks.to_string(),
                    level.copies.to_string(),
                ];
                cells.extend([c.requests, c.hits, c.misses].map(|n| n.to_string()));
                cells.push(ratio(level.hit_ratio));
                let counts = [
                    c.admissions,
                    c.bypasses,
                    c.evictions,
                    c.demotions_in,
                    c.demotions_declined,
                    c.demotions_out,
                    c.notices_in,
                    c.notices_out,
                    run.requests,
                    run.reads,
                    run.writes,
                ];
                cells.extend(counts.map(|n| n.to_string()));
                cells.extend([run.miss_ratio, run.byte_miss_ratio, run.read_miss_ratio].map(ratio));
                let counts = [
                    run.store_reads,
                    run.store_writes,
                    run.notice_reads,
                    run.preload_reads,
                    run.warmup_requests,
                    run.block_bytes,
                    u64::from(run.guests),
                    run.footprint_blocks,
                ];
                cells.extend(counts.map(|n| n.to_string()));
                cells.extend([run.seconds.to_string(), self.seed.to_string()]);
                cells.push(self.trace_digest.clone());
                cells.extend(times.map(ratio));
                cells.push(run.write_mode.to_string());
                let counts = [
                    level.overwrites,
                    level.dirty_evictions,
                    level.dirty_blocks,
                    run.dirty_evictions,
                    run.dirty_blocks,
                    run.dirty_blocks_at_start,
                ];
                cells.extend(counts.map(|n| n.to_string()));
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{}", cells.join(","));
            }
        }
        text
    }
}

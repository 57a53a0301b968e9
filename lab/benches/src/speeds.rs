//! The simulator's requests per second.

use crate::process::own_cpu_seconds;
use futae_sim::{LevelSpec, SimulationSpec, WriteMode, links, simulate};

/// A hierarchy under a workload.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The workload, as on the command line.
    pub workload: &'static str,
    /// The levels, as on the command line.
    pub levels: &'static [&'static str],
}

/// What is measured: one level and two.
pub const CASES: &[Case] = &[
    // Small enough for a processor's caches, and larger than them.
    Case {
        workload: "uniform:1GiB",
        levels: &["lru:100MiB"],
    },
    Case {
        workload: "uniform:10GiB",
        levels: &["lru:1GiB"],
    },
    Case {
        workload: "zipf(1.0):1000000blocks",
        levels: &["lru:91474blocks"],
    },
    Case {
        workload: "uniform:10GiB",
        levels: &["lru:3GiB", "exclusive:3GiB"],
    },
];

impl Case {
    /// Workload and levels in a line.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}, {}", self.workload, self.levels.join(" + "))
    }
}

/// How fast one simulation was.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Requests a second.
    pub per_second: f64,
    /// Requests a processor second, of the whole run: what else the machine does matters less.
    pub per_cpu_second: f64,
}

/// Simulates `requests` requests, without warm-up.
pub fn measure(case: &Case, requests: u64) -> anyhow::Result<Speed> {
    let levels = case.levels.iter().map(|text| text.parse());
    let levels: Vec<LevelSpec> = levels.collect::<Result<_, _>>()?;
    let spec = SimulationSpec {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::WriteThrough,
        guests: 1,
        workload: case.workload.parse()?,
        block_bytes: 4096,
        seed: 1,
        warmup_requests: Some(0),
        requests: Some(requests),
    };
    let before = own_cpu_seconds();
    let report = simulate(&spec, &mut |_| {})?;
    let used = own_cpu_seconds() - before;
    Ok(Speed {
        per_second: requests as f64 / report.runs[0].seconds,
        per_cpu_second: requests as f64 / used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_simulated() {
        for case in CASES {
            let speed = measure(case, 1000).expect("a speed");
            assert!(speed.per_second > 0.0, "{}", case.name());
        }
    }
}

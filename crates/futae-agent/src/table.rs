//! A period as a table for a person.

use futae_agent_protocol::{Counters, Sample, Source};
use std::fmt::Write;

const NAMES: [&str; Counters::FIELDS] = [
    "accesses",
    "misses",
    "added",
    "readahead",
    "written",
    "refaults",
    "reclaimed",
    "truncated",
    "invalidated",
    "dirtied",
];

/// One column for all of the page cache, one for each device; in pages of 4 KiB.
#[must_use]
pub fn render(sample: &Sample, source: Source) -> String {
    let mut text = String::new();
    let by = match source {
        Source::Tracepoints => "eBPF on tracepoints",
        Source::Functions => "eBPF on functions",
        Source::Vmstat => "/proc/vmstat alone: no accesses, nothing by device",
    };
    let seconds = sample.period_us as f64 / 1e6;
    let _ = writeln!(
        text,
        "page cache, {seconds:.1} s, pages of 4 KiB, by {by}\n"
    );
    let mut columns = vec![("all".to_owned(), sample.total)];
    columns.extend(
        sample
            .devices
            .iter()
            .map(|one| (one.device.to_string(), one.counters)),
    );
    columns.extend(
        sample
            .groups
            .iter()
            .map(|one| (one.path.clone(), one.counters)),
    );
    let width = |name: &str| name.len().max(11);
    let _ = write!(text, "{:<12}", "");
    for (name, _) in &columns {
        let _ = write!(text, " {name:>0$}", width(name));
    }
    text.push('\n');
    for (at, field) in NAMES.iter().enumerate() {
        let _ = write!(text, "{field:<12}");
        for (name, counters) in &columns {
            let _ = write!(text, " {:>1$}", counters.to_array()[at], width(name));
        }
        text.push('\n');
    }
    if source != Source::Vmstat {
        let _ = write!(text, "{:<12}", "hit ratio");
        for (name, counters) in &columns {
            let ratio = match counters.accesses {
                0 => "-".to_owned(),
                all => format!("{:.1} %", 100.0 * counters.hits() as f64 / all as f64),
            };
            let _ = write!(text, " {ratio:>0$}", width(name));
        }
        text.push('\n');
    }
    for file in &sample.files {
        let (inode, counters) = (file.inode, &file.counters);
        let _ = writeln!(
            text,
            "file {inode} on {}: {} accesses, {} misses, {} added, {} evicted",
            file.device,
            counters.accesses,
            counters.misses,
            counters.added,
            counters.evicted()
        );
    }
    let mib = |bytes: u64| bytes >> 20;
    let memory = &sample.memory;
    let _ = writeln!(
        text,
        "\nmemory: {} MiB, {} available, {} page cache",
        mib(memory.total),
        mib(memory.available),
        mib(memory.cached + memory.buffers)
    );
    if let Some(pressure) = sample.pressure {
        let some = pressure.some_us as f64 / sample.period_us.max(1) as f64;
        let _ = writeln!(
            text,
            "waiting for memory: {:.1} % of the time",
            100.0 * some
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_agent_protocol::DeviceSample;

    #[test]
    fn every_counter_has_its_line() {
        let numbers: [u64; Counters::FIELDS] = std::array::from_fn(|at| 1000 + at as u64);
        let counters = Counters::from_array(numbers);
        let device = DeviceSample {
            counters,
            ..DeviceSample::default()
        };
        let sample = Sample {
            total: counters,
            devices: vec![device],
            ..Sample::default()
        };
        let text = render(&sample, Source::Tracepoints);
        for (name, number) in NAMES.iter().zip(numbers) {
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .expect(name);
            assert_eq!(line.matches(&number.to_string()).count(), 2, "{line}");
        }
        assert!(!render(&sample, Source::Vmstat).contains("hit ratio"));
    }
}

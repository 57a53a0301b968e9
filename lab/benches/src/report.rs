//! Medians and ratios, as text, markdown and JSON.

mod table;

use crate::rounds::{Plan, Sample, Samples};
use crate::servers::Hot;
use serde::Serialize;
use table::Table;

/// Middle, lowest and highest of several rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of both.
    pub median: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
}

impl Spread {
    /// Of at least one number.
    #[must_use]
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let upper = sorted.len() / 2;
        let lower = sorted.len().saturating_sub(1) / 2;
        Self {
            median: f64::midpoint(at(lower), at(upper)),
            lowest: at(0),
            highest: at(sorted.len().saturating_sub(1)),
        }
    }

    fn shown(&self, digits: usize) -> String {
        let Self {
            median,
            lowest,
            highest,
        } = self;
        format!("{median:.digits$} ({lowest:.digits$}–{highest:.digits$})")
    }
}

/// One server under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which server.
    pub server: String,
    /// Thousand replies a second.
    pub thousand_per_second: Spread,
    /// Gigabytes of data a second, the middle round.
    pub gigabytes_per_second: f64,
    /// Mean latency in microseconds, the middle round.
    pub mean_us: f64,
    /// 99 of 100 replies came within this many microseconds, the middle round.
    pub p99_us: f64,
    /// Processor microseconds of the server for a reply, the middle round.
    pub server_cpu_us: f64,
    /// Processor microseconds of the client for a reply, the middle round.
    pub client_cpu_us: f64,
    /// How many times as fast each futae was in the same round.
    pub futae_is: Vec<Ratio>,
}

/// A futae beside another server.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// Which futae.
    pub futae: String,
    /// Its replies a second by the other's in the same round.
    pub times: Spread,
}

/// One load on all servers.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The load.
    pub load: String,
    /// Whether bytes a second say more than replies a second.
    pub by_bytes: bool,
    /// A row for each server.
    pub servers: Vec<Row>,
}

/// One case of the simulator.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatorReport {
    /// Workload and levels.
    pub case: String,
    /// Million requests a second, of the whole run.
    pub million_per_second: Spread,
    /// Million requests a processor second.
    pub million_per_cpu_second: Spread,
}

/// A server and how it was started.
#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    /// The name.
    pub name: String,
    /// The command.
    pub how: String,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Processors of this machine, its kernel, and the size of the image.
    pub setting: String,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
    /// The servers.
    pub servers: Vec<ServerReport>,
    /// What was measured of them.
    pub loads: Vec<LoadReport>,
    /// What was measured of the simulator.
    pub simulator: Vec<SimulatorReport>,
}

impl Report {
    /// Takes in the samples of `servers`.
    pub fn add_servers(&mut self, plan: &Plan, servers: &[Hot], samples: &Samples) {
        self.servers = servers
            .iter()
            .map(|server| ServerReport {
                name: server.name.clone(),
                how: server.how.clone(),
            })
            .collect();
        let loads = plan.loads.iter().zip(samples);
        self.loads = loads
            .map(|((name, load), of_servers)| LoadReport {
                load: name.clone(),
                by_bytes: load.request_bytes >= 64 << 10,
                servers: servers
                    .iter()
                    .zip(of_servers)
                    .map(|(server, samples)| {
                        let futaes = servers.iter().zip(of_servers);
                        let futaes =
                            futaes.filter(|(futae, _)| futae.is_futae && futae.name != server.name);
                        Row::new(server, load.request_bytes, samples, futaes)
                    })
                    .collect(),
            })
            .collect();
    }

    /// As text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        self.written(Table::text)
    }

    /// As markdown for a document.
    #[must_use]
    pub fn markdown(&self) -> String {
        self.written(Table::markdown)
    }

    fn written(&self, write: fn(&Table) -> String) -> String {
        let mut parts = vec![self.setting.clone()];
        parts.extend(
            self.missing
                .iter()
                .map(|why| format!("Not measured: {why}.")),
        );
        parts.extend(self.tables().iter().map(write));
        parts.join("\n\n") + "\n"
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        if !self.loads.is_empty() {
            tables.push(self.by_load(
                "Thousand replies a second (GB/s for long reads): median (lowest–highest)",
                |row, by_bytes| {
                    if by_bytes {
                        format!("{:.2} GB/s", row.gigabytes_per_second)
                    } else {
                        row.thousand_per_second.shown(1)
                    }
                },
            ));
            tables.push(self.ratios());
            tables.push(
                self.by_load("Latency in µs: mean, and 99 of 100 within", |row, _| {
                    format!("{:.0}, {:.0}", row.mean_us, row.p99_us)
                }),
            );
            tables.push(
                self.by_load("Processor µs a reply: server, client", |row, _| {
                    format!("{:.2}, {:.2}", row.server_cpu_us, row.client_cpu_us)
                }),
            );
            let mut how = Table::new("Servers", vec!["server".into(), "command".into()]);
            how.rows = self
                .servers
                .iter()
                .map(|server| vec![server.name.clone(), format!("`{}`", server.how)])
                .collect();
            tables.push(how);
        }
        if !self.simulator.is_empty() {
            let header = [
                "workload, levels",
                "million requests/s",
                "a processor second",
            ];
            let header = header.map(str::to_owned).into();
            let mut speeds = Table::new("Simulator, one thread: median (lowest–highest)", header);
            speeds.rows = self
                .simulator
                .iter()
                .map(|case| {
                    let speeds = [case.million_per_second, case.million_per_cpu_second];
                    let shown = speeds.map(|speed| speed.shown(1));
                    std::iter::once(case.case.clone()).chain(shown).collect()
                })
                .collect();
            tables.push(speeds);
        }
        tables
    }

    /// A row for each server, a column for each load.
    fn by_load(&self, title: &str, cell: impl Fn(&Row, bool) -> String) -> Table {
        let mut table = Table::new(title, self.header("server"));
        for (at, server) in self.servers.iter().enumerate() {
            let cells = self
                .loads
                .iter()
                .map(|load| cell(&load.servers[at], load.by_bytes));
            table
                .rows
                .push(std::iter::once(server.name.clone()).chain(cells).collect());
        }
        table
    }

    fn header(&self, first: &str) -> Vec<String> {
        let loads = self.loads.iter().map(|load| load.load.clone());
        std::iter::once(first.to_owned()).chain(loads).collect()
    }

    fn ratios(&self) -> Table {
        let title = "Replies a second, one by the other in the same round: median (lowest–highest)";
        let mut table = Table::new(title, self.header("ratio"));
        let Some(first) = self.loads.first() else {
            return table;
        };
        for (at, row) in first.servers.iter().enumerate() {
            for (which, ratio) in row.futae_is.iter().enumerate() {
                let name = format!("{} / {}", ratio.futae, row.server);
                let cells = self
                    .loads
                    .iter()
                    .map(|load| load.servers[at].futae_is[which].times.shown(2));
                table
                    .rows
                    .push(std::iter::once(name).chain(cells).collect());
            }
        }
        table
    }
}

impl Row {
    fn new<'a>(
        server: &Hot,
        request_bytes: u32,
        samples: &[Sample],
        futaes: impl Iterator<Item = (&'a Hot, &'a Vec<Sample>)>,
    ) -> Self {
        let spread = |part: fn(&Sample) -> f64| Spread::of(samples.iter().map(part));
        let rate = spread(|sample| sample.per_second);
        let futae_is = futaes.map(|(futae, theirs)| Ratio {
            futae: futae.name.clone(),
            times: Spread::of(
                theirs
                    .iter()
                    .zip(samples)
                    .map(|(one, other)| one.per_second / other.per_second),
            ),
        });
        Self {
            server: server.name.clone(),
            thousand_per_second: Spread {
                median: rate.median / 1e3,
                lowest: rate.lowest / 1e3,
                highest: rate.highest / 1e3,
            },
            gigabytes_per_second: rate.median * f64::from(request_bytes) / 1e9,
            mean_us: spread(|sample| sample.mean_ns).median / 1e3,
            p99_us: spread(|sample| sample.p99_ns).median / 1e3,
            server_cpu_us: spread(|sample| sample.server_cpu).median * 1e6,
            client_cpu_us: spread(|sample| sample.client_cpu).median * 1e6,
            futae_is: futae_is.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even() {
        let odd = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((odd.median, odd.lowest, odd.highest), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0].into_iter()).median, 2.5);
        assert!(Spread::of(std::iter::empty()).median.is_nan());
    }
}

//! The configuration file.

mod error;
mod guest;

use crate::libvirt::LibvirtConfig;
pub use error::ConfigError;
pub(crate) use error::bytes;
use futae_allocate::{Allocator, Bounds, GuestLimits, Settings, mrc, paper, paper::MoveWhen};
use futae_units::Size;
pub(crate) use guest::default_weight;
pub use guest::{AgentConfig, GuestConfig};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// All that `futae balance` is told. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Bytes of all guests together, at most.
    pub total: Size,
    /// Seconds from one decision to the next.
    #[serde(default = "ten_seconds")]
    pub period: f64,
    /// Bytes of the host's memory that are never given to a guest.
    #[serde(default = "half_a_gib")]
    pub reserve: Size,
    /// Who decides.
    #[serde(default)]
    pub evaluator: EvaluatorName,
    /// Whether guests get back what they had when all ends.
    #[serde(default)]
    pub return_on_exit: bool,
    /// Address of the page that shows what is moved and why; none: there is no page.
    pub web: Option<String>,
    /// Settings of the paper's evaluator.
    pub paper: Option<PaperConfig>,
    /// Settings of the evaluator by curves.
    pub mrc: Option<MrcConfig>,
    /// What guests give back to the host.
    #[serde(default)]
    pub host: HostConfig,
    /// Guests that libvirt runs, beside those that are named.
    pub libvirt: Option<LibvirtConfig>,
    /// The guests.
    #[serde(rename = "guest", default)]
    pub guests: Vec<GuestConfig>,
}

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvaluatorName {
    /// By miss-ratio curves.
    #[default]
    Mrc,
    /// By the paper's value.
    Paper,
    /// Nobody.
    Static,
}

/// Settings of the paper's evaluator; see [`paper::Settings`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperConfig {
    move_when: Option<MoveWhen>,
    threshold: Option<f64>,
    step: Option<Size>,
}

/// Settings of the evaluator by curves; see [`mrc::Settings`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MrcConfig {
    grain: Option<Size>,
    step: Option<Size>,
    gain: Option<f64>,
    cool_down: Option<u32>,
    surprise: Option<f64>,
    pressure: Option<f64>,
    miss_cost: Option<f64>,
    seed: Option<u64>,
}

/// What guests give back to the host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Seconds without reads after which a guest has its minimum; none: never.
    pub idle_after: Option<f64>,
    /// The share of time in which programs wait for memory from which on guests give; none: never.
    pub pressure: Option<f64>,
    /// Where the kernel says how long they waited; none: of the whole host.
    pub pressure_file: Option<PathBuf>,
}

impl HostConfig {
    fn problem(&self) -> Option<&'static str> {
        if self
            .idle_after
            .is_some_and(|after| !(after > 0.0 && after <= 1e9))
        {
            return Some("host.idle_after is in seconds, above 0");
        }
        let is_share = |share: f64| share > 0.0 && share <= 1.0;
        if self.pressure.is_some_and(|share| !is_share(share)) {
            return Some("host.pressure is a share of time, above 0 and at most 1");
        }
        (self.pressure_file.is_some() && self.pressure.is_none()).then_some(
            "host.pressure_file has no effect without host.pressure, the share from which on guests give memory",
        )
    }
}

fn ten_seconds() -> f64 {
    10.0
}

fn half_a_gib() -> Size {
    Size::Bytes(512 << 20)
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)
            .map_err(|error| ConfigError(error.to_string().trim().to_owned()))?;
        if !(0.1..=86_400.0).contains(&config.period) {
            return Err(ConfigError(
                "period is in seconds, from 0.1 to a day".to_owned(),
            ));
        }
        if let Some(problem) = config.host.problem() {
            return Err(ConfigError(problem.to_owned()));
        }
        let problem = config.libvirt.as_ref().and_then(LibvirtConfig::problem);
        let problem = problem.or_else(|| shared_actuator(&config.guests));
        if let Some(problem) = problem.or_else(|| config.idle_table()) {
            return Err(ConfigError(problem));
        }
        bytes("reserve", config.reserve)?;
        // What guests have is known once they are asked. They have their minimums at least.
        let limits = config.guests.iter().map(|one| one.limits(Some(0)));
        config.allocator(limits.collect::<Result<_, _>>()?)?;
        Ok(config)
    }

    /// A table of an evaluator that is not the one that decides.
    fn idle_table(&self) -> Option<String> {
        use EvaluatorName::{Mrc, Paper};
        let tables = [
            ("paper", self.paper.is_some(), Paper),
            ("mrc", self.mrc.is_some(), Mrc),
        ];
        let (name, _, _) = tables
            .iter()
            .find(|(_, is_there, of)| *is_there && self.evaluator != *of)?;
        Some(format!(
            "[{name}] has no effect without evaluator = \"{name}\"; remove the table, or choose that evaluator"
        ))
    }

    /// What decides on guests with these limits.
    ///
    /// # Errors
    ///
    /// Limits that cannot be kept, or settings of the evaluator that are wrong.
    pub(crate) fn allocator(&self, limits: Vec<GuestLimits>) -> Result<Allocator, ConfigError> {
        let total = bytes("total", self.total)?;
        let bounds = match (limits.is_empty(), &self.libvirt) {
            // They are still to come.
            (true, Some(_)) => Ok(Bounds::of_nobody(total)),
            _ => Bounds::new(limits, total),
        };
        let bounds = bounds.map_err(|error| ConfigError(error.to_string()))?;
        let allocator = Allocator::new(bounds, self.settings()?);
        allocator.map_err(|error| ConfigError(error.to_string()))
    }

    /// From one decision to the next.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_secs_f64(self.period)
    }

    /// What the evaluator is told.
    ///
    /// # Errors
    ///
    /// Sizes that are not in bytes, or are 0.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let size = |what, size: Option<Size>, otherwise| match size.map(|size| bytes(what, size)) {
            None => Ok(otherwise),
            Some(Ok(0)) => Err(ConfigError(format!(
                "{what} is above 0; without the line it is futae's default"
            ))),
            Some(set) => set,
        };
        Ok(match self.evaluator {
            EvaluatorName::Static => Settings::Static,
            EvaluatorName::Paper => {
                let (set, usual) = (self.paper.unwrap_or_default(), paper::Settings::default());
                Settings::Paper(paper::Settings {
                    move_when: set.move_when.unwrap_or(usual.move_when),
                    threshold: set.threshold.unwrap_or(usual.threshold),
                    step: size("paper.step", set.step, usual.step)?,
                })
            }
            EvaluatorName::Mrc => {
                let (set, usual) = (self.mrc.unwrap_or_default(), mrc::Settings::default());
                Settings::Mrc(mrc::Settings {
                    unit: usual.unit,
                    grain: size("mrc.grain", set.grain, usual.grain)?,
                    step: size("mrc.step", set.step, usual.step)?,
                    gain: set.gain.unwrap_or(usual.gain),
                    cool_down: set.cool_down.unwrap_or(usual.cool_down),
                    surprise: set.surprise.unwrap_or(usual.surprise),
                    pressure: set.pressure.unwrap_or(usual.pressure),
                    miss_cost: set.miss_cost.unwrap_or(usual.miss_cost),
                    seed: set.seed.unwrap_or(usual.seed),
                })
            }
        })
    }
}

/// Two guests whose memory is the same: each would have it as large as its own share.
fn shared_actuator(guests: &[GuestConfig]) -> Option<String> {
    guests.iter().enumerate().find_map(|(at, one)| {
        let same = |other: &&GuestConfig| other.actuator.is_that_of(&one.actuator);
        let other = guests[..at].iter().find(same)?;
        Some(format!(
            "guests {:?} and {:?} have the same actuator, {}; give each its own",
            other.name, one.name, one.actuator
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        total = "6GiB"
        evaluator = "paper"
        [paper]
        move_when = "ge"
        step = "64MiB"
        [[guest]]
        name = "db"
        minimum = "1GiB"
        maximum = "5GiB"
        agent = { connect = "/run/db/agent.sock" }
        actuator = { kind = "qmp", socket = "/run/db/qmp.sock" }
        [[guest]]
        name = "web"
        minimum = "1GiB"
        maximum = "5GiB"
        start = "2GiB"
        weight = 2
        actuator = { kind = "share", control = "/run/c.sock", export = "web" }
    "#;

    #[test]
    fn a_whole_configuration_is_read() {
        let config = Config::parse(GOOD).expect("good");
        assert_eq!(config.guests[1].weight, 2.0);
        assert_eq!(
            config.guests[0].agent,
            Some(AgentConfig::Connect("/run/db/agent.sock".into()))
        );
        let Ok(Settings::Paper(paper)) = config.settings() else {
            panic!("not the paper's");
        };
        assert_eq!((paper.move_when, paper.step), (MoveWhen::Ge, 64 << 20));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, said) in [
            ("total", "totla", "totla"),
            ("weight = 2", "wieght = 2", "wieght"),
            ("kind = \"qmp\"", "kind = \"qmp\", port = 1", "port"),
            ("kind = \"qmp\"", "kind = \"qpm\"", "qpm"),
            ("\"ge\"", "\"gt\"", "gt"),
            ("total = ", "period = 0\ntotal = ", "period"),
            ("\"6GiB\"", "\"6GB\"", "6GB"),
            ("connect", "conect", "conect"),
            ("[paper]", "[host]\npressure = 10\n[paper]", "host.pressure"),
            (
                "[paper]",
                "[host]\nidle_after = -1\n[paper]",
                "host.idle_after",
            ),
            (
                "[paper]",
                "[host]\npressure_file = \"/p\"\n[paper]",
                "host.pressure_file",
            ),
            (
                "[paper]",
                "[libvirt]\nminimum = \"1GiB\"\nagent = { listen = \"/a\" }\n[paper]",
                "%n",
            ),
            ("64MiB", "5%", "paper.step = \"5%\""),
            ("64MiB", "0", "paper.step is above 0"),
            ("total = ", "reserve = \"5%\"\ntotal = ", "reserve"),
            ("[paper]", "[mrc]\ngain = 7\n[paper]", "evaluator = \"mrc\""),
            (
                "evaluator = \"paper\"",
                "",
                "[paper] has no effect without evaluator = \"paper\"",
            ),
            ("\"6GiB\"", "\"2GiB\"", "more than the total"),
            ("\"5GiB\"", "\"512MiB\"", "above its maximum of 512 MiB"),
        ] {
            let error = Config::parse(&GOOD.replacen(from, to, 1)).expect_err(said);
            assert!(error.to_string().contains(said), "{said}: {error}");
        }
    }

    #[test]
    fn two_guests_with_one_actuator_are_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let place = place.path().display().to_string();
        std::fs::create_dir(format!("{place}/real")).expect("a directory");
        std::os::unix::fs::symlink("real", format!("{place}/link")).expect("a link");
        let parsed = |one: &str, other: &str| {
            let guest = |name: &str, actuator: &str| {
                format!(
                    "[[guest]]\nname = \"{name}\"\nminimum = \"1MiB\"\nmaximum = \"2MiB\"\nactuator = {{ {actuator} }}\n"
                )
            };
            let both = guest("db", one) + &guest("web", other);
            let text = format!("total = \"1GiB\"\n{both}");
            Config::parse(&text.replace("PLACE", &place))
        };
        let qmp = |path: &str| format!("kind = \"qmp\", socket = \"{path}\"");
        let virsh =
            |domain: &str, uri: &str| format!("kind = \"virsh\", domain = \"{domain}\"{uri}");
        let group =
            |version: u32, path: &str| format!("kind = \"cgroup{version}\", path = \"{path}\"");
        let share = |path: &str, export: &str| {
            format!("kind = \"share\", control = \"{path}\", export = \"{export}\"")
        };
        let (here, there) = (", uri = \"qemu:///system\"", ", uri = \"lxc:///\"");
        for (one, other, named) in [
            (qmp("/run/a.qmp"), qmp("/run//a.qmp"), "/run//a.qmp"),
            (qmp("/run/a.qmp"), qmp("/run/./a.qmp"), "a.qmp"),
            (qmp("PLACE/real/a"), qmp("PLACE/link/a"), "link/a"),
            (qmp("PLACE/real/a"), qmp("PLACE/link/../real/a"), "real/a"),
            (virsh("db", ""), virsh("db", here), "virsh domain db"),
            (group(1, "/sys/a"), group(1, "/sys/a/"), "/sys/a"),
            (group(2, "/sys/a"), group(2, "/sys/a"), "/sys/a"),
            (share("/c", "db"), share("//c", "db"), "share db of //c"),
        ] {
            let error = parsed(&one, &other).expect_err(named).to_string();
            for word in ["\"db\"", "\"web\"", named] {
                assert!(error.contains(word), "{one} {other}: {error}");
            }
        }
        for (one, other) in [
            (qmp("/run/a.qmp"), qmp("/run/b.qmp")),
            (virsh("db", here), virsh("db", there)),
            (virsh("db", ""), virsh("web", "")),
            (group(2, "/sys/a"), group(2, "/sys/a/b")),
            (share("/c", "db"), share("/c", "web")),
            (share("/c", "db"), share("/d", "db")),
        ] {
            parsed(&one, &other).expect("each has its own");
        }
    }
}

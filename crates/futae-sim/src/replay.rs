//! Replays a recorded decision log on a new level.
//!
//! The simulator and the live caches write the same lines ([`Decision`]). On a new level of the
//! same policy, size and seed, the recorded accesses must lead to the recorded verdicts; the replay
//! reports the first that does not.

use futae_policy::{
    Access, AccessKind, Decision, DecisionError, Departure, HashIndex, Level, PolicySpec,
    RegisteredPolicy, Shape, SpecError, build, dropped_of_line, policy_of_line, slots_of_line,
};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The level of the log.
#[derive(Clone, Debug)]
pub struct ReplaySpec {
    /// Its policy.
    pub policy: PolicySpec,
    /// Its capacity in slots, at least 1.
    pub slots: u32,
    /// The seed of its policy.
    pub seed: u64,
}

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The level cannot be built.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// A level without slots.
    #[error("a level has at least one slot")]
    NoSlots,
    /// The file cannot be opened.
    #[error("cannot open decision log {}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be read to its end.
    #[error("{}:{line}: cannot read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A line names a policy to which the level cannot change.
    #[error("{}:{line}: {source}", .path.display())]
    Change {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with the policy.
        source: Box<SpecError>,
    },
    /// A line is not a decision.
    #[error("{}:{line}: {source}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        source: DecisionError,
    },
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Number of decisions compared, including the differing one.
    pub decisions: u64,
    /// The first difference, if there is one.
    pub difference: Option<Difference>,
}

/// The first decision that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line of the log, counted from 1.
    pub line: u64,
    /// The verdict in the log.
    pub recorded: Decision,
    /// The verdict of the level.
    pub replayed: Decision,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            recorded,
            replayed,
        } = self;
        write!(
            f,
            "line {line}: recorded `{recorded}`, replayed `{replayed}`"
        )
    }
}

/// Replays the log in a file.
pub fn replay_file(spec: &ReplaySpec, path: &Path) -> Result<Replayed, ReplayError> {
    let file = File::open(path).map_err(|source| ReplayError::Open {
        path: path.to_owned(),
        source,
    })?;
    replay(spec, BufReader::new(file), path)
}

/// Replays the log in `lines`, up to the first difference. Empty lines and lines that begin with
/// `#` are skipped; at a line `policy POLICY`, `# slots SLOTS` or `# dropped VOLUME BLOCK` the level
/// changes its policy or its size, or drops a block, as the recorded one did. `name` is the log's name in errors.
pub fn replay(
    spec: &ReplaySpec,
    lines: impl BufRead,
    name: &Path,
) -> Result<Replayed, ReplayError> {
    if spec.slots == 0 {
        return Err(ReplayError::NoSlots);
    }
    let policy = build(
        &spec.policy,
        &Shape {
            slots: spec.slots,
            seed: spec.seed,
        },
    )?;
    let mut level = Level::new(policy, HashIndex::default(), spec.slots);
    let mut decisions = 0;
    for (line, text) in (1..).zip(lines.lines()) {
        let path = || name.to_owned();
        let text = text.map_err(|source| ReplayError::Read {
            path: path(),
            line,
            source,
        })?;
        let text = text.trim();
        if let Some(slots) = slots_of_line(text) {
            // A log may say at its begin what is known already.
            if slots != level.capacity() {
                level.resize(slots);
            }
            continue;
        }
        if let Some(block) = dropped_of_line(text) {
            level.remove(block, Departure::Invalidated);
            continue;
        }
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(policy) = policy_of_line(text) {
            let change = |source| ReplayError::Change {
                path: path(),
                line,
                source: Box::new(source),
            };
            change_policy(&mut level, policy, spec).map_err(change)?;
            continue;
        }
        let parsed = text.parse::<Decision>();
        let recorded = parsed.map_err(|source| ReplayError::Line {
            path: path(),
            line,
            source,
        })?;
        let access = Access::of(recorded.block, recorded.kind);
        if access.kind == AccessKind::Preload {
            // The recorded preload is what the policy requested; the request is repeated here.
            level.review();
        }
        let replayed = Decision::new(&access, &level.access(&access));
        decisions += 1;
        if replayed != recorded {
            let difference = Some(Difference {
                line,
                recorded,
                replayed,
            });
            return Ok(Replayed {
                decisions,
                difference,
            });
        }
    }
    Ok(Replayed {
        decisions,
        difference: None,
    })
}

fn change_policy(
    level: &mut Level<Box<dyn RegisteredPolicy>>,
    policy: &str,
    spec: &ReplaySpec,
) -> Result<(), SpecError> {
    let policy: PolicySpec = policy.parse()?;
    let shape = Shape {
        slots: level.capacity(),
        seed: spec.seed,
    };
    level.change_policy(build(&policy, &shape)?, policy.handover_kind());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(policy: &str, log: &str) -> Result<Replayed, ReplayError> {
        let policy = policy.parse().expect("a policy");
        replay(
            &ReplaySpec {
                policy,
                slots: 2,
                seed: 1,
            },
            log.as_bytes(),
            Path::new("upper.log"),
        )
    }

    const LOG: &str = "# upper level\nread 0 1 admit\nread 3 1 admit\n\nwrite 0 1 hit\n\
                       read 0 9 admit 3 1\n";

    #[test]
    fn the_recording_policy_agrees_and_another_does_not() {
        let same = of("lru", LOG).expect("a log");
        assert_eq!(
            same,
            Replayed {
                decisions: 4,
                difference: None
            }
        );
        let other = of("fifo", LOG).expect("a log");
        assert_eq!(other.decisions, 4);
        assert_eq!(
            other.difference.expect("fifo evicts block 1").to_string(),
            "line 6: recorded `read 0 9 admit 3 1`, replayed `read 0 9 admit 0 1`"
        );
    }

    #[test]
    fn a_change_of_the_policy_is_replayed_where_it_was() {
        let changed = LOG.replace("write 0 1 hit\n", "policy lru\nwrite 0 1 hit\n");
        assert_eq!(of("fifo", &changed).expect("a log").difference, None);
        let late = format!("{LOG}policy lru\n");
        assert!(of("fifo", &late).expect("a log").difference.is_some());
        for (policy, problem) in [("lur", "did you mean lru"), ("lru(", "upper.log:6")] {
            let changed = LOG.replace("read 0 9", &format!("policy {policy}\nread 0 9"));
            let error = of("lru", &changed).expect_err("no policy").to_string();
            assert!(error.starts_with("upper.log:6: "), "{error}");
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn changes_of_the_size_and_dropped_blocks_are_replayed_where_they_were() {
        let log = "read 0 1 admit\nread 0 2 admit\n# slots 1\nread 0 2 hit\nread 0 1 admit 0 2\n\
                   # dropped 0 1\nread 0 1 admit\n# slots 3\nread 0 3 admit\nread 0 4 admit\nread 0 5 admit 0 1\n";
        let replayed = of("lru", log).expect("a log");
        assert_eq!((replayed.difference, replayed.decisions), (None, 8));
        for line in ["# slots 1\n", "# dropped 0 1\n", "# slots 3\n"] {
            let without = of("lru", &log.replace(line, "")).expect("a log");
            assert!(without.difference.is_some(), "{line}");
        }
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = of("lru", "read 0 1 admit\nread 0\n")
            .expect_err("half a line")
            .to_string();
        assert!(
            error.starts_with("upper.log:2: not a decision log line: \"read 0\""),
            "{error}"
        );
        let nowhere = ReplaySpec {
            policy: PolicySpec::plain("lru"),
            slots: 2,
            seed: 1,
        };
        let error = replay_file(&nowhere, Path::new("/no/such.log")).expect_err("no file");
        assert!(error.to_string().contains("/no/such.log"), "{error}");
    }
}

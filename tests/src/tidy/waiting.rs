//! No test sleeps to be right, and none asserts how long something took: both fail on a busy machine. A test waits for a
//! condition (`futae_testkit::wait`).

use super::{Finding, Source, mask, words};

/// Files whose tests are about time or need a pace, how often they sleep or look at a clock, and why.
pub const PERMITTED: [(&str, usize, &str); 19] = [
    (
        "crates/futae-balance/tests/common/mod.rs",
        2,
        "monitors that stall and that are slow",
    ),
    (
        "crates/futae-balance/tests/hostile.rs",
        2,
        "agents and decisions by period",
    ),
    (
        "crates/futae-balance/tests/qmp.rs",
        1,
        "agents that send by period",
    ),
    (
        "crates/futae-engine/tests/growing/files.rs",
        1,
        "time for a change that does not wait to go wrong",
    ),
    (
        "crates/futae-engine/tests/unclean.rs",
        1,
        "ticks of the clock, after which nothing has changed",
    ),
    (
        "crates/futae-guest/tests/mount/ends.rs",
        1,
        "time for an unmount that does not wait to be over",
    ),
    (
        "tests/tests/kept_memory.rs",
        4,
        "kills at any moment under load, the parts of the gap that are printed",
    ),
    ("tests/kit/src/store.rs", 1, "a disk that takes any time"),
    ("tests/kit/src/wait.rs", 1, "the pause between two looks"),
    ("tests/vopr/src/main.rs", 1, "how long to begin runs for"),
    (
        "tests/tests/balance_soak/driver.rs",
        2,
        "a soak by the clock",
    ),
    (
        "tests/tests/balance_soak/machine.rs",
        1,
        "a soak by the clock",
    ),
    ("tests/tests/balance_soak/main.rs", 1, "a soak by the clock"),
    (
        "tests/tests/balance_soak/watch.rs",
        1,
        "a soak by the clock",
    ),
    ("tests/tests/bounded.rs", 1, "how long it took is printed"),
    (
        "tests/tests/consistency/main.rs",
        1,
        "as many rounds as there is time for",
    ),
    ("tests/tests/crash.rs", 1, "a kill at a random moment"),
    (
        "tests/tests/demo.rs",
        1,
        "an interruption in the middle of the run",
    ),
    (
        "tests/tests/write_back.rs",
        4,
        "writers that go on after a change; how long it took is printed",
    ),
];

/// Sleeps and looks at clocks beyond what is permitted, and permits that are not used.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| is_test(source)) {
        let permit = PERMITTED.iter().find(|permit| permit.0 == source.path);
        let permitted = permit.map_or(0, |permit| permit.1);
        let lines = waits(&source.text);
        for &at in lines.iter().skip(permitted) {
            let problem =
                "a test sleeps or asserts a time: wait for a condition with futae_testkit::wait";
            findings.push(source.finding(at, problem));
        }
        if lines.len() < permitted {
            let problem = format!(
                "{permitted} waits are permitted and {} are there",
                lines.len()
            );
            findings.push(source.finding(0, problem));
        }
    }
    findings
}

fn is_test(source: &Source) -> bool {
    let path = &source.path;
    let roots = ["tests/", "fuzz/"];
    source.is_rust()
        && (roots.iter().any(|root| path.starts_with(root)) || path.contains("/tests/"))
}

/// The lines that sleep or ask how much time has passed.
fn waits(text: &str) -> Vec<usize> {
    let code = mask(text);
    let waits = |line: &str| {
        words(line).any(|(column, word)| {
            ["sleep", "elapsed"].contains(&word) && line[column + word.len()..].starts_with('(')
        })
    };
    let lines = code.lines().enumerate();
    lines
        .filter(|(_, line)| waits(line))
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::tidy::Source;

    #[test]
    fn a_sleep_in_a_test_is_found_unless_it_is_permitted() {
        let check = |path: &str, text: &str| super::check(&[Source::new(path, text)]).len();
        for wait in ["thread::sleep(PAUSE);", "assert!(begin.elapsed() < LIMIT);"] {
            for path in ["tests/src/a.rs", "crates/futae-x/tests/a.rs", "fuzz/a.rs"] {
                assert_eq!(check(path, wait), 1, "{path} {wait}");
            }
            assert_eq!(check("crates/futae-x/src/a.rs", wait), 0);
        }
        let permitted = "tests/tests/crash.rs";
        assert_eq!(check(permitted, "sleep(a);"), 0);
        assert_eq!(check(permitted, "sleep(a);\nsleep(b);"), 1);
        assert_eq!(check(permitted, ""), 1, "a permit that is not used");
        assert_eq!(
            check("tests/a.rs", "use std::thread::sleep; // sleep(1)"),
            0
        );
    }
}

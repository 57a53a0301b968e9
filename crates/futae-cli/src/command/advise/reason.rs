//! Which choice is advised, and why.

use crate::command::forecast::{Choice, Place};
use futae_policy::{Kind, PolicySpec};
use futae_sim::WriteMode;
use futae_sim::forecast::Estimate;

/// A choice that takes this much longer than the best, or less, is as good, and a simpler one is better.
const EQUAL: f64 = 0.01;

/// What has to be set up for a choice; the less, the better.
fn effort(choice: &Choice) -> u32 {
    let Some(name) = &choice.host_policy else {
        return 0;
    };
    let policy = match name.parse::<PolicySpec>() {
        Ok(policy) if policy == PolicySpec::of(Kind::lru) => 1,
        Ok(policy) if policy.lives_on_demotions() => 3,
        _ => 2,
    };
    // Written data that waits in memory is lost in a crash where no client flushed it.
    policy + u32::from(choice.write_mode == WriteMode::WriteBack)
}

fn lives_on_demotions(policy: &str) -> bool {
    policy
        .parse()
        .is_ok_and(|policy: PolicySpec| policy.lives_on_demotions())
}

/// Of the choices that are as good as the fastest, the simplest.
pub fn best(options: &[Choice]) -> usize {
    let mean = |at: usize| options[at].mean_access_seconds.mean;
    let Some(fastest) = (0..options.len()).min_by(|&a, &b| mean(a).total_cmp(&mean(b))) else {
        return 0;
    };
    let as_good = (0..options.len()).filter(|&at| is_as_good(&options[at], &options[fastest]));
    as_good
        .min_by(|&a, &b| {
            effort(&options[a])
                .cmp(&effort(&options[b]))
                .then(mean(a).total_cmp(&mean(b)))
        })
        .unwrap_or(fastest)
}

/// Whether a choice takes so little longer than another that it is worth nothing. Both had the same requests in each
/// window, so their differences are less uncertain than each by itself.
fn is_as_good(choice: &Choice, fastest: &Choice) -> bool {
    let pairs = choice.window_seconds.iter().zip(&fastest.window_seconds);
    let differences: Vec<f64> = pairs.map(|(a, b)| a - b).collect();
    let limit = EQUAL * fastest.mean_access_seconds.mean;
    Estimate::of(&differences)
        .is_some_and(|difference| difference.high <= limit || difference.mean == 0.0)
}

/// Whether all choices leave the guests the same memory.
fn is_settled(options: &[Choice]) -> bool {
    options
        .windows(2)
        .all(|two| two[0].guest_bytes == two[1].guest_bytes)
}

/// Two sentences.
pub fn reason(options: &[Choice], best: usize, at: Place) -> String {
    let choice = &options[best];
    let micros = |choice: &Choice| choice.mean_access_seconds.mean * 1e6;
    let kind = |choice: &Choice| (choice.host_policy.clone(), choice.write_mode);
    let other_kind = |other: &&Choice| kind(other) != kind(choice);
    let next = options
        .iter()
        .filter(other_kind)
        .min_by(|a, b| micros(a).total_cmp(&micros(b)));
    let compared = next.map_or_else(String::new, |next| {
        // Of latencies that are all zero there are no shares.
        if micros(choice) == 0.0 {
            return format!("; {} would take {:.1}", next.name(), micros(next));
        }
        let change = (micros(next) / micros(choice) - 1.0) * 100.0;
        let how = if change >= 0.0 { "more" } else { "less" };
        format!("; {} would take {:.0} % {how}", next.name(), change.abs())
    });
    let first = format!(
        "With {}, a request takes {:.1} microseconds on average{compared}.",
        choice.name(),
        micros(choice)
    );
    let second = match &choice.host_policy {
        None if is_settled(options) => {
            "A cache on the host would save less than a hundredth of that.".to_owned()
        }
        None => "Below the guests the same memory would hit less often than in them, so leave the host none."
            .to_owned(),
        Some(policy) if lives_on_demotions(policy) => format!(
            "The {policy} cache keeps what guests evict: run futae agent --evictions in each guest, or futae mount."
        ),
        Some(_) if choice.write_mode == WriteMode::WriteBack => {
            "With --write-mode write-back a crash of the server loses what clients wrote after their last flush.".to_owned()
        }
        Some(policy) if at == Place::Guest => {
            format!("The {policy} cache needs nothing in the guests.")
        }
        Some(policy) => format!(
            "The requests were made at the host, so policies that need to know what guests evict were not compared with {policy}."
        ),
    };
    format!("{first} {second}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(policy: Option<&str>, micros: &[f64]) -> Choice {
        let seconds: Vec<f64> = micros.iter().map(|micros| micros / 1e6).collect();
        let estimate = Estimate::of(&seconds).expect("windows");
        Choice {
            levels: Vec::new(),
            links: Vec::new(),
            write_mode: WriteMode::WriteThrough,
            guest_bytes: None,
            host_bytes: 1 << 30,
            host_policy: policy.map(str::to_owned),
            hit_ratio: estimate,
            host_hit_ratio: None,
            host_requests: 0,
            host_write_share: 0.0,
            store_reads_per_request: estimate,
            store_writes_per_request: estimate,
            mean_access_seconds: estimate,
            window_seconds: seconds,
        }
    }

    #[test]
    fn the_simplest_of_those_that_are_as_good_is_advised() {
        let exclusive = choice(Some("exclusive"), &[100.0, 110.0, 90.0, 100.0]);
        let nearly = choice(Some("lru"), &[100.5, 110.4, 90.6, 100.5]);
        let slow = choice(None, &[130.0, 140.0, 120.0, 130.0]);
        assert_eq!(best(&[slow.clone(), exclusive.clone(), nearly]), 2);
        let unsure = choice(Some("lru"), &[80.0, 150.0, 70.0, 110.0]);
        assert_eq!(best(&[slow, unsure, exclusive]), 2, "it may well be slower");
    }

    /// A host's policy under both write modes: the second is faster by this many microseconds.
    fn both_modes(saved: f64) -> [Choice; 2] {
        let micros = [100.0, 110.0, 90.0, 100.0];
        let through = choice(Some("lru"), &micros);
        let back = Choice {
            write_mode: WriteMode::WriteBack,
            ..choice(Some("lru"), &micros.map(|micros| micros - saved))
        };
        [through, back]
    }

    #[test]
    fn write_back_must_be_worth_it() {
        assert_eq!(best(&both_modes(0.1)), 0);
        let options = both_modes(40.0);
        assert_eq!(best(&options), 1);
        let reason = reason(&options, 1, Place::Host);
        assert!(reason.contains("under lru with write-back"), "{reason}");
        assert!(reason.contains("after their last flush"), "{reason}");
    }

    #[test]
    fn a_choice_that_takes_no_time_is_compared_without_a_share() {
        for (micros, words) in [(0.0, "would take 0.0."), (2.5, "would take 2.5.")] {
            let options = [choice(None, &[0.0; 4]), choice(Some("lru"), &[micros; 4])];
            let reason = reason(&options, 0, Place::Guest);
            assert!(reason.contains(words), "{reason}");
        }
    }

    #[test]
    fn the_reason_names_what_it_needs() {
        let options = [
            choice(Some("exclusive"), &[100.0, 110.0, 90.0, 100.0]),
            choice(Some("lru"), &[150.0, 160.0, 140.0, 150.0]),
        ];
        let reason = reason(&options, 0, Place::Guest);
        assert!(
            reason.contains("a cache of 1.00 GiB under lru on the host would take 50 % more"),
            "{reason}"
        );
        assert!(reason.contains("futae agent --evictions"), "{reason}");
    }
}

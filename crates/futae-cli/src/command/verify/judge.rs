//! What was measured, against what was forecast.

use crate::command::forecast::{Forecast, Place, kind, model};
use crate::command::record::Traffic;
use futae_agent_protocol::Replacement;
use futae_policy::PolicySpec;
use futae_sim::{LevelSpec, WriteMode};
use serde::Serialize;

/// Fewer requests than this say nothing.
pub(super) const REQUESTS_MIN: u64 = 1000;
/// What the simulation of a cache may be beside the real one: requests in flight are decided in another order, and
/// capacities are not quite equal.
const MODEL_ERROR: f64 = 0.005;
/// Shares of writes that differ by more than this are of different loads.
const WRITE_SHARE_ERROR: f64 = 0.05;
/// The same of the capacity, as a part of it.
const CAPACITY_ERROR: f64 = 0.01;
/// More of the requests than this, if they are not simulated as they are, make a forecast wrong.
pub(crate) const NOT_SIMULATED: f64 = 0.01;

/// One period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// Requests to the cache, in blocks.
    pub requests: u64,
    /// Hits per request; none without requests.
    pub hit_ratio: Option<f64>,
    /// Lower bound of what was forecast for this many requests.
    pub low: f64,
    /// Upper bound of the same.
    pub high: f64,
    /// What is wrong, with the likely cause; none if nothing is.
    pub alarm: Option<String>,
}

/// Holds a period against the advised choice of a forecast.
pub fn judge(forecast: &Forecast, traffic: &Traffic) -> Judgement {
    let choice = forecast.advised();
    // Asked for by the caller: there is a cache on the host.
    let Some(expected) = &choice.host_hit_ratio else {
        return Judgement {
            requests: traffic.requests,
            hit_ratio: None,
            low: 0.0,
            high: 1.0,
            alarm: None,
        };
    };
    // Of a sample, the forecast was made from as many fewer requests as there are blocks.
    let forecast_requests = choice.host_requests as f64 / forecast.sample;
    let length = traffic.requests as f64 / forecast_requests.max(1.0);
    let (low, high) = expected.bounds_of(length);
    let (low, high) = ((low - MODEL_ERROR).max(0.0), (high + MODEL_ERROR).min(1.0));
    let hit_ratio = (traffic.requests > 0).then(|| traffic.hits as f64 / traffic.requests as f64);
    // By how much, below 0 if too few requests hit.
    let outside = hit_ratio.map_or(0.0, |ratio| {
        (ratio - low).min(0.0) + (ratio - high).max(0.0)
    });
    let alarm = match hit_ratio {
        Some(ratio) if outside != 0.0 && traffic.requests >= REQUESTS_MIN => Some(format!(
            "{:.1} % of requests hit, and {:.1} % to {:.1} % were forecast: {}",
            ratio * 100.0,
            low * 100.0,
            high * 100.0,
            cause(forecast, traffic, outside)
        )),
        _ => None,
    };
    Judgement {
        requests: traffic.requests,
        hit_ratio,
        low,
        high,
        alarm,
    }
}

/// In what a cache is another one than the forecast is for.
pub fn differences(forecast: &Forecast, traffic: &Traffic) -> Vec<String> {
    let choice = forecast.advised();
    let wanted = choice.host_policy.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    if !is_same_policy(&traffic.policy, wanted) {
        let here = &traffic.policy;
        found.push(format!(
            "the cache's policy is {here}, and the forecast is for {wanted}"
        ));
    }
    if traffic.block_bytes != forecast.block_bytes {
        found.push(format!(
            "the cache has blocks of {} bytes, and the forecast is for blocks of {}",
            traffic.block_bytes, forecast.block_bytes
        ));
    }
    let capacity = traffic.capacity_bytes as f64 / choice.host_bytes as f64;
    if (capacity - 1.0).abs() > CAPACITY_ERROR {
        found.push(format!(
            "the cache has {} bytes, and the forecast is for {}",
            traffic.capacity_bytes, choice.host_bytes
        ));
    }
    if traffic.write_mode != choice.write_mode {
        found.push(format!(
            "the cache's write mode is {}, and the forecast is for {}",
            name(traffic.write_mode),
            name(choice.write_mode)
        ));
    }
    found
}

/// Whether two policies decide alike. What a server adds to a policy that has agents makes no difference once evictions above are
/// reported, and a forecast has them reported.
fn is_same_policy(a: &str, b: &str) -> bool {
    let known = |text: &str| {
        let mut policy: PolicySpec = text.parse().ok()?;
        policy.keep_served();
        Some(policy)
    };
    a == b || known(a).is_some_and(|a| known(b) == Some(a))
}

/// As command lines have it.
const fn name(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::WriteThrough => "write-through",
        WriteMode::WriteBack => "write-back",
    }
}

/// The likely cause, the surest first, of a hit ratio that is so far outside the bounds, below 0 if it is too low.
fn cause(forecast: &Forecast, traffic: &Traffic, outside: f64) -> String {
    let choice = forecast.advised();
    if let Some(difference) = differences(forecast, traffic).into_iter().next() {
        return difference;
    }
    if !traffic.blind.is_empty() {
        return format!(
            "no client or agent reports what is evicted above {}, and the forecast has it reported",
            traffic.blind.join(", ")
        );
    }
    if let (Some(blocks), true) = (traffic.filling_blocks, outside < 0.0) {
        return format!(
            "the cache was never full since its start: it has {blocks} of {} blocks, and the forecast is for a cache that was used \
             before",
            traffic.capacity_bytes / traffic.block_bytes.max(1)
        );
    }
    if let Some(cause) = other_kernel(forecast, traffic) {
        return cause;
    }
    if let Some(cause) = not_simulated(traffic, outside) {
        return cause;
    }
    let writes = traffic.write_share();
    if (writes - choice.host_write_share).abs() > WRITE_SHARE_ERROR {
        return format!(
            "another load: {:.0} % of its bytes are written, and {:.0} % were forecast; record it (futae record) and run futae \
             advise again",
            writes * 100.0,
            choice.host_write_share * 100.0
        );
    }
    match choice.guest_bytes {
        Some(_) => "another load, or guests whose caches have another size or policy than was simulated; record it (futae \
             record) and run futae advise again"
            .to_owned(),
        None => "another load; record it (futae record) and run futae advise again".to_owned(),
    }
}

/// Requests that the simulation does not have as they are, if there are enough of them.
fn not_simulated(traffic: &Traffic, outside: f64) -> Option<String> {
    let (in_part, dropped) = (traffic.write_around_blocks, traffic.dropped_blocks);
    let all = traffic.requests + in_part;
    let share = |blocks: u64| blocks as f64 / all.max(1) as f64;
    // Such a write is no request to the cache, and the next read of the block misses. A dropped block costs a hit.
    if share(in_part) > NOT_SIMULATED && 2.0 * share(in_part) > outside.abs() {
        return Some(format!(
            "{:.0} % of the blocks were written in part and are not cached, and the simulation takes such a write for one of the \
             whole block; give the cache smaller blocks (--block)",
            share(in_part) * 100.0
        ));
    }
    (share(dropped) > NOT_SIMULATED && share(dropped) > -outside && outside < 0.0).then(|| {
        format!("TRIM, WRITE_ZEROES or failed requests dropped {dropped} blocks, and a trace has no such requests")
    })
}

/// A guest whose page cache is not the one that was simulated.
fn other_kernel(forecast: &Forecast, traffic: &Traffic) -> Option<String> {
    if forecast.at != Place::Guest {
        return None;
    }
    let level: LevelSpec = forecast.advised().levels.first()?.parse().ok()?;
    let simulated = level.policy;
    let kernels = [Replacement::Linux, Replacement::Mglru];
    if !kernels.iter().any(|&it| kind(it).name() == simulated.name) {
        return None;
    }
    let mut all = traffic
        .guests
        .iter()
        .map(|(guest, cache)| (guest, model(cache, forecast.block_bytes)));
    let (guest, real) = all.find(|(_, real)| {
        real.name != simulated.name || real.read_ahead_blocks() != simulated.read_ahead_blocks()
    })?;
    Some(format!(
        "the forecast is for guests whose page cache is {simulated}, and that of guest {guest} is {real}; run futae advise again \
         with --guest-cache '{real}'"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::forecast::Choice;
    use futae_agent_protocol::PageCache;
    use futae_sim::forecast::Estimate;

    fn forecast() -> Forecast {
        let estimate = Estimate::of(&[0.5, 0.52, 0.48, 0.5]).expect("windows");
        let choice = Choice {
            levels: vec!["arc:256blocks".to_owned()],
            links: Vec::new(),
            write_mode: WriteMode::WriteThrough,
            guest_bytes: None,
            host_bytes: 1 << 20,
            host_policy: Some("arc".to_owned()),
            hit_ratio: estimate,
            host_hit_ratio: Some(estimate),
            host_requests: 10_000,
            host_write_share: 0.2,
            store_reads_per_request: estimate,
            store_writes_per_request: estimate,
            mean_access_seconds: estimate,
            window_seconds: Vec::new(),
        };
        Forecast {
            version: String::new(),
            sources: Vec::new(),
            at: Place::Host,
            memory_bytes: 1 << 20,
            block_bytes: 4096,
            guests: 1,
            sample: 1.0,
            requests: 10_000,
            warmup_requests: 0,
            options: vec![choice],
            best: 0,
            reason: String::new(),
        }
    }

    fn traffic(requests: u64, hits: u64) -> Traffic {
        Traffic {
            policy: "arc".to_owned(),
            block_bytes: 4096,
            capacity_bytes: 1 << 20,
            write_mode: WriteMode::WriteThrough,
            requests,
            hits,
            bytes_read: 800,
            bytes_written: 200,
            ..Traffic::default()
        }
    }

    #[test]
    fn what_is_within_the_bounds_is_well() {
        let judgement = judge(&forecast(), &traffic(10_000, 5_100));
        assert_eq!(judgement.alarm, None, "{judgement:?}");
        let short = judge(&forecast(), &traffic(2_000, 1_100));
        assert!(short.high > judgement.high, "fewer requests are less sure");
        assert_eq!(
            judge(&forecast(), &traffic(500, 0)).alarm,
            None,
            "too few to tell"
        );
        assert_eq!(judge(&forecast(), &traffic(0, 0)).hit_ratio, None);
    }

    #[test]
    fn an_alarm_has_its_likely_cause() {
        let alarm = |change: &dyn Fn(&mut Traffic)| {
            let mut traffic = traffic(10_000, 1_000);
            change(&mut traffic);
            judge(&forecast(), &traffic)
                .alarm
                .expect("10 % is far outside")
        };
        assert!(alarm(&|_| ()).contains("another load; record it"));
        assert!(
            alarm(&|t| t.policy = "lru".to_owned())
                .contains("policy is lru, and the forecast is for arc")
        );
        assert!(
            alarm(&|t| t.write_mode = WriteMode::WriteBack)
                .contains("write mode is write-back, and the forecast is for write-through")
        );
        assert!(alarm(&|t| t.capacity_bytes /= 2).contains("the cache has 524288 bytes"));
        assert!(alarm(&|t| t.filling_blocks = Some(7)).contains("it has 7 of 256 blocks"));
        assert!(alarm(&|t| t.blind = vec!["vm1".to_owned()]).contains("evicted above vm1"));
        let in_part = alarm(&|t| t.write_around_blocks = 10_000);
        assert!(
            in_part.contains("50 % of the blocks were written in part"),
            "{in_part}"
        );
        assert!(alarm(&|t| t.dropped_blocks = 5000).contains("dropped 5000 blocks"));
        let few = |t: &mut Traffic| (t.dropped_blocks, t.write_around_blocks) = (500, 500);
        assert!(alarm(&few).contains("another load"), "they explain little");
        assert!(
            alarm(&|t| t.bytes_written = 800).contains("50 % of its bytes are written, and 20 %")
        );
    }

    #[test]
    fn what_a_server_with_agents_adds_to_a_policy_is_no_difference() {
        let mut forecast = forecast();
        let mut traffic = traffic(10_000, 5_000);
        for (advised, here, is_same) in [
            ("exclusive", "exclusive(keep_served=true)", true),
            ("exclusive(lfu)", "exclusive(lfu,keep_served=true)", true),
            ("exclusive", "exclusive(keep_served=false)", false),
            ("exclusive", "exclusive(lfu)", false),
            ("exclusive", "lru", false),
        ] {
            forecast.options[0].host_policy = Some(advised.to_owned());
            traffic.policy = here.to_owned();
            let found = differences(&forecast, &traffic);
            assert_eq!(found.is_empty(), is_same, "{advised} {here}: {found:?}");
        }
    }

    #[test]
    fn a_cache_that_the_forecast_is_not_for_is_told_by_all_that_differs() {
        let mut traffic = traffic(0, 0);
        assert_eq!(differences(&forecast(), &traffic), [] as [String; 0]);
        traffic.policy = "lru".to_owned();
        traffic.block_bytes = 65536;
        traffic.capacity_bytes *= 2;
        traffic.write_mode = WriteMode::WriteBack;
        let found = differences(&forecast(), &traffic).join("; ");
        for what in [
            "policy is lru",
            "blocks of 65536 bytes",
            "2097152 bytes",
            "write-back",
        ] {
            assert!(found.contains(what), "{found}");
        }
    }

    #[test]
    fn an_alarm_names_a_guest_whose_kernel_is_not_the_one_that_was_simulated() {
        let mut forecast = forecast();
        forecast.at = Place::Guest;
        forecast.options[0].guest_bytes = Some(1 << 20);
        forecast.options[0]
            .levels
            .insert(0, "linux:256blocks".to_owned());
        let alarm = |replacement, read_ahead_bytes, large_folios| {
            let mut traffic = traffic(10_000, 1_000);
            let cache = PageCache {
                replacement,
                read_ahead_bytes,
                large_folios,
            };
            traffic.guests = vec![("vm1".to_owned(), cache)];
            judge(&forecast, &traffic)
                .alarm
                .expect("10 % is far outside")
        };
        let other = alarm(Replacement::Mglru, 0, false);
        assert!(other.contains("that of guest vm1 is mglru;"), "{other}");
        let ahead = alarm(Replacement::Linux, 128 << 10, false);
        let advice = "again with --guest-cache 'linux(readahead=32)'";
        assert!(ahead.contains(advice), "{ahead}");
        let large = alarm(Replacement::Linux, 128 << 10, true);
        let advice = "'linux(readahead=32,folios=large)'";
        assert!(large.contains(advice), "{large}");
        let same = alarm(Replacement::Linux, 0, true);
        assert!(same.contains("another load, or guests"), "{same}");
    }
}

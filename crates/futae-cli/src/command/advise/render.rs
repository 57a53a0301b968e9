//! A forecast as a table for people.

use crate::command::forecast::{Choice, Forecast, Place, size};
use futae_sim::WriteMode;
use futae_sim::forecast::Estimate;
use futae_terminal::table::{Table, count};

/// The whole forecast, the best first.
pub fn render(forecast: &Forecast) -> String {
    let mut order: Vec<&Choice> = forecast.options.iter().collect();
    order.sort_by(|a, b| {
        a.mean_access_seconds
            .mean
            .total_cmp(&b.mean_access_seconds.mean)
    });
    let mut table = Table::new([
        "host's cache",
        "guest's memory",
        "hits %",
        "host's hits %",
        "store reads %",
        "mean us",
    ]);
    for choice in order {
        let host = match &choice.host_policy {
            Some(policy) => {
                let mode = match choice.write_mode {
                    WriteMode::WriteThrough => "",
                    WriteMode::WriteBack => " write-back",
                };
                format!("{} {policy}{mode}", size(choice.host_bytes))
            }
            None => "none".to_owned(),
        };
        table.row([
            host,
            choice.guest_bytes.map_or_else(|| "–".to_owned(), size),
            bounds(&choice.hit_ratio, 100.0),
            choice
                .host_hit_ratio
                .as_ref()
                .map_or_else(|| "–".to_owned(), |ratio| bounds(ratio, 100.0)),
            bounds(&choice.store_reads_per_request, 100.0),
            bounds(&choice.mean_access_seconds, 1e6),
        ]);
    }
    let place = match forecast.at {
        Place::Guest => "of programs in the guests",
        Place::Host => "at the host",
    };
    let sample = match forecast.sample {
        all if all >= 1.0 => String::new(),
        part => format!(" in a sample of {}% of the blocks", part * 100.0),
    };
    format!(
        "{}: {} requests {place}{sample} after {} of warm-up, {} to divide\n\n{}\n± is what 95 of 100 runs of this length are \
         expected to keep under the same load.\n\n{}\n",
        forecast.sources.join(", "),
        count(forecast.requests),
        count(forecast.warmup_requests),
        size(forecast.memory_bytes),
        table.render(),
        forecast.reason
    )
}

/// The mean, and how far the farther end of the interval is from it: a ratio has no values below 0 and above 1, so the
/// other end may be nearer.
fn bounds(estimate: &Estimate, unit: f64) -> String {
    let farther = (estimate.mean - estimate.low).max(estimate.high - estimate.mean);
    format!("{:.1} ±{:.1}", estimate.mean * unit, farther * unit)
}

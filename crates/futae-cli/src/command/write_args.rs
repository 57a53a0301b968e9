//! `--write-mode` and what belongs to it, the same for `futae serve` and `futae mount`.

use futae_engine::WriteBackOptions;
use futae_sim::WriteMode;
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::time::Duration;

/// Options that only a cache has which keeps written data.
pub(super) const OF_WRITE_BACK: [&str; 2] = ["dirty-max", "dirty-age-max"];

/// When written data goes to the store.
#[derive(clap::Args)]
#[command(next_help_heading = "Writes")]
pub(super) struct WriteArgs {
    /// write-through: writes complete when the store has the data. write-back: writes complete when the cache has
    /// the data; FLUSH and FUA bring it to the store, as on a disk
    #[arg(long, value_name = "MODE", default_value_t)]
    pub write_mode: WriteMode,
    /// Maximum share of the cache that is dirty (not yet written to the store), e.g. 20% or 0.2 [default: 20%; 5% for a mount
    /// with --residency kernel, which keeps dirty data beside the page cache]
    #[arg(long, value_name = "SHARE")]
    dirty_max: Option<String>,
    /// Maximum time until dirty data is written to the store, e.g. 30s or 500ms [default: 30s]
    #[arg(long, value_name = "TIME")]
    dirty_age_max: Option<String>,
}

impl WriteArgs {
    /// Whether written blocks are kept.
    pub fn writes_back(&self) -> bool {
        self.write_mode == WriteMode::WriteBack
    }

    /// How written blocks are kept, if they are.
    pub fn options(&self, block_bytes: u64) -> Result<Option<WriteBackOptions>, Failure> {
        self.options_or(block_bytes, WriteBackOptions::default())
    }

    /// The same with `options` where nothing else is said.
    pub fn options_or(
        &self,
        block_bytes: u64,
        mut options: WriteBackOptions,
    ) -> Result<Option<WriteBackOptions>, Failure> {
        if !self.writes_back() {
            let given = [self.dirty_max.is_some(), self.dirty_age_max.is_some()];
            let mut given = given.iter().zip(OF_WRITE_BACK);
            return match given.find(|(is_given, _)| **is_given) {
                None => Ok(None),
                Some((_, option)) => Err(Failure::usage(format!(
                    "--{option} is for --write-mode write-back only"
                ))),
            };
        }
        let block_bytes_max = WriteBackOptions::BLOCK_BYTES_MAX;
        if block_bytes > block_bytes_max {
            return Err(Failure::usage(format!(
                "--write-mode write-back takes blocks of at most {}, since larger ones are loaded \
                 in pieces; choose a smaller --block, or write-through",
                Size::Bytes(block_bytes_max)
            )));
        }
        if let Some(text) = &self.dirty_max {
            options.dirty_max = share(text).ok_or_else(|| {
                Failure::usage(format!(
                    "--dirty-max {text}: write a share of the cache above 0 and at most 100%, such as 20%"
                ))
            })?;
        }
        if let Some(text) = &self.dirty_age_max {
            options.dirty_age_max = time("--dirty-age-max", text)?;
        }
        Ok(Some(options))
    }
}

fn share(text: &str) -> Option<f64> {
    let share: f64 = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (share > 0.0 && share <= 1.0).then_some(share)
}

/// `--store-timeout` where nothing is said.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// `--store-timeout`.
#[derive(clap::Args)]
pub(super) struct StoreArgs {
    /// Time after which a request to an NBD server fails with an I/O error, whether the server is silent or
    /// disconnected. 0: fail at once when disconnected; never time out a server that is connected but silent. Connecting with
    /// its handshake has this time, too, but 10s at most [default: 30s]
    #[arg(long, value_name = "TIME")]
    store_timeout: Option<String>,
}

impl StoreArgs {
    /// The time.
    pub fn timeout(&self) -> Result<Duration, Failure> {
        let text = self.store_timeout.as_deref();
        text.map_or(Ok(STORE_TIMEOUT), |text| time("--store-timeout", text))
    }

    /// Whether it was given.
    pub fn is_asked(&self) -> bool {
        self.store_timeout.is_some()
    }
}

/// A time such as 30s, 500ms, 2m, or a number of seconds; a day at most.
pub(super) fn time(option: &str, text: &str) -> Result<Duration, Failure> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, seconds) = unit.map_or((text, 1.0), |(unit, seconds)| {
        (&text[..text.len() - unit.len()], *seconds)
    });
    let seconds = number.trim().parse::<f64>().ok().map(|n| n * seconds);
    let seconds = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds));
    let wrong = || {
        let message =
            format!("{option} {text}: write a time of at most a day, such as 30s or 500ms");
        Failure::usage(message)
    };
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_times_are_read_as_written() {
        assert_eq!(share("20%"), Some(0.2));
        assert_eq!(share("1"), Some(1.0));
        for text in ["", "%", "0", "101%", "1.5", "-1", "nan", "inf"] {
            assert_eq!(share(text), None, "{text}");
        }
        let read = |text| time("--x", text).ok();
        assert_eq!(read("30s"), Some(Duration::from_secs(30)));
        assert_eq!(read("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(read("1.5m"), Some(Duration::from_secs(90)));
        assert_eq!(read("2"), Some(Duration::from_secs(2)));
        for text in ["", "s", "-1s", "soon", "2d", "1e9", "nan"] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}

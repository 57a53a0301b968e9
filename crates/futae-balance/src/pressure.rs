//! How long programs of the host wait for memory, as the kernel counts it (PSI).

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Of the whole host.
const FILE: &str = "/proc/pressure/memory";

/// Looks at the counter of the kernel.
#[derive(Debug)]
pub(crate) struct PressureMeter {
    path: PathBuf,
    last: Option<(Instant, u64)>,
}

impl PressureMeter {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path: path.unwrap_or_else(|| FILE.into()),
            last: None,
        }
    }

    /// The share of the time since this was last asked in which some program waited for memory; none the first time, and where the
    /// kernel does not tell.
    pub(crate) fn share(&mut self) -> Option<f64> {
        let (now, micros) = (Instant::now(), self.waited_micros());
        let last = std::mem::replace(&mut self.last, micros.map(|micros| (now, micros)));
        let ((then, before), micros) = (last?, micros?);
        let passed = now.duration_since(then).as_micros().max(1) as f64;
        Some((micros.saturating_sub(before) as f64 / passed).min(1.0))
    }

    fn waited_micros(&self) -> Option<u64> {
        waited_micros(&fs::read_to_string(&self.path).ok()?)
    }
}

fn waited_micros(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    total.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_the_kernel_is_read() {
        let text = "some avg10=1.53 avg60=0.87 avg300=0.22 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(waited_micros(text), Some(123_456));
        for text in ["", "full total=7\n", "some avg10=0.00\n", "some total=x\n"] {
            assert_eq!(waited_micros(text), None, "{text}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("memory");
        let mut meter = PressureMeter::new(Some(path.clone()));
        assert_eq!(meter.share(), None, "there is no such file");
        for (total, share) in [
            (5, None),
            (5, Some(0.0)),
            (u64::MAX, Some(1.0)),
            (0, Some(0.0)),
        ] {
            fs::write(&path, format!("some total={total}\n")).expect("a file");
            assert_eq!(meter.share(), share);
        }
    }
}

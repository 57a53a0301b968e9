//! Axes: from data to a share of their length, and their ticks.

/// From data to a share of the axis, and its ticks.
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
    pub ticks: Vec<f64>,
}

/// With more round numbers than these only powers of ten are ticks.
const LOG_TICKS_MAX: usize = 9;

impl Axis {
    pub fn new(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let values = values.filter(|&v| v.is_finite() && (!log || v > 0.0));
        let high = values.clone().fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        if log {
            return Self::log(values.fold(high, f64::min), high);
        }
        let step = nice_step(high / 5.0);
        let steps = (high / step - 1e-9).ceil().max(1.0);
        Self {
            low: 0.0,
            high: steps * step,
            log,
            ticks: (0..=steps as u32).map(|i| f64::from(i) * step).collect(),
        }
    }

    /// From the round number below to the one above.
    fn log(low: f64, high: f64) -> Self {
        let powers = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
        let round = |power| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(power));
        let all: Vec<f64> = powers.flat_map(round).collect();
        let first = all.iter().rposition(|&n| n <= low * 1.000_001);
        let first = first.unwrap_or(0);
        let last = all.iter().position(|&n| n >= high * 0.999_999);
        let last = last.unwrap_or(all.len() - 1).max(first + 1);
        let shown = &all[first..=last];
        let is_power = |n: &f64| (n.log10() - n.log10().round()).abs() < 1e-9;
        let ticks = match shown.len() <= LOG_TICKS_MAX {
            true => shown.to_vec(),
            false => shown.iter().copied().filter(is_power).collect(),
        };
        Self {
            low: all[first].log10(),
            high: all[last].log10(),
            log: true,
            ticks,
        }
    }

    pub fn share(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The next of 1, 2, 2.5 and 5 times a power of ten.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0];
    let found = nice.into_iter().find(|n| n * power >= least * 0.999);
    found.unwrap_or(10.0) * power
}

/// A number as an axis has it, in few digits.
pub fn tick_text(value: f64) -> String {
    let short = |digits: &str| {
        digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    };
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        // The steps of an axis have two digits, and its ticks three: 2.5e6, 1.25e7.
        let text = format!("{value:.2e}");
        return match text.split_once('e') {
            Some((digits, power)) => format!("{}e{power}", short(digits)),
            None => text,
        };
    }
    short(&format!("{value:.5}"))
}

/// A number in three digits or, where it is larger, whole.
pub fn short_text(value: f64) -> String {
    let digits = match value.abs() {
        0.0..1.0 => 4,
        1.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    let rounded = format!("{value:.digits$}");
    tick_text(rounded.parse().unwrap_or(value))
}

/// A size in bytes, in the largest unit that it has one of.
pub fn size_text(bytes: f64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let units = units.map(|(name, bits)| ((1u64 << bits) as f64, name));
    let found = units.into_iter().find(|(unit, _)| bytes >= *unit);
    let (unit, name) = found.unwrap_or((1.0, "bytes"));
    format!("{} {name}", short_text(bytes / unit))
}

/// The unit that an axis up to this many bytes is in, with its name.
pub fn axis_unit(bytes: f64) -> (f64, &'static str) {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let units = units.map(|(name, bits)| ((1u64 << bits) as f64, name));
    let found = units.into_iter().find(|(unit, _)| bytes >= 2.0 * unit);
    found.unwrap_or((1.0, "bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::new([0.37, 9.3].into_iter(), false);
        assert_eq!(axis.ticks, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let near = |axis: &Axis, expected: &[f64]| {
            let pairs = axis.ticks.iter().zip(expected);
            let apart = pairs.map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
            axis.ticks.len() == expected.len() && apart < 1e-9
        };
        let axis = Axis::new([0.37, 930.0].into_iter(), true);
        assert!(near(&axis, &[1.0, 10.0, 100.0, 1000.0]), "{:?}", axis.ticks);
        let axis = Axis::new([4.0, 40.0].into_iter(), true);
        assert!(
            near(&axis, &[2.0, 5.0, 10.0, 20.0, 50.0]),
            "{:?}",
            axis.ticks
        );
        assert!((axis.share(10.0) - 0.5).abs() < 1e-9);
        let axis = Axis::new([5.0].into_iter(), true);
        assert!(axis.share(5.0).is_finite());
        assert_eq!([0.25, 10.0, 1e-6].map(tick_text), ["0.25", "10", "1e-6"]);
    }

    #[test]
    fn a_tick_is_called_what_it_is() {
        for high in [1.2e7, 12.0, 6e-3, 1.2e-3, 1.2e-4, 3.1e9] {
            let axis = Axis::new([high].into_iter(), false);
            for &tick in &axis.ticks {
                let text = tick_text(tick);
                let told: f64 = text.parse().expect("a number");
                assert!(
                    (told - tick).abs() <= tick * 1e-9,
                    "{tick} is called {text}"
                );
            }
        }
    }

    #[test]
    fn an_axis_is_in_the_unit_that_has_two_of_it() {
        assert_eq!(axis_unit(2e9).1, "MiB");
        assert_eq!(axis_unit(5e9).1, "GiB");
        assert_eq!(axis_unit(512.0).1, "bytes");
        let sizes = [1023.0, 1024.0, 1_638_400.0, 314_572_800.0].map(size_text);
        assert_eq!(sizes, ["1023 bytes", "1 KiB", "1.56 MiB", "300 MiB"]);
    }
}

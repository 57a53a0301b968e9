//! Service times of the places of a hierarchy.

use crate::duration::seconds;
use crate::run::Latency;
use futae_policy::Prng;
use std::f64::consts::TAU;
use std::str::FromStr;

/// The distribution of a service time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Constant.
    Fixed(f64),
    /// Exponential, with this mean.
    Exponential(f64),
    /// Uniform between these.
    Uniform(f64, f64),
    /// Log-normal: the mean, and the standard deviation of the logarithm.
    LogNormal(f64, f64),
}

impl Service {
    /// The mean, in seconds.
    #[must_use]
    pub fn mean_seconds(&self) -> f64 {
        match *self {
            Self::Fixed(mean) | Self::Exponential(mean) | Self::LogNormal(mean, _) => mean,
            Self::Uniform(low, high) => f64::midpoint(low, high),
        }
    }

    /// One draw, in nanoseconds.
    #[inline]
    pub fn draw_ns(&self, prng: &mut Prng) -> u64 {
        // Above 0, so that its logarithm is a number.
        let unit = |prng: &mut Prng| 1.0 - prng.unit();
        let seconds = match *self {
            Self::Fixed(seconds) => seconds,
            Self::Exponential(mean) => -mean * unit(prng).ln(),
            Self::Uniform(low, high) => low + (high - low) * prng.unit(),
            Self::LogNormal(mean, sigma) => {
                let normal = (-2.0 * unit(prng).ln()).sqrt() * (TAU * prng.unit()).cos();
                mean * (sigma * normal - sigma * sigma / 2.0).exp()
            }
        };
        (seconds * 1e9).round() as u64
    }
}

/// A place that serves requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Its service time.
    pub service: Service,
    /// The number of requests it serves at a time, at least 1; `None`: any number, without waiting.
    pub width: Option<u32>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            service: Service::Fixed(0.0),
            width: None,
        }
    }
}

/// Latencies of places, as `upper=1us,link=5us*1,store=exp(100us)*8,store-write=50us`; an omitted
/// place takes no time and has no queue.
///
/// A request passes a link for each boundary between levels that it crosses, and then takes the
/// time of the place that serves it: see [`Latency`]. `*N` means that a place serves N requests at
/// a time while others wait, in order of arrival. Demoted blocks pass the link. Reads for notices
/// and preloads, and write-backs of dirty blocks, use the store. These delay only the requests
/// behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyModel {
    /// The first level.
    pub upper: Place,
    /// All other levels.
    pub lower: Place,
    /// The round trip between two levels, of each guest.
    pub link: Place,
    /// The store.
    pub store: Place,
    /// The time of a write to the store, if it differs from a read.
    pub store_write: Option<Service>,
}

/// A malformed latency model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "latency {part:?} is not PLACE=TIME or PLACE=TIME*N, such as upper=1us,link=5us*1,store=exp(100us)*8 (places upper, \
     lower, link, store, store-write; TIME a time in ns, us, ms or s, exp(MEAN), uniform(LEAST,MOST) or \
     lognormal(MEAN,SIGMA); N requests at a time)"
)]
pub struct LatencyModelError {
    part: String,
}

impl LatencyModel {
    /// The model as constant times, if nothing is random and nothing waits.
    #[must_use]
    pub fn fixed(&self) -> Option<Latency> {
        let seconds = |place: &Place| match (place.service, place.width) {
            (Service::Fixed(seconds), None) => Some(seconds),
            _ => None,
        };
        if self.store_write.is_some() {
            return None;
        }
        Some(Latency {
            upper: seconds(&self.upper)?,
            lower: seconds(&self.lower)?,
            store: seconds(&self.store)?,
            link: seconds(&self.link)?,
        })
    }
}

impl FromStr for LatencyModel {
    type Err = LatencyModelError;

    fn from_str(text: &str) -> Result<Self, LatencyModelError> {
        let mut model = Self::default();
        for part in parts(text) {
            let refused = || LatencyModelError {
                part: part.chars().take(60).collect(),
            };
            let (name, time) = part.split_once('=').ok_or_else(refused)?;
            if name.trim() == "store-write" {
                model.store_write = Some(service(time).ok_or_else(refused)?);
                continue;
            }
            let place = match name.trim() {
                "upper" => &mut model.upper,
                "lower" => &mut model.lower,
                "link" => &mut model.link,
                "store" => &mut model.store,
                _ => return Err(refused()),
            };
            *place = match time.rsplit_once('*') {
                None => Place {
                    service: service(time).ok_or_else(refused)?,
                    width: None,
                },
                Some((time, width)) => Place {
                    service: service(time).ok_or_else(refused)?,
                    width: Some(
                        width
                            .trim()
                            .parse()
                            .ok()
                            .filter(|&width| width > 0)
                            .ok_or_else(refused)?,
                    ),
                },
            };
        }
        Ok(model)
    }
}

/// Splits at commas outside of parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn service(text: &str) -> Option<Service> {
    let text = text.trim();
    let Some((name, arguments)) = text.split_once('(') else {
        return seconds(text).map(Service::Fixed);
    };
    let arguments: Vec<&str> = arguments.strip_suffix(')')?.split(',').collect();
    match (name.trim(), &arguments[..]) {
        ("exp", [mean]) => seconds(mean).map(Service::Exponential),
        ("uniform", [low, high]) => {
            let (low, high) = (seconds(low)?, seconds(high)?);
            (low <= high).then_some(Service::Uniform(low, high))
        }
        ("lognormal", [mean, sigma]) => {
            let sigma: f64 = sigma.trim().parse().ok()?;
            (sigma.is_finite() && (0.0..=10.0).contains(&sigma))
                .then_some(Service::LogNormal(seconds(mean)?, sigma))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_read_or_refused() {
        let text = "upper=1us, link=5us*1,store=lognormal(100us, 0.5)*8,store-write=exp(50us),lower=uniform(1us,3us)";
        let model: LatencyModel = text.parse().expect("a model");
        assert_eq!(model.link.width, Some(1));
        assert_eq!(model.store.service, Service::LogNormal(1e-4, 0.5));
        assert_eq!((model.store.width, model.upper.width), (Some(8), None));
        assert_eq!(model.store_write, Some(Service::Exponential(5e-5)));
        assert_eq!(model.lower.service, Service::Uniform(1e-6, 3e-6));
        assert_eq!(model.fixed(), None);
        let fixed: LatencyModel = "upper=1us,store=0.1ms".parse().expect("a model");
        let wanted: Latency = "upper=1us,store=0.1ms".parse().expect("a latency");
        assert_eq!(fixed.fixed(), Some(wanted));
        for text in [
            "",
            "upper",
            "upper=1",
            "store=exp(1us",
            "store=exp(1us)*0",
            "store=1us*x",
            "store=uniform(3us,1us)",
            "store=lognormal(1us,-1)",
            "store=gamma(1us)",
            "disk=1ms",
            "store-write=1us*4",
            "upper=1us,",
        ] {
            assert!(text.parse::<LatencyModel>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn draws_have_the_mean_of_their_distribution() {
        for text in [
            "exp(100us)",
            "uniform(50us,150us)",
            "lognormal(100us,0.8)",
            "100us",
        ] {
            let service = service(text).expect("a time");
            let mut prng = Prng::new(3);
            let sum: u64 = (0..200_000).map(|_| service.draw_ns(&mut prng)).sum();
            let mean = sum as f64 / 200_000.0;
            assert!((mean / 100_000.0 - 1.0).abs() < 0.01, "{text}: {mean}");
            assert!((service.mean_seconds() * 1e9 / 100_000.0 - 1.0).abs() < 1e-9);
        }
    }
}

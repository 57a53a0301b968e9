//! What a metric is.

use futae_engine::LatencyStatus;

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    /// Not known yet; the series is left out.
    Unknown,
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Unknown, Self::Real)
    }
}

impl From<Option<u64>> for Value {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::Unknown, Self::Whole)
    }
}

/// A metric of one kind of thing.
pub(crate) struct Metric<T: ?Sized> {
    /// Without `futae_` before it, and without `_total` behind it.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) value: fn(&T) -> Value,
}

impl<T: ?Sized> Metric<T> {
    /// The name as a program that scrapes sees it.
    pub(crate) fn full_name(&self) -> String {
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
        };
        format!("futae_{}{end}", self.name)
    }
}

/// A metric that is how long requests took, with a series for each operation.
pub(crate) struct Durations<T: ?Sized> {
    /// Without `futae_` before it.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: fn(&T) -> &[LatencyStatus],
}

/// A metric.
pub(crate) const fn metric<T: ?Sized>(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&T) -> Value,
) -> Metric<T> {
    Metric {
        name,
        kind,
        help,
        value,
    }
}

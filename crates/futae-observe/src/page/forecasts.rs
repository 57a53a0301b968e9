//! Forecast and measurement.

use super::html::{Cell, Table};
use crate::forecast::ForecastShown;

/// A row for each cache that a forecast is held against.
pub(super) fn forecasts(shown: &[ForecastShown]) -> String {
    let heads = ["cache", "requests", "measured", "at least", "at most", ""];
    let mut table = Table::new("forecast", "Forecast and measurement", &heads);
    for one in shown {
        let verdict = match (&one.alarm, one.measured) {
            (Some(_), _) => "not as forecast",
            (None, Some(_)) => "as forecast",
            (None, None) => "",
        };
        table.row(
            &one.cache,
            &[
                Cell::count("requests", one.requests),
                Cell::share("measured", one.measured),
                Cell::share("low", Some(one.low)),
                Cell::share("high", Some(one.high)),
                Cell::text("verdict", verdict),
            ],
        );
    }
    table.html(
        "Hit ratios of the last 15 minutes, and the bounds of the forecast (--forecast) for so many requests, as futae verify computes them.",
    )
}

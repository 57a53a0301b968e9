//! One event as a line.

use crate::time::utc_millis;
use futae_agent_protocol::printable;
use serde_json::{Map, Value, json};
use std::fmt::Debug;
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// What a line begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Terminal,
    Journal,
    Json,
}

/// What an event says.
pub(crate) struct Line<'a> {
    time: SystemTime,
    level: Level,
    target: &'a str,
    said: Said,
}

#[derive(Default)]
struct Said {
    message: String,
    fields: Map<String, Value>,
}

impl<'a> Line<'a> {
    pub(crate) fn of(event: &Event<'a>) -> Self {
        let mut said = Said::default();
        event.record(&mut said);
        Self {
            time: SystemTime::now(),
            level: *event.metadata().level(),
            target: event.metadata().target(),
            said,
        }
    }

    /// The line with its end. What clients and guests chose steers no terminal and begins no line.
    pub(crate) fn render(&self, style: Style) -> String {
        let (level, target) = (self.level, self.target);
        match style {
            Style::Terminal => {
                let (time, message) = (utc_millis(self.time), printable(&self.said.message));
                format!("{time} {level:5} {target}: {message}\n")
            }
            Style::Journal => {
                let (priority, message) = (priority(level), printable(&self.said.message));
                format!("<{priority}>{level} {target}: {message}\n")
            }
            Style::Json => {
                let line = json!({
                    "time": utc_millis(self.time),
                    "level": level.as_str().to_ascii_lowercase(),
                    "target": target,
                    "message": self.said.message,
                    "fields": self.said.fields,
                });
                format!("{line}\n")
            }
        }
    }
}

/// The number by which the journal knows a level (sd-daemon(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

impl Said {
    fn note(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for Said {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.note(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.note(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.note(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.note(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.note(field, format!("{value:?}").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn line(message: &str) -> Line<'static> {
        let fields = json!({ "export": "vm1", "errors": 3 });
        let said = Said {
            message: message.to_owned(),
            fields: fields.as_object().cloned().unwrap_or_default(),
        };
        Line {
            time: UNIX_EPOCH + Duration::from_millis(1_795_409_400_007),
            level: Level::WARN,
            target: "futae_host",
            said,
        }
    }

    #[test]
    fn a_line_has_its_time_unless_the_journal_adds_it() {
        let told = line("it is so");
        assert_eq!(
            told.render(Style::Terminal),
            "2026-11-23T04:50:00.007Z WARN  futae_host: it is so\n"
        );
        assert_eq!(
            told.render(Style::Journal),
            "<4>WARN futae_host: it is so\n"
        );
        let json: Value = serde_json::from_str(&told.render(Style::Json)).expect("JSON");
        assert_eq!(
            json,
            json!({
                "time": "2026-11-23T04:50:00.007Z",
                "level": "warn",
                "target": "futae_host",
                "message": "it is so",
                "fields": { "export": "vm1", "errors": 3 },
            })
        );
    }

    #[test]
    fn what_a_client_chose_begins_no_line() {
        let hostile = line("a\n<0>b\x1b[2J");
        for style in [Style::Terminal, Style::Journal, Style::Json] {
            let text = hostile.render(style);
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(!text.contains('\x1b'), "{text:?}");
        }
    }
}

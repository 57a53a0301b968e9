//! QEMU's machine protocol: a visit a question, so that others can reach the monitor in between.

use crate::line::Lines;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Lines that may come before an answer: events.
const LINES_MAX: usize = 1000;

pub fn achieved(socket: &Path, timeout: Duration) -> Result<u64, String> {
    let answer = visit(socket, timeout, &json!({ "execute": "query-balloon" }))?;
    let actual = answer["actual"].as_u64();
    actual.ok_or_else(|| {
        format!(
            "{}: QEMU does not tell its balloon's size",
            socket.display()
        )
    })
}

pub fn order(socket: &Path, bytes: u64, timeout: Duration) -> Result<(), String> {
    let order = json!({ "execute": "balloon", "arguments": { "value": bytes } });
    visit(socket, timeout, &order).map(drop)
}

/// Whether the balloon gives the host the pages that the guest frees (free page reporting); none if there is no balloon, or it does not
/// say.
pub fn reports_free_pages(socket: &Path, timeout: Duration) -> Result<Option<bool>, String> {
    let mut monitor = Monitor::visit(socket, timeout)?;
    // Devices with a name of their own, and the others.
    for place in ["/machine/peripheral", "/machine/peripheral-anon"] {
        let list = json!({ "execute": "qom-list", "arguments": { "path": place } });
        let devices = monitor.ask(&list)?;
        let is_balloon = |device: &&Value| {
            let kind = device["type"].as_str().unwrap_or_default();
            kind.starts_with("child<virtio-balloon")
        };
        let Some(balloon) = devices
            .as_array()
            .and_then(|all| all.iter().find(is_balloon))
        else {
            continue;
        };
        let name = balloon["name"].as_str().unwrap_or_default();
        let get = json!({
            "execute": "qom-get",
            "arguments": { "path": format!("{place}/{name}"), "property": "free-page-reporting" },
        });
        return Ok(monitor.ask(&get)?.as_bool());
    }
    Ok(None)
}

fn visit(socket: &Path, timeout: Duration, order: &Value) -> Result<Value, String> {
    Monitor::visit(socket, timeout)?.ask(order)
}

/// A monitor that has greeted.
struct Monitor<'a> {
    lines: Lines,
    socket: &'a Path,
    timeout: Duration,
}

impl<'a> Monitor<'a> {
    fn visit(socket: &'a Path, timeout: Duration) -> Result<Self, String> {
        let said = |error| not_answered(socket, timeout, &error);
        let mut lines = Lines::connect(socket, timeout).map_err(said)?;
        // The greeting.
        lines.hear().map_err(said)?;
        ask(&mut lines, &json!({ "execute": "qmp_capabilities" })).map_err(said)?;
        Ok(Self {
            lines,
            socket,
            timeout,
        })
    }

    fn ask(&mut self, order: &Value) -> Result<Value, String> {
        let answer = ask(&mut self.lines, order);
        let answer = answer.map_err(|error| not_answered(self.socket, self.timeout, &error))?;
        match answer.get("return") {
            Some(returned) => Ok(returned.clone()),
            None => Err(format!(
                "{}: QEMU refuses: {}",
                self.socket.display(),
                answer["error"]["desc"]
                    .as_str()
                    .unwrap_or("it does not say why")
            )),
        }
    }
}

fn not_answered(socket: &Path, timeout: Duration, error: &io::Error) -> String {
    let socket = socket.display();
    if error.kind() == io::ErrorKind::TimedOut {
        return format!(
            "{socket}: QEMU has not answered within {timeout:?}; is another program at its monitor?"
        );
    }
    format!("{socket}: QEMU's monitor does not answer: {error}")
}

fn ask(lines: &mut Lines, order: &Value) -> io::Result<Value> {
    lines.say(&order.to_string())?;
    for _ in 0..LINES_MAX {
        let line: Value = serde_json::from_str(&lines.hear()?)?;
        if line.get("return").is_some() || line.get("error").is_some() {
            return Ok(line);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

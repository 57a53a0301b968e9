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

fn visit(socket: &Path, timeout: Duration, order: &Value) -> Result<Value, String> {
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => format!(
            "{}: QEMU has not answered within {timeout:?}; is another program at its monitor?",
            socket.display()
        ),
        _ => format!(
            "{}: QEMU's monitor does not answer: {error}",
            socket.display()
        ),
    };
    let mut lines = Lines::connect(socket, timeout).map_err(said)?;
    // The greeting.
    lines.hear().map_err(said)?;
    ask(&mut lines, &json!({ "execute": "qmp_capabilities" })).map_err(said)?;
    let answer = ask(&mut lines, order).map_err(said)?;
    match answer.get("return") {
        Some(returned) => Ok(returned.clone()),
        None => Err(format!(
            "{}: QEMU refuses: {}",
            socket.display(),
            answer["error"]["desc"]
                .as_str()
                .unwrap_or("it does not say why")
        )),
    }
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

//! Which commands there are and what is done for them.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use tracing::{debug, info};

/// The orders that only read, and come every second or more often: of `futae top` and `futae record`.
const QUESTIONS: [&str; 2] = ["status", "recorded"];

/// The orders whose answers say which blocks clients asked for, in up to some megabytes. The log leaves them out.
const OF_DATA: [&str; 1] = ["end-record"];

/// What is done for one command.
type Obey = Box<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// The commands of one program by their names.
#[derive(Default)]
pub struct Orders {
    commands: BTreeMap<&'static str, Obey>,
}

/// Of a command that takes none.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

impl Orders {
    /// No commands yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command. `Arguments` are the members of the line beside `command`; let them deny
    /// unknown fields, so that a misspelt one is an error. `obey` runs on the connection's thread
    /// and may wait; an error is a sentence that says what to do.
    #[must_use]
    pub fn with<Arguments: DeserializeOwned>(
        mut self,
        name: &'static str,
        obey: impl Fn(Arguments) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        let obey = move |arguments| {
            let arguments = serde_json::from_value(arguments);
            obey(arguments.map_err(|error| format!("not an order: {name}: {error}"))?)
        };
        self.commands.insert(name, Box::new(obey));
        self
    }

    /// The answer to one line.
    #[must_use]
    pub fn answer(&self, line: &[u8]) -> Value {
        self.obey(line)
            .unwrap_or_else(|problem| json!({ "error": problem }))
    }

    fn obey(&self, line: &[u8]) -> Result<Value, String> {
        let mut members: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| format!("not an order: {error}"))?;
        let Some(Value::String(name)) = members.remove("command") else {
            return Err("not an order: it has no \"command\"".to_owned());
        };
        let Some((name, obey)) = self.commands.get_key_value(name.as_str()) else {
            let name: String = name.chars().take(60).collect();
            let known: Vec<_> = self.commands.keys().copied().collect();
            return Err(format!(
                "not an order: there is no command {name:?}; there are {}",
                known.join(", ")
            ));
        };
        let order = Value::Object(members);
        let is_question = QUESTIONS.contains(name);
        let said = if is_question {
            String::new()
        } else {
            order.to_string()
        };
        let answer = obey(order);
        match &answer {
            _ if is_question => debug!("control socket: {name}"),
            Ok(_) if OF_DATA.contains(name) => {
                info!(order = name, "control socket: {name} {said}: done");
            }
            Ok(done) => info!(order = name, "control socket: {name} {said}: {done}"),
            Err(problem) => info!(
                order = name,
                "control socket: {name} {said} refused: {problem}"
            ),
        }
        answer
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.commands.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sum {
        a: u64,
        b: Option<u64>,
    }

    fn orders() -> Orders {
        let sum = |Sum { a, b }| match a.checked_add(b.unwrap_or(1)) {
            Some(sum) => Ok(json!({ "sum": sum })),
            None => Err("too large".to_owned()),
        };
        Orders::new()
            .with("sum", sum)
            .with("nothing", |NoArguments {}| Ok(json!({})))
    }

    #[test]
    fn a_command_is_found_by_its_name_and_gets_its_arguments() {
        let answer = |line: &str| orders().answer(line.as_bytes());
        assert_eq!(answer(r#"{"command":"sum","a":2,"b":3}"#)["sum"], 5);
        assert_eq!(answer(r#"{"a":2,"command":"sum"}"#)["sum"], 3);
        assert_eq!(answer(r#"{"command":"nothing"}"#), json!({}));
        let too_large = answer(r#"{"command":"sum","a":18446744073709551615}"#);
        assert_eq!(too_large, json!({ "error": "too large" }));
    }

    #[test]
    fn whatever_is_no_order_is_answered_with_a_sentence() {
        for (line, said) in [
            ("", "not an order"),
            ("[]", "not an order"),
            ("{}", "no \"command\""),
            (r#"{"command":7}"#, "no \"command\""),
            (r#"{"command":"add"}"#, "there are nothing, sum"),
            (r#"{"command":"sum"}"#, "sum: missing field `a`"),
            (r#"{"command":"sum","a":1,"c":1}"#, "unknown field `c`"),
            (r#"{"command":"nothing","x":1}"#, "unknown field `x`"),
        ] {
            let answer = orders().answer(line.as_bytes());
            let error = answer["error"].as_str().unwrap_or_default();
            assert!(error.contains(said), "{line}: {answer}");
        }
    }
}

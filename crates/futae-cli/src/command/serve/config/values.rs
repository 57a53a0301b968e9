//! The values of a file as words of a command line.

use clap::{Arg, ArgAction};
use toml::de::DeValue;

/// What a key comes to: a value for each time that the option is given, an empty one where it takes none.
pub(super) fn words(option: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    match option.get_action() {
        ArgAction::SetTrue => match value.as_bool() {
            Some(true) => Ok(vec![String::new()]),
            Some(false) => Ok(Vec::new()),
            None => Err("write true or false".to_owned()),
        },
        ArgAction::Append => list(value),
        _ => plain(value).map(|word| vec![word]),
    }
}

/// One text, or several.
pub(super) fn list(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let DeValue::Array(values) = value else {
        return plain(value).map(|word| vec![word]);
    };
    values.iter().map(|value| plain(value.get_ref())).collect()
}

/// A text or a number.
pub(super) fn plain(value: &DeValue<'_>) -> Result<String, String> {
    let word = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Integer(number) => u128::from_str_radix(number.as_str(), number.radix())
            .map_err(|error| error.to_string())?
            .to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        other => {
            return Err(format!(
                "write a text or a number in place of this {}",
                other.type_str()
            ));
        }
    };
    if word.is_empty() {
        return Err("the value is empty".to_owned());
    }
    Ok(word)
}

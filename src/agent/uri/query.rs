//! The query of a name as the input that it stands for (R49): a JSON object of texts. Which types the texts have is the
//! schema's to say, and structures belong in a body.

use super::{AgentUri, chars::decoded};
use serde_json::{Map, Value};

/// Parameters in one query.
const MOST: usize = 256;

impl AgentUri {
    /// The query as an object: texts by name; a name that stands there again makes an array of its texts, in order.
    ///
    /// # Errors
    /// It is no UTF-8 when decoded, a parameter has no name, or there are more than 256.
    pub fn input(&self) -> Result<Map<String, Value>, &'static str> {
        let mut members = Map::new();
        let pairs = self.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for (at, pair) in pairs.enumerate() {
            if at == MOST {
                return Err("the query has more than 256 parameters");
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let read = |text| decoded(text, true).ok_or("the query is not UTF-8");
            let (name, value) = (read(name)?, Value::String(read(value)?));
            if name.is_empty() {
                return Err("the query has a parameter without a name");
            }
            match members.get_mut(&name) {
                None => drop(members.insert(name, value)),
                Some(Value::Array(values)) => values.push(value),
                Some(one) => *one = Value::Array(vec![one.take(), value]),
            }
        }
        Ok(members)
    }

    /// The first value of the parameter `name`.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.into_iter().find_map(|(given, value)| (given == name).then(|| decoded(value, true))?)
    }
}

/// What the percent-encodings of a segment stand for; `None` where that is no UTF-8.
pub fn segment(text: &str) -> Option<String> {
    decoded(text, false)
}

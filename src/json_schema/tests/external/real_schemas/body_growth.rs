//! Makes a valid body larger, as long as it stays valid.

use serde_json::Value;

/// Values of each kind at which growth is tried.
const MAX_PLACES: usize = 12;

/// Returns a valid body of about `target` bytes, or as large as simple repetition makes it.
pub(super) fn grow(body: Value, target: usize, is_valid: &dyn Fn(&Value) -> bool) -> Value {
    let mut pointers = Vec::new();
    collect_pointers(&body, String::new(), &mut pointers);
    let mut body = body;
    for kind in [Value::is_array, Value::is_object, Value::is_string] {
        let places = pointers.iter().filter(|pointer| body.pointer(pointer).is_some_and(kind)).take(MAX_PLACES);
        for pointer in places.cloned().collect::<Vec<_>>() {
            for share in [1, 8, 256] {
                let missing = target.saturating_sub(body.to_string().len()) / share;
                if missing < 16 {
                    return body;
                }
                let mut larger = body.clone();
                if larger.pointer_mut(&pointer).is_some_and(|value| extend(value, missing)) && is_valid(&larger) {
                    body = larger;
                    break;
                }
            }
        }
    }
    body
}

fn collect_pointers(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(position, child)| collect_pointers(child, format!("{pointer}/{position}"), pointers)),
        Value::Object(members) => members.iter().for_each(|(name, child)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            collect_pointers(child, format!("{pointer}/{name}"), pointers);
        }),
        _ => {}
    }
    pointers.push(pointer);
}

/// Adds about `bytes` bytes to a value by repeating what it has. Returns whether that is possible.
fn extend(value: &mut Value, bytes: usize) -> bool {
    match value {
        Value::Array(items) if !items.is_empty() => {
            let size = items.iter().map(|item| item.to_string().len() + 1).sum::<usize>();
            let copies = items.clone();
            (0..bytes / size).for_each(|_| items.extend(copies.iter().cloned()));
            bytes >= size
        }
        Value::Object(members) => {
            let Some((name, child)) = members.iter().next_back().map(|(name, child)| (name.clone(), child.clone()))
            else {
                return false;
            };
            let size = name.len() + child.to_string().len() + 12;
            members.extend((0..bytes / size).map(|number| (format!("{name}{number}"), child.clone())));
            bytes >= size
        }
        Value::String(text) => {
            let unit = if text.is_empty() { "a".to_owned() } else { text.clone() };
            text.push_str(&unit.repeat(bytes / unit.len()));
            true
        }
        _ => false,
    }
}

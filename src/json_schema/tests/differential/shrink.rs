//! Makes a pair on which validators disagree smaller.

use super::{generator::Pair, verdicts::Verdicts};
use serde_json::Value;

/// Attempts after which the pair is small enough.
const MAX_ATTEMPTS: usize = 3_000;

/// Removes members and items from the schema and the instance while the same verdicts disagree.
pub(super) fn shrink(pair: &Pair) -> Pair {
    let wanted = disagreement(&Verdicts::of(pair));
    let mut smallest = pair.clone();
    let mut attempts_left = MAX_ATTEMPTS;
    loop {
        let mut candidates = smaller_pairs(&smallest).take_while(|_| {
            attempts_left = attempts_left.saturating_sub(1);
            attempts_left > 0
        });
        let smaller = candidates.find(|candidate| disagreement(&Verdicts::of(candidate)) == wanted);
        drop(candidates);
        match smaller {
            Some(smaller) => smallest = smaller,
            None => return smallest,
        }
    }
}

/// Returns the verdicts without the reasons of refusals.
fn disagreement(verdicts: &Verdicts) -> [Option<bool>; 3] {
    [&verdicts.ours, &verdicts.jsonschema, &verdicts.boon].map(|verdict| verdict.as_ref().ok().copied())
}

fn smaller_pairs(pair: &Pair) -> impl Iterator<Item = Pair> + '_ {
    let schemas = smaller(&pair.schema).into_iter().map(|schema| Pair { schema, ..pair.clone() });
    let instances = smaller(&pair.instance).into_iter().map(|instance| Pair { instance, ..pair.clone() });
    schemas.chain(instances)
}

/// Returns `value` without one of its parts, for each part, the larger ones first.
fn smaller(value: &Value) -> Vec<Value> {
    let (mut without_child, mut with_smaller_child) = (Vec::new(), Vec::new());
    match value {
        Value::Object(members) => {
            for (name, child) in members {
                if matches!(name.as_str(), "$schema" | "$id" | "id") {
                    continue;
                }
                let mut rest = members.clone();
                rest.remove(name);
                without_child.push(Value::Object(rest));
                for child in smaller(child) {
                    let mut changed = members.clone();
                    changed.insert(name.clone(), child);
                    with_smaller_child.push(Value::Object(changed));
                }
            }
        }
        Value::Array(items) => {
            for (position, child) in items.iter().enumerate() {
                let mut rest = items.clone();
                rest.remove(position);
                without_child.push(Value::Array(rest));
                for child in smaller(child) {
                    let mut changed = items.clone();
                    changed[position] = child;
                    with_smaller_child.push(Value::Array(changed));
                }
            }
        }
        _ => {}
    }
    without_child.append(&mut with_smaller_child);
    without_child
}

//! Paths of settings, such as `agents.sources[0]`.

use serde_json::Value;

/// Returns the path of the member `name` of the section at `path`.
pub(super) fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Formats a JSON Pointer into `root` as a path: `/agents/sources/0` becomes `agents.sources[0]`.
pub(super) fn pointer_to_path(pointer: &str, root: &Value) -> String {
    let mut path = String::new();
    let mut value = Some(root);
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match value {
            Some(Value::Array(items)) => {
                path.push_str(&format!("[{step}]"));
                value = step.parse::<usize>().ok().and_then(|at| items.get(at));
            }
            Some(object) => {
                path = join_path(&path, &step);
                value = object.get(&step);
            }
            None => path = join_path(&path, &step),
        }
    }
    path
}

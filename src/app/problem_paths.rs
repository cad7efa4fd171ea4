//! Paths of problems in the configuration.

/// Prefixes the paths of `problems` with `section`.
pub(super) fn prefix_problems(section: &str, problems: Vec<String>) -> Vec<String> {
    match section {
        "" => problems,
        section => problems.into_iter().map(|problem| format!("{section}.{problem}")).collect(),
    }
}

/// Returns the value of `result`, or moves its problems, prefixed with `section`, to `problems`.
pub(super) fn collect_problems<T>(
    result: Result<T, Vec<String>>,
    section: &str,
    problems: &mut Vec<String>,
) -> Option<T> {
    result.map_err(|found| problems.extend(prefix_problems(section, found))).ok()
}

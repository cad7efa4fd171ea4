//! Paths of problems in the configuration.

/// Prefixes the paths of `problems` with `section`.
pub(super) fn prefix_problems(section: &str, problems: Vec<String>) -> Vec<String> {
    match section {
        "" => problems,
        section => problems.into_iter().map(|problem| format!("{section}.{problem}")).collect(),
    }
}

//! The name of a model: an agent's id, with an optional `@version`.

/// What the name of a model names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModelName<'m> {
    /// The agent's id; not looked up.
    pub(super) agent: &'m str,
    /// The version after the id's `@`, as written.
    pub(super) version: Option<&'m str>,
}

impl<'m> From<&'m str> for ModelName<'m> {
    fn from(name: &'m str) -> Self {
        match name.split_once('@') {
            Some((agent, version)) => Self { agent, version: Some(version) },
            None => Self { agent: name, version: None },
        }
    }
}

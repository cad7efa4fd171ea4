//! Formats of an error response: the error object of AIDIP and problem details.

/// The format of an error response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorFormat {
    /// `{"error":{"code","message",…}}` (R36).
    #[default]
    Error,
    /// `application/problem+json` (R90, RFC 9457).
    Problem,
}

impl ErrorFormat {
    /// Returns the media type of the body.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Error => "application/json",
            Self::Problem => "application/problem+json",
        }
    }
}

//! The header fields that tell an agent who calls, besides the delegation chain: which fields, and what they tell, the
//! operator chooses (`caller_headers`). The transport removes what the caller itself sends in these fields.

mod caller_headers;
mod caller_token;
mod field_text;

pub(super) use caller_headers::{CallerHeaders, ToldCall};
pub use caller_token::CallerTokenSigner;

#[cfg(test)]
mod tests;

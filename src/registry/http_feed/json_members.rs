//! Accessors of JSON members of foreign documents, shared with the resolver.

pub(super) use crate::resolver::json_member_access::{get_member, object_array, quote_name, string_array, text_member};

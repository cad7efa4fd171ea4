//! Value types that the configuration of every module uses: durations, sizes, rates, ranges of addresses, globs, paths
//! and references to secrets. Also the formats that several modules read and write: strict JSON, percent-encoding,
//! `Accept`, HTTP dates, server-sent events, hosts, paths, entity tags, SHA-256, PEM, the validity of certificates, answers
//! of stores, counts of what clients hold, names that are nearest to misspelt ones, and characters that deceive readers.
//! And the secrets that the gateway holds, which are removed from logs and answers. Only [`SecretRef::load`],
//! [`FileStamp::read`], [`read_pem_file`], [`read_private_key`] and [`CertificateValidity::of_file`] do I/O.

mod accept_header;
mod address_range;
mod backoff;
mod byte_rate;
mod byte_size;
mod certificate_details;
mod certificate_validity;
mod client_key;
mod config_path;
mod counted_noun;
mod deceptive_text;
mod duration;
mod etag;
mod event_end;
mod event_reader;
mod failure_redaction;
mod file_stamp;
mod glob;
mod host_name;
mod http2_frame_meter;
mod http_date;
pub mod json;
mod keyed_counts;
mod known_secrets;
mod low_priority;
mod max_share;
mod nearest_name;
mod pem_file;
mod percent_encoding;
mod random_id;
mod rate;
mod secret_ref;
mod sha256;
mod shown_url;
mod store_answer;
mod unix_time;
mod url_path;

pub use accept_header::AcceptHeader;
pub use address_range::AddressRange;
pub use backoff::{Backoff, jittered, random_duration};
pub use byte_rate::ByteRate;
pub use byte_size::ByteSize;
pub use certificate_details::{CertificateDetails, earliest_revocation_list_end};
pub use certificate_validity::CertificateValidity;
pub use client_key::{ClientKey, counted_address};
pub use config_path::ConfigPath;
pub use counted_noun::format_count;
pub use deceptive_text::{TextParts, is_deceptive, visible_text};
pub use duration::ConfigDuration;
pub use etag::etag;
pub use event_end::{ends_with_empty_line, last_event_end};
pub use event_reader::{EventReader, ServerSentEvent};
pub use failure_redaction::{FailureRedactor, FailureUnit};
pub use file_stamp::FileStamp;
pub use glob::Glob;
pub use host_name::{
    host_without_port, is_host_and_port, is_loopback_authority, is_loopback_host, parse_ip_literal, strip_brackets,
};
pub use http_date::{format_http_date, parse_http_date, parse_retry_after};
pub use http2_frame_meter::Http2FrameMeter;
pub use keyed_counts::{CountedHold, KeyedCounts};
pub use known_secrets::{contains_known_secret, redact_known_secrets, register_secret, register_token};
pub use low_priority::{lower_thread_priority, poll_at_low_priority, run_at_low_priority};
pub use max_share::MaxShare;
pub use nearest_name::{edit_distance, nearest_name};
pub use pem_file::{PemContent, parse_pem, parse_private_key, parse_private_key_of, read_pem_file, read_private_key};
pub use percent_encoding::{
    decode_octet, form_decode, form_pairs, percent_decode, percent_encode, percent_encode_field,
    percent_encode_fragment, percent_encode_list_item,
};
pub use random_id::{random_nonzero_u64, random_nonzero_u128};
pub use rate::Rate;
pub use secret_ref::{Secret, SecretRef};
pub use sha256::{encode_hex, sha256};
pub use shown_url::shown_url;
pub use store_answer::StoreAnswer;
pub use unix_time::unix_time;
pub use url_path::{join_path, path_below};

/// Implements `Deserialize` and `JsonSchema` for a type that is written as one string.
macro_rules! impl_string_deserialize_and_schema {
    ($type:ident, $expects:literal, $pattern:literal) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "pattern": $pattern,
                    "description": $expects,
                })
            }
        }
    };
}
pub(crate) use impl_string_deserialize_and_schema;

#[cfg(test)]
mod tests;

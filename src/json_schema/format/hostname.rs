//! Host names (RFC 1123), and internationalised ones (RFC 5890, RFC 5891).

use super::label;
use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// Maximum length of a name, without the dot of the root (RFC 1034, section 3.1). An internationalised name is not
/// longer, because an A-label has at least one character for each code point of its U-label.
pub(super) const MAX_LENGTH: usize = 253;
/// Maximum length of a label.
const MAX_LABEL_BYTES: usize = 63;
/// What A-labels begin with.
const A_LABEL_PREFIX: &str = "xn--";

/// Returns whether `name` consists of letters, digits and hyphens, as RFC 1123 has it.
pub(super) fn is_valid_ascii(name: &str) -> bool {
    name.len() <= MAX_LENGTH && name.split('.').all(is_ascii_label)
}

fn is_ascii_label(label: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Returns whether `name` is a host name whose A-labels encode valid labels.
pub(super) fn is_valid(name: &str) -> bool {
    is_valid_ascii(name) && (!has_reserved_hyphens(name) || has_valid_a_labels(name))
}

/// Returns whether a label has hyphens as its third and fourth characters, as A-labels do.
fn has_reserved_hyphens(name: &str) -> bool {
    name.split('.').any(|label| label.get(2..4) == Some("--"))
}

/// Returns whether each label of `name` with reserved hyphens is an A-label of a valid U-label.
fn has_valid_a_labels(name: &str) -> bool {
    let (unicode_name, result) = Uts46::new().to_unicode(name.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow);
    let are_labels_valid = name.split('.').zip(unicode_name.split('.')).all(|(ascii_label, unicode_label)| {
        let is_a_label = ascii_label.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(A_LABEL_PREFIX));
        !has_reserved_hyphens(ascii_label)
            || (is_a_label && !unicode_label.is_ascii() && label::is_valid(unicode_label))
    });
    result.is_ok() && are_labels_valid
}

/// Returns whether `name` is a host name, with U-labels or A-labels. Other spellings are mapped as UTS 46 says.
pub(super) fn is_valid_internationalized(name: &str) -> bool {
    if name.len() > MAX_LENGTH && name.chars().nth(MAX_LENGTH).is_some() {
        return false;
    }
    let mapped = Uts46::new().to_ascii(name.as_bytes(), AsciiDenyList::STD3, Hyphens::Check, DnsLength::Verify);
    mapped.is_ok_and(|ascii_name| is_valid(&ascii_name))
}

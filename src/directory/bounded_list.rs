//! Lists that end before they become long: each has at least one entry, and as many as fit into [`MAX_LIST_BYTES`].

use crate::fault::{Fault, FaultCode, Result};
use serde::Serialize;

/// Bytes of the entries of a list that has several.
pub(super) const MAX_LIST_BYTES: usize = 1 << 20;

/// A list as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BoundedList {
    pub(super) body: Vec<u8>,
    /// The number of its entries, if further ones did not fit.
    pub(super) cut: Option<usize>,
}

impl BoundedList {
    /// Writes the entries between `opening` and `closing`. Those that do not fit are not made.
    pub(super) fn write(opening: &str, closing: &str, entries: impl Iterator<Item = Result<Vec<u8>>>) -> Result<Self> {
        let (mut body, mut count, mut cut) = (opening.as_bytes().to_vec(), 0, None);
        for entry in entries {
            let entry = entry?;
            if count > 0 && body.len() + entry.len() > MAX_LIST_BYTES {
                cut = Some(count);
                break;
            }
            if count > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&entry);
            count += 1;
        }
        body.extend_from_slice(closing.as_bytes());
        Ok(Self { body, cut })
    }
}

/// Serializes a value as JSON.
///
/// # Errors
/// `Internal` if serialization fails; none of our values does.
pub(super) fn to_json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|why| Fault::new(FaultCode::Internal, "The response could not be serialized").with_detail(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r21_a_list_ends_before_the_entry_that_does_not_fit_and_has_at_least_one() {
        let list = |entries: &[usize]| {
            let mut made = 0;
            let entries = entries.iter().map(|length| {
                made += 1;
                to_json(&"x".repeat(*length))
            });
            let list = BoundedList::write("[", "]", entries).unwrap();
            serde_json::from_slice::<Vec<String>>(&list.body).unwrap();
            (list.cut, made)
        };
        assert_eq!(list(&[]), (None, 0));
        assert_eq!(list(&[2 << 20]), (None, 1));
        assert_eq!(list(&[2 << 20, 1, 1]), (Some(1), 2), "the first always fits, and nothing else beside it");
        assert_eq!(list(&[1, 2 << 20, 1]), (Some(1), 2));
        assert_eq!(list(&[400 << 10; 5]), (Some(2), 3));
        assert_eq!(list(&[1; 5]), (None, 5));
    }
}

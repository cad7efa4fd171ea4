//! Members of foreign documents, as resolution reads them too.

pub(super) use crate::names::members::{get, objects, quoted, text, words};

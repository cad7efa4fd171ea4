//! The classes of callers, as a label: credential types and configured tiers, never a name that a caller chose.

use crate::agent::AuthenticationMethod;
use std::{collections::HashSet, sync::OnceLock};

/// Maximum number of classes.
pub(super) const MAX_CALLER_CLASSES: usize = 16;
/// Apart from [`CREDENTIAL_CLASSES`], because an optimised build cannot evaluate a length that calls functions (a cycle
/// in the compiler).
const CREDENTIAL_CLASS_COUNT: usize = 1 + AuthenticationMethod::ALL.len();
/// `none`, and the labels of the authentication methods.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const CREDENTIAL_CLASSES: [&str; CREDENTIAL_CLASS_COUNT] = {
    let mut classes = ["none"; CREDENTIAL_CLASS_COUNT];
    let mut index = 0;
    while index < AuthenticationMethod::ALL.len() {
        classes[index + 1] = AuthenticationMethod::ALL[index].label();
        index += 1;
    }
    classes
};
const OTHER_LABEL: &str = "other";

/// The class of a caller, as a label: a credential type or a configured tier, never a name that the caller chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerClass(pub(super) u8);

impl CallerClass {
    /// Not authenticated.
    pub const NONE: Self = Self(0);

    /// Returns the class of callers that authenticated by `method`.
    pub const fn of_method(method: AuthenticationMethod) -> Self {
        // The order of `CREDENTIAL_CLASSES`.
        Self(1 + method as u8)
    }
}

/// The tiers that have a class of their own.
#[derive(Debug, Default)]
pub(super) struct TierClasses([OnceLock<Box<str>>; MAX_CALLER_CLASSES - CREDENTIAL_CLASS_COUNT]);

impl TierClasses {
    /// Assigns a caller class to each new tier while classes are free. An assigned class never changes.
    pub(super) fn register<'a>(&self, tiers: impl Iterator<Item = &'a str>) {
        let assigned: HashSet<&str> = self.0.iter().filter_map(|tier| tier.get().map(|name| &**name)).collect();
        let mut free = self.0.iter().filter(|tier| tier.get().is_none());
        for tier in tiers.filter(|tier| !assigned.contains(tier) && !CREDENTIAL_CLASSES.contains(tier)) {
            let Some(class) = free.next() else { return };
            class.get_or_init(|| tier.into());
        }
    }

    /// Returns the label of the caller class with the index `class`.
    pub(super) fn label(&self, class: usize) -> &str {
        let tier = || self.0.get(class - CREDENTIAL_CLASS_COUNT).and_then(OnceLock::get).map(|name| &**name);
        CREDENTIAL_CLASSES.get(class).copied().or_else(tier).unwrap_or(OTHER_LABEL)
    }

    /// Returns the class of a tier, if it has one.
    pub(super) fn class_of(&self, tier: &str) -> Option<CallerClass> {
        let index = self.0.iter().map_while(OnceLock::get).position(|name| **name == *tier)?;
        u8::try_from(CREDENTIAL_CLASS_COUNT + index).ok().map(CallerClass)
    }
}

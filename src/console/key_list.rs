//! The API keys of a configuration, selected for a page. Key files are read one key after the other, because there may be a
//! million.

use crate::{
    auth::{self, ApiKeyState, RevocationList, StoredApiKey},
    key_management::ManagedKeys,
    web_page::{Badge, Notice},
};
use std::{collections::BTreeMap, path::PathBuf};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

/// A key that expires within this time ends soon.
const ENDS_SOON: Duration = Duration::days(7);

/// Whether a key is valid, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    Valid,
    EndsSoon,
    Expired,
    Disabled,
    Invalid,
}

impl KeyState {
    pub(super) const ALL: [Self; 5] = [Self::Valid, Self::EndsSoon, Self::Expired, Self::Disabled, Self::Invalid];

    pub(super) fn of(key: &StoredApiKey, now: OffsetDateTime) -> Self {
        match ApiKeyState::of(key, now) {
            ApiKeyState::Disabled => Self::Disabled,
            ApiKeyState::Expired => Self::Expired,
            ApiKeyState::Invalid => Self::Invalid,
            ApiKeyState::Valid => {
                let expires = key.expires.as_deref().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
                if expires.is_some_and(|at| at - now <= ENDS_SOON) { Self::EndsSoon } else { Self::Valid }
            }
        }
    }

    /// Returns the value in a query.
    pub(super) const fn query_value(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::EndsSoon => "ends-soon",
            Self::Expired => "expired",
            Self::Disabled => "disabled",
            Self::Invalid => "invalid",
        }
    }

    pub(super) fn from_query(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.query_value() == value)
    }

    /// Returns whether calls with the key are accepted.
    pub(super) const fn is_valid(self) -> bool {
        matches!(self, Self::Valid | Self::EndsSoon)
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::EndsSoon => "ends soon",
            Self::Expired => "expired",
            Self::Disabled => "disabled",
            Self::Invalid => "invalid date",
        }
    }

    pub(super) fn badge(self) -> Badge<'static> {
        let notice = match self {
            Self::Valid => Notice::Good,
            Self::EndsSoon => Notice::Warning,
            Self::Expired | Self::Disabled => Notice::Neutral,
            Self::Invalid => Notice::Bad,
        };
        Badge { notice, text: self.word() }
    }
}

/// Which keys a page has.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyFilter {
    /// A text in the caller, the prefix, a group or the tier, whatever its case.
    pub(super) text: String,
    pub(super) state: Option<KeyState>,
    pub(super) caller: Option<String>,
    pub(super) prefix: Option<String>,
    /// The caller and the prefix of the last key of the page before.
    pub(super) after: Option<KeyPosition>,
    pub(super) limit: usize,
}

/// The place of a key in the order of pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyPosition {
    pub(super) caller: String,
    pub(super) prefix: String,
}

impl KeyFilter {
    fn selects(&self, key: &StoredApiKey, now: OffsetDateTime) -> bool {
        let is_wanted = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| *wanted == *found);
        is_wanted(&self.caller, &key.caller)
            && is_wanted(&self.prefix, &key.prefix)
            && self.state.is_none_or(|state| KeyState::of(key, now) == state)
            && (self.text.is_empty() || self.has_text(key))
    }

    fn has_text(&self, key: &StoredApiKey) -> bool {
        let wanted = self.text.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        has(&key.caller)
            || has(&key.prefix)
            || key.groups.iter().any(|group| has(group))
            || key.tier.as_deref().is_some_and(has)
    }
}

/// A key with the file that has it.
#[derive(Clone, Debug)]
pub(super) struct KeyRow {
    pub(super) key: StoredApiKey,
    /// `None` is the configuration itself.
    pub(super) file: Option<PathBuf>,
}

/// The keys of a page, by caller and prefix.
#[derive(Debug, Default)]
pub(super) struct KeyPage {
    pub(super) rows: Vec<KeyRow>,
    /// The last key, if others follow.
    pub(super) next: Option<KeyPosition>,
    /// Number of all keys.
    pub(super) total: usize,
    /// Number of keys that the filter selects.
    pub(super) selected: usize,
    /// Why keys are missing.
    pub(super) problems: Vec<String>,
}

/// Reads the keys that the filter selects. A key that another gateway disabled is disabled here too, whatever the file
/// says. Blocks: a hundred thousand keys take a tenth of a second.
pub(super) fn read_keys(keys: &ManagedKeys, revocations: &RevocationList, filter: &KeyFilter) -> KeyPage {
    let (now, first) = (OffsetDateTime::now_utc(), BTreeMap::new());
    let mut selection = Selection { filter, revocations, now, first, page: KeyPage::default() };
    keys.in_config.iter().for_each(|key| selection.add(key.clone(), 0));
    for (place, file) in (1..).zip(&keys.files) {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match auth::visit_api_keys(file, |key| selection.add(key, place)) {
            Ok(invalid) if invalid.is_empty() => {}
            Ok(invalid) => {
                let lines: Vec<String> = invalid.iter().take(10).map(ToString::to_string).collect();
                let rest = if invalid.len() > 10 { format!(" and {} more", invalid.len() - 10) } else { String::new() };
                selection.page.problems.push(format!("{name}: not a key on line {}{rest}", lines.join(", ")));
            }
            Err(why) => selection.page.problems.push(super::key_problems::file_problem(&why)),
        }
    }
    selection.finish(keys)
}

struct Selection<'a> {
    filter: &'a KeyFilter,
    revocations: &'a RevocationList,
    now: OffsetDateTime,
    /// The first keys, each with its place: 0 for the configuration, or the number of the file.
    first: BTreeMap<(KeyPosition, usize), StoredApiKey>,
    page: KeyPage,
}

impl Selection<'_> {
    fn add(&mut self, mut key: StoredApiKey, place: usize) {
        self.page.total += 1;
        key.disabled |= self.revocations.is_api_key_revoked(key.prefix.as_bytes());
        if !self.filter.selects(&key, self.now) {
            return;
        }
        self.page.selected += 1;
        let position = KeyPosition { caller: key.caller.clone(), prefix: key.prefix.clone() };
        if self.filter.after.as_ref().is_some_and(|after| position <= *after) {
            return;
        }
        // One more than the page has: whether others follow.
        let is_full = self.first.len() > self.filter.limit;
        let position = (position, place);
        if is_full && self.first.last_key_value().is_some_and(|(last, _)| position >= *last) {
            return;
        }
        self.first.insert(position, key);
        if is_full {
            self.first.pop_last();
        }
    }

    fn finish(mut self, keys: &ManagedKeys) -> KeyPage {
        let has_more = self.first.len() > self.filter.limit;
        if has_more {
            self.first.pop_last();
            self.page.next = self.first.last_key_value().map(|((position, _), _)| position.clone());
        }
        let row = |((_, place), key): ((KeyPosition, usize), StoredApiKey)| KeyRow {
            key,
            file: place.checked_sub(1).and_then(|file| keys.files.get(file)).cloned(),
        };
        self.page.rows = self.first.into_iter().map(row).collect();
        self.page
    }
}

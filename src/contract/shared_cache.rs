//! What is compiled from equal texts is shared while it is in use.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// SHA-256 of a text.
type TextDigest = [u8; 32];

/// Weak references to the values in use, by the digest of their text.
pub(super) struct SharedCache<T>(Mutex<CachedValues<T>>);

struct CachedValues<T> {
    values: HashMap<TextDigest, Weak<T>>,
    sweep_at: usize,
}

impl<T> Default for SharedCache<T> {
    fn default() -> Self {
        Self(Mutex::new(CachedValues { values: HashMap::new(), sweep_at: 0 }))
    }
}

impl<T> SharedCache<T> {
    pub(super) fn get(&self, key: &TextDigest) -> Option<Arc<T>> {
        self.0.lock().values.get(key)?.upgrade()
    }

    /// Inserts `value`, or returns the equal value that another thread has inserted.
    pub(super) fn insert(&self, key: TextDigest, value: T) -> Arc<T> {
        let mut cached = self.0.lock();
        if let Some(existing) = cached.values.get(&key).and_then(Weak::upgrade) {
            return existing;
        }
        if cached.values.len() >= cached.sweep_at.max(64) {
            cached.values.retain(|_, value| value.strong_count() > 0);
            cached.sweep_at = cached.values.len() * 2;
        }
        let value = Arc::new(value);
        cached.values.insert(key, Arc::downgrade(&value));
        value
    }
}

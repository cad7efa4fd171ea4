//! Masks of what callers see in the search index, kept between their requests.

use super::directory_call::DirectoryCall;
use crate::{
    agent::AuthenticationMethod,
    auth::{Caller, GrantSet},
    search::{IndexView, SearchIndex, VisibilityMask},
};
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum number of masks, each with one bit for each agent. Callers beyond that number replace those that searched
/// longest ago, whose next search evaluates every agent.
const MAX_CLASSES: usize = 256;

/// All that decides which agents a caller may see. Callers of one class see the same agents.
#[derive(Debug, PartialEq, Eq)]
struct VisibilityClass {
    is_anonymous: bool,
    grants: GrantSet,
}

impl VisibilityClass {
    fn of_caller(caller: &Caller) -> Self {
        // Every field is named, so that a new one is considered here: discovery is allowed by the grants, in which the id
        // and the groups are considered already, and by whether there is a credential. The kind of credential and the
        // scopes decide about calls only.
        let Caller { id: _, owner_key: _, method, groups: _, scopes: _, tier: _, claims: _, grants } = caller;
        Self { is_anonymous: *method == AuthenticationMethod::Anonymous, grants: grants.clone() }
    }
}

/// Masks by class of callers, valid for one configuration and one index.
#[derive(Debug, Default)]
pub struct VisibilityMaskCache {
    /// The class that searched last is the last one.
    masks: Mutex<Vec<CachedMask>>,
}

#[derive(Debug)]
struct CachedMask {
    class: VisibilityClass,
    /// Locked while it is computed, so that callers of one class compute it once.
    mask: Arc<Mutex<Option<Arc<VisibilityMask>>>>,
}

impl VisibilityMaskCache {
    /// Returns the current state of `index` as the caller sees it.
    pub(super) fn view<'a>(&self, index: &'a SearchIndex, call: &DirectoryCall<'_>) -> IndexView<'a> {
        let mask = self.mask_of(VisibilityClass::of_caller(call.caller));
        let mut mask = mask.lock();
        let view = index.view(mask.as_ref(), &|agent| call.visibility.is_visible(agent));
        *mask = Some(Arc::clone(view.mask()));
        view
    }

    fn mask_of(&self, class: VisibilityClass) -> Arc<Mutex<Option<Arc<VisibilityMask>>>> {
        let mut masks = self.masks.lock();
        let cached = match masks.iter().position(|cached| cached.class == class) {
            Some(at) => masks.remove(at),
            None => {
                if masks.len() == MAX_CLASSES {
                    masks.remove(0);
                }
                CachedMask { class, mask: Arc::default() }
            }
        };
        let mask = Arc::clone(&cached.mask);
        masks.push(cached);
        mask
    }
}

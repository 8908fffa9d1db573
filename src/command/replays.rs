//! Replays, counted in memory: a replay writes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

/// Counts since the last flush, by tenant and clinic.
#[derive(Clone, Default)]
pub struct Replays(Arc<Mutex<BTreeMap<(Uuid, Uuid), i32>>>);

impl Replays {
    /// One more.
    pub fn count(&self, tenant: Uuid, clinic: Uuid) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry((tenant, clinic)).or_default() += 1;
    }

    /// Takes what was counted. Whoever cannot write it down puts it back.
    #[must_use]
    pub fn take(&self) -> BTreeMap<(Uuid, Uuid), i32> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds what was taken to what was counted since.
    pub fn put_back(&self, taken: BTreeMap<(Uuid, Uuid), i32>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, replayed) in taken {
            *counts.entry(place).or_default() += replayed;
        }
    }
}

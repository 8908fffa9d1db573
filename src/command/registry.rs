//! Which keys are at work in this process. A duplicate waits here for the owner's end, without a connection.
//!
//! Correctness does not rest on it: that is the commit's key row and its try-locks. It keeps duplicates off the database,
//! and tells "same request" from "other request" at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::domain::key::KeyHash;
use crate::domain::problem::{Code, Problem};

/// Tenant, clinic and key: what one key means one thing in.
pub type Scope = (Uuid, Uuid, KeyHash);

/// Waiters on one key (API.md, "Idempotency").
const WAITERS_ON_A_KEY: usize = 32;

/// Waiters in a process (API.md, "Idempotency").
const WAITERS_IN_ALL: usize = 1024;

/// How the owner ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// With an answer, or with a refusal of this caller alone: look again.
    LookAgain,
    /// Without one; everybody who waited hears the same.
    Failed(Problem),
}

/// The keys at work.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Keys>>);

#[derive(Default)]
struct Keys {
    at_work: HashMap<Scope, AtWork>,
    waiting: usize,
}

struct AtWork {
    fingerprint: [u8; 32],
    ended: watch::Sender<Option<Ended>>,
    waiting: usize,
}

/// What one finds on coming with a key.
pub enum Found {
    /// Nobody: the key is yours until the ticket goes.
    Yours(Ticket),
    /// The same request: wait.
    Same(Waiting),
    /// Another request.
    Other,
    /// The same request, and too many wait for it.
    Full,
}

impl Registry {
    /// Comes with a key.
    #[must_use]
    pub fn enter(&self, scope: Scope, fingerprint: [u8; 32]) -> Found {
        let mut keys = self.keys();
        let crowded = keys.waiting >= WAITERS_IN_ALL;
        let found = match keys.at_work.entry(scope) {
            Entry::Vacant(place) => {
                place.insert(AtWork { fingerprint, ended: watch::Sender::new(None), waiting: 0 });
                return Found::Yours(Ticket { registry: self.clone(), scope, ended: None });
            }
            Entry::Occupied(place) if place.get().fingerprint != fingerprint => return Found::Other,
            Entry::Occupied(place) if crowded || place.get().waiting >= WAITERS_ON_A_KEY => return Found::Full,
            Entry::Occupied(mut place) => {
                place.get_mut().waiting += 1;
                Found::Same(Waiting { registry: self.clone(), scope, ended: place.get().ended.subscribe() })
            }
        };
        keys.waiting += 1;
        found
    }

    /// Whether the key is at work here.
    #[must_use]
    pub fn is_at_work(&self, scope: &Scope) -> bool {
        self.keys().at_work.contains_key(scope)
    }

    /// How many keys are at work, and how many requests wait for one.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let keys = self.keys();
        (keys.at_work.len(), keys.waiting)
    }

    /// Nothing in here is ever left half done, so a panic elsewhere does not spoil it.
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner's hold on a key. Whatever becomes of the owner, its going tells those who wait.
pub struct Ticket {
    registry: Registry,
    scope: Scope,
    ended: Option<Ended>,
}

impl Ticket {
    /// Ends the work.
    pub fn end(mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let gone = self.registry.keys().at_work.remove(&self.scope);
        if let Some(at_work) = gone {
            // Without a word of its end, the owner panicked.
            at_work.ended.send_replace(Some(self.ended.take().unwrap_or_else(|| Ended::Failed(Code::Internal.into()))));
        }
    }
}

/// A place among those who wait; its going frees the place.
pub struct Waiting {
    registry: Registry,
    scope: Scope,
    ended: watch::Receiver<Option<Ended>>,
}

impl Waiting {
    /// Waits for the owner's end.
    pub async fn end(mut self) -> Ended {
        match self.ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Ended::LookAgain),
            Err(_) => Ended::LookAgain,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut keys = self.registry.keys();
        keys.waiting -= 1;
        // By now the key may be at work anew, with waiters of its own: only those of this very owner count.
        if let Some(at_work) = keys.at_work.get_mut(&self.scope)
            && at_work.ended.subscribe().same_channel(&self.ended)
        {
            at_work.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(key: u8) -> Scope {
        (Uuid::nil(), Uuid::nil(), KeyHash([key; 32]))
    }

    #[tokio::test]
    async fn one_owner_thirty_two_waiters_and_a_freed_place() {
        let registry = Registry::default();
        let Found::Yours(ticket) = registry.enter(scope(1), [1; 32]) else { panic!("the first owns") };
        assert!(matches!(registry.enter(scope(1), [2; 32]), Found::Other));
        let mut waiting: Vec<_> = (0..WAITERS_ON_A_KEY)
            .map(|_| match registry.enter(scope(1), [1; 32]) {
                Found::Same(waiting) => waiting,
                _ => panic!("thirty-two may wait"),
            })
            .collect();
        assert!(matches!(registry.enter(scope(1), [1; 32]), Found::Full));
        waiting.pop();
        let Found::Same(last) = registry.enter(scope(1), [1; 32]) else { panic!("a freed place can be used") };
        ticket.end(Ended::LookAgain);
        assert!(matches!(last.end().await, Ended::LookAgain));
        drop(waiting);
        assert_eq!(registry.load(), (0, 0));
    }

    #[tokio::test]
    async fn an_owner_that_panics_tells_those_who_wait() {
        let registry = Registry::default();
        let Found::Yours(ticket) = registry.enter(scope(1), [1; 32]) else { panic!("the first owns") };
        let Found::Same(waiting) = registry.enter(scope(1), [1; 32]) else { panic!("the second waits") };
        drop(ticket);
        let Ended::Failed(problem) = waiting.end().await else { panic!("they hear of it") };
        assert_eq!(problem.code, Code::Internal);
        assert_eq!(registry.load(), (0, 0));
    }

    #[test]
    fn a_process_has_room_for_so_many() {
        let registry = Registry::default();
        let mut held = Vec::new();
        let mut waiting = Vec::new();
        for key in 0..u8::try_from(WAITERS_IN_ALL / WAITERS_ON_A_KEY).expect("few keys") {
            let Found::Yours(ticket) = registry.enter(scope(key), [1; 32]) else { panic!("the first owns") };
            held.push(ticket);
            for _ in 0..WAITERS_ON_A_KEY {
                let Found::Same(place) = registry.enter(scope(key), [1; 32]) else { panic!("there is room") };
                waiting.push(place);
            }
        }
        let Found::Yours(_ticket) = registry.enter(scope(255), [1; 32]) else { panic!("a new key waits for nobody") };
        assert!(matches!(registry.enter(scope(255), [1; 32]), Found::Full));
    }
}

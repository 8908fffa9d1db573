//! Commands on one practitioner, or on one appointment, take turns here before they borrow a connection: in the database
//! they would queue on its locks, each holding one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

/// What commands take turns on: a tenant's practitioner, operatory or appointment.
pub type Lane = (Uuid, Uuid);

type Queue = Arc<tokio::sync::Mutex<()>>;

/// The lanes in use.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Mutex<HashMap<Lane, Queue>>>);

impl Lanes {
    /// Waits for a turn, first come first served. Says whether there was anybody before.
    pub async fn turn(&self, lane: Lane) -> (Turn, bool) {
        // Made before it is held: whoever gives up waiting leaves through the same door.
        let mut turn = Turn { lanes: self.clone(), lane, guard: None };
        let queue = self.queues().entry(lane).or_default().clone();
        let (guard, waited) = match queue.clone().try_lock_owned() {
            Ok(guard) => (guard, false),
            Err(_) => (queue.lock_owned().await, true),
        };
        turn.guard = Some(guard);
        (turn, waited)
    }

    /// How many lanes are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queues().len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Lane, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn; its going lets the next one in.
pub struct Turn {
    lanes: Lanes,
    lane: Lane,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut queues = self.lanes.queues();
        // A queue whose only holder is the map has nobody in it, and nobody can join while the map is locked.
        if queues.get(&self.lane).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_are_taken_one_by_one_and_leave_nothing_behind() {
        let lanes = Lanes::default();
        let lane = (Uuid::nil(), Uuid::nil());
        let (first, waited) = lanes.turn(lane).await;
        assert!(!waited);
        let second = lanes.turn(lane);
        tokio::pin!(second);
        assert!(futures_poll(&mut second).await.is_none(), "the second waits");
        drop(first);
        let (turn, waited) = second.await;
        assert!(waited);
        drop(turn);
        // A waiter that gives up leaves nothing behind either.
        let (held, _) = lanes.turn(lane).await;
        {
            let gives_up = lanes.turn(lane);
            tokio::pin!(gives_up);
            assert!(futures_poll(&mut gives_up).await.is_none());
        }
        let gives_up_late = lanes.turn(lane);
        let mut gives_up_late = Box::pin(gives_up_late);
        assert!(futures_poll(&mut gives_up_late).await.is_none());
        drop(held);
        drop(gives_up_late);
        assert!(lanes.is_empty());
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}

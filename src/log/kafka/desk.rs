//! What a member of a group has on its desk: the partitions it was told to read, what has come of each, and what has been
//! handed out to be decided on. No I/O: the thread that polls (`member.rs`) puts in, whoever reads takes out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::domain::event::{Logged, Place};

/// Events handed out at a time, of a partition: of 16, some milliseconds' work.
const HANDED_OUT: usize = 32;

/// What was handed out and not heard of for this long is handed out again.
const LEASE: Duration = Duration::from_secs(5);

/// No more is fetched while this many wait, until fewer than the second do.
const FULL: (usize, usize) = (4096, 1024);

/// See the top.
#[derive(Default)]
pub(super) struct Desk {
    parts: BTreeMap<i16, Part>,
    /// Places that the brokers have yet to be told of.
    told: Vec<Place>,
    /// Whether another has begun an assignment of a partition that we still think is ours.
    overtaken: bool,
}

/// A partition we were told to read.
struct Part {
    /// The token of this assignment.
    assignment: Uuid,
    /// In order, without what has been decided on.
    waiting: VecDeque<Logged>,
    /// What of it is being decided on: so many from the front.
    out: Option<Out>,
    last: i64,
}

struct Out {
    token: Uuid,
    events: usize,
    until: Instant,
}

impl Part {
    fn is_out(&self, token: Uuid) -> bool {
        self.out.as_ref().is_some_and(|out| out.token == token)
    }
}

impl Desk {
    /// Begins to read a partition.
    pub(super) fn begin(&mut self, partition: i16, assignment: Uuid) {
        self.parts.insert(partition, Part { assignment, waiting: VecDeque::new(), out: None, last: -1 });
    }

    /// Reads a partition no more. What was handed out of it is decided on all the same, and read again by another.
    pub(super) fn end(&mut self, partition: i16) {
        self.parts.remove(&partition);
    }

    /// Takes in what has come; says whether nothing else was waiting.
    pub(super) fn come(&mut self, logged: Logged) -> bool {
        let first = self.waiting() == 0;
        let Some(part) = self.parts.get_mut(&logged.place.partition) else { return false };
        if logged.place.offset <= part.last {
            return false;
        }
        part.last = logged.place.offset;
        part.waiting.push_back(logged);
        first
    }

    /// Hands out what waits and is not being decided on already.
    pub(super) fn hand_out(&mut self, token: Uuid, now: Instant) -> Vec<Logged> {
        let mut events = Vec::new();
        for part in self.parts.values_mut() {
            let free = part.out.as_ref().is_none_or(|out| out.until < now);
            if !free || part.waiting.is_empty() {
                continue;
            }
            let count = part.waiting.len().min(HANDED_OUT);
            events.extend(part.waiting.iter().take(count).cloned());
            part.out = Some(Out { token, events: count, until: now + LEASE });
        }
        events
    }

    /// The places that may be moved on to, of those a batch leads to: where it is still out. With each the token of its
    /// partition's assignment.
    pub(super) fn may_advance(&self, token: Uuid, next: &[Place]) -> Vec<(Place, Uuid)> {
        let out = |place: &Place| self.parts.get(&place.partition).filter(|part| part.is_out(token));
        next.iter().filter_map(|place| Some((*place, out(place)?.assignment))).collect()
    }

    /// Takes a batch off the desk, in the partitions in which the group was moved on. In the others another has taken over.
    pub(super) fn advanced(&mut self, token: Uuid, asked: &[(Place, Uuid)], moved: &[i16]) {
        for (place, assignment) in asked {
            let part = self.parts.get_mut(&place.partition).filter(|part| part.assignment == *assignment);
            let Some(part) = part else { continue };
            if !moved.contains(&place.partition) {
                self.overtaken = true;
            } else if part.is_out(token)
                && let Some(out) = part.out.take()
            {
                part.waiting.drain(..out.events);
                self.told.push(*place);
            }
        }
    }

    /// What the thread that polls has to know: the places that the brokers have yet to be told of; whether another reads what we
    /// think is ours, so that the group has to be joined anew; and whether more should be fetched, being `paused` or not.
    pub(super) fn look(&mut self, paused: bool) -> (Vec<Place>, bool, bool) {
        let has_room = self.waiting() < if paused { FULL.1 } else { FULL.0 };
        (std::mem::take(&mut self.told), self.overtaken, has_room)
    }

    /// Puts everything away.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn waiting(&self) -> usize {
        self.parts.values().map(|part| part.waiting.len()).sum()
    }
}

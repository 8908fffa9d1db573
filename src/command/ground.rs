//! What a decision stands on: the part of a look that its kind of command needs, all of it there or the command ends.

use crate::domain::appointment::Appointment;
use crate::store::seen::{Clinic, Seen, Slot};

/// Takes its part out of a look; nothing where what was named is not there.
pub trait Ground: Sized + Send + Sync {
    /// The part, if it is whole.
    fn of(seen: Seen) -> Option<Self>;

    /// The settings of the clinic it is about.
    fn clinic(&self) -> &Clinic;
}

/// For a row that is to be made.
#[derive(Debug)]
pub struct Fresh {
    /// The clinic named.
    pub clinic: Clinic,
    /// The slot asked for.
    pub slot: Slot,
}

/// For a row that changes where it stands.
#[derive(Debug)]
pub struct Standing {
    /// The row's clinic.
    pub clinic: Clinic,
    /// The row.
    pub row: Appointment,
}

/// For a row that enters a slot.
#[derive(Debug)]
pub struct Moving {
    /// The row's clinic.
    pub clinic: Clinic,
    /// The row.
    pub row: Appointment,
    /// The slot asked for.
    pub slot: Slot,
}

impl Ground for Fresh {
    fn of(seen: Seen) -> Option<Self> {
        Some(Self { clinic: seen.clinic?, slot: seen.slot? })
    }

    fn clinic(&self) -> &Clinic {
        &self.clinic
    }
}

impl Ground for Standing {
    fn of(seen: Seen) -> Option<Self> {
        Some(Self { clinic: seen.clinic?, row: seen.row? })
    }

    fn clinic(&self) -> &Clinic {
        &self.clinic
    }
}

impl Ground for Moving {
    fn of(seen: Seen) -> Option<Self> {
        Some(Self { clinic: seen.clinic?, row: seen.row?, slot: seen.slot? })
    }

    fn clinic(&self) -> &Clinic {
        &self.clinic
    }
}

//! What may become of a delivery, and why.

use crate::store::StoreError;

/// What was decided of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Its effect stands, from now on.
    Processed,
    /// It was known.
    Duplicate,
    /// It is tried again later.
    Retryable,
    /// A person has to look at it.
    Quarantined,
}

impl Decision {
    /// As it is counted and traced.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "PROCESSED",
            Self::Duplicate => "DUPLICATE",
            Self::Retryable => "RETRYABLE",
            Self::Quarantined => "QUARANTINED",
        }
    }
}

/// A reason's code, for people and figures, and whether it is the event's own fault.
pub(super) fn reason(error: &StoreError) -> (&'static str, bool) {
    match error {
        StoreError::Again(_) | StoreError::Gone(_) | StoreError::Late => ("database_away", false),
        StoreError::Broken(_) => ("handler_failed", true),
    }
}

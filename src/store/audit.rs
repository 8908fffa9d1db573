//! What a change writes of itself in `audit`, in the statement that makes the change: so neither is there without the other.

use jiff::Timestamp;
use uuid::Uuid;

use super::commit::Asker;

/// The audit row of a change; what was changed, and to which status it came, is read from the row that was written.
///
/// Its fields are the first parameters of every statement that takes one: `$1` tenant, `$2` id, `$3` at, `$4` subject,
/// `$5` credential, `$6` operation, `$7` request, `$8` the caller's own id of it.
#[derive(Clone, Copy, Debug)]
pub struct AuditNote<'a> {
    /// Its id.
    pub id: Uuid,
    /// When.
    pub at: Timestamp,
    /// What was done.
    pub operation: &'static str,
    /// Who asked, with which request.
    pub asker: &'a Asker,
}

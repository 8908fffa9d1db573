//! Who gets in: the credential as it stands in the look's own snapshot, its role, its clinics. So a revocation holds from
//! the next request on, in every process.

use jiff::Timestamp;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::Command;
use crate::domain::access::Caller;
use crate::domain::problem::{Code, Problem};
use crate::store::look::Question;
use crate::store::seen::{Credential, Seen};

/// The credential a request shows: `ob_<id>_<secret>`, the secret hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Which credential.
    pub credential_id: Uuid,
    /// SHA-256 of the secret shown.
    pub secret_hash: [u8; 32],
}

impl Credential {
    /// Whether the token opens it: the secret is right, or was until lately, and nobody has withdrawn it.
    #[must_use]
    pub fn accepts(&self, token: &Token, now: Timestamp) -> bool {
        let is = |hash: &[u8]| bool::from(hash.ct_eq(&token.secret_hash));
        let was = self.previous.as_ref().is_some_and(|(hash, until)| now < *until && is(hash));
        self.revoked_at.is_none() && token.credential_id == self.caller.credential_id && (is(&self.secret_hash) || was)
    }
}

/// Lets the caller of a command in, or says why not: 401, 403 for a role or a clinic that was named, 404 for a row.
///
/// # Errors
/// A clinic that does not exist and one out of reach are the same 403; a row that does not exist, another tenant's and
/// another clinic's are the same 404.
pub fn admit<C: Command>(seen: &Seen, token: &Token, command: &C, now: Timestamp) -> Result<Caller, Problem> {
    let credential =
        seen.credential.as_ref().filter(|credential| credential.accepts(token, now)).ok_or(Code::Unauthenticated)?;
    let caller = &credential.caller;
    if !caller.may(command.permission()) {
        return Err(Code::Forbidden.into());
    }
    let within = seen.clinic_id.is_some_and(|clinic| caller.reaches(clinic));
    // Where a reply is stored the clinic's settings were not read; that there is one says the clinic exists.
    let exists = seen.clinic.is_some() || seen.stored.is_some();
    match command.look() {
        Question::New(_) if !(within && exists) => Err(Code::Forbidden.into()),
        Question::Change(_) if !(within && exists) => Err(Code::NotFound.into()),
        _ => Ok(caller.clone()),
    }
}

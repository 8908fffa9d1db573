//! What a command's key claims: its fingerprint, and the advisory locks that say in every process that it is at work.

use jiff::Timestamp;
use uuid::Uuid;

use super::registry::Scope;
use super::{Command, Request};
use crate::domain::fingerprint::{CURRENT, Fingerprint};
use crate::domain::key::KeyHash;
use crate::store::commit::Claim;

/// The fingerprint of a request by the rule of a version; nothing for a version this release does not know.
pub fn fingerprint<C: Command>(command: &C, request: &Request, version: i16) -> Option<[u8; 32]> {
    let mut fingerprint = Fingerprint::new(version, command.operation())?;
    command.fields(&mut fingerprint);
    request.if_match.fields(&mut fingerprint);
    Some(fingerprint.finish())
}

/// The same, where that of the current version is there already: it is what nearly every stored row has.
pub fn of_version<C: Command>(command: &C, request: &Request, current: [u8; 32], version: i16) -> Option<[u8; 32]> {
    if version == CURRENT { Some(current) } else { fingerprint(command, request, version) }
}

/// The version whose fingerprint tells other processes that this very request is at work. It is raised a release after
/// [`CURRENT`]: while two releases serve side by side, a retry that meets its first request in the other one must know it.
pub(super) const KNOWN_BY: i16 = 2;

/// What the commit writes of the key, for a fingerprint of the current version.
#[must_use]
pub fn claim<C: Command>(
    command: &C,
    request: &Request,
    current: [u8; 32],
    (tenant, clinic, key): Scope,
    expires_at: Timestamp,
) -> Claim {
    let known_by = of_version(command, request, current, KNOWN_BY).unwrap_or(current);
    of_fingerprints(current, known_by, (tenant, clinic, key), expires_at)
}

/// The same for a request whose fingerprints are there: of the current version, and of [`KNOWN_BY`].
pub(super) fn of_fingerprints(
    current: [u8; 32],
    known_by: [u8; 32],
    (tenant, clinic, key): Scope,
    expires_at: Timestamp,
) -> Claim {
    let mut same = of("same request", tenant, clinic, key);
    same.bytes("fingerprint", &known_by);
    let (same_lock, key_lock) = (same.finish_as_lock(), key_lock(tenant, clinic, key));
    Claim { key, fingerprint: current, fingerprint_version: CURRENT, same_lock, key_lock, expires_at }
}

/// The advisory lock a running key holds, in whatever process.
#[must_use]
pub fn key_lock(tenant: Uuid, clinic: Uuid, key: KeyHash) -> i64 {
    of("key", tenant, clinic, key).finish_as_lock()
}

fn of(purpose: &str, tenant: Uuid, clinic: Uuid, key: KeyHash) -> Fingerprint {
    let mut lock = Fingerprint::for_purpose(purpose);
    lock.id("tenant", Some(tenant));
    lock.id("clinic", Some(clinic));
    lock.bytes("key", &key.0);
    lock
}

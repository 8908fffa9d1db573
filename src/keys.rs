//! `oncebook keys`: credentials from the command line, for the first one of a group and for the day all are lost. It works
//! on the database itself, so whoever may do that needs no credential; the audit calls them by what they used.

use anyhow::{Context, bail, ensure};
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Subcommand};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::clock::{Clock, Ids};
use crate::domain::access::{Caller, CredentialView, Role};
use crate::domain::api_key::NewKey;
use crate::store::audit::AuditNote;
use crate::store::commit::Asker;
use crate::store::directory::clinics;
use crate::store::{credentials, credentials_admin, databases};

/// The subject the audit knows the command line by.
const SUBJECT: &str = "oncebook keys";

/// What one may do to keys.
#[derive(Clone, Debug, Subcommand)]
pub enum Keys {
    /// Makes a credential and prints its key, this once; nothing else goes to standard output.
    #[command(group = ArgGroup::new("group").required(true).args(["tenant", "new_tenant"]))]
    Create {
        /// The clinic group it is for.
        #[arg(long)]
        tenant: Option<Uuid>,
        /// The name of a clinic group to be made for it.
        #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
        new_tenant: Option<String>,
        /// What people call it.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The person or system behind it.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        subject: String,
        /// What it may do; may be given several times.
        #[arg(long = "role", required = true, value_parser = role)]
        roles: Vec<Role>,
        /// A clinic it may touch; may be given several times. All of the group when none is given.
        #[arg(long = "clinic", value_name = "UUID")]
        clinics: Vec<Uuid>,
    },
    /// Lists credentials, without their secrets.
    List {
        /// Those of this clinic group only.
        #[arg(long)]
        tenant: Option<Uuid>,
    },
    /// Withdraws a credential, from its next request on.
    Revoke {
        /// Its id, or its whole key.
        id: String,
    },
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("one of {} is wanted", Role::ALL.map(Role::as_str).join(", ")))
}

/// Does it, and prints what came of it.
///
/// # Errors
/// If the database cannot be reached, or has no such group, clinic or credential.
pub async fn run(database_url: &str, keys: Keys, clock: &Clock, ids: &Ids) -> anyhow::Result<()> {
    let mut connection = databases::open(database_url).await?;
    match keys {
        Keys::Create { tenant, new_tenant, name, subject, roles, clinics } => {
            let now = clock.now();
            let tenant = match (tenant, new_tenant) {
                (Some(tenant), None) => tenant,
                (None, Some(name)) => {
                    ensure!(clinics.is_empty(), "a new group has no clinics yet");
                    let tenant = ids.uuid(now);
                    credentials_admin::create_tenant(&mut connection, tenant, &name, now).await?;
                    eprintln!("tenant {tenant}");
                    tenant
                }
                _ => bail!("one of --tenant and --new-tenant is wanted"),
            };
            let credential = CredentialView {
                id: ids.uuid(now),
                name,
                subject,
                roles,
                clinic_ids: (!clinics.is_empty()).then_some(clinics),
                created_by: SUBJECT.to_owned(),
                created_at: now,
                previous_secret_until: None,
                revoked_at: None,
            };
            println!("{}", create(&mut connection, tenant, &credential, ids).await?);
        }
        Keys::List { tenant } => {
            print!("{}", table(&credentials_admin::all(&mut connection, tenant).await?));
        }
        Keys::Revoke { id } => {
            let id = id.strip_prefix("ob_").and_then(|key| key.split('_').next()).unwrap_or(&id);
            let id = Uuid::try_parse(id).context("an id or a key is wanted")?;
            let found = credentials::find(&mut connection, id).await?.context("there is no such credential")?;
            let at = clock.now();
            let asker = asker(found.caller.tenant_id, at, ids);
            let note = AuditNote { id: ids.uuid(at), at, operation: "revoke_credential", asker: &asker };
            credentials_admin::revoke(&mut connection, id, &note).await?;
            println!("{id} is revoked.");
        }
    }
    connection.close().await.context("closing the connection")
}

/// What there is, a line each below a head, as wide as its widest; a word where there is nothing.
fn table(credentials: &[(Uuid, CredentialView)]) -> String {
    if credentials.is_empty() {
        return "There are no credentials.\n".to_owned();
    }
    let head = ["id", "tenant", "name", "subject", "state", "clinics", "roles"].map(str::to_owned);
    let rows = credentials.iter().map(|(tenant, it)| {
        let state = if it.revoked_at.is_some() { "revoked" } else { "in use" };
        let clinics = it.clinic_ids.as_ref().map_or_else(|| "all".to_owned(), |ids| ids.len().to_string());
        let roles: Vec<&str> = it.roles.iter().map(|role| role.as_str()).collect();
        let (id, tenant, roles) = (it.id.to_string(), tenant.to_string(), roles.join(","));
        [id, tenant, it.name.clone(), it.subject.clone(), state.to_owned(), clinics, roles]
    });
    let lines: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let padded = |line: &[String; 7]| {
        let cells = line.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(padded).collect()
}

/// Makes a credential of a group that exists, and hands its key over.
async fn create(
    connection: &mut PgConnection,
    tenant: Uuid,
    credential: &CredentialView,
    ids: &Ids,
) -> anyhow::Result<String> {
    credentials_admin::tenant(connection, tenant).await?.with_context(|| format!("there is no group {tenant}"))?;
    for clinic in credential.clinic_ids.iter().flatten() {
        let known = clinics::count(connection, tenant, &[*clinic]).await?;
        ensure!(known == 1, "the group has no clinic {clinic}");
    }
    let key = NewKey::new(credential.id, &ids.secret());
    let (at, asker) = (credential.created_at, asker(tenant, credential.created_at, ids));
    let note = AuditNote { id: ids.uuid(at), at, operation: "create_credential", asker: &asker };
    credentials_admin::create(connection, credential, &key.secret_hash, &note).await?;
    Ok(key.text)
}

/// Who works on the database itself: no credential, every right.
fn asker(tenant: Uuid, at: jiff::Timestamp, ids: &Ids) -> Asker {
    let caller = Caller {
        credential_id: Uuid::nil(),
        tenant_id: tenant,
        subject: SUBJECT.to_owned(),
        roles: Vec::new(),
        clinic_ids: None,
    };
    Asker { caller, request_id: ids.uuid(at), caller_request_id: None, traceparent: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_as_wide_as_its_widest() {
        let credential = |name: &str, clinics: Option<usize>| CredentialView {
            id: Uuid::nil(),
            name: name.to_owned(),
            subject: "user:ada".to_owned(),
            roles: vec![Role::ClinicAdmin],
            clinic_ids: clinics.map(|clinics| vec![Uuid::nil(); clinics]),
            created_by: SUBJECT.to_owned(),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            previous_secret_until: None,
            revoked_at: clinics.map(|_| jiff::Timestamp::UNIX_EPOCH),
        };
        let text =
            table(&[(Uuid::nil(), credential("Tablet, Köpenick", Some(1))), (Uuid::nil(), credential("first", None))]);
        let nil = Uuid::nil();
        let (id, tenant) = (format!("{:<36}", "id"), format!("{:<36}", "tenant"));
        let expected = format!(
            "{id}  {tenant}  name              subject   state    clinics  roles\n\
             {nil}  {nil}  Tablet, Köpenick  user:ada  revoked  1        CLINIC_ADMIN\n\
             {nil}  {nil}  first             user:ada  in use   all      CLINIC_ADMIN\n"
        );
        assert_eq!(text, expected);
        assert_eq!(table(&[]), "There are no credentials.\n");
    }
}

//! Who is asking: the credential, its rate and its role, before anything of the request is read.
//!
//! For commands a copy a few seconds old may do: their look reads the credential again with the decision, and only that
//! grants. What a copy would refuse is read anew before it is refused, so a rotation or a new role holds at once.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;

use super::problem::respond;
use crate::app::App;
use crate::command::admit::Token;
use crate::domain::access::{Caller, Permission};
use crate::domain::api_key;
use crate::domain::problem::{Code, Problem};
use crate::store::seen::Credential;

/// What a route asks of its callers.
#[derive(Clone)]
pub struct Guard {
    app: Arc<App>,
    permission: Permission,
    fresh: bool,
}

impl Guard {
    /// For a route whose command reads the credential itself.
    pub fn of_command(app: &Arc<App>, permission: Permission) -> Self {
        Self { app: Arc::clone(app), permission, fresh: false }
    }

    /// For a route that relies on this guard alone.
    pub fn fresh(app: &Arc<App>, permission: Permission) -> Self {
        Self { app: Arc::clone(app), permission, fresh: true }
    }
}

/// Who is asking, as the handlers find it among the request's extensions.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Who.
    pub caller: Caller,
    /// With what.
    pub token: Token,
}

/// Lets the request through to its handler, or answers 401, 429 or 403.
pub async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let signed_in = match guard.admit(request.headers()).await {
        Ok(signed_in) => signed_in,
        Err(problem) => return respond(&problem),
    };
    let allowed = signed_in.caller.may(guard.permission);
    let mut response = if allowed {
        request.extensions_mut().insert(signed_in.clone());
        next.run(request).await
    } else {
        respond(&Code::Forbidden.into())
    };
    response.extensions_mut().insert(signed_in);
    response
}

impl Guard {
    async fn admit(&self, headers: &HeaderMap) -> Result<SignedIn, Problem> {
        let token = token(headers).ok_or(Code::Unauthenticated)?;
        let now = self.app.clock.now();
        let satisfies =
            |credential: &Credential| credential.accepts(&token, now) && credential.caller.may(self.permission);
        let copy = if self.fresh { None } else { self.app.credentials.copy(token.credential_id).filter(satisfies) };
        let credential = match copy {
            Some(credential) => credential,
            None => self
                .app
                .read_credential(token.credential_id)
                .await?
                .filter(|it| it.accepts(&token, now))
                .ok_or(Code::Unauthenticated)?,
        };
        if let Some(limit) = &self.app.limits.credential
            && limit.check_key(&token.credential_id).is_err()
        {
            return Err(Code::RateLimited.into());
        }
        Ok(SignedIn { caller: credential.caller, token })
    }
}

/// The credential a request shows: one `Authorization: Bearer ob_<id>_<secret>`.
fn token(headers: &HeaderMap) -> Option<Token> {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (credential_id, secret_hash) = api_key::read(token.trim())?;
    Some(Token { credential_id, secret_hash })
}

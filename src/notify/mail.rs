//! Mail, by SMTP (RFC 5321), one connection a message. Commands are sent one by one, so that it is known how far a message
//! came: until the data begins nothing was sent, and after that only the server's word says what became of it.

use std::time::Duration;

use lettre::message::Mailbox;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use reqwest::Url;
use tokio::time::timeout;

use super::message::Mailed;
use super::senders::{Patience, Sent, Unusable};

/// A mail server.
pub struct Smtp {
    host: String,
    port: u16,
    /// How the connection is encrypted.
    tls: Tls,
    credentials: Option<Credentials>,
    /// The name to greet it with.
    hello: ClientId,
    patience: Patience,
}

/// How a connection is encrypted.
enum Tls {
    /// From the start.
    Wrapped(TlsParameters),
    /// Before anything of value is said.
    Upgraded(TlsParameters),
    /// Not at all.
    None,
}

/// A server that waits for a message.
pub(super) struct Ready {
    connection: AsyncSmtpConnection,
    patience: Patience,
}

impl Smtp {
    pub(super) fn at(url: &str, from: &Mailbox, patience: Patience) -> Result<Self, Unusable> {
        let url: Url = url.parse().map_err(|_| Unusable::SmtpUrl)?;
        let host = url.host_str().ok_or(Unusable::SmtpUrl)?.trim_matches(['[', ']']).to_owned();
        let parameters = || TlsParameters::new_rustls(host.clone()).map_err(|_| Unusable::Tls);
        let wish = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
        let (port, tls) = match (url.scheme(), wish.as_deref(), url.password()) {
            ("smtps", None | Some("required"), _) => (465, Tls::Wrapped(parameters()?)),
            ("smtp", Some("required"), _) | ("smtp", None, Some(_)) => (587, Tls::Upgraded(parameters()?)),
            ("smtp", Some("none"), Some(_)) => return Err(Unusable::PasswordInTheClear),
            ("smtp", None | Some("none"), None) => (25, Tls::None),
            _ => return Err(Unusable::SmtpUrl),
        };
        let plain =
            |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
        let credentials = match url.password() {
            Some(password) => {
                let [user, password] = [url.username(), password].map(plain);
                Some(Credentials::new(user.map_err(|_| Unusable::SmtpUrl)?, password.map_err(|_| Unusable::SmtpUrl)?))
            }
            None => None,
        };
        let name = url.path().trim_matches('/');
        let hello = ClientId::Domain(if name.is_empty() { from.email.domain() } else { name }.to_owned());
        Ok(Self { port: url.port().unwrap_or(port), host, tls, credentials, hello, patience })
    }

    /// Connects, goes over to TLS and signs in: nothing of any message leaves.
    ///
    /// # Errors
    /// [`Sent::Away`].
    pub(super) async fn connect(&self) -> Result<Ready, Sent> {
        let connecting = async {
            let wrapped = if let Tls::Wrapped(parameters) = &self.tls { Some(parameters.clone()) } else { None };
            let within = Some(self.patience.connect);
            let server = (self.host.as_str(), self.port);
            let connection = AsyncSmtpConnection::connect_tokio1(server, within, &self.hello, wrapped, None).await;
            let mut connection = connection.map_err(|error| away(&error))?;
            if let Tls::Upgraded(parameters) = &self.tls {
                connection.starttls(parameters.clone(), &self.hello).await.map_err(|error| away(&error))?;
            }
            if let Some(credentials) = &self.credentials {
                connection
                    .auth(DEFAULT_MECHANISMS, credentials)
                    .await
                    .map_err(|error| if error.is_permanent() { "credentials" } else { away(&error) })?;
            }
            Ok(connection)
        };
        match timeout(self.patience.connect, connecting).await {
            Ok(Ok(connection)) => Ok(Ready { connection, patience: self.patience }),
            Ok(Err(why)) => Err(Sent::Away(why, None)),
            Err(_) => Err(Sent::Away("connection", None)),
        }
    }
}

/// What keeps us from a server. Its own words are not kept: they may repeat what was sent.
fn away(error: &Error) -> &'static str {
    if error.is_tls() { "tls" } else { "connection" }
}

impl Ready {
    /// Sends a message.
    pub(super) async fn send(mut self, mail: &Mailed) -> Sent {
        let sent = self.try_send(mail).await;
        // Politeness, and no word on the message any more.
        let _ = timeout(Duration::from_secs(2), self.connection.quit()).await;
        sent.map_or_else(|failed| failed, |()| Sent::Taken)
    }

    async fn try_send(&mut self, mail: &Mailed) -> Result<(), Sent> {
        let (connection, command) = (&mut self.connection, self.patience.command);
        let mut options = Vec::new();
        let to: &str = mail.to.as_ref();
        if !to.is_ascii() {
            if !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
                return Err(Sent::Refused("smtp_no_utf8".to_owned()));
            }
            options.push(MailParameter::SmtpUtfEight);
        }
        if !mail.bytes.is_ascii() {
            options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        let begun = async {
            let (from, to) = (Mail::new(Some(mail.from.clone()), options), Rcpt::new(mail.to.clone(), Vec::new()));
            connection.command(from).await.map_err(|error| refused(&error, At::Sender))?;
            connection.command(to).await.map_err(|error| refused(&error, At::Recipient))?;
            connection.command(Data).await.map_err(|error| refused(&error, At::Data))
        };
        match timeout(command * 3, begun).await {
            Ok(Ok(_)) => {}
            Ok(Err(no)) => return Err(no.unwrap_or_else(broken_off)),
            Err(_) => return Err(broken_off()),
        }
        match timeout(self.patience.message, connection.message(&mail.bytes)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(refused(&error, At::Data).unwrap_or(Sent::Unknown { answered: false })),
            Err(_) => Err(Sent::Unknown { answered: false }),
        }
    }
}

/// A server that was there, and went before the data began: this message is tried again, and that counts, in case it is what
/// the server goes away from.
fn broken_off() -> Sent {
    Sent::NotNow("connection_lost".to_owned(), None)
}

/// What it says no to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Our own address.
    Sender,
    /// The patient's.
    Recipient,
    /// The message.
    Data,
}

/// A server's no; none where it said nothing that counts. What it would say of any message is no fault of this one: it goes
/// away (421), is full (452, but of a recipient that is said of their mailbox), or will not have our sender.
fn refused(error: &Error, at: At) -> Option<Sent> {
    let code = error.status()?;
    match (at, u16::from(code)) {
        (_, 421) => return Some(Sent::Away("unavailable", None)),
        (At::Sender | At::Data, 452) => return Some(Sent::Away("full", None)),
        // 555: a parameter that only some messages have (RFC 5321, section 4.1.1.11).
        (At::Sender, 500..=554) => return Some(Sent::Away("sender_refused", None)),
        _ => {}
    }
    let reason = format!("smtp_{code}");
    if error.is_permanent() {
        return Some(Sent::Refused(reason));
    }
    error.is_transient().then_some(Sent::NotNow(reason, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> Result<Smtp, Unusable> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Smtp::at(url, &"desk@example.org".parse().expect("a mailbox"), Patience::default())
    }

    #[test]
    fn a_url_says_where_and_how() {
        let smtp = at("smtps://user:p%40ss@mail.example.org").expect("a URL");
        assert!((smtp.host.as_str(), smtp.port) == ("mail.example.org", 465) && matches!(smtp.tls, Tls::Wrapped(_)));
        assert!(smtp.credentials.is_some_and(|it| it == Credentials::new("user".to_owned(), "p@ss".to_owned())));
        let smtp = at("smtp://user:pass@mail.example.org/desk.example.org").expect("a URL");
        assert!(smtp.port == 587 && matches!(smtp.tls, Tls::Upgraded(_)), "a password wants TLS");
        assert_eq!(smtp.hello, ClientId::Domain("desk.example.org".to_owned()));
        let smtp = at("smtp://127.0.0.1:2525").expect("a URL");
        assert!(smtp.port == 2525 && matches!(smtp.tls, Tls::None) && smtp.credentials.is_none());
        for (url, why) in [
            ("mail.example.org:25", Unusable::SmtpUrl),
            ("http://mail.example.org", Unusable::SmtpUrl),
            ("smtp://mail.example.org?tls=maybe", Unusable::SmtpUrl),
            ("smtps://mail.example.org?tls=none", Unusable::SmtpUrl),
            ("smtp://user:pass@mail.example.org?tls=none", Unusable::PasswordInTheClear),
        ] {
            assert_eq!(at(url).err(), Some(why), "{url}");
        }
    }
}

//! What takes a notification out of the building: mail, text messages, or in `oncebook dev` a folder. Where each call
//! stands is decided here, once: taken, refused, not now, away, or unknown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::mail::Smtp;
use super::message::Mailed;
use super::sms::Gateway;
use crate::config::{Config, Secret};
use crate::domain::directory::Channel;

/// What became of a sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The receiver took it.
    Taken,
    /// The receiver will not have it, now or ever.
    Refused(String),
    /// The receiver will not have it now; it may say when.
    NotNow(String, Option<Duration>),
    /// The receiver will have nothing now, of whatever message; it may say when.
    Busy(String, Option<Duration>),
    /// There is no receiver, or none that takes anything from us, and it has not taken this; it may say for how long.
    Away(&'static str, Option<Duration>),
    /// Nobody can say whether the receiver took it.
    Unknown {
        /// Whether it said anything at all: then the trouble is its own, else it may be this message that silences it.
        answered: bool,
    },
}

/// How long each part of a sending may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// To connect, go over to TLS and sign in.
    pub connect: Duration,
    /// For the answer to a command.
    pub command: Duration,
    /// For the answer to the message itself. RFC 5321, section 4.5.3.2.6, wants ten minutes; what takes longer than this is
    /// not confirmed.
    pub message: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [connect, command, message] = [10, 10, 40].map(Duration::from_secs);
        Self { connect, command, message }
    }
}

impl Patience {
    /// All of a sending.
    #[must_use]
    pub fn whole(&self) -> Duration {
        self.connect + self.command * 3 + self.message
    }
}

/// Why what is set makes no sender. It never says what was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No URL of a mail server.
    #[error("ONCEBOOK_SMTP_URL is no smtp:// or smtps:// URL with a host, its tls neither required nor none")]
    SmtpUrl,
    /// A password that would go over the wire as it is.
    #[error("ONCEBOOK_SMTP_URL has a password and tls=none: it would be sent in the clear")]
    PasswordInTheClear,
    /// No sender.
    #[error("ONCEBOOK_MAIL_FROM is no mailbox, such as Spree Dental <desk@example.org>; ONCEBOOK_SMTP_URL needs one")]
    MailFrom,
    /// No URL of a gateway.
    #[error("ONCEBOOK_SMS_URL is no http:// or https:// URL")]
    SmsUrl,
    /// A token that cannot stand in a header.
    #[error("ONCEBOOK_SMS_TOKEN has characters that no header takes")]
    SmsToken,
    /// TLS cannot be set up.
    #[error("the system's certificates cannot be used")]
    Tls,
}

/// Sends mail.
pub enum Mail {
    /// To a mail server.
    Smtp(Smtp),
    /// Into a folder, a file each.
    Folder(Folder),
}

/// Sends text messages.
pub enum Sms {
    /// To a gateway.
    Gateway(Gateway),
    /// Into a folder, a file each.
    Folder(Folder),
}

/// What there is to send with.
pub struct Senders {
    /// For who prefers e-mail.
    pub mail: Option<Mail>,
    /// For who prefers text messages.
    pub sms: Option<Sms>,
    /// Whom mails come from; without a name each has its clinic's.
    pub from: lettre::message::Mailbox,
}

impl Senders {
    /// As it is configured.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn of(config: &Config, patience: Patience) -> Result<Self, Unusable> {
        // As DATABASE_URL is taken: an empty one is none.
        let set = |setting: &Option<Secret>| setting.clone().filter(|Secret(text)| !text.is_empty());
        let (smtp_url, sms_url, sms_token) = (set(&config.smtp_url), set(&config.sms_url), set(&config.sms_token));
        let folder = config.messages_folder.as_deref().map(Folder::at);
        let from = match config.mail_from.as_deref().filter(|from| !from.is_empty()) {
            Some(from) => from.parse().map_err(|_| Unusable::MailFrom)?,
            None if smtp_url.is_some() => return Err(Unusable::MailFrom),
            // RFC 2606: nobody's.
            None => "oncebook@example.org".parse().map_err(|_| Unusable::MailFrom)?,
        };
        let mail = match &smtp_url {
            Some(url) => Some(Mail::Smtp(Smtp::at(&url.0, &from, patience)?)),
            None => folder.clone().map(Mail::Folder),
        };
        let sms = match &sms_url {
            Some(url) => Some(Sms::Gateway(Gateway::at(&url.0, sms_token.as_ref(), patience)?)),
            None => folder.map(Sms::Folder),
        };
        Ok(Self { mail, sms, from })
    }

    /// Whether there is something to send with.
    #[must_use]
    pub const fn has(&self, channel: Channel) -> bool {
        match channel {
            Channel::Email => self.mail.is_some(),
            Channel::Sms => self.sms.is_some(),
            Channel::None => false,
        }
    }
}

/// A folder that takes messages; the same message again takes the same file's place.
#[derive(Clone)]
pub struct Folder(PathBuf);

impl Folder {
    fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Takes a mail.
    pub(super) async fn take_mail(&self, id: Uuid, mail: &Mailed) -> Sent {
        self.take(&format!("{id}.eml"), &mail.bytes).await
    }

    /// Takes a text message.
    pub(super) async fn take_sms(&self, id: Uuid, to: &str, text: &str) -> Sent {
        self.take(&format!("{id}.sms.txt"), format!("To: {to}\n\n{text}\n").as_bytes()).await
    }

    async fn take(&self, name: &str, bytes: &[u8]) -> Sent {
        let written = async {
            tokio::fs::create_dir_all(&self.0).await?;
            tokio::fs::write(self.0.join(name), bytes).await
        };
        match written.await {
            Ok(()) => Sent::Taken,
            Err(error) => {
                tracing::warn!(%error, "a message cannot be written down");
                Sent::Away("folder", None)
            }
        }
    }
}

//! Mail over TLS, with a password, by the program as it runs in production: it believes the certificates of the system, of
//! which the test adds one.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oncebook::clock::{Clock, Ids};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use super::Post;
use crate::app::{Visit, eventually};
use crate::mailbox::{Mailbox, Secured};

/// A certificate for `localhost`: what a server shows, and the file that makes a client believe it.
fn certificate() -> (TlsAcceptor, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let file = std::env::temp_dir().join(format!("oncebook-{}.pem", Ids::random().uuid(Clock::system().now())));
    std::fs::write(&file, made.cert.pem()).expect("written");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate");
    (TlsAcceptor::from(Arc::new(config)), file)
}

#[tokio::test]
async fn mail_goes_over_tls_with_its_password_or_not_at_all() {
    let post = Post::on_time("email").await;
    let (tls, file) = certificate();
    let password: &'static str = STANDARD.encode("\0desk\0s3cr:t").leak();
    let trust = file.to_str().expect("a path").to_owned();
    for (n, (scheme, host, user, from_the_start, goes)) in [
        ("smtps", "localhost", "desk:s3cr%3At", true, true),
        ("smtp", "localhost", "desk:s3cr%3At", false, true),
        // A wrong password, and a name the certificate is not for: nothing leaves, and no try is used up.
        ("smtps", "localhost", "desk:wrong", true, false),
        ("smtps", "127.0.0.1", "desk:s3cr%3At", true, false),
    ]
    .into_iter()
    .enumerate()
    {
        let mailbox = Mailbox::secured(Secured { tls: tls.clone(), from_the_start, password }).await;
        post.book(Visit { slot: n * 4, ..Visit::default() }).await;
        let url = format!("{scheme}://{user}@{host}:{}", mailbox.port());
        let knobs = [
            ("ONCEBOOK_ROLES", "api,notifier"),
            ("ONCEBOOK_SMTP_URL", url.as_str()),
            ("ONCEBOOK_MAIL_FROM", "Desk <desk@clinic.example>"),
            ("SSL_CERT_FILE", trust.as_str()),
        ];
        let process = post.trial.process_with(&post.trial.url(), &knobs).await;
        if goes {
            eventually("it is mailed", async || mailbox.taken().len() == 1).await;
            let done = "select count(*) from notification_intents where kind = 'confirmation' and state <> 'COMPLETED'";
            eventually("that is written down", async || post.count(done).await == 0).await;
        } else {
            let held = "select count(*) from notification_intents where state = 'PENDING' and attempts = 0
              and kind = 'confirmation' and reason_code = 'destination_away'";
            eventually("it is held back", async || post.count(held).await == 1).await;
            post.trial.change("update notification_intents set state = 'SUPPRESSED', decided_at = due_at, token = null, lease_until = null, reason_code = 'test' where kind = 'confirmation' and state <> 'COMPLETED'").await;
            assert!(mailbox.taken().is_empty());
        }
        let said = process.said().join("\n");
        assert!(!said.contains("s3cr") && !said.contains("wrong") && !said.contains("ada.arslan"), "{said}");
        // What verifies certificates logs an error of its own, which one that is asked to go must not.
        if host == "localhost" { process.stop().await } else { process.kill().await }
    }
    std::fs::remove_file(file).expect("removed");
    post.end().await;
}

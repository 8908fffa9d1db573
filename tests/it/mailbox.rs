//! A mail server on this machine: it speaks SMTP (RFC 5321) over TCP, keeps what it takes, and can be told to say no, to
//! fall silent or to hang up at any point of the dialogue.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mail_parser::MessageParser;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Where in the dialogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The connection is there; nothing is said.
    Greeting,
    /// The sender is named.
    Mail,
    /// The recipient is named.
    Rcpt,
    /// The data is announced.
    Data,
    /// The whole message is here.
    Message,
}

/// What it does there.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Says this, a no, in place of yes.
    Say(&'static str),
    /// Hangs up. A whole message is kept first.
    HangUp,
    /// Says nothing until it is told to go on. A whole message is kept first.
    Hold(Held),
}

/// Something that is held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    reached: watch::Sender<usize>,
    goes_on: watch::Sender<bool>,
}

impl Held {
    fn new() -> Self {
        Self { reached: watch::Sender::new(0), goes_on: watch::Sender::new(false) }
    }

    /// Waits until it is reached.
    pub(crate) async fn reached(&self) {
        self.reached.subscribe().wait_for(|times| *times > 0).await.expect("the sender is here");
    }

    pub(crate) fn go_on(&self) {
        self.goes_on.send_replace(true);
    }

    async fn hold(&self) {
        self.reached.send_modify(|times| *times += 1);
        self.goes_on.subscribe().wait_for(|goes_on| *goes_on).await.expect("the sender is here");
    }
}

struct Rule {
    stage: Stage,
    /// For this recipient only.
    to: Option<&'static str>,
    left: usize,
    act: Act,
}

/// A message it took.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) to: String,
    pub(crate) data: Vec<u8>,
}

impl Taken {
    /// As a mail reader reads it.
    pub(crate) fn message(&self) -> mail_parser::Message<'_> {
        MessageParser::default().parse(&self.data).expect("a message")
    }
}

/// How it encrypts, and whom it lets in.
#[derive(Clone)]
pub(crate) struct Secured {
    pub(crate) tls: TlsAcceptor,
    /// From the start; else after STARTTLS.
    pub(crate) from_the_start: bool,
    /// What AUTH PLAIN must bring, as it goes over the wire.
    pub(crate) password: &'static str,
}

#[derive(Default)]
struct Shared {
    secured: Option<Secured>,
    rules: Mutex<Vec<Rule>>,
    taken: Mutex<Vec<Taken>>,
    connections: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the top. It is gone when dropped.
pub(crate) struct Mailbox {
    port: u16,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Mailbox {
    pub(crate) async fn open() -> Self {
        let mut mailbox = Self { port: 0, shared: Arc::default(), tasks: JoinSet::new() };
        mailbox.come_back().await;
        mailbox
    }

    /// One that takes mail from nobody without TLS and a password.
    pub(crate) async fn secured(secured: Secured) -> Self {
        let shared = Arc::new(Shared { secured: Some(secured), ..Shared::default() });
        let mut mailbox = Self { port: 0, shared, tasks: JoinSet::new() };
        mailbox.come_back().await;
        mailbox
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// Nobody is there any more: connections are refused.
    pub(crate) async fn go_away(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Is there, at the same place.
    pub(crate) async fn come_back(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.expect("a port");
        self.port = listener.local_addr().expect("an address").port();
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *lock(&shared.connections) += 1;
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    // Whoever hangs up has done so.
                    let _ = connection(stream, &shared).await;
                });
            }
        });
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        lock(&self.shared.taken).clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *lock(&self.shared.connections)
    }

    /// Does something the next so many times that stage is reached.
    pub(crate) fn next(&self, left: usize, stage: Stage, act: Act) {
        lock(&self.shared.rules).push(Rule { stage, to: None, left, act });
    }

    /// Does something whenever this recipient's messages reach that stage.
    pub(crate) fn always_for(&self, to: &'static str, stage: Stage, act: Act) {
        lock(&self.shared.rules).push(Rule { stage, to: Some(to), left: usize::MAX, act });
    }

    /// Holds the next dialogue that reaches that stage.
    pub(crate) fn hold(&self, stage: Stage) -> Held {
        let held = Held::new();
        self.next(1, stage, Act::Hold(held.clone()));
        held
    }
}

impl Shared {
    fn act(&self, stage: Stage, to: &str) -> Option<Act> {
        let mut rules = lock(&self.rules);
        let place = rules.iter().position(|rule| rule.stage == stage && rule.to.is_none_or(|it| it == to))?;
        let rule = &mut rules[place];
        rule.left -= 1;
        let act = rule.act.clone();
        if rule.left == 0 {
            rules.remove(place);
        }
        Some(act)
    }
}

/// What to say; nothing to hang up.
async fn answer(shared: &Shared, stage: Stage, to: &str, yes: &'static str) -> Option<&'static str> {
    match shared.act(stage, to) {
        None => Some(yes),
        Some(Act::Say(no)) => Some(no),
        Some(Act::HangUp) => None,
        Some(Act::Hold(held)) => {
            held.hold().await;
            Some(yes)
        }
    }
}

async fn connection(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let Some(secured) = &shared.secured else { return dialogue(stream, shared, true, true).await.map(drop) };
    if secured.from_the_start {
        return dialogue(secured.tls.accept(stream).await?, shared, true, false).await.map(drop);
    }
    match dialogue(stream, shared, true, false).await? {
        Some(stream) => dialogue(secured.tls.accept(stream).await?, shared, false, false).await.map(drop),
        None => Ok(()),
    }
}

/// Until the other side is through; or until it wants to go over to TLS, and then the stream comes back.
async fn dialogue<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    shared: &Shared,
    greet: bool,
    mut let_in: bool,
) -> std::io::Result<Option<S>> {
    let mut stream = BufReader::new(stream);
    let (mut to, mut line) = (String::new(), String::new());
    if greet {
        let Some(greeting) = answer(shared, Stage::Greeting, &to, "220 mailbox.example.org ESMTP").await else {
            return Ok(None);
        };
        stream.write_all(format!("{greeting}\r\n").as_bytes()).await?;
    }
    let upgrades = shared.secured.as_ref().is_some_and(|secured| greet && !secured.from_the_start);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
        let said = match verb.as_str() {
            "EHLO" if upgrades => Some("250-mailbox.example.org\r\n250 STARTTLS"),
            "EHLO" => Some("250-mailbox.example.org\r\n250-AUTH PLAIN\r\n250 8BITMIME"),
            "STAR" if upgrades => {
                stream.write_all(b"220 go ahead\r\n").await?;
                return Ok(Some(stream.into_inner()));
            }
            "AUTH" => {
                let password = shared.secured.as_ref().map_or("", |secured| secured.password);
                let_in = !upgrades && line.trim_end().strip_prefix("AUTH PLAIN ") == Some(password);
                Some(if let_in { "235 welcome" } else { "535 no" })
            }
            _ if !let_in && verb != "QUIT" => Some("530 who are you?"),
            "MAIL" => answer(shared, Stage::Mail, &to, "250 ok").await,
            "RCPT" => {
                to =
                    line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(to, _)| to).to_owned();
                answer(shared, Stage::Rcpt, &to, "250 ok").await
            }
            "DATA" => match answer(shared, Stage::Data, &to, "354 go on").await {
                Some("354 go on") => {
                    stream.write_all(b"354 go on\r\n").await?;
                    let data = data(&mut stream).await?;
                    message(shared, &to, data).await
                }
                other => other,
            },
            "RSET" | "NOOP" => Some("250 ok"),
            "QUIT" => {
                stream.write_all(b"221 bye\r\n").await?;
                return Ok(None);
            }
            _ => Some("502 no such command"),
        };
        let Some(said) = said else { return Ok(None) };
        stream.write_all(format!("{said}\r\n").as_bytes()).await?;
    }
}

/// The message up to the line with a dot alone; a dot that was doubled is one again.
async fn data<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> std::io::Result<Vec<u8>> {
    let (mut data, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        match line.as_slice() {
            b".\r\n" => return Ok(data),
            [b'.', rest @ ..] => data.extend_from_slice(rest),
            line => data.extend_from_slice(line),
        }
    }
}

async fn message(shared: &Shared, to: &str, data: Vec<u8>) -> Option<&'static str> {
    let keep = || lock(&shared.taken).push(Taken { to: to.to_owned(), data });
    match shared.act(Stage::Message, to) {
        Some(Act::Say(no)) => return Some(no),
        None => keep(),
        Some(Act::HangUp) => {
            keep();
            return None;
        }
        Some(Act::Hold(held)) => {
            keep();
            held.hold().await;
        }
    }
    Some("250 taken")
}

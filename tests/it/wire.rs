//! The wire between a service and Postgres, in our hands: it counts round trips, knows which statement each one executes,
//! and can hold it, hold its answer, lose its answer, answer in Postgres's stead, take its time, or fall silent.
//!
//! It reads as much of the protocol as that takes (Postgres's manual, "Frontend/Backend Protocol"): a client's messages up
//! to a Sync or a simple Query are one round trip, and each is answered by messages up to one `ReadyForQuery`.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What a statement is to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// The first of its two.
    Look,
    /// The second.
    Commit,
    /// The notifier takes up what is due.
    Claim,
    /// The notifier marks one as sent.
    Leave,
    /// The notifier says how one ended.
    End,
    /// Any other; in a list of round trips, one that only prepares.
    Other,
}

impl Statement {
    fn of(sql: &str) -> Self {
        // Both by what makes them what they are: the key's gate, and the credential beside the stored reply.
        if sql.contains("pg_try_advisory_xact_lock") {
            Self::Commit
        } else if sql.contains("from (select 1) as one") && sql.contains("idempotency_keys k") {
            Self::Look
        } else if sql.contains("update notification_intents") && sql.contains("lease_until") {
            // By what each of them leaves behind.
            match sql {
                claim if claim.contains("'LEASED' end") => Self::Claim,
                leave if leave.contains("set state = 'SENT'") => Self::Leave,
                end if end.contains("attempts - $7") => Self::End,
                _ => Self::Other,
            }
        } else {
            Self::Other
        }
    }
}

/// One round trip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    /// What it executed.
    pub(crate) statement: Statement,
    /// The text: of the statement, or of a simple query.
    pub(crate) sql: Arc<str>,
    /// Whether it was a simple query, which is how transactions are begun and ended.
    pub(crate) simple: bool,
}

/// What happens to a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is held before Postgres sees it.
    HoldBefore,
    /// Postgres has executed it; the answer is held.
    HoldAnswer,
    /// Postgres has executed it; the answer and its connection are lost.
    LoseAnswer,
    /// Postgres never sees it; the service reads this SQLSTATE.
    Fail(&'static str),
}

struct Rule {
    on: Statement,
    act: Act,
    left: usize,
    caught: Caught,
}

/// A round trip that is to be caught, or has been.
#[derive(Clone)]
pub(crate) struct Caught {
    times: watch::Sender<usize>,
    passed: watch::Sender<usize>,
    /// Whether what is held goes on; none while that is open.
    goes_on: watch::Sender<Option<bool>>,
}

impl Caught {
    /// Waits until one is caught.
    pub(crate) async fn reached(&self) {
        self.times.subscribe().wait_for(|times| *times > 0).await.expect("the sender is here");
    }

    /// Waits until one that went on has arrived at the other end.
    pub(crate) async fn passed(&self) {
        self.passed.subscribe().wait_for(|passed| *passed > 0).await.expect("the sender is here");
    }

    /// How many were.
    pub(crate) fn times(&self) -> usize {
        *self.times.borrow()
    }

    /// Lets it go on, even if whoever sent it is gone by now.
    pub(crate) fn go_on(&self) {
        self.goes_on.send_replace(Some(true));
    }

    /// Cuts its connection.
    pub(crate) fn cut(&self) {
        self.goes_on.send_replace(Some(false));
    }

    /// Counts one, and waits for the word on it.
    async fn hold(&self) -> bool {
        self.times.send_modify(|times| *times += 1);
        let mut goes_on = self.goes_on.subscribe();
        goes_on.wait_for(Option::is_some).await.ok().and_then(|goes_on| *goes_on).unwrap_or(false)
    }
}

/// A wire. It is cut when dropped.
pub(crate) struct Wire {
    port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    postgres: SocketAddr,
    rules: Mutex<Vec<Rule>>,
    trips: Mutex<Vec<Trip>>,
    silent: watch::Sender<bool>,
    /// How long every answer is on its way.
    way: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// A wire to the Postgres on that port of this machine.
    pub(crate) async fn to(postgres: u16) -> Self {
        Self::long(postgres, Duration::ZERO).await
    }

    /// One so long that every answer is that much later: whoever asked is waiting for it by then.
    pub(crate) async fn long(postgres: u16, way: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            postgres: (Ipv4Addr::LOCALHOST, postgres).into(),
            rules: Mutex::default(),
            trips: Mutex::default(),
            silent: watch::Sender::new(false),
            way,
        });
        let mut tasks = JoinSet::new();
        let accepting = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                connections.spawn(async move {
                    // Either end may go away at any time: that is what a wire is for.
                    let _ = connection(client, shared).await;
                });
            }
        });
        Self { port, shared, _tasks: tasks }
    }

    /// A database's URL, over this wire.
    pub(crate) fn url(&self, direct: &str) -> String {
        let there = format!("127.0.0.1:{}", self.shared.postgres.port());
        // The wire reads along, so nothing may be encrypted; without this the client would ask.
        format!("{}?sslmode=disable", direct.replace(&there, &format!("127.0.0.1:{}", self.port)))
    }

    /// Does something to the next round trip that executes such a statement.
    pub(crate) fn next(&self, on: Statement, act: Act) -> Caught {
        self.next_few(1, on, act)
    }

    /// Does something to the next few.
    pub(crate) fn next_few(&self, left: usize, on: Statement, act: Act) -> Caught {
        let caught =
            Caught { times: watch::Sender::new(0), passed: watch::Sender::new(0), goes_on: watch::Sender::new(None) };
        if act == Act::LoseAnswer {
            caught.cut();
        }
        lock(&self.shared.rules).push(Rule { on, act, left, caught: caught.clone() });
        caught
    }

    /// Neither end hears of the other, yet nothing is closed: a network that has gone away.
    pub(crate) fn fall_silent(&self) {
        self.shared.silent.send_replace(true);
    }

    /// Everything that was sent meanwhile arrives.
    pub(crate) fn speak_again(&self) {
        self.shared.silent.send_replace(false);
    }

    /// The round trips since the last time this was asked.
    pub(crate) fn trips(&self) -> Vec<Trip> {
        std::mem::take(&mut lock(&self.shared.trips))
    }
}

impl Shared {
    /// What is to be done to a round trip, if anything.
    fn rule(&self, statement: Statement) -> Option<(Act, Caught)> {
        let mut rules = lock(&self.rules);
        let place = rules.iter().position(|rule| rule.on == statement)?;
        let rule = &mut rules[place];
        rule.left -= 1;
        let found = (rule.act, rule.caught.clone());
        if rule.left == 0 {
            rules.remove(place);
        }
        Some(found)
    }

    async fn not_silent(&self) {
        // The sender is in here, so it is not gone.
        let _ = self.silent.subscribe().wait_for(|silent| !silent).await;
    }
}

/// Both directions share the way to the client, and what is to be done to which answer.
struct Ends {
    shared: Arc<Shared>,
    client: tokio::sync::Mutex<OwnedWriteHalf>,
    answers: Mutex<HashMap<u64, Caught>>,
    answered: watch::Sender<u64>,
}

async fn connection(client: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    let postgres = TcpStream::connect(shared.postgres).await?;
    client.set_nodelay(true)?;
    postgres.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_postgres, to_postgres) = postgres.into_split();
    let ends = Ends {
        shared,
        client: tokio::sync::Mutex::new(to_client),
        answers: Mutex::default(),
        answered: watch::Sender::new(0),
    };
    // The first that ends takes the other, and with it both sockets, along.
    tokio::select! {
        ended = asked(BufReader::new(from_client), to_postgres, &ends) => ended,
        ended = answered(BufReader::new(from_postgres), &ends) => ended,
    }
}

/// One message: its type and all of its bytes. The first of a connection has no type.
async fn message(from: &mut (impl AsyncRead + Unpin), first: bool) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = if first { 0 } else { from.read_u8().await? };
    let length = from.read_u32().await?;
    let mut bytes = if first { Vec::new() } else { vec![kind] };
    bytes.extend(length.to_be_bytes());
    let start = bytes.len();
    bytes.resize(start + usize::try_from(length).expect("a message fits") - 4, 0);
    from.read_exact(&mut bytes[start..]).await?;
    Ok((kind, bytes))
}

/// A text in a message that ends with a NUL, and what follows it.
fn text(bytes: &[u8]) -> (&str, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).expect("texts end with a NUL");
    (std::str::from_utf8(&bytes[..end]).expect("UTF-8"), &bytes[end + 1..])
}

/// From the client to Postgres.
async fn asked(mut from: BufReader<OwnedReadHalf>, mut to: OwnedWriteHalf, ends: &Ends) -> std::io::Result<()> {
    let mut statements: HashMap<String, Arc<str>> = HashMap::new();
    let (mut batch, mut trip) = (Vec::new(), None);
    // The start of a connection is answered by a ReadyForQuery too.
    let mut sent = 1;
    let (_, start) = message(&mut from, true).await?;
    to.write_all(&start).await?;
    loop {
        let (kind, bytes) = message(&mut from, false).await?;
        let body = &bytes[5..];
        match kind {
            b'P' => {
                let (name, rest) = text(body);
                statements.insert(name.to_owned(), text(rest).0.into());
            }
            b'B' => {
                let sql = Arc::clone(&statements[text(text(body).1).0]);
                trip = Some(Trip { statement: Statement::of(&sql), sql, simple: false });
            }
            b'Q' => trip = Some(Trip { statement: Statement::Other, sql: text(body).0.into(), simple: true }),
            _ => {}
        }
        batch.extend(bytes);
        match kind {
            b'Q' | b'S' => {}
            // A password, a goodbye: neither is answered like a statement.
            b'p' | b'X' => {
                ends.shared.not_silent().await;
                to.write_all(&std::mem::take(&mut batch)).await?;
                continue;
            }
            _ => continue,
        }
        let trip = trip.take().unwrap_or(Trip { statement: Statement::Other, sql: "".into(), simple: false });
        let rule = ends.shared.rule(trip.statement);
        lock(&ends.shared.trips).push(trip);
        let batch = std::mem::take(&mut batch);
        match rule {
            Some((Act::HoldBefore, caught)) if !caught.hold().await => return Ok(()),
            Some((Act::HoldAnswer | Act::LoseAnswer, caught)) => drop(lock(&ends.answers).insert(sent, caught)),
            Some((Act::Fail(state), caught)) => {
                caught.times.send_modify(|times| *times += 1);
                ends.fail(sent, state).await?;
                continue;
            }
            _ => {}
        }
        ends.shared.not_silent().await;
        to.write_all(&batch).await?;
        sent += 1;
    }
}

/// From Postgres to the client.
async fn answered(mut from: BufReader<OwnedReadHalf>, ends: &Ends) -> std::io::Result<()> {
    let mut answer = Vec::new();
    let mut count = 0;
    loop {
        let read = message(&mut from, false).await;
        let ended = read.is_err();
        let (kind, bytes) = read.unwrap_or_default();
        answer.extend(bytes);
        // While the connection is made the client is asked for things; after that, an answer is sent whole.
        if !ended && count > 0 && kind != b'Z' {
            continue;
        }
        let caught = lock(&ends.answers).remove(&count);
        if let Some(caught) = &caught
            && !caught.hold().await
        {
            return Ok(());
        }
        ends.shared.not_silent().await;
        sleep(ends.shared.way).await;
        ends.client.lock().await.write_all(&std::mem::take(&mut answer)).await?;
        if let Some(caught) = caught {
            caught.passed.send_modify(|passed| *passed += 1);
        }
        if ended {
            return Ok(());
        }
        if kind == b'Z' {
            count += 1;
            ends.answered.send_replace(count);
        }
    }
}

impl Ends {
    /// Answers in Postgres's stead, once all that was asked before is answered.
    async fn fail(&self, sent: u64, state: &str) -> std::io::Result<()> {
        let _ = self.answered.subscribe().wait_for(|answered| *answered == sent).await;
        let mut error = b"SERROR\0VERROR\0C".to_vec();
        error.extend(state.as_bytes());
        error.extend(b"\0Minjected\0\0");
        let mut answer = b"E".to_vec();
        answer.extend(u32::try_from(error.len() + 4).expect("it is short").to_be_bytes());
        answer.extend(error);
        answer.extend(b"Z\0\0\0\x05I");
        self.client.lock().await.write_all(&answer).await
    }
}

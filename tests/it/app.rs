//! A trial: a database of its own, services on it, callers, and at its end the proof that nothing was left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use jiff::civil::{Date, Weekday, time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};
use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::command::admit::Token;
use oncebook::command::{IfMatch, Request};
use oncebook::config::{Config, Role, Secret};
use oncebook::dev::seed::Demo;
use oncebook::domain::{api_key, key};
use oncebook::serve::{self, Listeners};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::net::TcpListener;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clean;
use crate::client::{Call, Desk, Kept, pool};
use crate::ground::Ground;
use crate::log::{self, Mark};
use crate::process::Process;

/// Trials that measure time run alone.
static MACHINE: RwLock<()> = RwLock::const_new(());

enum Place {
    Shared(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
}

/// Keeps other trials off the machine.
pub(crate) async fn machine_to_oneself() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

/// What services in this process seal secrets with.
pub(crate) const ENCRYPTION_KEY: &str = "b25jZWJvb2sgdHJpYWxzIGtlZXAgbm8gc2VjcmV0cy4=";

/// See the top.
pub(crate) struct Trial {
    ground: Arc<Ground>,
    database: String,
    pub(crate) demo: Demo,
    http: reqwest::Client,
    kept: Kept,
    log: Mark,
    tolerated: Vec<&'static str>,
    keys_expire: bool,
    services: Vec<Service>,
    processes: Arc<AtomicUsize>,
    ended: bool,
    _place: Place,
}

/// A service in this process.
pub(crate) struct Service {
    pub(crate) app: Arc<App>,
    pub(crate) base: String,
    stop: CancellationToken,
    running: JoinSet<()>,
}

/// How a service in this process is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) url: String,
    pub(crate) clock: Clock,
    pub(crate) command_timeout: Duration,
    pub(crate) idempotency_wait: Duration,
    pub(crate) roles: &'static [Role],
}

impl Trial {
    /// One that runs beside others.
    pub(crate) async fn new() -> Self {
        let place = Place::Shared(MACHINE.read().await);
        Self::on(Ground::shared().await, place).await
    }

    /// One that has the machine to itself, to measure time.
    pub(crate) async fn alone() -> Self {
        let place = Place::Alone(machine_to_oneself().await);
        Self::on(Ground::shared().await, place).await
    }

    /// One with a Postgres of its own, to do to it what it likes.
    pub(crate) async fn private(name: &'static str) -> Self {
        let place = Place::Shared(MACHINE.read().await);
        Self::on(Ground::private(name).await, place).await
    }

    async fn on(ground: Arc<Ground>, place: Place) -> Self {
        let database = ground.copy().await;
        Self {
            demo: ground.demo.clone(),
            log: Mark::of(&ground.cluster),
            ground,
            database,
            http: pool(),
            kept: Kept::default(),
            tolerated: Vec::new(),
            keys_expire: false,
            services: Vec::new(),
            processes: Arc::default(),
            ended: false,
            _place: place,
        }
    }

    pub(crate) fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    /// The database, without a detour.
    pub(crate) fn url(&self) -> String {
        self.ground.cluster.url(&self.database)
    }

    /// A connection of the trial's own.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.expect("connected")
    }

    /// Does something to the rows behind the service's back.
    pub(crate) async fn change(&self, statement: &str) {
        let mut connection = self.connect().await;
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.expect("changed");
        connection.close().await.expect("closed");
    }

    /// The errors Postgres has logged for this trial so far.
    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.errors(&self.ground.cluster, &self.database)
    }

    /// An error in Postgres's log that belongs to this trial.
    pub(crate) fn tolerate(&mut self, part: &'static str) {
        self.tolerated.push(part);
    }

    /// Lets keys mean something else after their time.
    pub(crate) fn keys_expire(&mut self) {
        self.keys_expire = true;
    }

    pub(crate) fn setup(&self) -> Setup {
        let (command_timeout, idempotency_wait) = (Duration::from_secs(5), Duration::from_secs(2));
        Setup { url: self.url(), clock: Clock::system(), command_timeout, idempotency_wait, roles: &[Role::Api] }
    }

    /// Starts a service in this process; tells where it is in [`Trial::services`].
    pub(crate) async fn serve(&mut self, setup: Setup) -> Arc<App> {
        let Setup { url, clock, command_timeout, idempotency_wait, roles } = setup;
        let unlimited = Config {
            rate_per_address: 0,
            rate_per_credential: 0,
            encryption_key: Some(Secret(ENCRYPTION_KEY.to_owned())),
            webhook_allow_private: true,
            ..Config::from_environment()
        };
        let config = Config { command_timeout, idempotency_wait, ..unlimited };
        let app = App::new(config, &url, clock, Ids::random(), None).expect("a database's URL");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        let listeners = Listeners { api: Some(listener), admin: None };
        let (served, told) = (Arc::clone(&app), stop.clone());
        running.spawn(async move { serve::run(served, roles, listeners, told).await });
        self.services.push(Service { app: Arc::clone(&app), base, stop, running });
        app
    }

    /// Starts a process on this database.
    pub(crate) async fn process(&self) -> Process {
        self.process_with(&self.url(), &[]).await
    }

    /// Starts a process with another way to the database, or with knobs.
    pub(crate) async fn process_with(&self, url: &str, knobs: &[(&str, &str)]) -> Process {
        Process::start(url, knobs, &self.processes).await
    }

    /// The front desk of the demo clinic, at the service last started in this process.
    pub(crate) fn desk(&self) -> Desk {
        self.desk_at(&self.services.last().expect("a service was started").base)
    }

    /// Whoever holds that key, at the service last started in this process.
    pub(crate) fn desk_of(&self, token: &str) -> Desk {
        Desk::new(&self.http, &self.services.last().expect("a service was started").base, token, Some(&self.kept))
    }

    /// The front desk of the demo clinic.
    pub(crate) fn desk_at(&self, base: &str) -> Desk {
        let kept = Some(&self.kept).filter(|_| !self.keys_expire);
        Desk::new(&self.http, base, &self.demo.api_keys.front_desk, kept)
    }

    pub(crate) fn services(&self) -> &[Service] {
        &self.services
    }

    /// Ends the trial: everything stops, nothing is at work, and every promise about the rows holds.
    pub(crate) async fn end(mut self) {
        self.ended = true;
        for service in std::mem::take(&mut self.services) {
            service.end().await;
        }
        assert_eq!(self.processes.load(Ordering::SeqCst), 0, "a process was neither stopped nor killed");
        let mut connection = self.connect().await;
        let broken = clean::broken_promises(&mut connection, self.keys_expire).await;
        assert!(broken.is_empty(), "{broken:#?}");
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stored = clean::all_stored(&mut connection).await;
        for (key, told) in kept {
            assert_eq!(stored.get(&clean::hash(&key)), Some(&told), "what {key} was told is not stored");
        }
        connection.close().await.expect("closed");
        let errors = log::unexpected(self.logged(), &self.tolerated);
        assert!(errors.is_empty(), "{errors:#?}");
        self.ground.cluster.drop_database(&self.database).await.expect("dropped");
    }
}

impl Trial {
    /// For a trial whose end would find what it was made to find.
    pub(crate) fn abandon(mut self) {
        self.ended = true;
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        assert!(self.ended || std::thread::panicking(), "a trial that is not ended has proved nothing");
    }
}

impl Service {
    async fn end(mut self) {
        let commands = &self.app.commands;
        eventually("no key and no lane in use", async || {
            commands.registry.load() == (0, 0) && commands.lanes.is_empty()
        })
        .await;
        self.stop.cancel();
        let ended = timeout(Duration::from_secs(15), self.running.join_next()).await.expect("it stops");
        ended.expect("it ran").expect("without a panic");
    }
}

/// Waits for something that must come about. Never for time to pass.
pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done().await {
        assert!(Instant::now() < patience, "waited in vain: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// A visit to be booked, by its place in the demo.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visit {
    pub(crate) patient: usize,
    pub(crate) practitioner: usize,
    pub(crate) operatory: Option<usize>,
    pub(crate) service: usize,
    pub(crate) slot: usize,
    pub(crate) overbook: bool,
}

impl Trial {
    /// The request that books a visit.
    pub(crate) fn book(&self, visit: Visit) -> Call {
        Call::post("/v1/appointments", self.body(visit))
    }

    pub(crate) fn body(&self, visit: Visit) -> Value {
        json!({
            "clinic_id": self.demo.clinic_id,
            "patient_id": self.demo.patient_ids[visit.patient],
            "practitioner_id": self.demo.practitioner_ids[visit.practitioner],
            "operatory_id": visit.operatory.map(|operatory| self.demo.operatory_ids[operatory]),
            "service_id": self.demo.service_ids[visit.service],
            "start": slot(visit.slot),
            "overbook": visit.overbook,
        })
    }
}

/// What the edge hands over beside a command.
pub(crate) fn asked(token: &str, key: &str) -> Request {
    let (credential_id, secret_hash) = api_key::read(token).expect("an API key");
    Request {
        token: Token { credential_id, secret_hash },
        key: Some(key::parse(key.as_bytes()).expect("a key")),
        if_match: IfMatch::Any,
        id: Ids::random().uuid(Clock::system().now()),
        callers_id: None,
        traceparent: None,
    }
}

/// The request for a step of an appointment's life.
pub(crate) fn step(id: uuid::Uuid, what: &str) -> Call {
    Call::post(format!("/v1/appointments/{id}/{what}"), json!({}))
}

/// The request that moves an appointment.
pub(crate) fn reschedule(id: uuid::Uuid, to: usize) -> Call {
    Call::post(format!("/v1/appointments/{id}/reschedule"), json!({ "start": slot(to) }))
}

/// Quarter hours the demo clinic is open for in a day.
pub(crate) const SLOTS_A_DAY: usize = 40;

/// The `n`-th quarter hour the demo clinic is open, from a week ahead on. A run knows one "today", whatever the clock does.
pub(crate) fn slot(n: usize) -> Timestamp {
    static FIRST: OnceLock<Date> = OnceLock::new();
    let berlin = TimeZone::get("Europe/Berlin").expect("a zone");
    let mut day = *FIRST.get_or_init(|| {
        let today = berlin.to_datetime(Clock::system().now()).date();
        next_open(today.checked_add(7.days()).expect("a week from now"))
    });
    for _ in 0..n / SLOTS_A_DAY {
        day = next_open(day);
    }
    let minutes: Span = (i64::try_from(n % SLOTS_A_DAY).expect("small") * 15).minutes();
    let local = day.to_datetime(time(8, 0, 0, 0)).checked_add(minutes).expect("within the day");
    berlin.to_timestamp(local).expect("a time in the day")
}

/// The next day that is no Sunday.
fn next_open(day: Date) -> Date {
    let next = day.tomorrow().expect("a day after");
    if next.weekday() == Weekday::Sunday { next.tomorrow().expect("a day after") } else { next }
}

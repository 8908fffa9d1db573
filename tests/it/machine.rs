//! `oncebook dev` short of the service: what it prepares, what it finds again, what it writes down.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use oncebook::clock::{Clock, Ids};
use oncebook::dev::cluster::Cluster;
use oncebook::dev::record::DevJson;
use oncebook::dev::{self, Machine, Options};
use oncebook::domain::api_key;
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::app::{eventually, machine_to_oneself};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("machine-{name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an earlier run's folder is removed");
    }
    folder
}

#[expect(clippy::disallowed_methods, reason = "a test has no configuration to read it in")]
fn options(folder: &Path) -> Options {
    Options {
        data_dir: folder.to_path_buf(),
        port: 0,
        database_url: None,
        path_var: std::env::var_os("PATH"),
        clock: Clock::system(),
        ids: Ids::random(),
    }
}

async fn ready(folder: &Path) -> (Machine, DevJson) {
    let machine = dev::prepare(options(folder)).await.expect("prepared");
    assert!(!folder.join("dev.json").exists(), "there only while the machine is ready");
    machine.announce("http://127.0.0.1:8080/").await.expect("announced");
    let record = serde_json::from_slice(&fs::read(folder.join("dev.json")).expect("dev.json")).expect("its form");
    (machine, record)
}

async fn works(connection: &mut PgConnection, token: &str) -> bool {
    let (id, shown) = api_key::read(token).expect("a key");
    let stored: Vec<u8> =
        sqlx::query_scalar("select secret_hash from credentials where id = $1 and revoked_at is null")
            .bind(id)
            .fetch_one(connection)
            .await
            .expect("its row");
    stored == shown
}

async fn change(connection: &mut PgConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(connection).await.expect("changed");
}

#[tokio::test]
async fn a_second_start_finds_its_data_and_its_keys() {
    // The second start is timed.
    let _alone = machine_to_oneself().await;
    let folder = folder("again");
    let (machine, first) = ready(&folder).await;
    let mode = folder.join("dev.json").metadata().expect("dev.json").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let refused = dev::prepare(options(&folder)).await.expect_err("a second machine").to_string();
    assert!(refused.contains("in use"), "{refused}");
    assert!(folder.join("dev.json").exists(), "the first goes on undisturbed");
    let mut connection = PgConnection::connect(&first.database_url).await.expect("connected");
    for key in [&first.api_keys.admin, &first.api_keys.worker, &first.api_keys.other_tenant] {
        assert!(works(&mut connection, key).await);
    }
    change(&mut connection, "update practitioners set active = false, name = 'Gone'").await;
    change(&mut connection, "update credentials set revoked_at = created_at where name = 'demo operator'").await;
    change(&mut connection, "update credentials set secret_hash = sha256('x') where name = 'demo integration'").await;
    change(&mut connection, "delete from patients where name = 'Ada Becker'").await;
    connection.close().await.expect("closed");
    machine.stop().await.expect("stopped");

    let began = Instant::now();
    let (machine, second) = ready(&folder).await;
    assert!(began.elapsed().as_secs() < 3, "API.md: within seconds; issue: under three");
    assert_eq!(second.database_url, first.database_url);
    assert_eq!((second.clinic_id, &second.patient_ids), (first.clinic_id, &first.patient_ids));
    let mut connection = PgConnection::connect(&second.database_url).await.expect("connected");
    let kept: i64 = sqlx::query_scalar("select count(*) from practitioners where name = 'Gone' and not active")
        .fetch_one(&mut connection)
        .await
        .expect("a count");
    assert_eq!(kept, 9, "a developer's changes stay");
    let patients: i64 =
        sqlx::query_scalar("select count(*) from patients").fetch_one(&mut connection).await.expect("a count");
    assert_eq!(patients, 51, "what is missing comes back");
    let (old, new) = (first.api_keys, second.api_keys);
    assert_eq!((&old.admin, &old.front_desk, &old.other_tenant), (&new.admin, &new.front_desk, &new.other_tenant));
    assert!(old.operator != new.operator && old.integration != new.integration);
    assert!(works(&mut connection, &new.operator).await && works(&mut connection, &new.integration).await);
    connection.close().await.expect("closed");
    machine.stop().await.expect("stopped");

    // A start that never got ready must not cost the keys.
    dev::prepare(options(&folder)).await.expect("prepared").stop().await.expect("stopped");
    let (machine, third) = ready(&folder).await;
    assert_eq!(third.api_keys, new);
    machine.stop().await.expect("stopped");
}

#[tokio::test]
async fn somebody_elses_database_is_used_as_it_is() {
    let (mine, theirs) = (folder("mine"), folder("theirs"));
    let (host, _) = ready(&theirs).await;
    let url = host.cluster().expect("its own").url("another");
    let guest = |folder: &Path| Options { database_url: Some(url.clone()), ..options(folder) };
    let machine = dev::prepare(guest(&mine)).await.expect("prepared");
    assert_eq!(machine.database_url(), url);
    assert!(machine.cluster().is_none() && !mine.join("postgres").exists());
    assert_eq!(machine.demo().replaced_keys, 0);
    machine.stop().await.expect("stopped");
    // A second data dir on it knows none of the keys.
    let another = dev::prepare(guest(&folder("another"))).await.expect("prepared");
    assert_eq!(another.demo().replaced_keys, 9);
    another.stop().await.expect("stopped");
    let mut connection = PgConnection::connect(&url).await.expect("it goes on");
    connection.ping().await.expect("it goes on");
    connection.close().await.expect("closed");
    host.stop().await.expect("stopped");
}

#[tokio::test]
async fn a_taken_port_is_told_before_anything_starts() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let folder = folder("port");
    let refused = dev::prepare(Options { port, ..options(&folder) }).await.expect_err("taken");
    assert!(refused.to_string().contains("--port"), "{refused}");
    assert!(!folder.join("postgres").exists());
}

fn kill_postgres(machine: &Machine) -> u32 {
    let pid = machine.cluster().expect("its own").pid().expect("it runs");
    let status = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
    pid
}

#[tokio::test]
async fn a_postgres_that_dies_is_started_again_and_one_that_cannot_start_ends_it() {
    let folder = folder("dies");
    let (machine, record) = ready(&folder).await;
    let cluster = machine.cluster().expect("its own");
    let (data, log) = (cluster.folder().join("data"), cluster.log_path().display().to_string());
    let stop = CancellationToken::new();
    let watched = async {
        let dead = kill_postgres(&machine);
        eventually("another Postgres at the same place", async || {
            machine.cluster().and_then(Cluster::pid).is_some_and(|pid| pid != dead)
                && PgConnection::connect(&record.database_url).await.is_ok()
        })
        .await;
        stop.cancel();
    };
    let (kept, ()) = tokio::join!(machine.keep_running(&stop), watched);
    kept.expect("it went on until it was told to stop");

    fs::rename(&data, data.with_extension("away")).expect("moved away");
    kill_postgres(&machine);
    let ended = machine.keep_running(&CancellationToken::new()).await.expect_err("no data").to_string();
    assert!(ended.contains(&log), "{ended}");
    fs::rename(data.with_extension("away"), &data).expect("moved back");
    machine.stop().await.expect("nothing to stop");
    ready(&folder).await.0.stop().await.expect("a usable folder");
}

//! The private Postgres, treated as badly as a developer's machine treats it. Each test owns a folder; each leaves no
//! process behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use oncebook::dev::binaries::Binaries;
use oncebook::dev::cluster::{Cluster, Options};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

/// Where the child of [`an_owner_killed_outright_leaves_a_usable_folder`] finds its folder.
const FOLDER: &str = "ONCEBOOK_TEST_CLUSTER";

#[expect(clippy::disallowed_methods, reason = "a test has no configuration to read it in")]
fn binaries() -> Binaries {
    Binaries::find(std::env::var_os("PATH").as_deref()).expect("Postgres is installed")
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an earlier run's folder is removed");
    }
    folder
}

fn options(folder: &Path) -> Options {
    Options { data_dir: folder.to_path_buf(), settings: Vec::new(), durable: false }
}

fn start(folder: &Path) -> Cluster {
    Cluster::start(&binaries(), &options(folder)).expect("Postgres starts")
}

async fn run(url: &str, statement: &str) -> Result<Option<String>, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let rows = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(rows.first().map(|row| row.get(0)))
}

fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// An orphan may stay a zombie for as long as its new parent likes: that is dead enough.
fn alive(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if state.contains(") Z ") {
        return false;
    }
    Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status().expect("kill runs").success()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < patience, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn data_is_there_again_after_a_stop_a_crash_and_a_copy() {
    let folder = folder("life");
    let cluster = start(&folder);
    let (port, first) = (cluster.port(), cluster.pid().expect("it runs"));
    cluster.create_database("one", None).await.expect("created");
    run(&cluster.url("one"), "create table kept as select 'here' as told").await.expect("a table");
    cluster.create_database("two", Some("one")).await.expect("copied");
    assert_eq!(run(&cluster.url("two"), "select told from kept").await.expect("a row").as_deref(), Some("here"));
    cluster.drop_database("two").await.expect("dropped");
    cluster.drop_database("two").await.expect("dropped, as it was");
    run(&cluster.url("two"), "select '1'").await.expect_err("it is gone");
    cluster.create_database("three; drop", None).await.expect_err("no name");

    cluster.restart_immediate().expect("it comes back");
    assert_ne!(cluster.pid(), Some(first));
    assert_eq!(run(&cluster.url("one"), "select told from kept").await.expect("a row").as_deref(), Some("here"));
    cluster.stop().expect("it stops");
    assert!(!alive(first));

    let again = start(&folder);
    assert_eq!(again.port(), port, "a URL noted somewhere goes on working");
    assert_eq!(run(&again.url("one"), "select told from kept").await.expect("a row").as_deref(), Some("here"));
    let listens = "select current_setting('listen_addresses') || current_setting('unix_socket_directories')";
    assert_eq!(run(&again.url("one"), listens).await.expect("a row").as_deref(), Some("127.0.0.1"));
    let wrong = again.url("one").replace("oncebook:", "oncebook:x");
    run(&wrong, "select '1'").await.expect_err("the password matters");
    let pid = again.pid().expect("it runs");
    drop(again);
    assert!(!alive(pid), "dropping stops it");
}

#[test]
fn a_second_owner_is_refused_while_the_first_lives() {
    let folder = folder("owned");
    let first = start(&folder);
    let refused = Cluster::start(&binaries(), &options(&folder)).expect_err("it has an owner").to_string();
    assert!(refused.contains("in use") && refused.contains(&std::process::id().to_string()), "{refused}");
    first.stop().expect("it stops");
    start(&folder).stop().expect("free again");
}

#[tokio::test]
async fn a_postmaster_killed_outright_leaves_a_usable_folder() {
    let folder = folder("postmaster");
    let cluster = start(&folder);
    kill("-KILL", cluster.pid().expect("it runs"));
    cluster.restart_immediate().expect("started again in place");
    run(&cluster.url("postgres"), "create table kept as select 'here' as told").await.expect("a table");
    kill("-KILL", cluster.pid().expect("it runs"));
    drop(cluster);
    let again = start(&folder);
    assert_eq!(run(&again.url("postgres"), "select told from kept").await.expect("a row").as_deref(), Some("here"));
}

#[test]
fn a_folder_made_by_half_is_made_again() {
    let folder = folder("half");
    fs::create_dir_all(folder.join("data.making.1/base")).expect("what a killed initdb leaves");
    fs::write(folder.join("password"), "of the try before").expect("a file");
    start(&folder).stop().expect("it stops");
    assert!(!folder.join("data.making.1").exists());
}

/// After the machine's own death the number in the file may be anybody's, even that of a process Postgres could signal.
#[test]
fn a_stranger_under_the_number_of_a_dead_postmaster_is_left_alone() {
    let folder = folder("stranger");
    start(&folder).stop().expect("it stops");
    let owner = folder.join("data").metadata().expect("data");
    let mut sleeper = Command::new("sleep");
    sleeper.arg("60").uid(owner.uid()).gid(owner.gid()).current_dir("/");
    let mut stranger = sleeper.spawn().expect("it runs");
    let stale = format!("{}\n/elsewhere\n1764500000\n5432\n\n127.0.0.1\n  1 1\nready   \n", stranger.id());
    let file = folder.join("data/postmaster.pid");
    fs::write(&file, stale).expect("a file");
    std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).expect("as Postgres would have left it");

    start(&folder).stop().expect("it stops");

    assert!(stranger.try_wait().expect("asked").is_none(), "it goes on");
    stranger.kill().expect("killed");
    stranger.wait().expect("gone");
}

#[test]
fn a_cluster_of_another_version_is_left_alone() {
    let folder = folder("version");
    fs::create_dir_all(folder.join("data")).expect("a folder");
    fs::write(folder.join("data/PG_VERSION"), "9\n").expect("a file");
    let refused = Cluster::start(&binaries(), &options(&folder)).expect_err("too old").to_string();
    assert!(refused.contains("made by Postgres 9"), "{refused}");
}

/// A clone in root's home: Postgres's account has no way in, so the cluster goes elsewhere, and is found there again.
#[test]
fn root_is_not_kept_out_by_its_own_closed_home() {
    let closed = folder("closed");
    fs::create_dir_all(&closed).expect("a folder");
    if closed.metadata().expect("it").uid() != 0 {
        return;
    }
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).expect("closed");
    let cluster = start(&closed.join("inside"));
    let elsewhere = cluster.folder().to_path_buf();
    assert!(elsewhere.starts_with("/var/tmp"), "{}", elsewhere.display());
    cluster.stop().expect("it stops");
    let again = start(&closed.join("inside"));
    assert_eq!(again.folder(), elsewhere);
    again.stop().expect("it stops");
    fs::remove_dir_all(&elsewhere).expect("removed");
}

/// Our own SIGKILL, with and without the watch that then stops Postgres for us.
#[cfg(target_os = "linux")]
#[test]
fn an_owner_killed_outright_leaves_a_usable_folder() {
    let folder = folder("owner");
    for with_watch in [true, false] {
        let (mut owner, postmaster) = owner_of(&folder);
        if !with_watch {
            kill("-KILL", watch_of(&folder));
        }
        owner.kill().expect("killed");
        owner.wait().expect("gone");
        if with_watch {
            until("the watch stops Postgres", || !alive(postmaster));
        } else {
            assert!(alive(postmaster), "an orphan");
        }
        start(&folder).stop().expect("it stops");
        assert!(!alive(postmaster));
    }
}

/// The process that the test above kills.
#[test]
#[ignore = "started by another test, as a process of its own"]
fn owns_a_cluster_until_killed() {
    #[expect(clippy::disallowed_methods, reason = "a test has no configuration to read it in")]
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let cluster = start(Path::new(&folder));
    println!("\npostmaster {}", cluster.pid().expect("it runs"));
    std::thread::sleep(Duration::from_mins(2));
}

#[cfg(target_os = "linux")]
fn owner_of(folder: &Path) -> (Child, u32) {
    let mut owner = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "--nocapture", "cluster::owns_a_cluster_until_killed"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut said = BufReader::new(owner.stdout.take().expect("its output")).lines().map_while(Result::ok);
    let postmaster = said.find_map(|line| line.strip_prefix("postmaster ")?.parse().ok());
    (owner, postmaster.expect("it tells its postmaster"))
}

#[cfg(target_os = "linux")]
fn watch_of(folder: &Path) -> u32 {
    let folder = folder.to_str().expect("a path");
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        arguments.contains("oncebook-watch") && arguments.contains(folder)
    })
    .expect("it has a watch")
}

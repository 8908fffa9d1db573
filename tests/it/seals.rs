//! The audit's seals: whole, they say so; a row that was changed or taken away, or a seal that was, is named by the first seal
//! that does not fit.

use std::process::{Command, Output};

use jiff::SignedDuration;
use oncebook::clock::Clock;
use oncebook::store::janitor::{first_broken_seal, seal};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::app::{Trial, Visit};

/// Seals all there is, so many rows at a time; tells how many seals that made.
async fn seal_all(connection: &mut PgConnection, most: i64) -> usize {
    let now = Clock::system().now();
    let soon = now + SignedDuration::from_hours(1);
    let mut seals = 0;
    while seal(connection, soon, now, most).await.expect("sealed") > 0 {
        seals += 1;
    }
    seals
}

/// Tells how many rows it touched.
async fn execute(connection: &mut PgConnection, statement: &str) -> u64 {
    let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await;
    done.expect("done").rows_affected()
}

fn audit(url: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncebook")).args(["audit", "--database-url", url]).output().expect("it runs")
}

#[tokio::test]
async fn what_was_done_to_the_audit_is_named_by_the_first_seal_that_does_not_fit() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    for slot in 0..7 {
        trial.desk().say(&trial.book(Visit { slot, ..Visit::default() })).await.expect(201, "");
    }
    let mut connection = trial.connect().await;
    assert_eq!(first_broken_seal(&mut connection).await.expect("nothing is sealed yet"), None);
    assert_eq!(seal_all(&mut connection, 2).await, 4, "2, 2, 2 and 1");
    assert_eq!(first_broken_seal(&mut connection).await.expect("read"), None, "whole");
    // A row that is not sealed yet is nobody's.
    trial.desk().say(&trial.book(Visit { slot: 9, ..Visit::default() })).await.expect(201, "");
    assert_eq!(first_broken_seal(&mut connection).await.expect("read"), None, "whole");
    let one = "(select id from audit where seal = 3 order by id limit 1)";
    for (done, named) in [
        (format!("update audit set subject = 'nobody' where id = {one}"), 3),
        (format!("update audit set at = at - interval '1 microsecond' where id = {one}"), 3),
        (format!("update audit set code = 'slot_taken' where id = {one}"), 3),
        (format!("update audit set seal = null where id = {one}"), 3),
        (format!("update audit set seal = 2 where id = {one}"), 2),
        (format!("delete from audit where id = {one}"), 3),
        ("delete from audit where seal = 3".to_owned(), 3),
        ("delete from audit_seals where number = 3".to_owned(), 3),
        // The last one leaves no gap, but it leaves its rows.
        ("delete from audit_seals where number = 4".to_owned(), 4),
        ("update audit_seals set digest = sha256('') where number = 2".to_owned(), 2),
        ("update audit_seals set previous = sha256('') where number = 2".to_owned(), 2),
        ("update audit_seals set rows = 3 where number = 2".to_owned(), 2),
    ] {
        execute(&mut connection, "begin").await;
        assert!(execute(&mut connection, &done).await > 0, "{done}");
        assert_eq!(first_broken_seal(&mut connection).await.expect("read"), Some(named), "{done}");
        execute(&mut connection, "rollback").await;
    }
    let whole = audit(&trial.url());
    assert!(whole.status.success(), "{whole:?}");
    trial.change("update audit set operation = 'cancel' where seal = 2").await;
    let broken = audit(&trial.url());
    assert!(!broken.status.success() && String::from_utf8_lossy(&broken.stderr).contains("seal 2 "), "{broken:?}");
    connection.close().await.expect("closed");
    trial.end().await;
}

/// Gone through once for each seal, a year's audit would take days.
#[tokio::test]
async fn the_audit_is_gone_through_once_however_many_seals_it_has() {
    let trial = Trial::new().await;
    let mut connection = trial.connect().await;
    let filled = "insert into audit (tenant_id, id, at, subject, credential_id, operation, status, request_id)
                  select gen_random_uuid(), gen_random_uuid(), timestamptz '2026-01-01' + n * interval '1 second', 'somebody',
                    gen_random_uuid(), 'book', 201, gen_random_uuid()
                  from generate_series(1, 20000) as n";
    sqlx::query(filled).execute(&mut connection).await.expect("filled");
    assert_eq!(seal_all(&mut connection, 250).await, 80);
    execute(&mut connection, "begin").await;
    let fetched = "select pg_stat_get_xact_blocks_fetched('audit'::regclass), pg_relation_size('audit') / 8192";
    let before: (i64, i64) = sqlx::query_as(fetched).fetch_one(&mut connection).await.expect("counted");
    assert_eq!(first_broken_seal(&mut connection).await.expect("read"), None);
    let after: (i64, i64) = sqlx::query_as(fetched).fetch_one(&mut connection).await.expect("counted");
    let (read, pages) = (after.0 - before.0, after.1);
    assert!(read <= 2 * pages, "{read} pages of {pages} were read");
    execute(&mut connection, "rollback").await;
    connection.close().await.expect("closed");
    trial.end().await;
}

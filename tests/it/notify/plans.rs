//! The notifier's statements, planned on a schema that was never analysed, read little of full tables: see `plans.rs`.

use std::time::Duration;

use oncebook::domain::directory::Channel;
use oncebook::domain::notification::Settings;
use oncebook::store::audit::AuditNote;
use oncebook::store::directory::{Entry, Outcome};
use oncebook::store::notifications::{self, Ended, Leave, Try};
use sqlx::PgConnection;

use crate::plans::{A_VISIT, CLINIC, Early, Errand, PAGES, ROWS, TENANT, WORLD};

/// For each visit what was told, and a reminder that waits; of those, three are due. A notifier has run before.
const INTENTS: &str = "
  insert into notification_intents (tenant_id, id, clinic_id, appointment_id, schedule_version, kind, due_at, state, channel, decided_at)
  select tenant_id, gen_random_uuid(), clinic_id, id, 1, kind, case when place <= 3 then created_at else created_at + interval '1 year' end,
    case kind when 'reminder' then 'PENDING' else 'COMPLETED' end, case kind when 'reminder' then null else 'email' end,
    case kind when 'reminder' then null else created_at end
  from (
    select tenant_id, id, clinic_id, created_at, row_number() over (order by id) as place from appointments where kind = 'visit'
  ) as visits, unnest(array['confirmation', 'reminder']) as kind;
  insert into notifier_start (at) values ('2026-01-01T00:00:00Z')";

const STATEMENTS: [&str; 7] = ["claim", "leave", "end", "give_up", "due", "supersede", "settings"];

/// Runs one; tells what it came to.
async fn run(which: &str, connection: &mut PgConnection, errand: &Errand) -> usize {
    let (now, lease, nobody) = (errand.now, Duration::from_mins(1), errand.ids.uuid(errand.now));
    let this = Try { tenant_id: TENANT, id: nobody, token: nobody };
    match which {
        "claim" => notifications::claim(connection, nobody, lease, 8, now).await.expect(which).claimed.len(),
        "leave" => {
            let said = notifications::leave(connection, this, Channel::Email, lease).await.expect(which);
            usize::from(said != Leave::Late)
        }
        "end" => {
            let ended = Ended {
                state: "COMPLETED",
                reason: None,
                again_at: None,
                give_back: false,
                maybe_sent: false,
                task: None,
            };
            usize::from(notifications::end(connection, this, ended, now).await.expect(which))
        }
        "give_up" => {
            let given_up = notifications::give_up_sent(connection, &[nobody], now).await.expect(which);
            usize::try_from(given_up).expect("few")
        }
        "due" => {
            let due = notifications::due(connection, now).await.expect(which);
            usize::try_from(due.items).expect("few")
        }
        "supersede" => {
            notifications::supersede(connection, &[(TENANT, A_VISIT, 1)], now).await.expect(which);
            0
        }
        _ => {
            let note = AuditNote { id: nobody, at: now, operation: "put", asker: &errand.asker };
            let settings = Settings { reminder_hours: 48, ..Settings::unset(CLINIC) };
            usize::from(settings.write(connection, None, &note).await.expect(which) == Outcome::Done)
        }
    }
}

#[tokio::test]
async fn what_was_planned_on_empty_tables_reads_little_of_full_ones() {
    let mut early = Early::new("notifier").await;
    for which in STATEMENTS.into_iter().filter(|which| *which != "settings") {
        early.pages(async |connection, errand| _ = run(which, connection, errand).await).await;
    }
    sqlx::raw_sql(WORLD).execute(&mut early.connection).await.expect("a world");
    for which in STATEMENTS {
        early.pages(async |connection, errand| _ = run(which, connection, errand).await).await;
    }
    early.fill(1, ROWS).await;
    sqlx::raw_sql(INTENTS).execute(&mut early.connection).await.expect("intents");
    let mut much = Vec::new();
    for which in STATEMENTS {
        let mut came = 0;
        let pages = early.pages(async |connection, errand| came = run(which, connection, errand).await).await;
        let sum: i64 = pages.values().sum();
        println!("{which}: {came} from {sum} pages {pages:?}");
        assert_eq!(
            came,
            [("claim", 3), ("due", 3), ("settings", 1)].into_iter().find(|it| it.0 == which).map_or(0, |it| it.1)
        );
        if sum > PAGES {
            much.push(format!("{which} read {sum} pages: {pages:?}"));
        }
    }
    assert!(much.is_empty(), "{much:#?}");
    early.end().await;
}

//! The same of webhooks (`event_plans.rs`): planned while everything was empty, run when an endpoint has a month behind it.

use std::time::Duration;

use jiff::Timestamp;
use oncebook::clock::{Clock, Ids};
use oncebook::domain::webhook::DeliveryState;
use oncebook::store::deliveries::{self, Breaker, Ended, Reach, Wanted};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::plans::{Early, PAGES, TENANT, WORLD};

const ENDPOINT: Uuid = Uuid::from_u128(9);

/// Deliveries a statement is about.
const BATCH: usize = 8;

/// Two endpoints with twenty thousand deliveries each, one in five hundred not through: at work with its lease up, given up, or due.
const MONTH: &str = "
  insert into webhook_endpoints (tenant_id, id, url, description, active, secret, created_by, created_at, updated_at)
  select c.tenant_id, lpad(n, 32, '0')::uuid, 'https://example.org/', '', true, 'sealed', 'test', c.created_at, c.created_at
  from clinics c, unnest(array['9', '8']) as n;
  insert into webhook_deliveries (tenant_id, endpoint_id, event_id, clinic_id, subject_kind, subject_id, sequence, type, payload,
    occurred_at, state, attempts, first_attempt_at, next_attempt_at, token, lease_until, queued_at, ended_at)
  select e.tenant_id, e.id, lpad(to_hex(n), 32, '0')::uuid, lpad('2', 32, '0')::uuid, 'appointment',
    lpad(to_hex(n / 5), 32, '0')::uuid, n % 5 + 1, 'appointment.booked', '{}', at, s.state, 1, at,
    case when s.state = 'PENDING' then at end, case when s.state = 'SENT' then e.id end, case when s.state = 'SENT' then at end, at,
    case when s.state in ('DELIVERED', 'GIVEN_UP') then at end
  from webhook_endpoints e, generate_series(1, 20000) as n
  cross join lateral (select now() - interval '30 days' + n * interval '2 minutes' as at) as t
  cross join lateral (select case n % 1500 when 500 then 'PENDING' when 1000 then 'GIVEN_UP' when 1499 then 'SENT' else 'DELIVERED' end
    as state) as s;
  insert into webhook_attempts (tenant_id, endpoint_id, event_id, attempt, started_at)
  select tenant_id, endpoint_id, event_id, 1, occurred_at from webhook_deliveries";

const STATEMENTS: [&str; 9] =
    ["claim", "finish", "rescue", "cancel", "due", "list", "list GIVEN_UP", "list PENDING", "list of a clinic"];

/// Runs one of them; tells how much came of it.
async fn run(which: &str, connection: &mut PgConnection, now: Timestamp, token: Uuid) -> usize {
    let minute = Duration::from_mins(1);
    let list = |state, clinics| Wanted { before: None, state, clinics };
    let few = |count: i64| usize::try_from(count).expect("few");
    let wanted = match which {
        "claim" => {
            let reach = Reach { lease: minute, most: 8, of_one: 100, doubtful_from: 2 };
            return deliveries::claim(connection, token, reach, now).await.expect(which).len();
        }
        "finish" => {
            let ended = &Ended {
                tenant: TENANT,
                endpoint: ENDPOINT,
                version: 1,
                // The 1499th is at work, under its endpoint's id.
                event: Uuid::from_u128(1499),
                token: ENDPOINT,
                outcome: "gone",
                status: Some(410),
                took: minute,
                state: DeliveryState::GivenUp,
                pause: None,
                receivers_pause: None,
                ids: [token; 3],
            };
            let breaker = Breaker { from: 5, longest: minute, disabled_after: minute };
            return usize::from(deliveries::finish(connection, ended, breaker, now).await.expect(which).is_some());
        }
        "rescue" => return few(deliveries::rescue(connection, 8).await.expect(which)),
        "cancel" => {
            let quiet = "update webhook_endpoints set active = false where id = $1 and tenant_id = $2";
            sqlx::query(quiet).bind(ENDPOINT).bind(TENANT).execute(&mut *connection).await.expect("quiet");
            let cancelled = deliveries::cancel(connection, now, 8).await.expect(which);
            return usize::try_from(cancelled).expect("few");
        }
        "due" => {
            let due = deliveries::due(connection, 100, 2).await.expect(which);
            return usize::try_from(due.items).expect("few");
        }
        "list GIVEN_UP" => list(Some(DeliveryState::GivenUp), None),
        "list PENDING" => list(Some(DeliveryState::Pending), None),
        "list of a clinic" => list(None, Some(&[crate::plans::CLINIC][..])),
        _ => list(None, None),
    };
    deliveries::list(connection, (TENANT, ENDPOINT), wanted, 8).await.expect(which).len()
}

#[tokio::test]
async fn webhooks_were_planned_on_empty_tables_and_read_little_of_full_ones() {
    let mut early = Early::new("webhooks").await;
    let (ids, now) = (Ids::seeded(3), Clock::system().now());
    for which in STATEMENTS {
        early.pages(async |connection, _| _ = run(which, connection, now, ids.uuid(now)).await).await;
    }
    sqlx::raw_sql(WORLD).execute(&mut early.connection).await.expect("a world");
    sqlx::raw_sql(MONTH).execute(&mut early.connection).await.expect("a month");
    let mut much = Vec::new();
    for which in STATEMENTS {
        let (mut came, token) = (0, ids.uuid(now));
        let pages = early.pages(async |connection, _| came = run(which, connection, now, token).await).await;
        let sum: i64 = pages.values().sum();
        println!("{which}: {came} from {sum} pages {pages:?}");
        let least = if which == "finish" { 1 } else { BATCH };
        assert!(came >= least, "{which}: {came}");
        if sum > PAGES * 4 {
            much.push(format!("{which} read {sum} pages: {pages:?}"));
        }
    }
    assert!(much.is_empty(), "{much:#?}");
    early.end().await;
}

//! Lists that begin in the middle: today's blocks behind years of others, and a history longer than a page.

use jiff::{SignedDuration, Timestamp};
use oncebook::clock::Clock;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::app::{Trial, Visit};
use crate::client::{Call, Desk};

/// Follows a list to its end; tells the pages.
async fn pages(desk: &Desk, path: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let page = desk.say(&Call::get(format!("{path}{after}"))).await.expect(200, "").json();
        pages.push(page["items"].as_array().expect("items").clone());
        let Some(next) = page["next"].as_str() else { return pages };
        after = format!("&after={next}");
    }
}

async fn ids(desk: &Desk, path: &str) -> Vec<Uuid> {
    let items = pages(desk, path).await.concat();
    items.iter().map(|item| item["id"].as_str().and_then(|id| id.parse().ok()).expect("an id")).collect()
}

/// Blocks of a quarter hour, each other one removed: 6000 up to yesterday, then as many removed ones from tomorrow on.
const FILLED: &str = "
  insert into appointments (tenant_id, id, clinic_id, kind, practitioner_id, during, busy, time_zone, local_start, status,
    holds_slot, overbooked, version, schedule_version, source, created_at, updated_at)
  select tenant_id, gen_random_uuid(), clinic_id, 'block', practitioner_id, span, span, 'UTC', lower(span)::timestamp,
    case when holds then 'booked' else 'cancelled' end, holds, false, 1, 1, 'filled', now(), now()
  from (select tenant_id, clinic_id, practitioner_id from practitioner_clinics
        where practitioner_id = 'PRACTITIONER' and clinic_id = 'CLINIC') as m
  cross join generate_series(1, 6000) as n
  cross join lateral (values (now() - interval '1 day' - n * interval '15 minutes', n % 2 = 0),
                             (now() + interval '1 day' + n * interval '15 minutes', false)) as v(start, holds)
  cross join lateral (select tstzrange(start, start + interval '15 minutes') as span) as s";

#[tokio::test]
async fn todays_blocks_are_on_the_first_page_whatever_has_been() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    let (desk, demo) = (trial.desk(), trial.demo.clone());
    let filled = FILLED.replace("PRACTITIONER", &demo.practitioner_ids[0].to_string());
    trial.change(&filled.replace("CLINIC", &demo.clinic_id.to_string())).await;
    let now = Clock::system().now();
    let block = async |desk: &Desk, resources: Value, start: i64, end: i64| {
        let [start, end] = [start, end].map(|hours| now + SignedDuration::from_hours(hours));
        let mut body = json!({ "clinic_id": demo.clinic_id, "start": start, "end": end });
        body.as_object_mut().expect("members").extend(resources.as_object().expect("members").clone());
        desk.say(&Call::post("/v1/blocks", body)).await.expect(201, "").id()
    };
    let practitioner = |n: usize| json!({ "practitioner_id": demo.practitioner_ids[n] });
    let both = json!({ "practitioner_id": demo.practitioner_ids[2], "operatory_id": demo.operatory_ids[2] });
    let leave = block(&desk, practitioner(1), -24 * 7, 24).await;
    let painted = block(&desk, both, -2, 2).await;
    let soon = block(&desk, practitioner(0), 1, 2).await;
    let closed = block(&desk, json!({ "operatory_id": demo.operatory_ids[0] }), 3, 4).await;
    let later = block(&desk, practitioner(3), 24 * 300, 24 * 301).await;
    let removed = block(&desk, practitioner(4), -1, 4).await;
    desk.say(&Call::delete(format!("/v1/blocks/{removed}"))).await.expect(204, "");
    // At the other clinic, by somebody who works at both.
    let admin = trial.desk_of(&demo.api_keys.admin);
    let elsewhere = json!({ "clinic_id": demo.other_clinic_id, "practitioner_id": demo.practitioner_ids[5] });
    block(&admin, elsewhere, -1, 1).await;

    let list = |rest: String| format!("/v1/blocks?clinic_id={}{rest}", demo.clinic_id);
    let from = |hours: i64| format!("&from={}", now + SignedDuration::from_hours(hours));
    let to = |at: Timestamp| format!("&to={at}");
    let wanted = [leave, painted, soon, closed, later];
    let first = desk.say(&Call::get(list(from(0)))).await.expect(200, "").json();
    assert_eq!((first["items"].as_array().map(Vec::len), first["next"].is_null()), (Some(5), true));
    for limit in [1, 2, 3, 200] {
        assert_eq!(ids(&desk, &list(format!("{}&limit={limit}", from(0)))).await, wanted, "{limit}");
    }
    // Ends are half-open, as the stretches are: what begins at the instant is there, what ends at it is not.
    assert_eq!(ids(&desk, &list(from(1))).await, wanted);
    assert_eq!(ids(&desk, &list(from(2))).await, [leave, closed, later]);
    assert_eq!(
        ids(&desk, &list(format!("{}{}", from(0), to(now + SignedDuration::from_mins(30))))).await,
        [leave, painted]
    );
    let of = |field: &str, id: Uuid| list(format!("{}&{field}={id}", from(0)));
    assert_eq!(ids(&desk, &of("practitioner_id", demo.practitioner_ids[2])).await, [painted]);
    assert_eq!(ids(&desk, &of("operatory_id", demo.operatory_ids[0])).await, [closed]);
    // From the first on, all that stands: 3000, and these; the leave began among them.
    let all = ids(&desk, &list("&limit=200".to_owned())).await;
    assert_eq!((all.len(), &all[3001..]), (3005, &wanted[1..]), "in order of their start");
    assert!(all[..3001].contains(&leave));
    trial.change("delete from appointments where source = 'filled'").await;
    trial.end().await;
}

#[tokio::test]
async fn a_history_longer_than_a_page_is_told_in_pages() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    let desk = trial.desk();
    let [id, other] = [0, 1].map(|slot| trial.book(Visit { slot, ..Visit::default() }));
    let (id, other) = (desk.say(&id).await.expect(201, "").id(), desk.say(&other).await.expect(201, "").id());
    for n in 2..=203 {
        let note = json!({ "note": format!("note {n}") });
        desk.say(&Call::patch(format!("/v1/appointments/{id}"), note)).await.expect(200, "");
    }
    let path = format!("/v1/appointments/{id}/history?");
    let versions = |page: &[Value]| page.iter().filter_map(|item| item["version"].as_i64()).collect::<Vec<_>>();
    for (limit, lengths) in [("", vec![200, 3]), ("limit=200", vec![200, 3]), ("limit=100", vec![100, 100, 3])] {
        let pages = pages(&desk, &format!("{path}{limit}")).await;
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{limit}");
        assert_eq!(versions(&pages.concat()), (1..=203).collect::<Vec<_>>(), "{limit}");
    }
    let exactly = desk.say(&Call::get(format!("/v1/appointments/{other}/history?limit=1"))).await.expect(200, "");
    assert_eq!((exactly.json()["items"].as_array().map(Vec::len), exactly.json()["next"].is_null()), (Some(1), true));

    // A cursor is a place in this history and in no other; the limit is what it is everywhere.
    let next = desk.say(&Call::get(format!("{path}limit=1"))).await.json()["next"].as_str().expect("more").to_owned();
    let elsewhere = format!("/v1/appointments/{other}/history?after={next}");
    desk.say(&Call::get(elsewhere)).await.expect(400, "cursor_invalid");
    for limit in ["0", "201", "many"] {
        desk.say(&Call::get(format!("{path}limit={limit}"))).await.expect(400, "malformed_request");
    }
    let nobody = format!("/v1/appointments/{}/history", Uuid::nil());
    desk.say(&Call::get(nobody)).await.expect(404, "not_found");
    trial.end().await;
}

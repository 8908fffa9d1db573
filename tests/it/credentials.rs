//! Keys that are replaced: the one in use goes on working for a while, no other does.

use serde_json::json;
use uuid::Uuid;

use crate::app::Trial;
use crate::client::Call;

#[tokio::test]
async fn a_second_rotation_keeps_the_secret_in_use_and_ends_the_one_before() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    let admin = trial.desk_of(&trial.demo.api_keys.admin);
    let asked = json!({ "name": "Tablet", "subject": "system:tablet", "roles": ["FRONT_DESK"] });
    let made = admin.say(&Call::post("/v1/credentials", asked)).await.expect(201, "");
    let key = |heard: &crate::client::Heard| heard.json()["api_key"].as_str().expect("a key").to_owned();
    let rotate =
        |keep| Call::post(format!("/v1/credentials/{}/rotate", made.id()), json!({ "keep_old_seconds": keep }));
    // A visit that is not there is 404 to who is let in.
    let works = async |key: &str| {
        let nothing = Call::get(format!("/v1/appointments/{}", Uuid::nil()));
        trial.desk_of(key).say(&nothing).await.status == 404
    };
    let first = key(&made);
    let second = key(&admin.say(&rotate(3600)).await.expect(200, ""));
    assert_eq!((works(&first).await, works(&second).await), (true, true));
    let answer = admin.say(&rotate(3600)).await.expect(200, "");
    let third = key(&answer);
    assert_eq!((works(&first).await, works(&second).await, works(&third).await), (false, true, true));
    let until: jiff::Timestamp =
        answer.json()["previous_secret_until"].as_str().and_then(|until| until.parse().ok()).expect("a time");

    // Its time ends, for the second as it would have for the first.
    let now = oncebook::clock::Clock::system().now();
    assert!(until > now && until <= now + jiff::SignedDuration::from_hours(1), "{until}");
    trial.change("update credentials set previous_secret_until = '2026-01-01' where name = 'Tablet'").await;
    assert_eq!((works(&first).await, works(&second).await, works(&third).await), (false, false, true));

    // Kept for no time at all, the one in use ends at once.
    let fourth = key(&admin.say(&rotate(0)).await.expect(200, ""));
    assert_eq!((works(&second).await, works(&third).await, works(&fourth).await), (false, false, true));
    trial.end().await;
}

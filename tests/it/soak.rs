//! The long versions, which hold times to their limits: `make soak`, in a release build on a machine with nothing else to
//! do. In an ordinary run each shows as ignored.

use oncebook::clock::Ids;

use crate::figures::LONG;
use crate::{held, malformed, model, races, repeats, storm};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make soak"]
async fn races_of_fifty_rounds() {
    races::one_slot_by_booking(LONG).await;
    races::one_slot_by_moving(LONG).await;
    races::one_slot_by_both(LONG).await;
    races::two_by_two(LONG).await;
    races::one_appointment_moved_by_all(LONG).await;
    races::ordinary_against_overbooked(LONG).await;
    races::one_key_for_two_things(LONG).await;
    races::one_key_for_one_thing(LONG).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make soak"]
async fn duplicates_of_a_held_key_beside_another_caller() {
    held::duplicates_wait_and_nobody_notices(LONG).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make soak"]
async fn a_hundred_thousand_malformed_requests() {
    malformed::nonsense(100_000, Ids::random().below(1 << 20)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make soak"]
async fn a_storm_of_minutes() {
    // Another one each time; it says which.
    storm::storm(LONG, Ids::random().below(u64::MAX)).await;
}

#[tokio::test]
#[ignore = "make soak"]
async fn walks_from_forty_seeds() {
    for seed in 100..140 {
        model::walk(seed, seed % 2 == 0).await;
    }
}

#[tokio::test]
#[ignore = "make soak"]
async fn a_million_events_twice_and_shuffled() {
    repeats::twice_and_shuffled(1_000_000).await;
}

//! The service dies, or its caller does, at every point of a command: a retry under the same key finds out what happened,
//! and the appointment changed once. CONFORMANCE.md's cases 19, 20, 21 and 23.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use oncebook::clock::Ids;
use oncebook::command::book::Book;
use oncebook::command::run::Commands;
use oncebook::command::transition::{To, Transition};
use oncebook::command::{Command, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::app::{Setup, Trial, Visit, asked, eventually, reschedule, slot, step};
use crate::clean::{done_by, stored};
use crate::client::Call;
use crate::wire::{Act, Statement, Wire};

/// What the process has yet to do when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// The commit has not left.
    Commit,
    /// Postgres has executed it, and the service has not heard.
    Answer,
    /// The answer has reached the service's machine; not a byte of the response has left.
    Response,
}

/// Sends the call to a process that is killed at that point; tells what a process started after it answers at once.
async fn killed_at(point: Point, trial: &Trial, call: &Call) -> (u16, bool) {
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let process = trial.process_with(&wire.url(&trial.url()), &[]).await;
    let act = if point == Point::Commit { Act::HoldBefore } else { Act::HoldAnswer };
    let caught = wire.next(Statement::Commit, act);
    let (desk, first) = (trial.desk_at(&process.base), call.clone());
    let mut asking = JoinSet::new();
    asking.spawn(async move { desk.try_say(&first).await });
    caught.reached().await;
    if point == Point::Response {
        process.signal("STOP").await;
        caught.go_on();
        caught.passed().await;
    }
    process.kill().await;
    caught.cut();
    let heard = asking.join_all().await.remove(0);
    assert!(heard.is_err(), "{point:?}: {heard:?}");
    let process = trial.process().await;
    let heard = trial.desk_at(&process.base).say(call).await;
    assert!(heard.took < Duration::from_secs(1), "nothing is waited for: {:?}", heard.took);
    process.stop().await;
    (heard.status, heard.replayed())
}

#[tokio::test]
async fn case_19_killed_outright_around_the_commit() {
    let mut trial = Trial::new().await;
    trial.serve(trial.setup()).await;
    let mut connection = trial.connect().await;
    for (n, point) in [Point::Commit, Point::Answer, Point::Response].into_iter().enumerate() {
        let visit = Visit { slot: n * 8, ..Visit::default() };
        let moved = trial.desk().say(&trial.book(Visit { slot: n * 8 + 1, ..visit })).await.expect(201, "").id();
        let calls = [(trial.book(visit), 201), (reschedule(moved, n * 8 + 2), 200), (step(moved, "cancel"), 200)];
        for (call, status) in calls {
            let answer = killed_at(point, &trial, &call).await;
            assert_eq!(answer, (status, point != Point::Commit), "{point:?} {call:?}");
            assert_eq!(done_by(&mut connection, call.key.as_deref().expect("a key")).await, 1, "{point:?} {call:?}");
        }
    }
    drop(connection);
    trial.end().await;
}

/// Runs a command until it has been suspended `most` times, and drops it there. Tells whether it got to its end.
async fn dropped_after<C: Command>(most: usize, commands: &Commands, request: &Request, command: &C) -> bool {
    let mut running = pin!(commands.perform(request, command));
    let mut suspended = 0;
    std::future::poll_fn(|context| match running.as_mut().poll(context) {
        std::task::Poll::Ready(_) => std::task::Poll::Ready(true),
        std::task::Poll::Pending if suspended == most => std::task::Poll::Ready(false),
        std::task::Poll::Pending => {
            suspended += 1;
            std::task::Poll::Pending
        }
    })
    .await
}

/// For every number of suspensions: makes a command, drops it there, tries again, and looks at what was done.
async fn dropped_everywhere<C: Command + Clone>(
    trial: &mut Trial,
    setup: &Setup,
    cold: bool,
    mut make: impl AsyncFnMut(&Trial, usize) -> C,
    status: u16,
) -> usize {
    let mut connection = trial.connect().await;
    for most in 0.. {
        let command = make(trial, most).await;
        let app = if cold || trial.services().is_empty() {
            trial.serve(setup.clone()).await
        } else {
            Arc::clone(&trial.services().last().expect("one").app)
        };
        let key = format!("dropped-{}-{most}-{}", command.operation(), Ids::random().below(u64::MAX));
        let request = asked(&trial.demo.api_keys.front_desk, &key);
        let ended = dropped_after(most, &app.commands, &request, &command).await;
        let answer = app.commands.execute(request.clone(), command.clone()).await.expect("an answer");
        let again = app.commands.execute(request, command).await.expect("an answer");
        assert_eq!((answer.reply.status, again.replayed), (status, true), "{key}");
        assert_eq!(answer.reply, again.reply, "{key}");
        assert_eq!(done_by(&mut connection, &key).await, 1, "{key}");
        if ended {
            return most;
        }
    }
    unreachable!("every command ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_20_dropped_at_every_suspension() {
    let mut trial = Trial::new().await;
    // Over a long wire every answer is waited for, so what can be suspended is, each time.
    let wire = Wire::long(trial.ground().cluster.port(), Duration::from_millis(3)).await;
    let setup = Setup { url: wire.url(&trial.url()), ..trial.setup() };
    let mut next = 0;
    let mut book = async |trial: &Trial, _: usize| {
        next += 1;
        command(trial, next)
    };
    let cold = Box::pin(dropped_everywhere(&mut trial, &setup, true, &mut book, 201)).await;
    let warm = Box::pin(dropped_everywhere(&mut trial, &setup, false, &mut book, 201)).await;
    let mut cancel = async |trial: &Trial, _: usize| {
        next += 1;
        let booked = trial.desk().say(&trial.book(Visit { slot: next, ..Visit::default() })).await.expect(201, "");
        Transition { id: booked.id(), to: To::Cancelled { reason: None } }
    };
    let cancelling = Box::pin(dropped_everywhere(&mut trial, &setup, false, &mut cancel, 200)).await;
    println!("suspensions: booking {cold} cold, {warm} warm; cancelling {cancelling}");
    // The look and the commit are a suspension each, opening a connection some more: fewer, and this proved nothing.
    assert!(cold > 4 && warm >= 2 && cancelling >= 2, "{cold} {warm} {cancelling}");
    trial.end().await;
    drop(wire);
}

/// The booking of a slot, as the edge hands it over.
fn command(trial: &Trial, n: usize) -> Book {
    Book {
        clinic_id: trial.demo.clinic_id,
        patient_id: trial.demo.patient_ids[0],
        practitioner_id: trial.demo.practitioner_ids[0],
        operatory_id: None,
        service_id: trial.demo.service_ids[0],
        start: slot(n),
        time_zone: None,
        note: None,
        overbook: false,
        external: None,
    }
}

#[tokio::test]
async fn case_21_a_caller_that_hangs_up_does_not_stop_its_command() {
    let mut trial = Trial::new().await;
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let setup = trial.setup();
    trial.serve(Setup { url: wire.url(&setup.url), ..setup }).await;
    let mut connection = trial.connect().await;
    for (n, on) in [Statement::Look, Statement::Commit].into_iter().enumerate() {
        let call = trial.book(Visit { slot: n, ..Visit::default() });
        let caught = wire.next(on, Act::HoldBefore);
        let address = trial.services()[0].base.strip_prefix("http://").expect("a URL").to_owned();
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(&call.bytes(&trial.demo.api_keys.front_desk)).await.expect("sent");
        caught.reached().await;
        drop(stream);
        caught.go_on();
        let key = call.key.clone().expect("a key");
        eventually("the command finishes", async || stored(&mut connection, &key).await.is_some()).await;
        assert!(trial.desk().say(&call).await.expect(201, "").replayed());
    }
    drop(connection);
    trial.end().await;
}

#[tokio::test]
async fn case_23_asked_to_go_it_finishes_what_runs_and_refuses_what_comes() {
    let trial = Trial::new().await;
    let wire = Wire::to(trial.ground().cluster.port()).await;
    let process = trial.process_with(&wire.url(&trial.url()), &[]).await;
    let address = process.base.strip_prefix("http://").expect("a URL").to_owned();
    let desk = trial.desk_at(&process.base);
    let call = trial.book(Visit::default());
    // An idle connection, and one that never gets its request out, are no reason to stay.
    let idle = TcpStream::connect(&address).await.expect("connected");
    let mut half = TcpStream::connect(&address).await.expect("connected");
    half.write_all(b"POST /v1/appointments HTTP/1.1\r\nhost: oncebook\r\n").await.expect("sent");
    let caught = wire.next(Statement::Commit, Act::HoldBefore);
    let mut asking = JoinSet::new();
    for _ in 0..6 {
        let (desk, call) = (desk.clone(), call.clone());
        asking.spawn(async move { desk.say(&call).await });
    }
    caught.reached().await;
    process.signal("TERM").await;
    eventually("nobody is let in", async || TcpStream::connect(&address).await.is_err()).await;
    caught.go_on();
    let heard = asking.join_all().await;
    assert_eq!(heard.iter().filter(|heard| heard.status == 201 && !heard.replayed()).count(), 1, "the owner finishes");
    for heard in heard {
        let fine = heard.status == 201 || (heard.status == 503 && heard.header("retry-after").is_some());
        assert!(fine, "{heard:?}");
    }
    process.gone().await;
    drop(idle);
    assert_eq!(half.read(&mut [0; 1]).await.unwrap_or(0), 0, "closed");
    let process = trial.process().await;
    assert!(trial.desk_at(&process.base).say(&call).await.expect(201, "").replayed());
    process.stop().await;
    trial.end().await;
}

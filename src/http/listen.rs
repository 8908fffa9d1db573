//! Connections: accepted, bounded in number and in patience, and let finish when the service stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Connections at the same time; more wait to be accepted.
const CONNECTIONS: usize = 4096;

/// A connection that has not sent a whole request head for this long is closed; idle ones are too.
const HEAD_PATIENCE: Duration = Duration::from_mins(1);

/// A request's head, in bytes: with a cookie or two and a long query there is room to spare.
const LARGEST_HEAD: usize = 64 * 1024;

/// A caller that does not take its answer for this long is cut off, or it would keep its place for ever.
#[cfg(target_os = "linux")]
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// After the stop, connections may finish what they are at for this long: a command's deadline and some.
const FINISH_PATIENCE: Duration = Duration::from_secs(8);

/// Serves until told to stop; then accepts nothing more and lets requests in hand finish.
pub async fn serve(listener: TcpListener, router: Router, tasks: TaskTracker, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let closing = CancellationToken::new();
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, (stream, peer)) = tokio::select! {
            () = stop.cancelled() => break,
            (place, accepted) = next => match accepted {
                Ok(accepted) => (place, accepted),
                Err(error) => {
                    // Out of file handles, or a caller gone before it was accepted. Neither is helped by haste.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let connection = graceful.watch(connection(stream, peer, router.clone()));
        let closed = closing.clone();
        tasks.spawn(async move {
            // A broken connection is its caller's affair; what they asked for runs to its end in a task of its own.
            let _ = closed.run_until_cancelled(connection).await;
            drop(place);
        });
    }
    drop(listener);
    if timeout(FINISH_PATIENCE, graceful.shutdown()).await.is_err() {
        // Half a request, or a caller that does not read its answer: neither may hold up the end of the process.
        tracing::warn!("connections did not finish in time");
        closing.cancel();
    }
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> {
    // Small answers should not wait for more to send. A socket that cannot be set up shows in its first use.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(READ_PATIENCE));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    http1::Builder::new()
        .max_buf_size(LARGEST_HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
}

//! Connections: accepted, bounded in number and in patience, and let finish when the service stops.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use tower::ServiceExt;

use super::edge::network;
use crate::app::App;

/// Connections at the same time; more wait to be accepted.
const CONNECTIONS: usize = 4096;

/// Connections from one address at the same time, proxies that are trusted aside; more are closed at once. One caller alone
/// must not keep everyone else from being accepted.
const CONNECTIONS_OF_ONE: usize = CONNECTIONS / 4;

/// A connection that has not sent a whole request head for this long is closed; idle ones are too.
const HEAD_PATIENCE: Duration = Duration::from_mins(1);

/// A request's head, in bytes: with a cookie or two and a long query there is room to spare.
const LARGEST_HEAD: usize = 64 * 1024;

/// A caller that does not take its answer for this long is cut off, or it would keep its place for ever.
#[cfg(target_os = "linux")]
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// After the stop, connections may finish what they are at for as long as a command takes, and this much more.
const FINISH_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until told to stop; then accepts nothing more and lets requests in hand finish.
pub async fn serve(listener: TcpListener, router: Router, app: Arc<App>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let callers = Arc::new(Callers::default());
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
        let trusted = app.config.trusted_proxies.contains(&peer.ip().to_canonical());
        let Some(caller) = callers.enter(peer.ip(), if trusted { CONNECTIONS } else { CONNECTIONS_OF_ONE }) else {
            tracing::debug!(%peer, "too many connections from one address");
            continue;
        };
        let connection = graceful.watch(connection(stream, peer, router.clone()));
        let closed = closing.clone();
        app.tasks.spawn(async move {
            // A broken connection is its caller's affair; what they asked for runs to its end in a task of its own.
            let _ = closed.run_until_cancelled(connection).await;
            drop((place, caller));
        });
    }
    drop(listener);
    if timeout(app.config.command_timeout + FINISH_PATIENCE, graceful.shutdown()).await.is_err() {
        // Half a request, or a caller that does not read its answer: neither may hold up the end of the process.
        tracing::warn!("connections did not finish in time");
        closing.cancel();
    }
}

/// Who is connected, and how often.
#[derive(Default)]
struct Callers(Mutex<HashMap<IpAddr, usize>>);

/// One connection of theirs. It ends when dropped.
struct Entered(Arc<Callers>, IpAddr);

impl Callers {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one more of an address in, unless it has `most`.
    fn enter(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Entered> {
        let address = network(address);
        let mut callers = self.lock();
        let connections = callers.entry(address).or_default();
        (*connections < most).then(|| {
            *connections += 1;
            Entered(Arc::clone(self), address)
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Entry::Occupied(mut connections) = self.0.lock().entry(self.1) {
            *connections.get_mut() -= 1;
            if *connections.get() == 0 {
                connections.remove();
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_so_many_places_and_gets_them_back() {
        let callers = Arc::new(Callers::default());
        let [one, other]: [IpAddr; 2] = ["203.0.113.9", "203.0.113.10"].map(|text| text.parse().expect("an address"));
        let entered: Vec<_> = (0..3).map(|_| callers.enter(one, 2)).collect();
        assert_eq!(entered.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
        assert!(callers.enter(other, 2).is_some());
        drop(entered);
        assert!(callers.enter(one, 2).is_some());
        assert!(callers.lock().is_empty(), "nobody who is gone is remembered");
    }
}

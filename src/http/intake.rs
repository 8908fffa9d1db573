//! A request's body, taken in whole before anything is said of the request.
//!
//! A refusal sent while the caller still sends would close the connection under it, and the caller would see a broken
//! connection instead of the refusal. So a body is read to its end, kept up to the limit and let go beyond it.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::timeout;

/// Largest body, in bytes (API.md, "Problems").
const LARGEST: usize = 64 * 1024;

/// Of a larger one so much is read and let go; who sends more finds the connection closed.
const LET_GO: usize = 16 * 1024 * 1024;

/// A body that has not arrived whole by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came.
#[derive(Clone, Debug)]
pub enum Intake {
    /// All of it.
    Whole(Vec<u8>),
    /// More than is taken.
    TooLarge,
    /// A part, and then nothing.
    Broken,
}

/// Takes the body in; the handlers find it among the request's extensions.
pub async fn intake(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(take(body, PATIENCE).await);
    next.run(Request::from_parts(parts, Body::empty())).await
}

async fn take(body: Body, patience: Duration) -> Intake {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    // By its own account so much that its end would not be waited for: nor is its start.
    if announced >= LET_GO {
        return Intake::TooLarge;
    }
    let mut came = Came::default();
    let whole = timeout(patience, came.all_of(body)).await.unwrap_or(false);
    // A body may be too large by what was announced or by what came of it; then its end makes no difference.
    match came {
        Came { seen, .. } if seen.max(announced) > LARGEST => Intake::TooLarge,
        Came { kept, .. } if whole => Intake::Whole(kept),
        Came { .. } => Intake::Broken,
    }
}

/// What has come so far.
#[derive(Default)]
struct Came {
    seen: usize,
    /// All of that, up to the limit.
    kept: Vec<u8>,
}

impl Came {
    /// Says whether it came to its end.
    async fn all_of(&mut self, mut body: Body) -> bool {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            let Some(data) = frame.data_ref() else { continue };
            self.seen += data.len();
            if self.seen <= LARGEST {
                self.kept.extend_from_slice(data);
            } else {
                self.kept = Vec::new();
            }
            if self.seen > LET_GO {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::Bytes;
    use hyper::body::{Frame, SizeHint};

    use super::*;

    /// Announces so much, if anything, sends so much, and then nothing more.
    struct Stalling {
        announced: Option<usize>,
        sends: usize,
    }

    impl hyper::body::Body for Stalling {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match std::mem::take(&mut self.sends) {
                0 => Poll::Pending,
                sends => Poll::Ready(Some(Ok(Frame::data(vec![b' '; sends].into())))),
            }
        }

        fn size_hint(&self) -> SizeHint {
            self.announced.map_or_else(SizeHint::default, |announced| SizeHint::with_exact(announced as u64))
        }
    }

    #[tokio::test]
    async fn a_body_that_never_ends_is_too_large_once_that_is_known() {
        for (announced, sends, too_large) in [
            (Some(LARGEST + 1), 0, true),
            (Some(LARGEST + 1), 1, true),
            (None, LARGEST + 1, true),
            (Some(usize::MAX), 0, true),
            (Some(LARGEST), 1, false),
            (None, LARGEST, false),
        ] {
            let taken = take(Body::new(Stalling { announced, sends }), Duration::from_millis(10)).await;
            let what = format!("{announced:?} announced, {sends} sent: {taken:?}");
            assert!(
                if too_large { matches!(taken, Intake::TooLarge) } else { matches!(taken, Intake::Broken) },
                "{what}"
            );
        }
    }
}

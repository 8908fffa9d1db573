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
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let taken = match announced {
        // By its own account so much that its end would not be waited for: nor is its start.
        LET_GO.. => Intake::TooLarge,
        _ => timeout(PATIENCE, take(body)).await.unwrap_or(Intake::Broken),
    };
    parts.extensions.insert(taken);
    next.run(Request::from_parts(parts, Body::empty())).await
}

async fn take(mut body: Body) -> Intake {
    let mut kept = Vec::new();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Intake::Broken };
        let Some(data) = frame.data_ref() else { continue };
        seen += data.len();
        if seen <= LARGEST {
            kept.extend_from_slice(data);
        } else {
            kept = Vec::new();
        }
        if seen > LET_GO {
            break;
        }
    }
    if seen > LARGEST { Intake::TooLarge } else { Intake::Whole(kept) }
}

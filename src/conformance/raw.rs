//! HTTP/1.1 by hand: header bytes no client library would send, two lines of one header, a body without a length.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// More than any answer of ours: what comes beyond it is no answer.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// A parsed answer. Names are lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Why there was no answer.
pub(super) type Lost = Box<dyn std::error::Error + Send + Sync>;

/// A request, byte by byte; its body gets a `Content-Length` unless the headers say how it is framed.
pub(super) fn request(
    method: &str,
    host: &str,
    path: &str,
    headers: &[(String, Vec<u8>)],
    body: Option<&[u8]>,
) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n").into_bytes();
    let named = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    let body = body.unwrap_or_default();
    if named("transfer-encoding") {
        bytes.extend_from_slice(b"\r\n");
        for chunk in body.chunks(4096) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        return bytes;
    }
    if !named("content-length") && (method != "GET" || !body.is_empty()) {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Connects and writes; the open connection, for whoever wants to hang up.
pub(super) async fn write(base: &str, bytes: &[u8]) -> Result<TcpStream, Lost> {
    let host = base.strip_prefix("http://").ok_or("not an http:// URL")?;
    let host = host.split('/').next().unwrap_or(host);
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let mut stream = TcpStream::connect(address).await?;
    // A server that has answered already may have closed: its answer counts, not the write.
    let _ = stream.write_all(bytes).await;
    Ok(stream)
}

/// Writes the bytes and reads one answer until the server closes.
pub(super) async fn exchange(base: &str, bytes: &[u8], patience: Duration) -> Result<Reply, Lost> {
    let read = async {
        let mut stream = write(base, bytes).await?;
        let mut answer = Vec::new();
        let mut chunk = vec![0; 16 * 1024];
        loop {
            match stream.read(&mut chunk).await {
                Ok(0) => break,
                Ok(read) => answer.extend_from_slice(&chunk[..read]),
                // A reset after the answer is the server's way to say that it reads no more.
                Err(_) if !answer.is_empty() => break,
                Err(error) => return Err(Lost::from(error)),
            }
            if answer.len() > ANSWER_BYTES {
                return Err("an answer without end".into());
            }
        }
        Ok(parse(&answer)?)
    };
    tokio::time::timeout(patience, read).await.map_err(|_| Lost::from("no answer in time"))?
}

/// An HTTP/1.1 answer of a connection that is closed after it.
pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<Reply> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").context("an answer without an end of its head")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let mut words = line.split(' ');
    if words.next() != Some("HTTP/1.1") {
        bail!("not an HTTP/1.1 status line: {line:?}");
    }
    let status: u16 = words.next().unwrap_or_default().parse().with_context(|| format!("no status in {line:?}"))?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &bytes[end + 4..];
    // An informational answer (100 Continue) stands before the real one.
    if (100..200).contains(&status) {
        return parse(rest);
    }
    let header = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let body = if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        unchunk(rest)?
    } else if let Some(length) = header("content-length") {
        let length: usize = length.parse().context("Content-Length")?;
        rest.get(..length).context("a body shorter than its length")?.to_vec()
    } else {
        rest.to_vec()
    };
    Ok(Reply { status, headers, body })
}

fn unchunk(mut rest: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").context("a chunk without a size")?;
        let size = std::str::from_utf8(&rest[..end])?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(rest.get(..size).context("a chunk shorter than its size")?);
        rest = rest.get(size + 2..).context("a chunk without an end")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_out_as_they_are() {
        let headers = [("Idempotency-Key".to_owned(), vec![0xE9]), ("Idempotency-Key".to_owned(), b"b".to_vec())];
        let bytes = request("POST", "host:1", "/x", &headers, Some(b"{}"));
        let wanted: &[u8] = b"POST /x HTTP/1.1\r\nHost: host:1\r\nConnection: close\r\n\
            Idempotency-Key: \xE9\r\nIdempotency-Key: b\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(bytes, wanted);
        let chunked = [("Transfer-Encoding".to_owned(), b"chunked".to_vec())];
        let bytes = request("POST", "h", "/", &chunked, Some(b"{}"));
        assert!(bytes.ends_with(b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"));
    }

    #[test]
    fn answers_are_read_by_length_by_chunks_and_to_the_end() {
        let by_length = parse(b"HTTP/1.1 201 Created\r\nETag: \"1\"\r\nContent-Length: 2\r\n\r\n{}").expect("parses");
        assert_eq!(by_length.status, 201);
        assert_eq!(by_length.headers[0], ("etag".to_owned(), "\"1\"".to_owned()));
        assert_eq!(by_length.body, b"{}");
        let by_chunks =
            parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n");
        assert_eq!(by_chunks.expect("parses").body, b"abcd");
        let to_the_end = parse(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\nno");
        assert_eq!(to_the_end.expect("parses"), Reply { status: 400, headers: vec![], body: b"no".to_vec() });
    }

    #[test]
    fn half_an_answer_is_none() {
        for half in [&b"HTTP/1.1 200 OK\r\n"[..], b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"] {
            parse(half).expect_err("refused");
        }
    }
}

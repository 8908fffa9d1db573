//! `oncebook healthcheck`, for an image that holds no curl: asks a running service whether it is alive, as anyone would.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Well inside what an orchestrator waits, and far beyond what `/healthz` takes.
const PATIENCE: Duration = Duration::from_secs(2);

/// Succeeds when `GET /healthz` of the service that listens at `listen` answers 200. Blocks.
///
/// # Errors
/// When nothing answers within two seconds, or something else does.
pub fn healthcheck(listen: SocketAddr) -> Result<()> {
    let address = SocketAddr::new(reachable(listen.ip()), listen.port());
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("nobody at {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).context("no answer")?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "answered {:?}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// One can listen on every address, but ask only one.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers one request and hands back where it listened.
    fn answering(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut asked = [0; 1024];
            let read = stream.read(&mut asked).expect("a request");
            assert!(asked[..read].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).expect("sent");
        });
        address
    }

    #[test]
    fn only_200_is_health() {
        let port = answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").port();
        healthcheck(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)).expect("healthy");
        healthcheck(answering("HTTP/1.1 503 Service Unavailable\r\n\r\n")).expect_err("unwell");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let nobody = listener.local_addr().expect("an address");
        drop(listener);
        healthcheck(nobody).expect_err("nobody there");
    }
}

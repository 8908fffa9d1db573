//! Clients over HTTP: each a connection that sends its next request when it has the answer to the last.
//!
//! Written on a bare socket: pgbench beside it is a bare C program, and on two cores a client's own cost is in the figures.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::world::World;
use super::{REPLAYED, Work};

/// What all clients of a turn have seen.
pub(super) struct Answered {
    /// Of each request, in milliseconds.
    pub latencies_ms: Vec<f64>,
    /// How long the turn took.
    pub took: Duration,
}

/// Connects a turn's clients, and books what they are to replay.
pub(super) async fn connect(
    address: SocketAddr,
    world: &World,
    work: Work,
    clients: usize,
    turn: usize,
) -> Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for client in 0..clients {
        let mut connection =
            Connection { stream: TcpStream::connect(address).await?, buffer: Vec::with_capacity(4096) };
        connection.stream.set_nodelay(true)?;
        if work == Work::Replay {
            for index in 0..REPLAYED {
                connection.ask(&request(world, turn, client, index), "201 ").await?;
            }
        }
        connections.push(connection);
    }
    Ok(connections)
}

pub(super) async fn run(
    connections: Vec<Connection>,
    world: &World,
    work: Work,
    turn: usize,
    length: Duration,
) -> Result<Answered> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (client, mut connection) in connections.into_iter().enumerate() {
        let world = world.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            let mut index = 0;
            while started.elapsed() < length {
                let request =
                    request(&world, turn, client, if work == Work::Replay { index % REPLAYED } else { index });
                let sent = Instant::now();
                connection.ask(&request, "201 ").await?;
                latencies.push(sent.elapsed().as_secs_f64() * 1000.0);
                index += 1;
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies_ms = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        latencies_ms.extend(latencies??);
    }
    Ok(Answered { latencies_ms, took: started.elapsed() })
}

/// Sends bookings at a steady rate: each client one `every` so long, however long answers take. One that comes too late is
/// sent at once, so what was offered is made up for.
pub(super) async fn offer(
    connections: Vec<Connection>,
    world: &World,
    turn: usize,
    length: Duration,
    every: Duration,
) -> Result<Answered> {
    let started = Instant::now();
    let clients = u32::try_from(connections.len())?;
    let mut tasks = JoinSet::new();
    for (client, mut connection) in connections.into_iter().enumerate() {
        let world = world.clone();
        let first = started + every * u32::try_from(client)? / clients;
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            let mut due = first;
            while due < started + length {
                sleep_until(due).await;
                let index = u64::try_from(latencies.len())?;
                connection.ask(&request(&world, turn, client, index), "201 ").await?;
                latencies.push(due.elapsed().as_secs_f64() * 1000.0);
                due += every;
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies_ms = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        latencies_ms.extend(latencies??);
    }
    Ok(Answered { latencies_ms, took: started.elapsed() })
}

/// A booking of the client's own practitioner at the index-th half hour.
fn request(world: &World, turn: usize, client: usize, index: u64) -> Vec<u8> {
    let body = format!(
        r#"{{"clinic_id":"{}","patient_id":"{}","practitioner_id":"{}","service_id":"{}","start":"{}"}}"#,
        world.clinic_id,
        world.patient_id,
        World::practitioner(turn, client),
        world.service_id,
        world.start(index)
    );
    format!(
        "POST /v1/appointments HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\nIdempotency-Key: bench-{turn}-{client}-{index}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        world.api_key,
        body.len()
    )
    .into_bytes()
}

/// A client's connection.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Sends a request and reads its whole answer, whose status must be the one wanted.
    async fn ask(&mut self, request: &[u8], wanted: &str) -> Result<()> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head = loop {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the service closed the connection");
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = std::str::from_utf8(&self.buffer[..head]).context("a head that is not text")?;
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.parse::<usize>().ok());
        let length = length.context("an answer without a length")?;
        let fits = text.strip_prefix("HTTP/1.1 ").is_some_and(|rest| rest.starts_with(wanted));
        while self.buffer.len() < head + length {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the service closed the connection");
        }
        if !fits {
            bail!("{wanted}was wanted: {}", String::from_utf8_lossy(&self.buffer));
        }
        Ok(())
    }
}

//! What a turn cost: CPU time of the service and of Postgres, and bytes of write-ahead log. Linux's /proc tells.

use std::ops::Sub;
use std::path::Path;

use anyhow::{Context, Result};
use sqlx::PgConnection;

use crate::store::bench as world;

/// Running totals; a turn's cost is the difference of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// CPU time of the service, in microseconds.
    pub service_cpu_us: f64,
    /// CPU time of all of Postgres's processes, in microseconds.
    pub postgres_cpu_us: f64,
    /// Bytes of write-ahead log.
    pub wal_bytes: f64,
}

impl Sub for Reading {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            service_cpu_us: self.service_cpu_us - before.service_cpu_us,
            postgres_cpu_us: self.postgres_cpu_us - before.postgres_cpu_us,
            wal_bytes: self.wal_bytes - before.wal_bytes,
        }
    }
}

/// Microseconds in one of /proc's ticks: Linux reports in hundredths of a second on every platform it runs on.
const TICK_US: f64 = 10_000.0;

impl Reading {
    pub(super) async fn take(connection: &mut PgConnection, service: u32, postmaster: u32) -> Result<Self> {
        let wal_bytes = world::wal_bytes(connection).await?;
        let postgres_cpu_us = family_ticks(postmaster)? * TICK_US;
        Ok(Self { service_cpu_us: Process::read(service)?.own * TICK_US, postgres_cpu_us, wal_bytes })
    }
}

/// Ticks of a process and of all its children, the ones that have ended included.
fn family_ticks(parent: u32) -> Result<f64> {
    let process = Process::read(parent)?;
    let mut ticks = process.own + process.ended_children;
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end between the listing and the reading; then its time is in its parent's account next time.
        if let Ok(child) = Process::read(pid)
            && child.parent == parent
        {
            ticks += child.own;
        }
    }
    Ok(ticks)
}

struct Process {
    parent: u32,
    own: f64,
    ended_children: f64,
}

impl Process {
    /// Reads `/proc/PID/stat` (proc(5)); the fields are counted after the name, which may hold anything.
    fn read(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("reading {path} (figures of CPU need Linux)"))?;
        let fields: Vec<&str> =
            text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let number = |index: usize| {
            fields.get(index).and_then(|field| field.parse::<f64>().ok()).context("an odd /proc/PID/stat")
        };
        let parent = fields.get(1).and_then(|field| field.parse().ok()).context("an odd /proc/PID/stat")?;
        Ok(Self { parent, own: number(11)? + number(12)?, ended_children: number(13)? + number(14)? })
    }
}

/// Resident memory of a process, in MiB.
pub(super) fn resident_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(Path::new(&path))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("an odd /proc/PID/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

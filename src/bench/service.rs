//! The service under load: a process of its own, so that its CPU and its memory are its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::healthcheck::healthcheck;

/// A started service.
pub(super) struct Service {
    child: Child,
    address: SocketAddr,
    pid: u32,
}

/// Connections to Postgres: about what 32 clients on two cores keep busy.
const CONNECTIONS: &str = "16";

impl Service {
    pub(super) async fn start(database_url: &str, roles: &str) -> Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--roles", roles, "--rate-per-address", "0", "--rate-per-credential", "0"]);
        command.args(["--listen", &address.to_string(), "--database-connections", CONNECTIONS]);
        command.env("DATABASE_URL", database_url).stdin(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().context("starting the service")?;
        let pid = child.id().context("the service's process id")?;
        let mut service = Self { child, address, pid };
        for _ in 0..100 {
            if tokio::task::spawn_blocking(move || healthcheck(address)).await?.is_ok() {
                return Ok(service);
            }
            if let Some(status) = service.child.try_wait()? {
                bail!("the service ended at once: {status}");
            }
            sleep(Duration::from_millis(50)).await;
        }
        bail!("the service did not answer within five seconds")
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("stopping the service")
    }
}

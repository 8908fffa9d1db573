//! The service as a process of its own, the way it runs in production: it can be killed outright, stopped in mid-step and
//! asked to go.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A start, a command's deadline and the patience after it, all on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(30);

/// `oncebook serve`.
pub(crate) struct Process {
    child: Child,
    pub(crate) base: String,
    /// What it says on standard error, line by line.
    said: Arc<Mutex<Vec<String>>>,
    reader: JoinSet<()>,
    running: Arc<AtomicUsize>,
}

impl Process {
    /// Returns once it serves. `running` counts those that have not been ended.
    pub(crate) async fn start(database_url: &str, knobs: &[(&str, &str)], running: &Arc<AtomicUsize>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebook"));
        command.arg("serve").env_clear().env("DATABASE_URL", database_url).env("ONCEBOOK_LISTEN", "127.0.0.1:0");
        command.envs([("ONCEBOOK_RATE_PER_ADDRESS", "0"), ("ONCEBOOK_RATE_PER_CREDENTIAL", "0")]);
        command.envs(knobs.iter().copied()).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the service starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its standard error")).lines();
        let said = Arc::new(Mutex::new(Vec::new()));
        let serving = async {
            loop {
                let line = lines.next_line().await.expect("it can be read").expect("it says where it serves");
                let told: Value = serde_json::from_str(&line).unwrap_or_default();
                // One without the role api says where its metrics are.
                if ["serving the API", "serving metrics and readiness"]
                    .map(Value::from)
                    .contains(&told["fields"]["message"])
                {
                    return told["fields"]["address"].as_str().expect("an address").to_owned();
                }
            }
        };
        let address = timeout(PATIENCE, serving).await.expect("it serves");
        let mut reader = JoinSet::new();
        let heard = Arc::clone(&said);
        reader.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        running.fetch_add(1, Ordering::SeqCst);
        Self { child, base: format!("http://{address}"), said, reader, running: Arc::clone(running) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends a signal by its name.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().await.expect("kill runs");
        assert!(status.success(), "no signal to {pid}");
    }

    /// SIGKILL. Returns when it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("killed");
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// SIGTERM. Returns when it is gone; it must have gone in good order, without a word of error.
    pub(crate) async fn stop(self) {
        self.signal("TERM").await;
        self.gone().await;
    }

    /// Waits for the end of a process that was asked to go.
    pub(crate) async fn gone(mut self) {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").expect("it ended");
        // All that it had to say.
        while self.reader.join_next().await.is_some() {}
        assert_eq!(status.code(), Some(0), "{:#?}", self.said());
        let errors: Vec<_> =
            self.said().into_iter().filter(|line| line.contains("\"ERROR\"") || line.contains("panicked")).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// All it has said since it serves.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resident memory in KiB, as the kernel counts it.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

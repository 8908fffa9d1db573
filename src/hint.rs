//! Hints between the parts of one process: there may be something to do.

use tokio::sync::watch;

/// Wakes whoever listens in this process. It is no promise: the clock wakes them too, and is what another process's work,
/// and a crash's, waits for.
#[derive(Clone, Debug)]
pub struct Hint(watch::Sender<()>);

impl Default for Hint {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl Hint {
    /// There may be something to do.
    pub fn give(&self) {
        self.0.send_replace(());
    }

    /// Listens from now on.
    #[must_use]
    pub fn listen(&self) -> Hints {
        Hints(self.0.subscribe())
    }
}

/// What a listener hears.
#[derive(Debug)]
pub struct Hints(watch::Receiver<()>);

impl Hints {
    /// Forgets what was given so far: whoever does this before looking misses nothing that is added while they look.
    pub fn forget(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits for the next one; for ever where nobody is left to give it.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

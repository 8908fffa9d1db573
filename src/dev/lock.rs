//! One running machine per folder. The lock is the kernel's, so it ends with the process however that ends, and a file
//! left behind means nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Said outright: a child that another thread starts at this moment has a copy of the file until it runs its program,
        // and closing ours alone would leave the folder locked as long. Where it fails, closing does the same.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes `folder/lock`, and says who has it when somebody does.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        let path = folder.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).unwrap_or_default();
                let holder = holder.trim();
                bail!("{} is in use by a running oncebook (process {holder}): stop that one first", folder.display());
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        // Only for the message above: the lock itself needs no content.
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()))?;
        Ok(Self { file })
    }
}

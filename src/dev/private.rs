//! Files with secrets in them: whole or not there, and readable by their owner alone from the first byte on.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::clock::Ids;

/// Replaces `path` by a file of mode 0600.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let write = || {
        let making = path.with_extension("making");
        match fs::remove_file(&making) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&making)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&making, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The folder's own key for secrets in the database (`ONCEBOOK_ENCRYPTION_KEY`); made where there is none. Whoever loses it
/// loses what it sealed.
pub(crate) fn encryption_key(folder: &Path, ids: &Ids) -> Result<String> {
    let path = folder.join("encryption.key");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = STANDARD.encode(ids.secret());
            write(&path, &format!("{key}\n"))?;
            Ok(key)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

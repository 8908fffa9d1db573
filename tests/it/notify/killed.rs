//! The notifier dies at every step.

//! futae-host

//! futae-engine

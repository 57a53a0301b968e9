//! futae-sim

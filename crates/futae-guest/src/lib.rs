//! futae-guest

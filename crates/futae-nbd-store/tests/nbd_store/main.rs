//! The NBD store against servers that people run, and against one that misbehaves on command.

mod common;
mod ended;
mod hostile;
mod lost_writes;
mod own_server;
mod real_servers;

//! Tests of the codec from outside: worked examples, properties, and real servers.

mod client;
mod common;
mod handshake;
mod replies;
mod requests;
mod servers;
mod tls;
mod uri;

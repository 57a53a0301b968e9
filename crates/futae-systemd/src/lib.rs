//! What a service and systemd say to each other: the state of the service (`sd_notify(3)`), and listening sockets that a
//! `.socket` unit passes (`sd_listen_fds(3)`). Without systemd, all of it does nothing.

mod notify;
mod passed;
mod stored;
mod system;

pub use notify::{Watchdog, ready, reloading, stopping};
pub use passed::{take_all_stored, take_stored, take_tcp, take_unix, unclaimed};
pub use stored::{barrier, forget, store};

//! `--keep-clients`: connections that outlive the server, in the hands of systemd.

use futae_host::{KeptClient, Server};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use tracing::{info, warn};

/// The name of the records of all clients.
const RECORDS: &str = "futae-clients";
/// What the name of a client's socket begins with; its number among the records follows.
const SOCKET: &str = "futae-client-";

/// Whether clients keep their connections across a restart.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ClientArgs {
    /// Keep the connections of NBD clients across a restart by systemd (`systemctl restart`, an upgrade): the server
    /// stops each of them between two requests, systemd holds its socket, and the next server goes on. Clients see a pause. TLS
    /// connections, clients that demote, and clients of a server that is killed have to connect again. Needs FileDescriptorStoreMax= in
    /// the unit, one descriptor a client and one more
    #[arg(long)]
    pub(super) keep_clients: bool,
}

impl ClientArgs {
    /// Logs that connections cannot be kept here.
    pub(super) fn warn_at_start(&self) {
        if self.keep_clients && std::env::var_os("NOTIFY_SOCKET").is_none() {
            warn!(
                "--keep-clients: this is no service of systemd (NOTIFY_SOCKET is not set), so clients have to connect \
                 again to the next server"
            );
        }
    }
}

/// Hands clients to systemd, which passes them to the next run of the service.
pub(super) fn keep(clients: Vec<KeptClient>) {
    let count = clients.len();
    if count == 0 {
        return;
    }
    match hand_over(clients) {
        Ok(true) => {
            info!("systemd was given the connections of {count} clients for the next server");
        }
        Ok(false) => warn!(
            "--keep-clients: this is no service of systemd (NOTIFY_SOCKET is not set), or systemd does not answer: \
             {count} clients lose their connections"
        ),
        Err(error) => warn!("--keep-clients: {count} clients lose their connections: {error}"),
    }
}

fn hand_over(clients: Vec<KeptClient>) -> io::Result<bool> {
    let (records, sockets) = KeptClient::pack(clients)?;
    let mut file = File::from(memfd_create(RECORDS, MemfdFlags::CLOEXEC)?);
    file.write_all(&records)?;
    // First: of more than FileDescriptorStoreMax= systemd closes the last, and without the records no client can go on.
    if !futae_systemd::store(RECORDS, &file)? {
        return Ok(false);
    }
    for (number, socket) in sockets.iter().enumerate() {
        futae_systemd::store(&format!("{SOCKET}{number}"), socket)?;
    }
    futae_systemd::barrier()
}

/// Goes on with the clients of the server before, if `wanted`; else, and if something is wrong with them, they lose their
/// connections.
pub(super) fn go_on(server: &Server, wanted: bool) {
    let records = futae_systemd::take_stored(RECORDS);
    let sockets = futae_systemd::take_all_stored(SOCKET);
    // systemd would hold copies for ever, and clients would not see that a connection has ended.
    let names = sockets
        .iter()
        .map(|(number, _)| format!("{SOCKET}{number}"));
    for name in names.chain(records.is_some().then(|| RECORDS.to_owned())) {
        futae_systemd::forget(&name);
    }
    if !wanted || (records.is_none() && sockets.is_empty()) {
        return;
    }
    let clients = records
        .ok_or_else(|| format!("their records ({RECORDS}) are not there"))
        .and_then(|records| read(records).map_err(|error| error.to_string()))
        .and_then(|bytes| {
            let numbered = sockets
                .into_iter()
                .filter_map(|(number, socket)| Some((number.parse().ok()?, socket)));
            KeptClient::unpack(&bytes, numbered.collect()).map_err(|error| error.to_string())
        });
    match clients {
        Ok(clients) => drop(server.go_on_with(clients)),
        Err(why) => {
            warn!("--keep-clients: the clients of the server before lose their connections: {why}");
        }
    }
}

fn read(records: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(records);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

//! What the next server is told of a client, as bytes: it may be another version.

use super::unread::Unread;
use futae_nbd::{RequestRules, TransmissionFlags};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use thiserror::Error;

/// Changes when a server could misread what another has written.
const VERSION: u32 = 1;
/// The length of the description, in front of it.
const LENGTH_BYTES: usize = 8;

/// A client between two requests.
#[derive(Debug)]
pub struct KeptClient {
    pub(super) socket: OwnedFd,
    pub(super) record: Record,
}

/// What was agreed with a client, and what it has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The address on which it connected.
    pub(super) gate: String,
    pub(super) export: String,
    /// Which volume the export was.
    pub(super) volume: [u8; 16],
    pub(super) size_bytes: u64,
    flags: u16,
    pub(super) structured_replies: bool,
    base_allocation: bool,
    skip_bytes: usize,
    unread_bytes: usize,
    #[serde(skip)]
    pub(super) unread: Unread,
}

#[derive(Serialize, Deserialize)]
struct Description {
    version: u32,
    clients: Vec<Record>,
}

/// Records of clients that cannot be used.
#[derive(Debug, Error)]
pub enum RecordError {
    /// They end too early, or are no records.
    #[error("the records of the clients are damaged: {0}")]
    Damaged(String),
    /// Another version has written them.
    #[error("the records of the clients have version {0}, and this server reads version {VERSION}")]
    Version(u32),
}

impl Record {
    pub(crate) fn new(
        gate: &str,
        (export, volume): (&str, [u8; 16]),
        rules: &RequestRules,
        unread: Unread,
    ) -> Self {
        Self {
            gate: gate.to_owned(),
            export: export.to_owned(),
            volume,
            size_bytes: rules.size_bytes,
            flags: rules.flags.0,
            structured_replies: rules.structured_replies,
            base_allocation: rules.base_allocation,
            skip_bytes: unread.skip_bytes,
            unread_bytes: unread.bytes.len(),
            unread,
        }
    }

    pub(super) fn flags(&self) -> TransmissionFlags {
        TransmissionFlags(self.flags)
    }

    pub(super) fn rules(&self) -> RequestRules {
        RequestRules {
            size_bytes: self.size_bytes,
            flags: self.flags(),
            structured_replies: self.structured_replies,
            base_allocation: self.base_allocation,
            demotion: None,
        }
    }
}

impl KeptClient {
    /// The records of all clients as bytes, and their sockets in the same order.
    ///
    /// # Errors
    ///
    /// The records cannot be written as JSON.
    pub fn pack(clients: Vec<Self>) -> Result<(Vec<u8>, Vec<OwnedFd>), serde_json::Error> {
        let split = |client: Self| (client.socket, client.record);
        let (sockets, mut records): (Vec<_>, Vec<_>) = clients.into_iter().map(split).unzip();
        let take = |record: &mut Record| std::mem::take(&mut record.unread.bytes);
        let unread: Vec<Vec<u8>> = records.iter_mut().map(take).collect();
        let description = Description {
            version: VERSION,
            clients: records,
        };
        let description = serde_json::to_vec(&description)?;
        let mut bytes = (description.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&description);
        unread
            .iter()
            .for_each(|unread| bytes.extend_from_slice(unread));
        Ok((bytes, sockets))
    }

    /// The clients whose records are these bytes, by the numbers that their sockets had among those of [`Self::pack`], from 0. A
    /// client without a socket has gone meanwhile, and is left out.
    ///
    /// # Errors
    ///
    /// The bytes are not what [`Self::pack`] returns, or of another version.
    pub fn unpack(
        bytes: &[u8],
        mut sockets: HashMap<usize, OwnedFd>,
    ) -> Result<Vec<Self>, RecordError> {
        let damaged = |why: &str| RecordError::Damaged(why.to_owned());
        let (length, rest) = bytes
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or_else(|| damaged("they are too short"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (description, mut rest) = rest
            .split_at_checked(length)
            .ok_or_else(|| damaged("their description is cut off"))?;
        let description: Description = serde_json::from_slice(description)
            .map_err(|error| RecordError::Damaged(error.to_string()))?;
        if description.version != VERSION {
            return Err(RecordError::Version(description.version));
        }
        let records = description.clients;
        let mut clients = Vec::with_capacity(sockets.len());
        for (number, mut record) in records.into_iter().enumerate() {
            let (unread, others) = rest
                .split_at_checked(record.unread_bytes)
                .ok_or_else(|| damaged("requests are cut off"))?;
            rest = others;
            record.unread = Unread {
                bytes: unread.to_vec(),
                skip_bytes: record.skip_bytes,
            };
            if let Some(socket) = sockets.remove(&number) {
                clients.push(Self { socket, record });
            }
        }
        if !rest.is_empty() {
            return Err(damaged("more follows than was said"));
        }
        Ok(clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_nbd::{Capabilities, ExportInfo};
    use std::os::unix::net::UnixStream;

    fn client(export: &str, unread: &[u8]) -> KeptClient {
        let info = ExportInfo {
            name: export.to_owned(),
            description: String::new(),
            size_bytes: 1 << 20,
            read_only: false,
            preferred_block_bytes: 4096,
            capabilities: Capabilities::all(),
        };
        let unread = Unread {
            bytes: unread.to_vec(),
            skip_bytes: 3,
        };
        KeptClient {
            socket: UnixStream::pair().expect("a pair").0.into(),
            record: Record::new(
                "unix:/run/a.sock",
                (export, [7; 16]),
                &RequestRules::plain(&info),
                unread,
            ),
        }
    }

    #[test]
    fn what_is_packed_comes_back_and_nothing_else_does() {
        let clients = vec![client("a", b"half a request"), client("b/c", b"")];
        let records: Vec<_> = clients.iter().map(|client| client.record.clone()).collect();
        let (bytes, sockets) = KeptClient::pack(clients).expect("records");
        let again = || {
            let copies = sockets.iter().enumerate();
            copies
                .map(|(number, socket)| (number, socket.try_clone().expect("a copy")))
                .collect::<HashMap<_, _>>()
        };
        let back = KeptClient::unpack(&bytes, again()).expect("records");
        let back: Vec<_> = back.into_iter().map(|client| client.record).collect();
        assert_eq!(back, records);
        for length in 0..bytes.len() {
            assert!(
                KeptClient::unpack(&bytes[..length], again()).is_err(),
                "{length} bytes"
            );
        }
        assert!(KeptClient::unpack(&[&bytes[..], b"x"].concat(), again()).is_err());
        let mut some = again();
        some.remove(&0);
        let left = KeptClient::unpack(&bytes, some).expect("records");
        let left: Vec<_> = left.into_iter().map(|client| client.record).collect();
        assert_eq!(left, records[1..], "the first has gone");
        let mut other = bytes.clone();
        let key = b"\"version\":";
        let at = bytes.windows(key.len()).position(|part| part == key);
        other[at.expect("a version") + key.len()] = b'2';
        let error = KeptClient::unpack(&other, again()).expect_err("another version");
        assert!(error.to_string().contains("version 2"), "{error}");
    }
}

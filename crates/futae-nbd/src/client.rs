//! The client's side of the handshake, blocking, over any stream.

use std::io::{Read, Write};

use crate::bytes::Reader;
use crate::constants::*;
use crate::error::WireError;
use crate::export::TransmissionFlags;
use crate::extension::{DemotionTerms, DemotionWish};
use crate::identity::VolumeIdentity;

/// What a client would like, beside the export. A server that declines any of it is no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientWish {
    /// Structured replies.
    pub structured: bool,
    /// `base:allocation`; only together with `structured`.
    pub base_allocation: bool,
    /// Demotion, and the block of the client's cache in bytes: a power of two from 512 B to
    /// 256 MiB.
    pub demotion_block_bytes: Option<u32>,
    /// Ask which volume the export is.
    pub identity: bool,
}

/// What the server granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientExport {
    /// Size of the export in bytes.
    pub size_bytes: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
    /// READ will be answered in chunks.
    pub structured: bool,
    /// The identifier of `base:allocation` for block status.
    pub base_allocation_id: Option<u32>,
    /// The server takes demotions on these terms, and cookies are sequence numbers from here on.
    /// Ask [`DemotionTerms::suits`] whether they can be met.
    pub demotion: Option<DemotionTerms>,
    /// Which volume the export is, where the server can tell.
    pub identity: Option<VolumeIdentity>,
    /// Every offset and length must be a multiple of this, in bytes; 1 if the server did not say.
    pub minimum_block_bytes: u32,
    /// Smallest request without read-modify-write, in bytes; 4096 if the server did not say.
    pub preferred_block_bytes: u32,
    /// Longest READ or WRITE, in bytes; 32 MiB if the server did not say or allows more.
    pub payload_bytes_max: u32,
}

/// Takes a freshly connected stream through the handshake into the transmission phase of `export`.
/// The empty name asks for the server's default export. Uses `OPT_GO`, or `OPT_EXPORT_NAME` with a
/// server that does not know it.
///
/// The stream should have a timeout if the server is not trusted to answer. What is read of any
/// one answer is limited to [`MAX_OPTION_BYTES`].
///
/// # Errors
///
/// [`WireError::Refused`] if the server has no such export or will not serve it; the session was
/// then ended politely. [`WireError::Io`] if the stream failed; a server that closes it in answer
/// to `OPT_EXPORT_NAME` has no such export. Anything else: the server breaks the protocol.
pub fn negotiate(
    stream: &mut (impl Read + Write),
    export: &str,
    wish: &ClientWish,
) -> Result<ClientExport, WireError> {
    check_name(export)?;
    let greeted = Greeted(Talk { stream }.greet()?);
    negotiate_greeted(stream, greeted, export, wish)
}

/// A server whose greeting was answered.
#[derive(Clone, Copy, Debug)]
pub struct Greeted(u16);

/// Has the server at the other end of a freshly connected stream begin TLS. From then on both sides speak TLS on the stream, and
/// [`negotiate_greeted`] goes on inside.
///
/// # Errors
///
/// As [`negotiate`]; [`WireError::Refused`] if the server has no TLS.
pub fn start_tls(stream: &mut (impl Read + Write)) -> Result<Greeted, WireError> {
    let mut talk = Talk { stream };
    let server_flags = talk.greet()?;
    let refused = |reply, text| WireError::Refused {
        option: "OPT_STARTTLS",
        reply,
        reason: meaning(reply),
        text,
    };
    if server_flags & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(refused(REP_ERR_UNSUP, String::new()));
    }
    let answer = talk.ask(OPT_STARTTLS, &[], |_, _| Ok(()))?;
    answer.map_err(|(reply, text)| refused(reply, text))?;
    Ok(Greeted(server_flags))
}

fn check_name(export: &str) -> Result<(), WireError> {
    if export.len() > MAX_STRING_BYTES {
        let name = export.chars().take(200).collect();
        let wanted = "must be at most 4096 bytes";
        return Err(WireError::BadExport {
            name,
            field: "name",
            wanted,
        });
    }
    Ok(())
}

/// As [`negotiate`], with a server whose greeting was answered.
///
/// # Errors
///
/// As [`negotiate`].
pub fn negotiate_greeted(
    stream: &mut (impl Read + Write),
    greeted: Greeted,
    export: &str,
    wish: &ClientWish,
) -> Result<ClientExport, WireError> {
    check_name(export)?;
    let server_flags = greeted.0;
    let mut talk = Talk { stream };
    let mut granted = ClientExport {
        size_bytes: 0,
        flags: TransmissionFlags::default(),
        structured: false,
        base_allocation_id: None,
        demotion: None,
        identity: None,
        minimum_block_bytes: MIN_BLOCK_BYTES,
        preferred_block_bytes: 4096,
        payload_bytes_max: MAX_PAYLOAD_BYTES,
    };
    if server_flags & FLAG_FIXED_NEWSTYLE != 0 {
        if wish.structured {
            granted.structured = talk.ask(OPT_STRUCTURED_REPLY, &[], |_, _| Ok(()))?.is_ok();
        }
        if wish.base_allocation && granted.structured {
            granted.base_allocation_id = talk.select_base_allocation(export)?;
        }
        if let Some(block_bytes) = wish.demotion_block_bytes {
            granted.demotion = talk.agree_demotion(block_bytes)?;
        }
        if wish.identity {
            granted.identity = talk.identify(export)?;
        }
        if talk.go(export, &mut granted)? {
            return Ok(granted);
        }
    }
    talk.enter_by_name(export, server_flags & FLAG_NO_ZEROES == 0, &mut granted)?;
    Ok(granted)
}

/// An option that the server declined: the number of its reply and its words.
type Declined = (u32, String);

struct Talk<'s, S> {
    stream: &'s mut S,
}

impl<S: Read + Write> Talk<'_, S> {
    fn read<const N: usize>(&mut self, doing: &'static str) -> Result<[u8; N], WireError> {
        let mut bytes = [0; N];
        self.stream
            .read_exact(&mut bytes)
            .map_err(|source| WireError::Io { doing, source })?;
        Ok(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let sent = self
            .stream
            .write_all(bytes)
            .and_then(|()| self.stream.flush());
        sent.map_err(|source| WireError::Io {
            doing: "sending to the server",
            source,
        })
    }

    /// The greetings; returns the server's flags.
    fn greet(&mut self) -> Result<u16, WireError> {
        let greeting: [u8; GREETING_BYTES] = self.read("reading the server's greeting")?;
        let mut fields = Reader::new(&greeting);
        let (first, second) = (fields.u64().unwrap_or(0), fields.u64().unwrap_or(0));
        let flags = fields.u16().unwrap_or(0);
        magic("greeting", NBD_MAGIC, first)?;
        if second == OLDSTYLE_MAGIC {
            return Err(WireError::OldStyleServer);
        }
        magic("greeting's second magic", OPTION_MAGIC, second)?;
        // Both answers have the bits of what they answer.
        let answer = flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        self.write(&u32::from(answer).to_be_bytes())?;
        Ok(flags)
    }

    fn send(&mut self, option: u32, parts: &[&[u8]]) -> Result<(), WireError> {
        let data = parts.concat();
        let mut message = Vec::with_capacity(OPTION_HEADER_BYTES + data.len());
        message.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        message.extend_from_slice(&option.to_be_bytes());
        message.extend_from_slice(&(data.len() as u32).to_be_bytes());
        message.extend_from_slice(&data);
        self.write(&message)
    }

    /// Sends an option and reads its replies up to the last; `each` sees those before it.
    fn ask(
        &mut self,
        option: u32,
        parts: &[&[u8]],
        mut each: impl FnMut(u32, &[u8]) -> Result<(), WireError>,
    ) -> Result<Result<(), Declined>, WireError> {
        self.send(option, parts)?;
        for _ in 0..MAX_OPTIONS {
            let (reply, data) = self.reply(option)?;
            if reply == REP_ACK {
                return Ok(Ok(()));
            }
            if reply & REP_FLAG_ERROR != 0 {
                return Ok(Err((reply, words(&data))));
            }
            each(reply, &data)?;
        }
        Err(WireError::TooManyOptions { limit: MAX_OPTIONS })
    }

    fn reply(&mut self, asked: u32) -> Result<(u32, Vec<u8>), WireError> {
        let doing = "reading the reply to an option";
        let header: [u8; OPTION_REPLY_HEADER_BYTES] = self.read(doing)?;
        let mut fields = Reader::new(&header);
        magic(
            "option reply magic",
            OPTION_REPLY_MAGIC,
            fields.u64().unwrap_or(0),
        )?;
        let mut next = || fields.u32().unwrap_or(0);
        let (option, reply, length_bytes) = (next(), next(), next());
        if option != asked {
            return Err(bad("option", option.into(), "not the option that was sent"));
        }
        if length_bytes as usize > MAX_OPTION_BYTES {
            let limit_bytes = MAX_OPTION_BYTES;
            return Err(WireError::OptionTooLarge {
                option,
                length_bytes,
                limit_bytes,
            });
        }
        let mut data = vec![0; length_bytes as usize];
        self.stream
            .read_exact(&mut data)
            .map_err(|source| WireError::Io { doing, source })?;
        Ok((reply, data))
    }

    fn select_base_allocation(&mut self, export: &str) -> Result<Option<u32>, WireError> {
        let mut id = None;
        let context = BASE_ALLOCATION.as_bytes();
        let parts: [&[u8]; 5] = [
            &(export.len() as u32).to_be_bytes(),
            export.as_bytes(),
            &1u32.to_be_bytes(),
            &(context.len() as u32).to_be_bytes(),
            context,
        ];
        let answer = self.ask(OPT_SET_META_CONTEXT, &parts, |reply, data| {
            let mut fields = Reader::new(data);
            let found = fields.u32();
            if reply == REP_META_CONTEXT && fields.rest() == context {
                id = found;
            }
            Ok(())
        })?;
        Ok(answer.ok().and(id))
    }

    fn agree_demotion(&mut self, block_bytes: u32) -> Result<Option<DemotionTerms>, WireError> {
        let wish = DemotionWish::new(block_bytes).encode();
        let mut terms = None;
        let answer = self.ask(OPT_FUTAE_DEMOTION, &[&wish], |reply, data| {
            if reply == REP_FUTAE_DEMOTION {
                terms = Some(DemotionTerms::parse(data)?);
            }
            Ok(())
        })?;
        Ok(answer.ok().and(terms))
    }

    /// Which volume the export is; none from a server that does not know the option.
    fn identify(&mut self, export: &str) -> Result<Option<VolumeIdentity>, WireError> {
        let mut identity = None;
        let answer = self.ask(OPT_FUTAE_IDENTITY, &[export.as_bytes()], |reply, data| {
            if reply == REP_FUTAE_IDENTITY {
                identity = Some(VolumeIdentity::parse(data)?);
            }
            Ok(())
        })?;
        Ok(answer.ok().and(identity))
    }

    /// Enters transmission by `OPT_GO`; false if the server does not know the option.
    fn go(&mut self, export: &str, granted: &mut ClientExport) -> Result<bool, WireError> {
        let parts: [&[u8]; 4] = [
            &(export.len() as u32).to_be_bytes(),
            export.as_bytes(),
            &1u16.to_be_bytes(),
            &INFO_BLOCK_SIZE.to_be_bytes(),
        ];
        let mut described = false;
        let answer = self.ask(OPT_GO, &parts, |reply, data| {
            if reply == REP_INFO {
                described |= learn(data, granted)?;
            }
            Ok(())
        })?;
        match answer {
            Ok(()) if described => Ok(true),
            Ok(()) => Err(bad("INFO_EXPORT", 0, "must be sent before the final ACK")),
            Err((REP_ERR_UNSUP, _)) => Ok(false),
            Err((reply, text)) => {
                // The server may close without an answer; the refusal matters more.
                drop(self.ask(OPT_ABORT, &[], |_, _| Ok(())));
                Err(WireError::Refused {
                    option: "OPT_GO",
                    reply,
                    reason: meaning(reply),
                    text,
                })
            }
        }
    }

    fn enter_by_name(
        &mut self,
        export: &str,
        zeroes: bool,
        granted: &mut ClientExport,
    ) -> Result<(), WireError> {
        self.send(OPT_EXPORT_NAME, &[export.as_bytes()])?;
        let doing = "reading the answer to OPT_EXPORT_NAME (closed means: no such export)";
        let size: [u8; 8] = self.read(doing)?;
        let flags: [u8; 2] = self.read(doing)?;
        if zeroes {
            self.read::<EXPORT_NAME_ZEROES>(doing)?;
        }
        granted.size_bytes = u64::from_be_bytes(size);
        granted.flags = TransmissionFlags(u16::from_be_bytes(flags));
        Ok(())
    }
}

/// A server's words in an error message: as long as the protocol allows, and without characters that steer a terminal or begin a line.
fn words(data: &[u8]) -> String {
    let data = &data[..data.len().min(MAX_STRING_BYTES)];
    let text = String::from_utf8_lossy(data);
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Takes in one `REP_INFO`; true if it was the mandatory one.
fn learn(data: &[u8], granted: &mut ClientExport) -> Result<bool, WireError> {
    let cut = || {
        bad(
            "REP_INFO length",
            data.len() as u64,
            "too short for its kind",
        )
    };
    let mut fields = Reader::new(data);
    match fields.u16().ok_or_else(cut)? {
        INFO_EXPORT => {
            granted.size_bytes = fields.u64().ok_or_else(cut)?;
            granted.flags = TransmissionFlags(fields.u16().ok_or_else(cut)?);
            Ok(true)
        }
        INFO_BLOCK_SIZE => {
            let mut next = || fields.u32().ok_or_else(cut);
            let (minimum, preferred, longest) = (next()?, next()?, next()?);
            if !minimum.is_power_of_two() || minimum > 65536 {
                let wanted = "must be a power of two, at most 65536";
                return Err(bad("minimum block", minimum.into(), wanted));
            }
            if !preferred.is_power_of_two() || preferred < minimum || longest < minimum {
                let wanted = "must be a power of two, at least the minimum block";
                return Err(bad("preferred block", preferred.into(), wanted));
            }
            granted.minimum_block_bytes = minimum;
            granted.preferred_block_bytes = preferred;
            granted.payload_bytes_max = longest.min(MAX_PAYLOAD_BYTES);
            Ok(false)
        }
        _ => Ok(false),
    }
}

fn magic(field: &'static str, expected: u64, found: u64) -> Result<(), WireError> {
    if found == expected {
        Ok(())
    } else {
        Err(WireError::BadMagic {
            field,
            expected,
            found,
        })
    }
}

fn bad(field: &'static str, found: u64, wanted: &'static str) -> WireError {
    WireError::BadField {
        message: "option reply",
        field,
        found,
        wanted,
    }
}

/// What an error reply to `OPT_GO` means for the user.
fn meaning(reply: u32) -> &'static str {
    match reply {
        REP_ERR_POLICY => "its operator forbids it",
        REP_ERR_INVALID => "it calls the request malformed",
        REP_ERR_PLATFORM => "its platform cannot do it",
        REP_ERR_TLS_REQD => {
            "it wants TLS; use an address that begins with nbds and has tls-certificates="
        }
        REP_ERR_UNKNOWN => {
            "it has no export of this name; list its exports, for example with nbdinfo"
        }
        REP_ERR_SHUTDOWN => "it is shutting down; try again later",
        REP_ERR_TOO_BIG => "it calls the request too large",
        _ => "for a reason unknown to futae",
    }
}

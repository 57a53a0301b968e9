//! The server's side of the handshake: fixed newstyle, option by option, until an export is chosen.

use crate::answer::{Answer, Answers, name, no_data};
use crate::bytes::{Reader, pack};
use crate::constants::*;
use crate::error::{WireError, shown};
use crate::export::{ExportDirectory, ExportInfo, TransmissionFlags};
use crate::extension::{DEMOTION_VERSION, DemotionOffer, DemotionTerms, DemotionWish};
use crate::meta::MetaQuery;

/// What client and server agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// The export as it was described to the client.
    pub export: ExportInfo,
    /// READ and BLOCK_STATUS must be answered in chunks.
    pub structured_replies: bool,
    /// BLOCK_STATUS may be asked for [`BASE_ALLOCATION_ID`].
    pub base_allocation: bool,
    /// The client wanted no zeroes after `OPT_EXPORT_NAME`; of no consequence now.
    pub no_zeroes: bool,
    /// The client may demote on these terms; its cookies are sequence numbers.
    pub demotion: Option<DemotionTerms>,
    /// Block of the client's cache in bytes, if it may demote.
    pub client_block_bytes: Option<u32>,
}

impl Negotiated {
    /// The flags that the client was sent.
    pub fn transmission_flags(&self) -> TransmissionFlags {
        self.export.transmission_flags(self.structured_replies)
    }
}

/// The server's first words on every connection, to be sent at once.
pub fn greeting() -> [u8; GREETING_BYTES] {
    pack(&[
        &NBD_MAGIC.to_be_bytes(),
        &OPTION_MAGIC.to_be_bytes(),
        &(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes(),
    ])
}

/// Where the handshake stands after [`Handshake::feed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It goes on; send the output, then feed what was not consumed together with what arrives.
    NeedMore,
    /// Send the output; what was not consumed belongs to the transmission phase.
    Done(Box<Negotiated>),
    /// The client gave up politely. Send the output and close.
    Aborted,
    /// Send the output, then let the client begin TLS and go on with [`Handshake::over_tls`]. What was not consumed
    /// was sent before the client was asked to go on: nothing in it may be believed.
    StartTls,
}

/// What one call of [`Handshake::feed`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input that are dealt with.
    pub consumed: usize,
    /// Where that leads.
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Flags,
    Options,
    Over,
}

/// What is known of encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tls {
    /// The server has none.
    Off,
    /// Nothing is said before it (`FORCEDTLS`).
    Required,
    /// The handshake goes through it.
    Active,
}

/// The handshake of one connection.
///
/// It keeps no bytes: the caller holds what [`Self::feed`] did not consume, at most one option
/// (64 KiB and a header), and feeds it again with more.
#[derive(Debug)]
pub struct Handshake<D> {
    exports: D,
    state: State,
    tls: Tls,
    /// An option was refused since TLS has to come first.
    refused_without_tls: bool,
    options_seen: u32,
    no_zeroes: bool,
    structured_replies: bool,
    /// The export whose `base:allocation` was selected last, by its canonical name.
    base_allocation_of: Option<String>,
    demotion: Option<(DemotionTerms, u32)>,
}

/// What an option leads to.
enum Step {
    Next,
    Enter(ExportInfo),
    Abort,
    StartTls,
}

impl<D: ExportDirectory> Handshake<D> {
    /// A handshake that offers these exports. Send [`greeting`] at once.
    pub fn new(exports: D) -> Self {
        Self {
            exports,
            state: State::Flags,
            tls: Tls::Off,
            refused_without_tls: false,
            options_seen: 0,
            no_zeroes: false,
            structured_replies: false,
            base_allocation_of: None,
            demotion: None,
        }
    }

    /// The same for a client that has to begin TLS before it hears of any export: the specification's `FORCEDTLS`.
    pub fn with_tls(exports: D) -> Self {
        Self {
            tls: Tls::Required,
            ..Self::new(exports)
        }
    }

    /// Goes on after [`Outcome::StartTls`], inside TLS: nothing is kept of what was said before, but for the client's
    /// flags. A client may be offered other exports once it is known who it is.
    pub fn over_tls<E: ExportDirectory>(&self, exports: E) -> Handshake<E> {
        Handshake {
            state: State::Options,
            tls: Tls::Active,
            options_seen: self.options_seen,
            no_zeroes: self.no_zeroes,
            ..Handshake::new(exports)
        }
    }

    /// Whether the client asked for something without TLS, which it has to begin first.
    pub fn was_refused_without_tls(&self) -> bool {
        self.refused_without_tls
    }

    /// Deals with every complete message in `input` and appends the answers to `out`.
    ///
    /// # Errors
    ///
    /// The client broke a rule that has no error reply: send what is in `out`, if anything, and
    /// close the connection. Feeding on gives [`WireError::HandshakeOver`].
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Progress, WireError> {
        let mut consumed = 0;
        loop {
            let step = match self.message(&input[consumed..], out) {
                Ok(step) => step,
                Err(error) => {
                    self.state = State::Over;
                    return Err(error);
                }
            };
            let Some((bytes, step)) = step else {
                return Ok(Progress {
                    consumed,
                    outcome: Outcome::NeedMore,
                });
            };
            consumed += bytes;
            let outcome = match step {
                Step::Next => continue,
                Step::Abort => Outcome::Aborted,
                Step::StartTls => Outcome::StartTls,
                Step::Enter(export) => Outcome::Done(Box::new(self.agreed(export))),
            };
            self.state = State::Over;
            return Ok(Progress { consumed, outcome });
        }
    }

    fn agreed(&mut self, export: ExportInfo) -> Negotiated {
        Negotiated {
            structured_replies: self.structured_replies,
            base_allocation: self.base_allocation_of.as_ref() == Some(&export.name),
            no_zeroes: self.no_zeroes,
            demotion: self.demotion.map(|(terms, _)| terms),
            client_block_bytes: self.demotion.map(|(_, block)| block),
            export,
        }
    }

    /// One message: its length and effect, or `None` if it is not complete.
    fn message(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, Step)>, WireError> {
        let mut fields = Reader::new(input);
        match self.state {
            State::Over => Err(WireError::HandshakeOver),
            State::Flags => {
                let Some(found) = fields.u32() else {
                    return Ok(None);
                };
                if found & !(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES) != 0 {
                    return Err(WireError::UnknownClientFlags { found });
                }
                self.no_zeroes = found & FLAG_C_NO_ZEROES != 0;
                self.state = State::Options;
                Ok(Some((4, Step::Next)))
            }
            State::Options => {
                let Some(magic) = fields.u64() else {
                    return Ok(None);
                };
                check_magic(magic)?;
                let (Some(option), Some(length_bytes)) = (fields.u32(), fields.u32()) else {
                    return Ok(None);
                };
                let length = length_bytes as usize;
                if length > MAX_OPTION_BYTES {
                    let limit_bytes = MAX_OPTION_BYTES;
                    return Err(WireError::OptionTooLarge {
                        option,
                        length_bytes,
                        limit_bytes,
                    });
                }
                let Some(data) = fields.take(length) else {
                    return Ok(None);
                };
                if self.options_seen == MAX_OPTIONS {
                    return Err(WireError::TooManyOptions { limit: MAX_OPTIONS });
                }
                self.options_seen += 1;
                let step = self.option(option, data, &mut Answers { option, out })?;
                Ok(Some((OPTION_HEADER_BYTES + length, step)))
            }
        }
    }

    fn option(
        &mut self,
        option: u32,
        data: &[u8],
        answers: &mut Answers<'_>,
    ) -> Result<Step, WireError> {
        let must_begin_tls = self.tls == Tls::Required;
        let answered = match option {
            OPT_STARTTLS if self.tls != Tls::Off => match self.start_tls(data, answers) {
                Ok(()) => return Ok(Step::StartTls),
                refused => refused,
            },
            OPT_EXPORT_NAME if must_begin_tls => {
                self.refused_without_tls = true;
                return Err(WireError::TlsRequired);
            }
            OPT_EXPORT_NAME => return self.export_name(data, answers.out).map(Step::Enter),
            OPT_ABORT => {
                answers.ack();
                return Ok(Step::Abort);
            }
            _ if must_begin_tls => {
                self.refused_without_tls = true;
                Err((REP_ERR_TLS_REQD, "this server serves over TLS only"))
            }
            OPT_LIST => self.list(data, answers),
            OPT_INFO | OPT_GO => match self.info(data, answers) {
                Ok(export) if option == OPT_GO => return Ok(Step::Enter(export)),
                other => other.map(drop),
            },
            OPT_STRUCTURED_REPLY => no_data(data).map(|()| {
                self.structured_replies = true;
                answers.ack();
            }),
            OPT_LIST_META_CONTEXT => self.list_meta(data, answers),
            OPT_SET_META_CONTEXT => self.set_meta(data, answers),
            OPT_FUTAE_DEMOTION => self.agree_demotion(data, answers),
            OPT_FUTAE_IDENTITY => self.identify(data, answers),
            _ => Err((REP_ERR_UNSUP, "this server does not know the option")),
        };
        if let Err((reply, why)) = answered {
            answers.put(reply, &[why.as_bytes()]);
        }
        Ok(Step::Next)
    }

    fn start_tls(&self, data: &[u8], answers: &mut Answers<'_>) -> Answer {
        no_data(data)?;
        if self.tls == Tls::Active {
            return Err((REP_ERR_INVALID, "TLS has begun already"));
        }
        answers.ack();
        Ok(())
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Result<ExportInfo, WireError> {
        let export = name(data).ok().and_then(|name| self.exports.lookup(name));
        let export = export.ok_or_else(|| WireError::UnknownExport { name: shown(data) })?;
        out.extend_from_slice(&export.size_bytes.to_be_bytes());
        let flags = export.transmission_flags(self.structured_replies);
        out.extend_from_slice(&flags.0.to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        Ok(export)
    }

    fn list(&self, data: &[u8], answers: &mut Answers<'_>) -> Answer {
        no_data(data)?;
        for export in self.exports.list() {
            let (name, description) = (export.name.as_bytes(), export.description.as_bytes());
            answers.put(
                REP_SERVER,
                &[&(name.len() as u32).to_be_bytes(), name, description],
            );
        }
        answers.ack();
        Ok(())
    }

    fn info(&self, data: &[u8], answers: &mut Answers<'_>) -> Answer<ExportInfo> {
        use crate::answer::CUT;
        let mut fields = Reader::new(data);
        let asked_name = name(fields.counted().ok_or(CUT)?)?;
        let count = fields.u16().ok_or(CUT)?;
        let mut asked = [false; INFO_BLOCK_SIZE as usize + 1];
        for _ in 0..count {
            let kind = fields.u16().ok_or(CUT)?;
            if let Some(asked) = asked.get_mut(usize::from(kind)) {
                *asked = true;
            }
        }
        if !fields.is_empty() {
            return Err((REP_ERR_INVALID, "bytes after the last information request"));
        }
        let export = self.lookup(asked_name)?;
        let flags = export.transmission_flags(self.structured_replies);
        let size = export.size_bytes.to_be_bytes();
        answers.info(INFO_EXPORT, &[&size, &flags.0.to_be_bytes()]);
        if asked[usize::from(INFO_NAME)] {
            answers.info(INFO_NAME, &[export.name.as_bytes()]);
        }
        if asked[usize::from(INFO_DESCRIPTION)] && !export.description.is_empty() {
            answers.info(INFO_DESCRIPTION, &[export.description.as_bytes()]);
        }
        if asked[usize::from(INFO_BLOCK_SIZE)] {
            let preferred = export.advertised_block_bytes();
            let sizes = [MIN_BLOCK_BYTES, preferred, MAX_PAYLOAD_BYTES].map(u32::to_be_bytes);
            answers.info(INFO_BLOCK_SIZE, &[sizes.as_flattened()]);
        }
        answers.ack();
        Ok(export)
    }

    fn lookup(&self, name: &str) -> Answer<ExportInfo> {
        self.exports
            .lookup(name)
            .ok_or((REP_ERR_UNKNOWN, "no export has this name"))
    }

    fn list_meta(&self, data: &[u8], answers: &mut Answers<'_>) -> Answer {
        let query = MetaQuery::parse(data)?;
        let export = self.lookup(query.export)?;
        let matches = query.count == 0 || query.exact || query.wildcard;
        if matches && export.capabilities.block_status {
            answers.put(
                REP_META_CONTEXT,
                &[&0u32.to_be_bytes(), BASE_ALLOCATION.as_bytes()],
            );
        }
        answers.ack();
        Ok(())
    }

    fn set_meta(&mut self, data: &[u8], answers: &mut Answers<'_>) -> Answer {
        // Whatever was selected before is gone, even if this fails.
        self.base_allocation_of = None;
        if !self.structured_replies {
            return Err((
                REP_ERR_INVALID,
                "structured replies must be negotiated first",
            ));
        }
        let query = MetaQuery::parse(data)?;
        let export = self.lookup(query.export)?;
        if query.exact && export.capabilities.block_status {
            let id = BASE_ALLOCATION_ID.to_be_bytes();
            answers.put(REP_META_CONTEXT, &[&id, BASE_ALLOCATION.as_bytes()]);
            self.base_allocation_of = Some(export.name);
        }
        answers.ack();
        Ok(())
    }

    fn identify(&self, data: &[u8], answers: &mut Answers<'_>) -> Answer {
        let export = self.lookup(name(data)?)?;
        let identity = self.exports.identity(&export.name);
        let identity = identity.ok_or((REP_ERR_UNSUP, "the volume has no identity"))?;
        answers.put(REP_FUTAE_IDENTITY, &[&identity.encode()]);
        answers.ack();
        Ok(())
    }

    fn agree_demotion(&mut self, data: &[u8], answers: &mut Answers<'_>) -> Answer {
        self.demotion = None;
        let terms = match self.exports.demotion() {
            DemotionOffer::Unknown => {
                return Err((REP_ERR_UNSUP, "this server does not know the option"));
            }
            DemotionOffer::Forbidden => {
                return Err((REP_ERR_POLICY, "the operator does not allow demotion"));
            }
            DemotionOffer::Terms(terms) => terms,
        };
        let wish = DemotionWish::parse(data).ok_or((
            REP_ERR_INVALID,
            "malformed demotion wish: see its version 1",
        ))?;
        let terms = DemotionTerms {
            version: wish.version.min(DEMOTION_VERSION),
            ..terms
        };
        answers.put(REP_FUTAE_DEMOTION, &[&terms.encode()]);
        answers.ack();
        self.demotion = Some((terms, wish.block_bytes));
        Ok(())
    }
}

fn check_magic(found: u64) -> Result<(), WireError> {
    if found == OPTION_MAGIC {
        return Ok(());
    }
    Err(WireError::BadMagic {
        field: "option magic",
        expected: OPTION_MAGIC,
        found,
    })
}

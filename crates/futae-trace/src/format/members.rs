//! Compressed data in members, one after the other, each of which ends where its own data says.

use std::io::{self, BufRead, Read};

/// What the members of compressed data hold together.
///
/// Zeros may stand after a member: tapes and archives pad files to whole blocks with them, and `gzip` and `bzip2` pass over
/// them, too. Anything else that is no member is an error.
pub struct Members<R, D> {
    /// The decoder of the member that is being read; none at the end.
    member: Option<D>,
    begin: fn(R) -> D,
    end: fn(D) -> R,
}

impl<R: BufRead, D: Read> Members<R, D> {
    /// Reads `data`, which begins with a member. `begin` makes a member's decoder, and `end` returns what follows the member.
    pub fn new(data: R, begin: fn(R) -> D, end: fn(D) -> R) -> Self {
        Self {
            member: Some(begin(data)),
            begin,
            end,
        }
    }
}

impl<R: BufRead, D: Read> Read for Members<R, D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while let Some(mut member) = self.member.take() {
            match member.read(buffer) {
                Ok(0) => {}
                outcome => {
                    self.member = Some(member);
                    return outcome;
                }
            }
            let mut rest = (self.end)(member);
            if !pass_zeros(&mut rest)? {
                self.member = Some((self.begin)(rest));
            }
        }
        Ok(0)
    }
}

/// Passes over zeros, and returns whether the data ends with them.
fn pass_zeros(data: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let found = match data.fill_buf() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if found.is_empty() {
            return Ok(true);
        }
        let zeros = found.iter().take_while(|&&byte| byte == 0).count();
        let is_more = zeros < found.len();
        data.consume(zeros);
        if is_more {
            return Ok(false);
        }
    }
}

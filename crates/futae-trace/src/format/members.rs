//! Compressed data in members, one after the other, each of which ends where its own data says.

use std::io::{self, BufRead, Read};
use std::mem;

/// What the members of compressed data hold together.
///
/// Zeros may stand after a member: tapes and archives pad files to whole blocks with them, and `gzip` and `bzip2` pass over
/// them, too. Anything else that is no member is an error.
pub struct Members<R, D> {
    at: At<R, D>,
    begin: fn(R) -> D,
    end: fn(D) -> R,
}

/// What is read next.
enum At<R, D> {
    /// A member, by its decoder.
    Member(D),
    /// What follows a member.
    Behind(R),
    /// Nothing.
    End,
}

impl<R: BufRead, D: Read> Members<R, D> {
    /// Reads `data`, which begins with a member. `begin` makes a member's decoder, and `end` returns what follows the member.
    pub fn new(data: R, begin: fn(R) -> D, end: fn(D) -> R) -> Self {
        Self {
            at: At::Member(begin(data)),
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
        loop {
            match mem::replace(&mut self.at, At::End) {
                At::Member(mut member) => match member.read(buffer) {
                    Ok(0) => self.at = At::Behind((self.end)(member)),
                    outcome => {
                        self.at = At::Member(member);
                        return outcome;
                    }
                },
                At::Behind(mut rest) => match pass_zeros(&mut rest) {
                    Ok(true) => {}
                    Ok(false) => self.at = At::Member((self.begin)(rest)),
                    Err(error) => {
                        // After an error it is not known that this is the end.
                        self.at = At::Behind(rest);
                        return Err(error);
                    }
                },
                At::End => return Ok(0),
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Write};

    /// Data that cannot be read further behind what there is of it.
    struct Broken(io::Cursor<Vec<u8>>);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("broken")),
                found => Ok(found),
            }
        }
    }

    #[test]
    fn an_error_between_members_does_not_become_the_end() -> io::Result<()> {
        let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        member.write_all(b"7")?;
        let data = BufReader::new(Broken(io::Cursor::new(member.finish()?)));
        let mut members = Members::new(
            data,
            flate2::bufread::GzDecoder::new,
            flate2::bufread::GzDecoder::into_inner,
        );
        let mut buffer = [0; 8];
        assert_eq!(members.read(&mut buffer)?, 1);
        for _ in 0..2 {
            let error = members.read(&mut buffer).expect_err("no end is known");
            assert_eq!(error.to_string(), "broken");
        }
        Ok(())
    }
}

//! Operations refused because another program has truncated the file.

use super::Inner;
use crate::{IoError, StoreOperation};

impl Inner {
    /// Refuses operations behind the end of a file that another program has truncated. Reads check
    /// the size only if the file was found truncated before: otherwise they detect it as a short
    /// read.
    pub fn refuse_cut(&self, operation: &StoreOperation) -> Result<(), IoError> {
        match operation {
            StoreOperation::Read { offset, buffer } => {
                let length = buffer.len() as u64;
                let checked = self.check_end("read", *offset, length);
                checked.or_else(|_| self.look_and_check("read", *offset, length))
            }
            StoreOperation::Write { offset, buffer, .. } => {
                self.look_and_check("write", *offset, buffer.len() as u64)
            }
            StoreOperation::Trim { offset, length } => {
                self.look_and_check("trim", *offset, *length)
            }
            StoreOperation::WriteZeroes { offset, length, .. } => {
                self.look_and_check("zeroing", *offset, *length)
            }
            StoreOperation::Flush => {
                self.end.look(&self.buffered, &self.path);
                Ok(())
            }
        }
    }

    pub fn look_and_check(&self, what: &str, offset: u64, length: u64) -> Result<(), IoError> {
        self.end.look(&self.buffered, &self.path);
        self.check_end(what, offset, length)
    }

    fn check_end(&self, what: &str, offset: u64, length: u64) -> Result<(), IoError> {
        let checked = self.end.check(offset, length);
        checked.map_err(|error| self.failure(what, offset, length, &error))
    }
}

//! The number of each page, by which the programs in the kernel mark it.

use crate::numbering::Numbering;
use crate::shared::Shared;
use aya::maps::{HashMap, MapData};
use std::sync::atomic::Ordering::Relaxed;

/// Values of an owner.
pub const OWNER_VALUES: usize = 2;

/// The numbers of pages.
pub enum Numbers {
    /// All pages of some files.
    Of {
        /// The inode number of the first file; the others follow.
        first_inode: u64,
        /// The numbers of their pages.
        numbering: Numbering,
    },
    /// Those that are there.
    Given(Box<Given>),
}

/// Numbers that are given to pages as they come.
pub struct Given {
    /// Inode number and page by number.
    pub owners: Shared,
    /// Number by inode number and page.
    pub known: HashMap<MapData, [u64; 2], u64>,
}

impl Numbers {
    /// The inode number of the file, and the page in it, that have a number. Of one that was given back: whose it was last.
    pub fn page(&self, number: u64) -> Option<(u64, u64)> {
        match self {
            Self::Of {
                first_inode,
                numbering,
            } => {
                let (file, page) = numbering.place(number)?;
                Some((first_inode + file as u64, page))
            }
            Self::Given(given) => {
                let first = usize::try_from(number).ok()?.checked_mul(OWNER_VALUES)?;
                let [inode, page] = given.owners.numbers().get(first..)?.first_chunk()?;
                Some((inode.load(Relaxed), page.load(Relaxed)))
            }
        }
    }

    /// The number of a page.
    pub fn number(&self, inode: u64, page: u64) -> Option<u64> {
        match self {
            Self::Of {
                first_inode,
                numbering,
            } => {
                let file = usize::try_from(inode.checked_sub(*first_inode)?).ok()?;
                numbering.number(file, page)
            }
            Self::Given(given) => given.known.get(&[inode, page], 0).ok(),
        }
    }
}

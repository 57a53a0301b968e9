//! Where the kernel keeps the two bases by which a page is found: of its structs and of its memory.

use crate::kernel;
use anyhow::{Context, bail, ensure};
use aya::EbpfLoader;
use aya::maps::Array;
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bases.bpf.o"));
const SYMBOLS: &str = "/proc/kallsyms";
const NAMES: [&str; 2] = ["vmemmap_base", "page_offset_base"];
/// Behind it lie the bases in a kernel that does not list them.
const AMONG: &str = "__start_ro_after_init";
const WORD_BYTES: u64 = 8;

/// Their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bases {
    vmemmap_at: u64,
    page_offset_at: u64,
}

/// Three words of the kernel's memory that look like its bases, as `struct found` has them: how often there were such,
/// where the last are, and the words.
type Found = [u64; 5];

impl Bases {
    /// As the running kernel lists them, or as they are found among what it holds.
    ///
    /// # Errors
    ///
    /// It hides or has none of them.
    pub fn find() -> anyhow::Result<Self> {
        let symbols = std::fs::read_to_string(SYMBOLS).context(SYMBOLS)?;
        if let Some(bases) = Self::among(&symbols)? {
            return Ok(bases);
        }
        let unlisted = || format!("{SYMBOLS} does not list {}", NAMES.join(" and "));
        let Some(begin) = address(&symbols, AMONG) else {
            bail!(unlisted());
        };
        drop(symbols);
        Self::found(&look(begin).with_context(unlisted)?).with_context(unlisted)
    }

    /// None if they are not listed.
    fn among(symbols: &str) -> anyhow::Result<Option<Self>> {
        let [Some(vmemmap_at), Some(page_offset_at)] = NAMES.map(|name| address(symbols, name))
        else {
            return Ok(None);
        };
        if vmemmap_at == 0 || page_offset_at == 0 {
            bail!("{SYMBOLS} hides addresses (kernel.kptr_restrict)");
        }
        Ok(Some(Self {
            vmemmap_at,
            page_offset_at,
        }))
    }

    /// In the order of addresses come the kernel's view of all memory, what it maps, and the structs of pages.
    fn found(&[count, at, ref values @ ..]: &Found) -> anyhow::Result<Self> {
        ensure!(count == 1, "{count} places look like them");
        let place = |wanted: Option<&u64>| {
            let number = values.iter().position(|value| Some(value) == wanted);
            number.map(|number| at + number as u64 * WORD_BYTES)
        };
        let places = (place(values.iter().max()), place(values.iter().min()));
        let (Some(vmemmap_at), Some(page_offset_at)) = places else {
            bail!("there are none");
        };
        Ok(Self {
            vmemmap_at,
            page_offset_at,
        })
    }

    /// Tells programs that copy pages, by their variables `vmemmap_base_at` and `page_offset_base_at`.
    pub fn apply<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader.override_global("vmemmap_base_at", &self.vmemmap_at, true);
        loader.override_global("page_offset_base_at", &self.page_offset_at, true);
    }
}

/// The address of a symbol.
fn address(symbols: &str, name: &str) -> Option<u64> {
    let mut lines = symbols.lines();
    let line = lines.find(|line| line.split_ascii_whitespace().nth(2) == Some(name))?;
    let word = line.split_ascii_whitespace().next()?;
    u64::from_str_radix(word, 16).ok()
}

/// Has the kernel look for them from an address on.
fn look(begin: u64) -> anyhow::Result<Found> {
    ensure!(
        begin != 0,
        "{SYMBOLS} hides addresses (kernel.kptr_restrict)"
    );
    let mut loader = kernel::loader();
    loader.override_global("begin", &begin, true);
    let mut object = loader.load(OBJECT)?;
    let program = object.program_mut("find_bases").context("no find_bases")?;
    let program: &mut RawTracePoint = program.try_into()?;
    program.load()?;
    program.test_run(RawTracePointRunOptions::default())?;
    let map = object.map("found").context("no map found")?;
    Ok(Array::<_, Found>::try_from(map)?.get(&0, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bases_are_found_among_symbols_that_are_not_hidden() {
        let listed = "ffffffff82a0b0a8 D vmemmap_base\nffffffff82a0b0b8 D page_offset_base\n\
                      ffffffffc0000000 t vmemmap_base_of\t[module]\n";
        let bases = Bases::among(listed).expect("not hidden").expect("listed");
        assert_eq!(
            (bases.vmemmap_at, bases.page_offset_at),
            (0xffff_ffff_82a0_b0a8, 0xffff_ffff_82a0_b0b8)
        );
        assert_eq!(Bases::among("").expect("nothing is hidden"), None);
        let hidden = "0000000000000000 D vmemmap_base\n0000000000000000 D page_offset_base\n";
        let error = Bases::among(hidden).expect_err("hidden").to_string();
        assert!(error.contains("hides"), "{error}");
    }

    #[test]
    fn the_bases_are_told_apart_by_their_order() {
        let (all, mapped, structs) = (
            0xffff_8880_0000_0000,
            0xffff_c900_0000_0000,
            0xffff_ea00_0000_0000,
        );
        let bases = Bases::found(&[1, 0x1000, structs, mapped, all]).expect("found");
        assert_eq!((bases.vmemmap_at, bases.page_offset_at), (0x1000, 0x1010));
        for count in [0, 2] {
            let error = Bases::found(&[count, 0x1000, all, mapped, structs]);
            assert!(error.is_err(), "{count} places");
        }
    }
}

//! What the loader needs of a library that it has loaded, and we: its parts, its symbols' names, its relocations, what it depends on.
//!
//! To be read within `dl_iterate_phdr`, which keeps the library loaded. Every address is checked to lie within a mapped part.

use std::ffi::CStr;
use std::ops::Range;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PF_W: u32 = 2;
const SYMBOL_BYTES: usize = 24;

/// A loaded library.
pub(crate) struct Object {
    /// What is added to its file's addresses.
    pub(crate) base: usize,
    /// What the loader makes read-only when it has loaded it.
    pub(crate) sealed: Range<usize>,
    /// Tables of relocations: address, bytes.
    pub(crate) relocations: [(usize, usize); 2],
    /// Relocations at the beginning of the first table that name no symbol.
    pub(crate) relative: usize,
    /// Its mapped parts, and whether they can be written.
    parts: Vec<(Range<usize>, bool)>,
    symbols: usize,
    names: Range<usize>,
    /// Offsets of the names of the libraries that it depends on.
    needs: Vec<usize>,
}

impl Object {
    /// Reads what the loader describes. `None`: it has no dynamic section, or one that is not laid out as it should be.
    pub(crate) fn read(info: &libc::dl_phdr_info) -> Option<Object> {
        let base = info.dlpi_addr as usize;
        if info.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: the loader's own copy of the program headers, as many as it says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let range = |h: &libc::Elf64_Phdr| {
            let from = base.wrapping_add(h.p_vaddr as usize);
            from..from.saturating_add(h.p_memsz as usize)
        };
        let mut object = Object {
            base,
            parts: Vec::new(),
            sealed: 0..0,
            symbols: 0,
            names: 0..0,
            relocations: [(0, 0); 2],
            relative: 0,
            needs: Vec::new(),
        };
        let mut dynamic = None;
        for h in headers {
            match h.p_type {
                PT_LOAD => object.parts.push((range(h), h.p_flags & PF_W != 0)),
                PT_DYNAMIC => dynamic = Some(range(h)),
                PT_GNU_RELRO => object.sealed = range(h),
                _ => {}
            }
        }
        object.read_dynamic(dynamic?)?;
        Some(object)
    }

    /// Reads the dynamic section. `None` where it does not lie in the library, or leads out of it.
    fn read_dynamic(&mut self, section: Range<usize>) -> Option<()> {
        let words = section.len() / 16;
        if !section.start.is_multiple_of(8) || !self.covers(section.start, words * 16) {
            return None;
        }
        // SAFETY: the section lies within a mapped part (just checked) and is aligned; the loader does not change it any more.
        let entries = unsafe { std::slice::from_raw_parts(section.start as *const [usize; 2], words) };
        // The loader has made addresses absolute, but for libraries whose section it may not write to.
        let base = self.base;
        let place = |p: usize| if p < base { base.wrapping_add(p) } else { p };
        let mut names = (0, 0);
        for [tag, value] in entries.iter().copied().take_while(|[tag, _]| *tag != 0) {
            match tag {
                1 => self.needs.push(value),
                5 => names.0 = place(value),
                10 => names.1 = value,
                6 => self.symbols = place(value),
                7 => self.relocations[0].0 = place(value),
                8 => self.relocations[0].1 = value,
                0x6fff_fff9 => self.relative = value,
                23 => self.relocations[1].0 = place(value),
                2 => self.relocations[1].1 = value,
                _ => {}
            }
        }
        self.names = names.0..names.0.checked_add(names.1)?;
        (self.symbols != 0 && self.covers(names.0, names.1)).then_some(())
    }

    /// Whether these bytes lie within one mapped part.
    pub(crate) fn covers(&self, from: usize, bytes: usize) -> bool {
        let Some(end) = from.checked_add(bytes) else { return false };
        self.parts.iter().any(|(p, _)| p.start <= from && end <= p.end)
    }

    /// The name of a symbol that this library takes from others.
    pub(crate) fn symbol(&self, number: u32) -> Option<&[u8]> {
        let at = self.symbols.checked_add(SYMBOL_BYTES * number as usize)?;
        if !self.covers(at, SYMBOL_BYTES) {
            return None;
        }
        // SAFETY: the symbol lies within a mapped part (just checked); its first word is the name's offset.
        self.name(unsafe { (at as *const u32).read_unaligned() } as usize)
    }

    /// The libraries that it names as those it depends on, as it names them.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &[u8]> {
        self.needs.iter().filter_map(|&offset| self.name(offset))
    }

    fn name(&self, offset: usize) -> Option<&[u8]> {
        let from = self.names.start.checked_add(offset).filter(|n| *n < self.names.end)?;
        // SAFETY: from here to the end of the names is within a mapped part (checked when they were found).
        let rest = unsafe { std::slice::from_raw_parts(from as *const u8, self.names.end - from) };
        Some(CStr::from_bytes_until_nul(rest).ok()?.to_bytes())
    }
}

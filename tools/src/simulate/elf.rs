//! Just enough of ELF: what a library needs, imports, exports and where it searches, and where its sections lie.
//!
//! Reads by offset with every bound checked, because torch's libraries are close to a gigabyte and any file may be
//! damaged. 64-bit little-endian only.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// No table that is read here is larger than this in any real library.
const LARGEST_TABLE: u64 = 512 << 20;

const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const SHT_VERNEED: u32 = 0x6fff_fffe;
const SHT_VERSYM: u32 = 0x6fff_ffff;

const DT_NEEDED: u64 = 1;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// A symbol that a library wants from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// Its name.
    pub(crate) name: String,
    /// The library and the version it is wanted from, where the library says so.
    pub(crate) version: Option<(String, String)>,
}

/// What the dynamic linker is told about a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dynamic {
    /// Its own name.
    pub(crate) soname: Option<String>,
    /// Libraries it needs.
    pub(crate) needed: Vec<String>,
    /// Directories it searches for them, `$ORIGIN` as it stands.
    pub(crate) search: Vec<String>,
    /// Symbols it wants.
    pub(crate) imports: Vec<Import>,
    /// Symbols it has.
    pub(crate) exports: Vec<String>,
}

/// A section: its name and where it lies in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Name.
    pub(crate) name: String,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) size: u64,
    kind: u32,
    link: usize,
}

/// An open library.
pub(crate) struct Elf {
    file: File,
    length: u64,
    sections: Vec<Section>,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a usable ELF library: {what}"))
}

impl Elf {
    /// Opens a library and reads where its sections lie.
    pub(crate) fn open(path: &Path) -> io::Result<Elf> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut elf = Elf { file, length, sections: Vec::new() };
        let header = elf.bytes(0, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Err(broken("no 64-bit little-endian header"));
        }
        let table = u64_at(&header, 40)?;
        let (entry, count) = (u64::from(u16_at(&header, 58)?), u64::from(u16_at(&header, 60)?));
        let names = usize::from(u16_at(&header, 62)?);
        if entry < 64 || count == 0 {
            return Err(broken("no section table"));
        }
        let bytes = elf.bytes(table, entry * count)?;
        let mut unnamed = Vec::new();
        for row in bytes.chunks_exact(entry as usize) {
            let section = Section {
                name: String::new(),
                kind: u32_at(row, 4)?,
                offset: u64_at(row, 24)?,
                size: u64_at(row, 32)?,
                link: u32_at(row, 40)? as usize,
            };
            unnamed.push((u32_at(row, 0)? as usize, section));
        }
        let strings = match unnamed.get(names) {
            Some((_, section)) => elf.content(section)?,
            None => return Err(broken("no names of sections")),
        };
        for (name, mut section) in unnamed {
            section.name = text_at(&strings, name)?;
            elf.sections.push(section);
        }
        Ok(elf)
    }

    /// All sections.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Everything that concerns the dynamic linker.
    pub(crate) fn dynamic(&self) -> io::Result<Dynamic> {
        let mut dynamic = Dynamic::default();
        if let Some(section) = self.of_kind(SHT_DYNAMIC) {
            let strings = self.linked(section)?;
            for row in self.content(section)?.chunks_exact(16) {
                let (tag, value) = (u64_at(row, 0)?, u64_at(row, 8)? as usize);
                match tag {
                    0 => break,
                    DT_NEEDED => dynamic.needed.push(text_at(&strings, value)?),
                    DT_SONAME => dynamic.soname = Some(text_at(&strings, value)?),
                    DT_RPATH | DT_RUNPATH => {
                        let list = text_at(&strings, value)?;
                        dynamic.search.extend(list.split(':').filter(|d| !d.is_empty()).map(String::from));
                    }
                    _ => {}
                }
            }
        }
        self.symbols(&mut dynamic)?;
        Ok(dynamic)
    }

    fn symbols(&self, dynamic: &mut Dynamic) -> io::Result<()> {
        let Some(section) = self.of_kind(SHT_DYNSYM) else { return Ok(()) };
        let strings = self.linked(section)?;
        let versions = match self.of_kind(SHT_VERSYM) {
            Some(section) => self.content(section)?,
            None => Vec::new(),
        };
        let wanted = self.wanted_versions()?;
        for (index, row) in self.content(section)?.chunks_exact(24).enumerate().skip(1) {
            let name = text_at(&strings, u32_at(row, 0)? as usize)?;
            if name.is_empty() {
                continue;
            }
            if u16_at(row, 6)? != 0 {
                dynamic.exports.push(name);
                continue;
            }
            let version = u16_at(&versions, index * 2).map_or(0, |number| number & 0x7fff);
            dynamic.imports.push(Import { name, version: wanted.get(&version).cloned() });
        }
        Ok(())
    }

    /// The version that each number in the table of symbol versions stands for.
    fn wanted_versions(&self) -> io::Result<HashMap<u16, (String, String)>> {
        let mut wanted = HashMap::new();
        let Some(section) = self.of_kind(SHT_VERNEED) else { return Ok(wanted) };
        let (strings, bytes) = (self.linked(section)?, self.content(section)?);
        let mut need = 0usize;
        // Each entry says how far the next one is; a file that leads in circles ends with its bytes.
        for _ in 0..bytes.len() / 16 + 1 {
            let library = text_at(&strings, u32_at(&bytes, need + 4)? as usize)?;
            let mut version = need + u32_at(&bytes, need + 8)? as usize;
            for _ in 0..u16_at(&bytes, need + 2)? {
                let name = text_at(&strings, u32_at(&bytes, version + 8)? as usize)?;
                wanted.insert(u16_at(&bytes, version + 6)? & 0x7fff, (library.clone(), name));
                version += u32_at(&bytes, version + 12)? as usize;
            }
            match u32_at(&bytes, need + 12)? as usize {
                0 => break,
                next => need += next,
            }
        }
        Ok(wanted)
    }

    fn of_kind(&self, kind: u32) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    fn linked(&self, section: &Section) -> io::Result<Vec<u8>> {
        self.content(self.sections.get(section.link).ok_or_else(|| broken("a section links to none"))?)
    }

    fn content(&self, section: &Section) -> io::Result<Vec<u8>> {
        self.bytes(section.offset, section.size)
    }

    fn bytes(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.length);
        if !inside || size > LARGEST_TABLE {
            return Err(broken("a table lies outside the file"));
        }
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let end = at.checked_add(N).ok_or_else(|| broken("an offset overflows"))?;
    bytes.get(at..end).and_then(|part| part.try_into().ok()).ok_or_else(|| broken("a table is cut short"))
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn text_at(strings: &[u8], at: usize) -> io::Result<String> {
    let rest = strings.get(at..).ok_or_else(|| broken("a name lies outside its table"))?;
    let end = rest.iter().position(|&byte| byte == 0).ok_or_else(|| broken("a name does not end"))?;
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn this_program_can_be_read() {
        let elf = Elf::open(&std::env::current_exe().unwrap()).unwrap();
        assert!(elf.sections().iter().any(|section| section.name == ".text"));
        let dynamic = elf.dynamic().unwrap();
        assert!(dynamic.needed.iter().any(|name| name.starts_with("libc.so")));
        let from_libc =
            |import: &Import| import.version.as_ref().is_some_and(|(l, _)| l.starts_with("libc.so"));
        assert!(dynamic.imports.iter().any(from_libc));
    }

    #[test]
    fn damage_is_an_error() {
        let path = std::env::temp_dir().join(format!("strandline-elf-{}", std::process::id()));
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut seed = 7u64;
        for round in 0..60 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bytes = whole[..whole.len().min(200_000)].to_vec();
            match round {
                0 => bytes.clear(),
                1 => bytes.truncate(63),
                _ => bytes[(seed >> 33) as usize % 64] ^= 1 << (round % 8),
            }
            fs::write(&path, &bytes).unwrap();
            if let Ok(elf) = Elf::open(&path) {
                let _ = elf.dynamic();
            }
        }
        fs::write(&path, b"#!/bin/sh\n").unwrap();
        assert!(Elf::open(&path).is_err());
        fs::remove_file(&path).unwrap();
    }
}

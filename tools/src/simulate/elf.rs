//! What the dynamic linker is told about a library, and where its sections lie.
//!
//! Tables are read when they are asked for, because torch's libraries are close to a gigabyte, and with every bound checked,
//! because any file may be damaged. 64-bit little-endian only.

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, FileHeader64, SHN_UNDEF, SHT_DYNSYM};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{LittleEndian, ReadCache, StringTable};
use std::fs::File;
use std::io;
use std::path::Path;

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

/// An open file, of which is read what is asked for.
type Bytes<'a> = &'a ReadCache<File>;
type Sections<'a> = SectionTable<'a, FileHeader64<LittleEndian>, Bytes<'a>>;

/// What `wanted` makes of a library's sections.
fn read<T>(path: &Path, wanted: impl FnOnce(&Sections, Bytes) -> object::Result<T>) -> io::Result<T> {
    let file = ReadCache::new(File::open(path)?);
    let header = FileHeader64::<LittleEndian>::parse(&file);
    let sections = header.and_then(|h| h.sections(h.endian()?, &file));
    let read = sections.and_then(|sections| wanted(&sections, &file));
    read.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("not a usable ELF library: {e}")))
}

/// Where the section of this name lies in a library's file: offset and bytes.
pub(crate) fn section(path: &Path, name: &str) -> Option<(u64, u64)> {
    let found = read(path, |all, _| {
        Ok(all
            .section_by_name(LittleEndian, name.as_bytes())
            .map(|s| s.1)
            .and_then(|s| s.file_range(LittleEndian)))
    });
    found.ok()?
}

/// Everything of a library that concerns the dynamic linker.
pub(crate) fn dynamic(path: &Path) -> io::Result<Dynamic> {
    read(path, |sections, file| {
        let mut dynamic = Dynamic::default();
        let table = sections.dynamic_table(LittleEndian, file)?;
        for entry in &table {
            let value = || Ok(text(table.string(entry)?));
            match entry.tag {
                DT_NEEDED => dynamic.needed.push(value()?),
                DT_SONAME => dynamic.soname = Some(value()?),
                DT_RPATH | DT_RUNPATH => {
                    dynamic.search.extend(value()?.split(':').filter(|d| !d.is_empty()).map(String::from));
                }
                _ => {}
            }
        }
        symbols(&mut dynamic, sections, file)?;
        Ok(dynamic)
    })
}

fn symbols(dynamic: &mut Dynamic, sections: &Sections, file: Bytes) -> object::Result<()> {
    let symbols = sections.symbols(LittleEndian, file, SHT_DYNSYM)?;
    if symbols.is_empty() {
        return Ok(());
    }
    // Hundreds of thousands of names: in one piece.
    let names = sections.section(symbols.string_section())?.data(LittleEndian, file)?;
    let names = StringTable::new(names, 0, names.len() as u64);
    let versions = sections.versions(LittleEndian, file)?.unwrap_or_default();
    for (index, symbol) in symbols.enumerate().skip(1) {
        let name = text(symbol.name(LittleEndian, names)?);
        if name.is_empty() {
            continue;
        }
        if symbol.st_shndx(LittleEndian) != SHN_UNDEF {
            dynamic.exports.push(name);
            continue;
        }
        let version = versions.version(versions.version_index(LittleEndian, index).index());
        let version = version.ok().flatten().and_then(|v| Some((text(v.file()?), text(v.name()))));
        dynamic.imports.push(Import { name, version });
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn this_program_can_be_read() {
        let this = std::env::current_exe().unwrap();
        let (offset, bytes) = section(&this, ".text").unwrap();
        assert!(offset > 0 && bytes > 1000 && section(&this, ".nothing").is_none());
        let dynamic = dynamic(&this).unwrap();
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
            let _ = (dynamic(&path), section(&path, ".text"));
        }
        fs::write(&path, b"#!/bin/sh\n").unwrap();
        assert!(dynamic(&path).is_err());
        fs::remove_file(&path).unwrap();
    }
}

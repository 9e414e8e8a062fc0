//! The names that a shared library defines.

use std::collections::BTreeMap;

use object::Endianness;
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _};

/// The names that programs find in a library, each with the place of its text in the file.
///
/// # Errors
/// Where the file is no shared library of 64 bits.
pub(super) fn defined(library: &[u8]) -> object::Result<BTreeMap<String, usize>> {
    let elf = ElfFile64::<Endianness>::parse(library)?;
    let (endian, table) = (elf.endian(), elf.elf_dynamic_symbol_table());
    let sections = elf.elf_section_table();
    let texts = sections.section(table.string_section())?.sh_offset(endian);
    let symbols = table
        .iter()
        .filter(|symbol| symbol.is_definition(endian, table.strings()));
    let names = symbols.map(|symbol| {
        let name = table.symbol_name(endian, symbol)?;
        let at = texts + u64::from(symbol.st_name(endian));
        let name = String::from_utf8_lossy(name).into_owned();
        Ok((name, usize::try_from(at).unwrap_or(usize::MAX)))
    });
    names.collect()
}

/// Takes names out of a library: nobody finds them there any more.
///
/// # Errors
/// As [`defined`].
pub(super) fn hide(library: &mut [u8], is_hidden: impl Fn(&str) -> bool) -> object::Result<()> {
    let names = defined(library)?;
    for (_, at) in names.iter().filter(|(name, _)| is_hidden(name)) {
        // The loader looks by the hash of the name, and then compares the text.
        if let Some(byte) = library.get_mut(*at) {
            *byte = b'_';
        }
    }
    Ok(())
}

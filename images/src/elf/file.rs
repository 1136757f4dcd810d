//! The parts of an ELF file that say what it needs.

use std::{
    error::Error,
    fs::File,
    path::{Path, PathBuf},
};

use object::{
    Endianness, ReadCache, ReadRef,
    elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64},
    read::elf::{Dyn, FileHeader, ProgramHeader},
};

use super::ElfError;

type Header = FileHeader64<Endianness>;

/// What the dynamic section and the program headers say.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    /// `e_machine`.
    pub(super) machine: u16,
    /// PT_INTERP.
    pub(super) loader: Option<PathBuf>,
    /// DT_NEEDED.
    pub(super) needed: Vec<String>,
    /// DT_RPATH, which counts only where there is no DT_RUNPATH.
    pub(super) rpath: Vec<PathBuf>,
    /// DT_RUNPATH.
    pub(super) runpath: Vec<PathBuf>,
}

impl Dynamic {
    /// Reads the headers only, not the code.
    pub(super) fn read(path: &Path) -> Result<Self, ElfError> {
        let open = |source| ElfError::Open { path: path.to_owned(), source };
        let data = ReadCache::new(File::open(path).map_err(open)?);
        // `$ORIGIN` is where the file really lies.
        let real = path.canonicalize().map_err(open)?;
        let origin = real.parent().unwrap_or(Path::new("/"));
        parse(&data, origin)
            .map_err(|error| ElfError::Malformed { path: path.to_owned(), why: error.to_string() })
    }
}

fn parse<'a, R: ReadRef<'a>>(data: R, origin: &Path) -> Result<Dynamic, Box<dyn Error>> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let mut dynamic = Dynamic { machine: header.e_machine.get(endian), ..Dynamic::default() };
    for program_header in header.program_headers(endian, data)? {
        if let Some(loader) = program_header.interpreter(endian, data)? {
            dynamic.loader = Some(text(loader).into());
        }
    }
    let sections = header.sections(endian, data)?;
    let Some((entries, link)) = sections.dynamic(endian, data)? else { return Ok(dynamic) };
    let strings = sections.strings(endian, data, link)?;
    for entry in entries {
        let value = || {
            let found = entry.val32(endian).and_then(|at| strings.get(at).ok());
            found.map(text).ok_or("a dynamic entry has no string")
        };
        match entry.tag32(endian) {
            Some(DT_NEEDED) => dynamic.needed.push(value()?),
            Some(DT_RPATH) => dynamic.rpath.extend(folders(&value()?, origin)),
            Some(DT_RUNPATH) => dynamic.runpath.extend(folders(&value()?, origin)),
            _ => {}
        }
    }
    Ok(dynamic)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Splits a search path. Folders with other variables than `$ORIGIN` depend on the processor and are left out.
fn folders(list: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.to_string_lossy();
    let expand = |dir: &str| dir.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    list.split(':')
        .map(expand)
        .filter(|dir| dir.starts_with('/') && !dir.contains('$'))
        .map(Into::into)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_expanded_and_unknown_variables_are_left_out() {
        let found = folders("$ORIGIN/../lib:/opt/x:${ORIGIN}:/usr/$LIB::relative", Path::new("/opt/app/bin"));
        let expected = ["/opt/app/bin/../lib", "/opt/x", "/opt/app/bin"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}

//! Files of a recording, read line by line. An error names the file and the line.

use std::path::Path;
use std::{fs, io};

use muster_comm::watch::record::{FORMAT_VERSION, Header, Line, file_name};

use super::program::{Problem, Program};

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Most ranks of a world.
const RANKS_MAX: u32 = 16_384;

/// What a file holds.
pub(super) struct Recorded {
    /// The file, for messages.
    pub(super) name: String,
    pub(super) header: Header,
    /// The lines behind the first, each with its number.
    pub(super) lines: Vec<(usize, Line)>,
    /// Whether its end is missing.
    pub(super) is_cut: bool,
    /// Calls that the recorder had no room for.
    pub(super) lost: u64,
}

/// Reads the files of all ranks in a folder.
///
/// # Errors
/// [`Problem`]: a file that is missing or no recording, or ranks that do not fit each other.
pub fn read(folder: &Path) -> Result<Program, Problem> {
    let first = file(folder, 0)?;
    let world = first.header.world_size;
    if world == 0 || world > RANKS_MAX {
        let what = format!("a world of {world} ranks; allowed are 1 to {RANKS_MAX}");
        return Err(Problem::at(&first.name, 1, what));
    }
    let mut files = vec![first];
    for rank in 1..world {
        let next = file(folder, rank)?;
        let (one, other) = (&files[0].header, &next.header);
        if (one.world_size, &one.job) != (other.world_size, &other.job) {
            let what = format!(
                "world size {} of job {}, but {} has world size {} of job {}",
                other.world_size, other.job, files[0].name, one.world_size, one.job
            );
            return Err(Problem::at(&next.name, 1, what));
        }
        files.push(next);
    }
    Program::of(files)
}

fn file(folder: &Path, rank: u32) -> Result<Recorded, Problem> {
    let path = folder.join(file_name(rank));
    let name = path.display().to_string();
    let refuse = |error: io::Error| Problem::of_file(&name, error.to_string());
    let about = fs::metadata(&path).map_err(refuse)?;
    if about.len() > FILE_BYTES_MAX {
        let what = format!("{} bytes, at most {FILE_BYTES_MAX} are read", about.len());
        return Err(Problem::of_file(&name, what));
    }
    let bytes = fs::read(&path).map_err(refuse)?;
    parse(name, rank, &bytes)
}

/// Reads the lines of a file.
pub(super) fn parse(name: String, rank: u32, bytes: &[u8]) -> Result<Recorded, Problem> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    // A last line without an end was being written when the rank ended.
    let whole = whole.map_or(0, |end| end + 1);
    let mut lines = Vec::new();
    let mut end = None;
    let mut start = 0;
    for (number, text) in (1..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n')) {
        if end.is_some() {
            return Err(Problem::at(&name, number, "a line behind the last one"));
        }
        let line: Line = serde_json::from_slice(text)
            .map_err(|error| Problem::at(&name, number, error.to_string()))?;
        if let Line::End { calls, lost, crc32 } = line {
            end = Some((number, calls, lost, crc32, start));
        } else {
            lines.push((number, line));
        }
        start += text.len();
    }
    let mut all = lines.into_iter();
    let header = match all.next() {
        Some((_, Line::Recording(header))) => header,
        Some(_) => {
            return Err(Problem::at(
                &name,
                1,
                "the first line is not that of a recording",
            ));
        }
        None => return Err(Problem::at(&name, 1, "no whole line")),
    };
    check_header(&name, &header, rank)?;
    let lines: Vec<(usize, Line)> = all.collect();
    let count = |wanted: fn(&Line) -> u64| lines.iter().map(|(_, line)| wanted(line)).sum::<u64>();
    let calls = count(|line| u64::from(matches!(line, Line::Call(_))));
    let lost = count(|line| match line {
        Line::Lost { calls } => *calls,
        Line::Recording(_)
        | Line::Group { .. }
        | Line::Destroyed { .. }
        | Line::Call(_)
        | Line::End { .. } => 0,
    });
    if let Some((number, told_calls, told_lost, crc32, start)) = end {
        if crc32 != crc32fast::hash(&bytes[..start]) {
            return Err(Problem::at(
                &name,
                number,
                "the checksum is not that of the lines before: the file was changed",
            ));
        }
        if (told_calls, told_lost) != (calls, lost) {
            return Err(Problem::at(
                &name,
                number,
                "the numbers of calls are not those of the lines before",
            ));
        }
        if whole < bytes.len() {
            return Err(Problem::at(&name, number + 1, "a line behind the last one"));
        }
    }
    Ok(Recorded {
        name,
        header,
        lines,
        is_cut: end.is_none(),
        lost,
    })
}

fn check_header(name: &str, header: &Header, rank: u32) -> Result<(), Problem> {
    if header.version != FORMAT_VERSION {
        let what = format!(
            "version {}; this program reads version {FORMAT_VERSION}",
            header.version
        );
        return Err(Problem::at(name, 1, what));
    }
    if header.rank != rank {
        let what = format!("a recording of rank {}", header.rank);
        return Err(Problem::at(name, 1, what));
    }
    Ok(())
}

//! The file of a rank: lines, with a checksum of them in the last one.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use super::line::{FORMAT_VERSION, Header, Line};
use crate::sync::Clock;

/// A recording that is being written.
#[derive(Debug)]
pub struct RecordingFile {
    file: BufWriter<File>,
    checksum: crc32fast::Hasher,
    /// Lines of calls.
    calls: u64,
    /// Calls that are missing.
    lost: u64,
}

/// The name of the file of a rank.
#[must_use]
pub fn file_name(rank: u32) -> String {
    format!("rank-{rank}.calls.jsonl")
}

impl RecordingFile {
    /// Begins the file of a rank in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// If the folder or the file cannot be made.
    pub fn create(folder: &Path, rank: u32, world_size: u32, job: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let file = File::create(folder.join(file_name(rank)))?;
        let mut recording = Self {
            file: BufWriter::new(file),
            checksum: crc32fast::Hasher::new(),
            calls: 0,
            lost: 0,
        };
        recording.put(&Line::Recording(Header {
            version: FORMAT_VERSION,
            rank,
            world_size,
            job: format!("{job:016x}"),
            started_ms: Clock::wall_ms(),
        }))?;
        recording.flush()?;
        Ok(recording)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Of the file.
    pub fn put(&mut self, line: &Line) -> io::Result<()> {
        match line {
            Line::Call(_) => self.calls += 1,
            Line::Lost { calls } => self.lost += calls,
            Line::Recording(_) | Line::Group { .. } | Line::Destroyed { .. } | Line::End { .. } => {
            }
        }
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.checksum.update(&text);
        self.file.write_all(&text)
    }

    /// Gives the file what was added so far.
    ///
    /// # Errors
    /// Of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Adds the last line.
    ///
    /// # Errors
    /// Of the file.
    pub fn end(&mut self) -> io::Result<()> {
        let end = Line::End {
            calls: self.calls,
            lost: self.lost,
            crc32: self.checksum.clone().finalize(),
        };
        self.put(&end)?;
        self.flush()
    }
}

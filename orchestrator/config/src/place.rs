//! Places in the files of a project.

/// Identifies a file of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceLocation {
    pub(crate) file: FileId,
    /// Counted from 1.
    pub(crate) line: usize,
    /// In characters, counted from 1.
    pub(crate) column: usize,
    /// In characters; may be 0 and may reach past the line's end.
    pub(crate) len: usize,
}

impl SourceLocation {
    /// The start of a file, for problems of the whole file.
    pub(crate) fn start_of(file: FileId) -> Self {
        Self {
            file,
            line: 1,
            column: 1,
            len: 0,
        }
    }
}

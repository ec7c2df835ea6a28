//! A file written as gzip members, with its digest and theirs.

use std::io::{self, Write};

use crc32fast::Hasher;
use flate2::Compression;
use flate2::write::GzEncoder;
use goondan_durable::checksum::crc32;
use goondan_durable::disk::{DiskFile, append_all, read_full};
use goondan_trees::Digest;
use sha2::{Digest as _, Sha256};

use crate::index::Member;
use crate::limits::ARCHIVE_WRITE_BYTES;

/// Compression level of `tar czf`.
const LEVEL: Compression = Compression::new(6);

pub(crate) struct Output<'o> {
    file: &'o mut dyn DiskFile,
    waiting: Vec<u8>,
    whole: Sha256,
    bytes: u64,
}

impl<'o> Output<'o> {
    pub(crate) fn new(file: &'o mut dyn DiskFile) -> Self {
        Self {
            file,
            waiting: Vec::with_capacity(ARCHIVE_WRITE_BYTES),
            whole: Sha256::new(),
            bytes: 0,
        }
    }

    fn put(&mut self, piece: &[u8]) -> io::Result<()> {
        self.whole.update(piece);
        self.bytes += piece.len() as u64;
        if self.waiting.len() + piece.len() > ARCHIVE_WRITE_BYTES {
            append_all(self.file, &self.waiting)?;
            self.waiting.clear();
        }
        if piece.len() > ARCHIVE_WRITE_BYTES {
            return append_all(self.file, piece);
        }
        self.waiting.extend_from_slice(piece);
        Ok(())
    }

    /// Compresses bytes as a member.
    pub(crate) fn member(&mut self, content: &[u8]) -> io::Result<Member> {
        let room = content.len() / 3 + 64;
        let mut encoder = GzEncoder::new(Vec::with_capacity(room), LEVEL);
        encoder.write_all(content)?;
        self.finished(&encoder.finish()?)
    }

    fn finished(&mut self, compressed: &[u8]) -> io::Result<Member> {
        let member = Member {
            offset: self.bytes,
            bytes: compressed.len() as u64,
            crc32: crc32(compressed),
        };
        self.put(compressed)?;
        Ok(member)
    }

    /// Copies a member of another archive; `None` if it is damaged.
    pub(crate) fn copied(
        &mut self,
        from: &mut dyn DiskFile,
        member: &Member,
    ) -> io::Result<Option<Member>> {
        let Ok(len) = usize::try_from(member.bytes) else {
            return Ok(None);
        };
        let mut compressed = vec![0; len];
        let read = read_full(from, &mut compressed, member.offset)?;
        if read < len || crc32(&compressed) != member.crc32 {
            return Ok(None);
        }
        let offset = self.bytes;
        self.put(&compressed)?;
        Ok(Some(Member { offset, ..*member }))
    }

    /// Starts a member that is too large for memory.
    pub(crate) fn begin<'s>(&'s mut self) -> MemberWriter<'s, 'o> {
        let offset = self.bytes;
        MemberWriter {
            encoder: GzEncoder::new(
                Piece {
                    out: self,
                    own: Hasher::new(),
                },
                LEVEL,
            ),
            offset,
        }
    }

    /// Writes the rest; returns the digest and the length of the file.
    pub(crate) fn finish(self) -> io::Result<(Digest, u64)> {
        append_all(self.file, &self.waiting)?;
        Ok((Digest::finish(self.whole), self.bytes))
    }
}

/// A member being written.
pub(crate) struct MemberWriter<'s, 'o> {
    encoder: GzEncoder<Piece<'s, 'o>>,
    offset: u64,
}

impl MemberWriter<'_, '_> {
    pub(crate) fn put(&mut self, piece: &[u8]) -> io::Result<()> {
        self.encoder.write_all(piece)
    }

    pub(crate) fn finish(self) -> io::Result<Member> {
        let Piece { out, own } = self.encoder.finish()?;
        Ok(Member {
            offset: self.offset,
            bytes: out.bytes - self.offset,
            crc32: own.finalize(),
        })
    }
}

struct Piece<'s, 'o> {
    out: &'s mut Output<'o>,
    own: Hasher,
}

impl Write for Piece<'_, '_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.own.update(piece);
        self.out.put(piece)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

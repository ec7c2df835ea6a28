//! Encoding of responses as frames.

use goondan_protocol::ids::WorkspaceId;
use serde::{Deserialize, Serialize};

use super::{LogAnswer, LogHead, LogResponse, ServerCheck, WireFault, pieces};
use crate::log::{LogPage, PutAnswer, ReadAnswer};
use crate::names::{Hash, Position};

/// The JSON part of an [`LogAnswer`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
enum AnswerHeader {
    Done {},
    Taken {},
    Behind {
        head: Position,
    },
    Forgotten {
        oldest: Position,
    },
    Unknown {},
    NotPut {},
    Page {
        before: Option<Hash>,
        oldest: Position,
        head: Position,
    },
    NotRead {},
    Trimmed {
        oldest: Position,
    },
    Heads {
        heads: Vec<LogHead>,
    },
    Listed {
        workspaces: Vec<WorkspaceId>,
    },
    Noted {},
    Part {},
    NoPart {},
    Checked {
        findings: Vec<ServerCheck>,
    },
    Standing {
        trouble: Option<String>,
    },
    Unavailable {},
}

impl LogResponse {
    /// Encodes the response as a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it exceeds the size limit of a message.
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        let mut bytes: Vec<&[u8]> = Vec::new();
        let head = match &self.answer {
            LogAnswer::Put(answer) => put(answer, &mut bytes),
            LogAnswer::Read(ReadAnswer::Unavailable) => AnswerHeader::NotRead {},
            LogAnswer::Read(ReadAnswer::Page(page)) => {
                bytes.extend(page.records.iter().map(Vec::as_slice));
                AnswerHeader::Page {
                    before: page.before,
                    oldest: page.oldest,
                    head: page.head,
                }
            }
            LogAnswer::Trimmed(oldest) => AnswerHeader::Trimmed { oldest: *oldest },
            LogAnswer::Heads(heads) => AnswerHeader::Heads {
                heads: heads.clone(),
            },
            LogAnswer::Listed(workspaces) => AnswerHeader::Listed {
                workspaces: workspaces.clone(),
            },
            LogAnswer::Noted => AnswerHeader::Noted {},
            LogAnswer::Part(Some(part)) => {
                bytes.push(part);
                AnswerHeader::Part {}
            }
            LogAnswer::Part(None) => AnswerHeader::NoPart {},
            LogAnswer::Checked(findings) => AnswerHeader::Checked {
                findings: findings.clone(),
            },
            LogAnswer::Standing(trouble) => AnswerHeader::Standing {
                trouble: trouble.clone(),
            },
            LogAnswer::Unavailable => AnswerHeader::Unavailable {},
        };
        pieces::write(self.id, head, &bytes)
    }

    /// Decodes a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it is not a response.
    pub fn from_frame(body: &[u8]) -> Result<Self, WireFault> {
        let (id, head, pieces) = pieces::read(body)?;
        let answer = answer(head, &pieces)?;
        Ok(Self { id, answer })
    }
}

fn put<'a>(answer: &'a PutAnswer, bytes: &mut Vec<&'a [u8]>) -> AnswerHeader {
    match answer {
        PutAnswer::Done => AnswerHeader::Done {},
        PutAnswer::Taken(record) => {
            bytes.push(record);
            AnswerHeader::Taken {}
        }
        PutAnswer::Behind { head } => AnswerHeader::Behind { head: *head },
        PutAnswer::Forgotten { oldest } => AnswerHeader::Forgotten { oldest: *oldest },
        PutAnswer::Unknown => AnswerHeader::Unknown {},
        PutAnswer::Unavailable => AnswerHeader::NotPut {},
    }
}

fn answer(head: AnswerHeader, pieces: &[&[u8]]) -> Result<LogAnswer, WireFault> {
    let answer = match (head, pieces) {
        (
            AnswerHeader::Page {
                before,
                oldest,
                head,
            },
            records,
        ) => LogAnswer::Read(ReadAnswer::Page(LogPage {
            before,
            records: records.iter().map(|record| record.to_vec()).collect(),
            oldest,
            head,
        })),
        (AnswerHeader::Taken {}, [record]) => LogAnswer::Put(PutAnswer::Taken(record.to_vec())),
        (AnswerHeader::Part {}, [part]) => LogAnswer::Part(Some(part.to_vec())),
        (AnswerHeader::Done {}, []) => LogAnswer::Put(PutAnswer::Done),
        (AnswerHeader::Behind { head }, []) => LogAnswer::Put(PutAnswer::Behind { head }),
        (AnswerHeader::Forgotten { oldest }, []) => LogAnswer::Put(PutAnswer::Forgotten { oldest }),
        (AnswerHeader::Unknown {}, []) => LogAnswer::Put(PutAnswer::Unknown),
        (AnswerHeader::NotPut {}, []) => LogAnswer::Put(PutAnswer::Unavailable),
        (AnswerHeader::NotRead {}, []) => LogAnswer::Read(ReadAnswer::Unavailable),
        (AnswerHeader::Trimmed { oldest }, []) => LogAnswer::Trimmed(oldest),
        (AnswerHeader::Heads { heads }, []) => LogAnswer::Heads(heads),
        (AnswerHeader::Listed { workspaces }, []) => LogAnswer::Listed(workspaces),
        (AnswerHeader::Noted {}, []) => LogAnswer::Noted,
        (AnswerHeader::NoPart {}, []) => LogAnswer::Part(None),
        (AnswerHeader::Checked { findings }, []) => LogAnswer::Checked(findings),
        (AnswerHeader::Standing { trouble }, []) => LogAnswer::Standing(trouble),
        (AnswerHeader::Unavailable {}, []) => LogAnswer::Unavailable,
        _ => return Err(WireFault::Pieces),
    };
    Ok(answer)
}

//! Encoding of responses as frames.

use goondan_protocol::ids::WorkspaceId;
use serde::{Deserialize, Serialize};

use super::{Answer, Finding, LogHead, Response, WireFault, pieces};
use crate::log::{Page, PutAnswer, ReadAnswer};
use crate::names::{Hash, Position};

/// The JSON part of an [`Answer`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
enum Head {
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
        findings: Vec<Finding>,
    },
    Standing {
        trouble: Option<String>,
    },
    Unavailable {},
}

impl Response {
    /// Encodes the response as a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it exceeds the size limit of a message.
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        let mut bytes: Vec<&[u8]> = Vec::new();
        let head = match &self.answer {
            Answer::Put(answer) => put(answer, &mut bytes),
            Answer::Read(ReadAnswer::Unavailable) => Head::NotRead {},
            Answer::Read(ReadAnswer::Page(page)) => {
                bytes.extend(page.records.iter().map(Vec::as_slice));
                Head::Page {
                    before: page.before,
                    oldest: page.oldest,
                    head: page.head,
                }
            }
            Answer::Trimmed(oldest) => Head::Trimmed { oldest: *oldest },
            Answer::Heads(heads) => Head::Heads {
                heads: heads.clone(),
            },
            Answer::Listed(workspaces) => Head::Listed {
                workspaces: workspaces.clone(),
            },
            Answer::Noted => Head::Noted {},
            Answer::Part(Some(part)) => {
                bytes.push(part);
                Head::Part {}
            }
            Answer::Part(None) => Head::NoPart {},
            Answer::Checked(findings) => Head::Checked {
                findings: findings.clone(),
            },
            Answer::Standing(trouble) => Head::Standing {
                trouble: trouble.clone(),
            },
            Answer::Unavailable => Head::Unavailable {},
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

fn put<'a>(answer: &'a PutAnswer, bytes: &mut Vec<&'a [u8]>) -> Head {
    match answer {
        PutAnswer::Done => Head::Done {},
        PutAnswer::Taken(record) => {
            bytes.push(record);
            Head::Taken {}
        }
        PutAnswer::Behind { head } => Head::Behind { head: *head },
        PutAnswer::Forgotten { oldest } => Head::Forgotten { oldest: *oldest },
        PutAnswer::Unknown => Head::Unknown {},
        PutAnswer::Unavailable => Head::NotPut {},
    }
}

fn answer(head: Head, pieces: &[&[u8]]) -> Result<Answer, WireFault> {
    let answer = match (head, pieces) {
        (
            Head::Page {
                before,
                oldest,
                head,
            },
            records,
        ) => Answer::Read(ReadAnswer::Page(Page {
            before,
            records: records.iter().map(|record| record.to_vec()).collect(),
            oldest,
            head,
        })),
        (Head::Taken {}, [record]) => Answer::Put(PutAnswer::Taken(record.to_vec())),
        (Head::Part {}, [part]) => Answer::Part(Some(part.to_vec())),
        (Head::Done {}, []) => Answer::Put(PutAnswer::Done),
        (Head::Behind { head }, []) => Answer::Put(PutAnswer::Behind { head }),
        (Head::Forgotten { oldest }, []) => Answer::Put(PutAnswer::Forgotten { oldest }),
        (Head::Unknown {}, []) => Answer::Put(PutAnswer::Unknown),
        (Head::NotPut {}, []) => Answer::Put(PutAnswer::Unavailable),
        (Head::NotRead {}, []) => Answer::Read(ReadAnswer::Unavailable),
        (Head::Trimmed { oldest }, []) => Answer::Trimmed(oldest),
        (Head::Heads { heads }, []) => Answer::Heads(heads),
        (Head::Listed { workspaces }, []) => Answer::Listed(workspaces),
        (Head::Noted {}, []) => Answer::Noted,
        (Head::NoPart {}, []) => Answer::Part(None),
        (Head::Checked { findings }, []) => Answer::Checked(findings),
        (Head::Standing { trouble }, []) => Answer::Standing(trouble),
        (Head::Unavailable {}, []) => Answer::Unavailable,
        _ => return Err(WireFault::Pieces),
    };
    Ok(answer)
}

//! Requests as frames.

use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::secret::SecretValue;
use serde::{Deserialize, Serialize};

use super::{Ask, Beat, KeptSnapshot, Part, Request, WireFault, pieces};
use crate::limits::{HEADS_MAX, PART_BYTES_MAX};
use crate::log::Put;
use crate::names::{Hash, Position};
use crate::record::{Encoded, SnapshotReference};

/// The JSON part of an [`Ask`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
enum Head {
    Put {
        after: Hash,
    },
    Read {
        workspace: WorkspaceId,
        from: Position,
    },
    Trim {
        workspace: WorkspaceId,
        before: Snapshot,
    },
    Heads {
        workspaces: Vec<WorkspaceId>,
    },
    List {
        after: Option<WorkspaceId>,
    },
    Beat {
        beats: Vec<Beat>,
    },
    KeepPart {
        workspace: WorkspaceId,
        reference: String,
        number: u32,
    },
    ReadPart {
        workspace: WorkspaceId,
        reference: String,
        number: u32,
    },
    ForgetSnapshots {
        workspace: WorkspaceId,
        before: Snapshot,
    },
    Check {},
    Standing {},
    Probe {},
    Server {
        server: SecretValue,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    reference: String,
    parts: u32,
    at: Position,
    hash: Hash,
}

impl Snapshot {
    fn of(kept: &KeptSnapshot) -> Self {
        Self {
            reference: kept.reference.as_str().to_owned(),
            parts: kept.parts,
            at: kept.at,
            hash: kept.hash,
        }
    }

    fn read(self) -> Result<KeptSnapshot, WireFault> {
        Ok(KeptSnapshot {
            reference: named(&self.reference)?,
            parts: self.parts,
            at: self.at,
            hash: self.hash,
        })
    }
}

impl Request {
    /// Encodes it as a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it exceeds a limit.
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        self.ask.check()?;
        let mut bytes: Option<&[u8]> = None;
        let head = match &self.ask {
            Ask::Put(put) => {
                bytes = Some(put.record.bytes());
                Head::Put { after: put.after }
            }
            Ask::Read { workspace, from } => Head::Read {
                workspace: workspace.clone(),
                from: *from,
            },
            Ask::Trim { workspace, before } => Head::Trim {
                workspace: workspace.clone(),
                before: Snapshot::of(before),
            },
            Ask::Heads(workspaces) => Head::Heads {
                workspaces: workspaces.clone(),
            },
            Ask::List { after } => Head::List {
                after: after.clone(),
            },
            Ask::Beat(beats) => Head::Beat {
                beats: beats.clone(),
            },
            Ask::KeepPart(part, kept) => {
                bytes = Some(kept);
                Head::KeepPart {
                    workspace: part.workspace.clone(),
                    reference: part.reference.as_str().to_owned(),
                    number: part.number,
                }
            }
            Ask::ReadPart(part) => Head::ReadPart {
                workspace: part.workspace.clone(),
                reference: part.reference.as_str().to_owned(),
                number: part.number,
            },
            Ask::ForgetSnapshots { workspace, before } => Head::ForgetSnapshots {
                workspace: workspace.clone(),
                before: Snapshot::of(before),
            },
            Ask::Check => Head::Check {},
            Ask::Standing => Head::Standing {},
            Ask::Probe => Head::Probe {},
            Ask::Server(server) => Head::Server {
                server: server.clone(),
            },
        };
        pieces::write(self.id, head, bytes.as_slice())
    }

    /// Decodes a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it is not a request.
    pub fn from_frame(body: &[u8]) -> Result<Self, WireFault> {
        let (id, head, pieces) = pieces::read(body)?;
        let ask = Ask::of(head, &pieces)?;
        ask.check()?;
        Ok(Self { id, ask })
    }
}

impl Ask {
    fn of(head: Head, pieces: &[&[u8]]) -> Result<Self, WireFault> {
        match (head, pieces) {
            (Head::Put { after }, [record]) => {
                let read = Encoded::of_bytes(record.to_vec());
                let (record, _) = read.map_err(WireFault::Record)?;
                Ok(Self::Put(Put { record, after }))
            }
            (
                Head::KeepPart {
                    workspace,
                    reference,
                    number,
                },
                [bytes],
            ) => {
                let part = part(workspace, &reference, number)?;
                Ok(Self::KeepPart(part, bytes.to_vec()))
            }
            (Head::Read { workspace, from }, []) => Ok(Self::Read { workspace, from }),
            (Head::Trim { workspace, before }, []) => Ok(Self::Trim {
                workspace,
                before: before.read()?,
            }),
            (Head::Heads { workspaces }, []) => Ok(Self::Heads(workspaces)),
            (Head::List { after }, []) => Ok(Self::List { after }),
            (Head::Beat { beats }, []) => Ok(Self::Beat(beats)),
            (
                Head::ReadPart {
                    workspace,
                    reference,
                    number,
                },
                [],
            ) => Ok(Self::ReadPart(part(workspace, &reference, number)?)),
            (Head::ForgetSnapshots { workspace, before }, []) => Ok(Self::ForgetSnapshots {
                workspace,
                before: before.read()?,
            }),
            (Head::Check {}, []) => Ok(Self::Check),
            (Head::Standing {}, []) => Ok(Self::Standing),
            (Head::Probe {}, []) => Ok(Self::Probe),
            (Head::Server { server }, []) => Ok(Self::Server(server)),
            _ => Err(WireFault::Pieces),
        }
    }

    fn check(&self) -> Result<(), WireFault> {
        let is_good = match self {
            Self::Heads(workspaces) => workspaces.len() <= HEADS_MAX,
            Self::Beat(beats) => beats.len() <= HEADS_MAX,
            Self::KeepPart(_, bytes) => bytes.len() <= PART_BYTES_MAX,
            Self::Put(_)
            | Self::Read { .. }
            | Self::Trim { .. }
            | Self::List { .. }
            | Self::ReadPart(_)
            | Self::ForgetSnapshots { .. }
            | Self::Check
            | Self::Standing
            | Self::Probe
            | Self::Server(_) => true,
        };
        is_good.then_some(()).ok_or(WireFault::TooMuch)
    }
}

fn part(workspace: WorkspaceId, reference: &str, number: u32) -> Result<Part, WireFault> {
    Ok(Part {
        workspace,
        reference: named(reference)?,
        number,
    })
}

fn named(reference: &str) -> Result<SnapshotReference, WireFault> {
    SnapshotReference::new(reference).map_err(WireFault::Record)
}

//! Requests as frames.

use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::secret::SecretValue;
use serde::{Deserialize, Serialize};

use super::{Beat, KeptSnapshot, LogCommand, LogRequest, SnapshotPartRef, WireFault, pieces};
use crate::limits::{HEADS_MAX, PART_BYTES_MAX};
use crate::log::PutRequest;
use crate::names::{Hash, Position};
use crate::record::{EncodedRecord, SnapshotReference};

/// The JSON part of an [`LogCommand`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
enum CommandHeader {
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

impl LogRequest {
    /// Encodes it as a frame's body.
    ///
    /// # Errors
    ///
    /// [`WireFault`] if it exceeds a limit.
    pub fn to_frame(&self) -> Result<Vec<u8>, WireFault> {
        self.ask.check()?;
        let mut bytes: Option<&[u8]> = None;
        let head = match &self.ask {
            LogCommand::Put(put) => {
                bytes = Some(put.record.bytes());
                CommandHeader::Put { after: put.after }
            }
            LogCommand::Read { workspace, from } => CommandHeader::Read {
                workspace: workspace.clone(),
                from: *from,
            },
            LogCommand::Trim { workspace, before } => CommandHeader::Trim {
                workspace: workspace.clone(),
                before: Snapshot::of(before),
            },
            LogCommand::Heads(workspaces) => CommandHeader::Heads {
                workspaces: workspaces.clone(),
            },
            LogCommand::List { after } => CommandHeader::List {
                after: after.clone(),
            },
            LogCommand::Beat(beats) => CommandHeader::Beat {
                beats: beats.clone(),
            },
            LogCommand::KeepPart(part, kept) => {
                bytes = Some(kept);
                CommandHeader::KeepPart {
                    workspace: part.workspace.clone(),
                    reference: part.reference.as_str().to_owned(),
                    number: part.number,
                }
            }
            LogCommand::ReadPart(part) => CommandHeader::ReadPart {
                workspace: part.workspace.clone(),
                reference: part.reference.as_str().to_owned(),
                number: part.number,
            },
            LogCommand::ForgetSnapshots { workspace, before } => CommandHeader::ForgetSnapshots {
                workspace: workspace.clone(),
                before: Snapshot::of(before),
            },
            LogCommand::Check => CommandHeader::Check {},
            LogCommand::Standing => CommandHeader::Standing {},
            LogCommand::Probe => CommandHeader::Probe {},
            LogCommand::Server(server) => CommandHeader::Server {
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
        let ask = LogCommand::of(head, &pieces)?;
        ask.check()?;
        Ok(Self { id, ask })
    }
}

impl LogCommand {
    fn of(head: CommandHeader, pieces: &[&[u8]]) -> Result<Self, WireFault> {
        match (head, pieces) {
            (CommandHeader::Put { after }, [record]) => {
                let read = EncodedRecord::of_bytes(record.to_vec());
                let (record, _) = read.map_err(WireFault::Record)?;
                Ok(Self::Put(PutRequest { record, after }))
            }
            (
                CommandHeader::KeepPart {
                    workspace,
                    reference,
                    number,
                },
                [bytes],
            ) => {
                let part = part(workspace, &reference, number)?;
                Ok(Self::KeepPart(part, bytes.to_vec()))
            }
            (CommandHeader::Read { workspace, from }, []) => Ok(Self::Read { workspace, from }),
            (CommandHeader::Trim { workspace, before }, []) => Ok(Self::Trim {
                workspace,
                before: before.read()?,
            }),
            (CommandHeader::Heads { workspaces }, []) => Ok(Self::Heads(workspaces)),
            (CommandHeader::List { after }, []) => Ok(Self::List { after }),
            (CommandHeader::Beat { beats }, []) => Ok(Self::Beat(beats)),
            (
                CommandHeader::ReadPart {
                    workspace,
                    reference,
                    number,
                },
                [],
            ) => Ok(Self::ReadPart(part(workspace, &reference, number)?)),
            (CommandHeader::ForgetSnapshots { workspace, before }, []) => {
                Ok(Self::ForgetSnapshots {
                    workspace,
                    before: before.read()?,
                })
            }
            (CommandHeader::Check {}, []) => Ok(Self::Check),
            (CommandHeader::Standing {}, []) => Ok(Self::Standing),
            (CommandHeader::Probe {}, []) => Ok(Self::Probe),
            (CommandHeader::Server { server }, []) => Ok(Self::Server(server)),
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

fn part(
    workspace: WorkspaceId,
    reference: &str,
    number: u32,
) -> Result<SnapshotPartRef, WireFault> {
    Ok(SnapshotPartRef {
        workspace,
        reference: named(reference)?,
        number,
    })
}

fn named(reference: &str) -> Result<SnapshotReference, WireFault> {
    SnapshotReference::new(reference).map_err(WireFault::Record)
}

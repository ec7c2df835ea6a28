//! What the documents of a project define.

use std::collections::BTreeMap;
use std::path::PathBuf;

use goondan_protocol::definition::{ExtensionDefinition, ModelDefinition, ToolDefinition};
use goondan_protocol::ids::ResourceName;

use crate::Package;
use crate::fields::Located;
use crate::kind::Kind;
use crate::kinds::agent::AgentSpec;
use crate::kinds::connection::ConnectionSpec;
use crate::kinds::connector::ConnectorSpec;
use crate::kinds::model::Hosted;
use crate::kinds::swarm::SwarmSpec;
use crate::reference::Names;
use crate::report::Place;

/// Everything a project defines, read but not yet connected.
///
/// A resource that could not be read is still in `names`, so that references to it are not reported
/// as a second problem; so a missing entry always stands for a reported problem.
#[derive(Default)]
pub(crate) struct Resources {
    pub(crate) names: Names,
    /// The start of `goondan.yaml`, if it could be read: the place of what is missing altogether.
    pub(crate) start: Option<Place>,
    pub(crate) package: Option<Package>,
    pub(crate) models: BTreeMap<String, ModelDefinition>,
    /// Those of them that are a provider's.
    pub(crate) hosted: BTreeMap<ResourceName, Hosted>,
    pub(crate) tools: BTreeMap<String, ToolDefinition>,
    pub(crate) extensions: BTreeMap<String, ExtensionDefinition>,
    pub(crate) connectors: BTreeMap<String, ConnectorSpec>,
    /// With the places of their names, in the order read.
    pub(crate) agents: Vec<Located<AgentSpec>>,
    pub(crate) swarms: Vec<Located<SwarmSpec>>,
    pub(crate) connections: Vec<Located<ConnectionSpec>>,
    /// How many documents of each kind were seen, those that could not be read included.
    pub(crate) counts: BTreeMap<Kind, usize>,
    /// The environment files that were named.
    pub(crate) env_files: Vec<PathBuf>,
}
